//! What the fuzz targets drive.

use crate::fake::Hostile;

/// A controller whose every register, response and position is what it likes.
pub fn hostile(bytes: &[u8]) {
    Hostile::new(bytes).drive();
}

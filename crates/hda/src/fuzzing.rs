//! What the fuzz targets drive.

use crate::fake::Hostile;
use std::cell::Cell;

/// A controller whose every register, response and position is what it likes.
pub fn hostile(bytes: &[u8]) {
    Hostile::new(bytes, &Cell::new(0)).drive();
}

//! The kernel's trace of some CPUs: a private tracefs instance, read page by page.
//!
//! No reader ever waits in the kernel, so nothing is woken on the watched CPUs; pages are taken
//! from another CPU. [`page::entries`] and [`decode::Decoder`] are pure and take any bytes.

pub mod decode;
pub mod format;
mod instance;
pub mod page;
pub mod symbols;
pub mod timerlat;

pub use instance::{Tracer, instances, leftovers, sweep};
pub use timerlat::Timerlat;

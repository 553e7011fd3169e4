//! The plugin in LV2: `face` is C's side and has the unsafe code, `room` what it does, `atoms` the messages of a host.

mod atoms;
mod face;
mod room;
#[cfg(test)]
mod tests;

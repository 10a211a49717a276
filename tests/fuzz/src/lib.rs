//! What must hold for any bytes that come from outside: from a peer, or from a device. Each function
//! panics if it does not; the fuzz targets call them, and so do tests on the stable toolchain.

#![forbid(unsafe_code)]

pub mod device;
pub mod events;
pub mod wire;

//! What the build script of `zmq-sys` calls: builds libzmq from the sources of [`upstream`], with CURVE by libsodium.
#![forbid(unsafe_code)]

use upstream::LibLocation;

/// Builds libzmq.
#[derive(Debug, Default)]
pub struct Build(());

impl Build {
    /// A build with everything that is needed.
    #[must_use]
    pub const fn new() -> Self {
        Self(())
    }

    /// Which libsodium is not the caller's to choose: it is the one that was built along.
    #[must_use]
    pub fn with_libsodium(&mut self, _other: Option<LibLocation>) -> &mut Self {
        self
    }

    /// Builds it and tells cargo how to link it.
    pub fn build(&self) {
        let sodium = LibLocation::new(env!("SODIUM_LIB"), env!("SODIUM_INCLUDE"));
        upstream::Build::new().with_libsodium(Some(sodium)).build();
    }
}

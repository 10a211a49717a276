//! The atomics of this crate, in one place, so that the model checker can put its own in their
//! stead (`--cfg loom`). No other file may use those of `std::sync::atomic`; clippy sees through a
//! plain re-export, hence the wrappers.
//!
//! Public only so that `tests/loom_header.rs` can lay out a header of the checker's atomics.

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, Ordering, fence};

#[cfg(not(loom))]
pub use std::sync::atomic::{Ordering, fence};

#[cfg(not(loom))]
macro_rules! wrapped {
    ($name:ident($value:ty): $($method:ident($($argument:ident),*) $(-> $result:ty)?;)*) => {
        #[doc = concat!("`std::sync::atomic::", stringify!($name), "`, same layout.")]
        #[derive(Debug, Default)]
        #[repr(transparent)]
        #[expect(clippy::disallowed_types, reason = "the one file that may name them")]
        pub struct $name(std::sync::atomic::$name);

        impl $name {
            #[doc = concat!("As `std::sync::atomic::", stringify!($name), "::new`.")]
            #[must_use]
            pub const fn new(value: $value) -> Self {
                #[expect(clippy::disallowed_types, reason = "the one file that may name them")]
                Self(std::sync::atomic::$name::new(value))
            }

            $(
                #[doc = concat!("As `std::sync::atomic::", stringify!($name), "::", stringify!($method), "`.")]
                pub fn $method(&self, $($argument: $value,)* order: Ordering) $(-> $result)? {
                    self.0.$method($($argument,)* order)
                }
            )*
        }
    };
}

#[cfg(not(loom))]
wrapped! { AtomicU32(u32):
    load() -> u32;
    store(value);
    fetch_add(value) -> u32;
}

#[cfg(not(loom))]
wrapped! { AtomicU64(u64):
    load() -> u64;
    store(value);
    fetch_add(value) -> u64;
}

#[cfg(not(loom))]
wrapped! { AtomicU8(u8):
    load() -> u8;
    store(value);
    fetch_or(value) -> u8;
}

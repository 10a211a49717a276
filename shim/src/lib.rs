//! The C ABI of the client, for engines that are not written in Rust: `libinfera_kvd.so`, `libinfera_kvd.a` and the
//! header `shim/include/infera_kvd.h`, which `cargo xtask gen` writes from the comments of `abi/`, `shapes.rs` and
//! `codes.rs`.
//!
//! Reading order: [`shapes`] and [`codes`] are what C sees besides functions; [`abi`] has the functions, each one line
//! that passes through `guard.rs` (a panic becomes a status) to its logic in `calls/`, which is safe code.
//! `foreign.rs` turns pointers of the caller into Rust values, after the checks that can be made. `handles.rs` and
//! `registry.rs` keep what a handle stands for. `fork.rs` sees to it that a child finds the registry unlocked.
//!
//! Unsafe code stands in `abi/` (one call each), `guard.rs`, `foreign.rs` and `fork.rs`.
//!
//! **Invariant:** no panic and no reference to the caller's memory survives the call that it came with.
//! **Invariant:** a handle is looked up, never dereferenced: one that is stale, foreign or invented is an error.

#[cfg(not(target_pointer_width = "64"))]
compile_error!("lengths of the ABI are 64 bits wide and must fit an address");

pub mod abi;
pub mod codes;
pub mod shapes;

mod calls;
mod failure;
mod foreign;
mod fork;
mod guard;
mod handles;
mod last_error;
mod registry;

//! Gives the shared library its name inside: without one, programs that were linked by path would look for that path.

#![forbid(unsafe_code)]

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libinfera_kvd.so");
}

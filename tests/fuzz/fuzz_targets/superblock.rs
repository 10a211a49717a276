//! Fuzz target: any bytes as a superblock, see [`kvd_fuzz::device::superblock`].

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| kvd_fuzz::device::superblock(input));

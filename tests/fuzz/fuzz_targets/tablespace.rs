//! Fuzz target: any bytes as journals and snapshots, see [`kvd_fuzz::device::tablespace`].

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| kvd_fuzz::device::tablespace(input));

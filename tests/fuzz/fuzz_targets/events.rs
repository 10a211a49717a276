//! Fuzz target: any bytes as published events, see [`kvd_fuzz::events::payload`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| kvd_fuzz::events::payload(bytes));

//! Fuzz target: any bytes as the body of a frame, see [`kvd_fuzz::wire::v2_request`].

#![no_main]

libfuzzer_sys::fuzz_target!(|body: &[u8]| kvd_fuzz::wire::v2_request(body));

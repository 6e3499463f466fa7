//! Fuzz target of a whole connection: hands the input to the check that the server crate's own
//! tests run, so that every file in `corpus/connection` is also a test.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| oribi_server::harness::check(input));

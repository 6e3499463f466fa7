//! Fuzz target of what a server sends to a change stream: hands the input to the check that the
//! client crate's own tests run, so that every file in `corpus/change_stream` is also a unit test.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| oribi_client::harness::check(input));

//! Fuzz target of the frame codec: hands the input to the check that the protocol crate's own tests
//! run, so that every file in `corpus/frame` is also a unit test.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| oribi_protocol::harness::check(input));

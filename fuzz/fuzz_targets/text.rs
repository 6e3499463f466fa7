//! Fuzz target of the text codec: hands the input to the check that the protocol crate's own tests
//! run.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| oribi_protocol::harness::check_text(input));

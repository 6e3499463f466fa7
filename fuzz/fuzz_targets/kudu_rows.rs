//! Fuzz target of encoded rows and the errors of rows: hands the input to the check that the client
//! crate's own tests run, so that every file in `corpus/kudu_rows` is also a unit test.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| oribi_kudu::harness::check_rows(input));

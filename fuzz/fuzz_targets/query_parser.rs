//! Fuzz target of SQL++: hands the input to the check that the crate's own tests run, so that
//! every file in `corpus/query_parser` is also a unit test.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| oribi_query::harness::check_parser(input));

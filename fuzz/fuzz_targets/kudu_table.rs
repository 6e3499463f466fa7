//! Fuzz target of a Kudu master's answers about a table and its tablets: hands the input to the
//! check that the client crate's own tests run, so that every file in `corpus/kudu_table` is also a
//! unit test.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| oribi_kudu::harness::check_table(input));

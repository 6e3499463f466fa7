//! Fuzz target of sub-document documents: hands the input to the check that the crate's own tests
//! run, so that every file in `corpus/subdoc_document` is also a unit test.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| oribi_subdoc::harness::check_document(input));

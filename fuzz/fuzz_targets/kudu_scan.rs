//! Fuzz target of the sidecars of a scan, in both layouts: hands the input to the check that the
//! client crate's own tests run, so that every file in `corpus/kudu_scan` is also a unit test.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| oribi_kudu::harness::check_scan(input));

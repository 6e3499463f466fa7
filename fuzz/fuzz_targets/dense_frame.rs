//! Fuzz target of dense frames: hands the input to the check that the engine's own tests run, so
//! that every file in `corpus/dense_frame` is also a unit test.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| oribi_engine::check_dense_frame(input));

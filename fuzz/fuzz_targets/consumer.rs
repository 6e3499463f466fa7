//! Fuzz target of what a consumer of change streams sends: hands the input to the check that the
//! server crate's own tests run, so that every file in `corpus/consumer` is also a test.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    oribi_server::harness::check_consumer(input);
});

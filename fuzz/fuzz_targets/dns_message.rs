#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dns::fuzz::fuzz_message(data));

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cel::fuzz::fuzz_cel(data));

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| jsonpath::fuzz::fuzz_jsonpath(data));

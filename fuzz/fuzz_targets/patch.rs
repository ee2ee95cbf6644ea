#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| api::patch::fuzz_patch(data));

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gotemplate::fuzz::fuzz_template(data));

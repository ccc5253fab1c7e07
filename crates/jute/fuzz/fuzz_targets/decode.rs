#![no_main]

#[allow(dead_code)]
#[path = "../../tests/strangers/rules.rs"]
mod rules;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = rules::decode(bytes);
});

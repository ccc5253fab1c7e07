#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| replica::fuzzing::peer_message(bytes));

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| spanplane_fuzz::spool::check(input));

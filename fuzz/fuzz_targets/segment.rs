#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    standfast_fuzz::Target::named("segment").expect("a target").check(data);
});

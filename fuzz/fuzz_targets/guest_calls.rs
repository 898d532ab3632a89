#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let target = plimsoll_fuzz::target("guest_calls").expect("the target is in the table");
    (target.run)(data);
});

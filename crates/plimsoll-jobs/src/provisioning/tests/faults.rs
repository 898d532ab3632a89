//! Faults in between.

use super::*;

/// Writes fail, answers get lost, the process dies: in the end there is one request with its template, and never a
/// second one was made for the same attempt.
#[test]
fn faults_neither_lose_nor_double_a_request() {
    for seed in 1..200_u64 {
        let mut harness = Harness::new(one(), &config());
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut roll = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        for round in 0..60 {
            if roll(8) == 0 {
                harness.restart();
            }
            for write in harness.plan() {
                let fate = match roll(4) {
                    _ if round > 50 => Fate::Done,
                    0 => Fate::Refused,
                    1 => Fate::AnswerLost,
                    _ => Fate::Done,
                };
                if !harness.write(&write, fate) {
                    break;
                }
            }
            if round == 50 {
                harness.restart();
            }
        }
        assert!(harness.plan().is_empty(), "{seed}");
        assert_eq!(harness.requests(), ["wl-ac-1"], "{seed}");
        assert_eq!(harness.made.len(), 2, "{seed}: {:?}", harness.made);
        let template = &harness.objects[&(Kind::PodTemplate, "ns".into(), "ppt-wl-ac-1-main".into())];
        assert_eq!(json::controller(template).unwrap()["kind"], "ProvisioningRequest", "{seed}");
    }
}

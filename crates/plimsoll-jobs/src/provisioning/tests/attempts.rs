//! Attempts, one after the other.

use super::*;

#[test]
fn attempts_follow_each_other_to_the_limit() {
    for clean_up in [true, false] {
        let mut harness = Harness::new(one(), &config());
        harness.cache =
            Fixture::with_config(Config { clean_up_provisioning_requests: clean_up, ..Config::default() });
        harness.cache.serve(Kind::ProvisioningRequest, Some(PROVISIONING_REQUESTS));
        harness.restart();
        let waits = [60, 120, 240];
        for (attempt, wait) in (1..).zip(waits) {
            harness.settle();
            let name = format!("wl-ac-{attempt}");
            assert_eq!(harness.made.last(), Some(&name));
            harness.conditions(&name, &[("Failed", "True", "no stock")]);
            harness.settle();
            assert_eq!(
                (&harness.check()["state"], &harness.check()["requeueAfterSeconds"]),
                (&json!("Retry"), &json!(wait))
            );
            assert_eq!(harness.made.last(), Some(&name), "no new attempt before the eviction");
            // What the engine does: an eviction that resets the check, and a new reservation.
            let row = states::reset(harness.check(), NOW);
            assert_eq!(row["retryCount"], attempt);
            let evicted =
                json!([{"type": "QuotaReserved", "status": "True"}, {"type": "Evicted", "status": "True"}]);
            harness.change(
                Kind::Workload,
                "wl",
                &json!({"status": {"conditions": evicted, "admissionChecks": [row]}}),
            );
            harness.settle();
            assert_eq!(harness.request(&name).is_none(), clean_up);
            harness.restart();
            harness.change(
                Kind::Workload,
                "wl",
                &json!({"status": {"conditions": [{"type": "QuotaReserved", "status": "True"}]}}),
            );
        }
        harness.settle();
        harness.conditions("wl-ac-4", &[("Failed", "True", "no stock")]);
        harness.settle();
        assert_eq!(
            (&harness.check()["state"], &harness.check()["message"]),
            (&json!("Rejected"), &json!("no stock"))
        );
        assert_eq!(harness.made.iter().filter(|n| !n.starts_with("ppt")).count(), 4);
    }
}

#[test]
fn backoff_doubles_up_to_its_maximum() {
    let table = [
        ((60, 1800), 1, 60),
        ((60, 1800), 5, 960),
        ((60, 1800), 6, 1800),
        ((60, 1800), 99, 1800),
        ((100, 30), 1, 100),
        ((100, 30), 2, 30),
        ((-5, 10), 3, 0),
        ((1_i64 << 40, 0), 1, i64::from(i32::MAX)),
    ];
    for ((base, max), count, want) in table {
        let object = json!({"metadata": {"name": "prc"}, "spec": {"retryStrategy": {"backoffBaseSeconds": base, "backoffMaxSeconds": max}}});
        let harness = Harness::new(one(), &object["spec"]);
        let check = config::check(&harness.cache, "ac").unwrap();
        let config = config::of_check(&harness.cache, &check).unwrap();
        assert_eq!(config.backoff(count), want, "{base} {max} {count}");
    }
}

#[test]
fn long_names_keep_their_attempts() {
    let long = "w".repeat(250);
    for (workload, check) in [("wl", "ac"), (long.as_str(), "ac"), ("wl", long.as_str())] {
        for attempt in [1, 2, 17] {
            let name = request::name(workload, check, attempt);
            assert!(name.len() <= 253);
            assert_eq!(request::attempt(&name, workload, check), Some(attempt));
            assert!(request::template_name(&name, "main").len() <= 253);
        }
        assert_eq!(request::attempt("wl-other-1", workload, check), None);
        assert_eq!(request::attempt("wl-ac-", workload, check), None);
    }
}

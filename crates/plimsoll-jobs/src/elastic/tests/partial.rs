//! Partial scale-up (Kueue KEP-12100; `workloadslicing_test.go`, `reconciler_internal_test.go` and the integration suites of
//! Jobs and RayClusters "with partial replica scale-up for elastic jobs").

use super::*;

fn partial(quota: i64) -> Harness {
    Harness::with(quota, true)
}

impl Harness {
    fn partial_job(&mut self, name: &str, pods: i64) {
        self.job(name, pods);
        let annotations = json!({names::SCALE_UP_STRATEGY: "partial"});
        self.patch(Kind::Job, name, &json!({"metadata": {"annotations": annotations}})).unwrap();
    }

    /// Slices that have not finished, those with quota first: number of pods, least number, admitted number.
    fn sizes(&self, job: &str) -> Vec<[i64; 3]> {
        let live = self.workloads(job).into_iter().filter(|w| !json::is_true(w, "Finished"));
        let size = |w: &Value| {
            let podset = &w["spec"]["podSets"][0];
            let given = &w["status"]["admission"]["podSetAssignments"][0]["count"];
            [&podset["count"], &podset["minCount"], given].map(|n| n.as_i64().unwrap_or(-1))
        };
        let mut sizes: Vec<[i64; 3]> = live.map(size).collect();
        sizes.sort_by_key(|[.., given]| *given < 0);
        sizes
    }
}

/// "Example: Two-Step Scale Up under Quota Constraints".
#[test]
fn a_slice_that_does_not_fit_gets_what_fits_and_the_rest_later() {
    let mut w = partial(7);
    w.partial_job("a", 5);
    w.settle();
    assert_eq!(
        (w.running("a"), w.sizes("a")),
        (5, vec![[5, 5, 5]]),
        "the first slice is admitted as a whole"
    );

    w.scale("a", 10);
    w.settle();
    assert_eq!((w.running("a"), w.charged(), w.pods("a").len()), (7, 7, 10), "{:?}", w.notes);
    assert_eq!(w.sizes("a"), [[10, 5, 7], [10, 7, -1]]);
    let uid = json::uid(&w.server[&(Kind::Job, "a".into())]).to_owned();
    let named = |part: &str| plimsoll_api::kueue::WorkloadNames::Long.with("Job", "batch", "a", &uid, part);
    let of_job: Vec<&str> = w.workloads("a").iter().map(|s| json::name(s)).collect();
    assert_eq!(of_job.len(), 3);
    let generation = json::int(&w.server[&(Kind::Job, "a".into())], &["metadata", "generation"]).unwrap();
    for level in [5, 7] {
        let name = named(&format!("{generation}-full-scaleup-probe-{level}"));
        assert!(of_job.contains(&name.as_str()), "{of_job:?} {name}");
    }
    // What has its quota is ready.
    let holder =
        w.workloads("a").into_iter().find(|s| json::is_true(s, "Admitted") && !json::is_true(s, "Finished"));
    assert!(json::is_true(holder.unwrap(), "PodsReady"));

    w.scale("a", 12);
    w.settle();
    assert_eq!((w.running("a"), w.sizes("a")), (7, vec![[10, 5, 7], [12, 7, -1]]));
    assert_eq!(w.workloads("a").len(), 3, "the slice that waits grows in place");

    w.set_quota(9);
    w.settle();
    assert_eq!((w.running("a"), w.sizes("a")), (9, vec![[12, 7, 9], [12, 9, -1]]), "step by step");
    w.set_quota(12);
    w.settle();
    assert_eq!((w.running("a"), w.charged(), w.sizes("a")), (12, 12, vec![[12, 9, 12]]));

    w.scale("a", 8);
    w.settle();
    assert_eq!((w.running("a"), w.charged(), w.sizes("a")), (8, 8, vec![[8, 8, 12]]), "shrunk in place");
    w.push("other", 0, 4);
    w.settle();
    assert_eq!(w.charged(), 12, "others get what is free");
}

#[test]
fn a_job_in_part_shrinks_with_the_slice_that_waits() {
    let mut w = partial(7);
    w.partial_job("a", 5);
    w.settle();
    w.scale("a", 10);
    w.settle();
    for (pods, runs) in [(8, 7), (6, 6), (9, 7), (7, 7), (3, 3), (20, 7)] {
        w.scale("a", pods);
        w.settle();
        assert_eq!((w.running("a"), w.charged()), (runs, runs), "{pods}: {:?}", w.notes);
    }
}

/// Without the annotation, the value `partial` or the gate it waits as a whole.
#[test]
fn a_scale_up_is_atomic_by_default() {
    for (gate, strategy) in [(true, None), (true, Some("atomic")), (false, Some("partial"))] {
        let mut w = Harness::with(7, gate);
        w.job("a", 5);
        if let Some(strategy) = strategy {
            let annotations = json!({names::SCALE_UP_STRATEGY: strategy});
            w.patch(Kind::Job, "a", &json!({"metadata": {"annotations": annotations}})).unwrap();
        }
        w.settle();
        w.scale("a", 10);
        w.settle();
        assert_eq!((w.running("a"), w.sizes("a")), (5, vec![[5, -1, 5], [10, -1, -1]]));
    }
}

/// The integration suite's "Should re-admit the partially-admitted slice after being preempted".
#[test]
fn an_evicted_job_comes_back_with_what_it_had() {
    let mut w = partial(7);
    w.partial_job("a", 5);
    w.settle();
    w.scale("a", 10);
    w.settle();
    w.push("big", 9, 4);
    w.settle();
    assert_eq!((w.running("a"), w.charged()), (0, 4), "{:?}", w.notes);
    w.delete(Kind::Workload, "big", true);
    w.settle();
    assert_eq!((w.running("a"), w.charged()), (7, 7), "{:?}", w.notes);
    assert_eq!(w.sizes("a"), [[10, 7, 7], [10, 7, -1]]);
    w.set_quota(10);
    w.settle();
    assert_eq!((w.running("a"), w.sizes("a")), (10, vec![[10, 7, 10]]));
}

/// Behind a workload that waits for what the job gives back, its slice that waits would never be admitted.
#[test]
fn a_job_shrinks_behind_a_workload_that_waits() {
    for gate in [false, true] {
        let mut w = partial(7);
        w.strict = true;
        w.set_quota(7);
        w.partial_job("a", 5);
        if !gate {
            w.patch(
                Kind::Job,
                "a",
                &json!({"metadata": {"annotations": {names::SCALE_UP_STRATEGY: "atomic"}}}),
            )
            .unwrap();
        }
        w.settle();
        w.push("big", 0, 4);
        w.settle();
        w.scale("a", 10);
        w.settle();
        assert_eq!((w.running("a"), w.charged()), (5, 5), "the other one is first: {:?}", w.notes);
        w.scale("a", 3);
        w.settle();
        assert_eq!((w.running("a"), w.charged()), (3, 7), "{:?}", w.notes);
        assert!(json::is_true(&w.server[&(Kind::Workload, "big".into())], "Admitted"));
    }
}

/// With partial preemption (KEP-975) the job shrinks in place, though a slice of it waits.
#[test]
fn a_job_in_part_shrinks_for_another_one() {
    let mut w = Harness::with_gates(9, true, true);
    w.partial_job("a", 5);
    let annotations = json!({plimsoll_api::kueue::PARTIAL_PREEMPTION: "true"});
    w.patch(Kind::Job, "a", &json!({"metadata": {"annotations": annotations}})).unwrap();
    w.settle();
    w.scale("a", 10);
    w.settle();
    assert_eq!((w.running("a"), w.sizes("a")), (9, vec![[10, 5, 9], [10, 9, -1]]));

    // It gives back at most what it has grown by.
    w.push("big", 9, 3);
    w.settle();
    // What slices with quota are asked to shrink to.
    let requests = |w: &Harness| -> Vec<i64> {
        let live = w.workloads("a").into_iter().filter(|s| !json::is_true(s, "Finished"));
        let request = |s: &Value| {
            let row = &s["status"]["admission"]["podSetAssignments"][0];
            row.is_object().then(|| row["reclaimTargetCount"].as_i64().unwrap_or(-1))
        };
        live.filter_map(request).collect()
    };
    assert_eq!((w.charged(), requests(&w)), (9, vec![6]), "{:?}", w.notes);

    // Quota for the slice that waits, and not for the other workload.
    w.set_quota(10);
    w.settle();
    assert_eq!((w.running("a"), w.charged(), requests(&w)), (9, 9, vec![6]), "{:?}", w.notes);

    // Its runtime shrinks it in two steps.
    w.scale("a", 8);
    w.settle();
    assert_eq!((w.running("a"), w.charged(), requests(&w)), (8, 8, vec![6]), "{:?}", w.notes);
    w.scale("a", 6);
    w.settle();
    assert_eq!((w.running("a"), w.charged(), requests(&w)), (6, 9, vec![-1]), "{:?}", w.notes);
    assert!(json::is_true(&w.server[&(Kind::Workload, "big".into())], "Admitted"));
    assert_eq!(w.notes.iter().filter(|n| n.contains("PartiallyPreempted")).count(), 1);

    // It grows again, with what is left.
    w.scale("a", 10);
    w.settle();
    assert_eq!((w.running("a"), w.charged()), (7, 10), "{:?}", w.notes);
    w.delete(Kind::Workload, "big", true);
    w.settle();
    assert_eq!((w.running("a"), w.charged()), (10, 10), "{:?}", w.notes);
}

/// Jobs that grow and shrink at any moment, and others beside them: the harness compares what runs with what is charged after each
/// write.
#[test]
fn nothing_runs_beyond_what_was_admitted() {
    for seed in 0..16_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
        let mut below = |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            i64::try_from(state % n).unwrap()
        };
        let mut w = partial(6);
        w.partial_job("a", 1 + below(4));
        w.partial_job("b", 1 + below(3));
        for step in 0..14 {
            let job = if below(2) == 0 { "a" } else { "b" };
            match below(6) {
                0..=3 => w.scale(job, below(10)),
                4 => w.push(&format!("other-{step}"), below(3) - 1, 1 + below(3)),
                _ => w.delete(Kind::Workload, &format!("other-{}", below(14)), true),
            }
            for _ in 0..below(5) {
                w.round();
            }
        }
        w.settle();
        let most = w.quota.min(w.pods("a").len() as i64 + w.pods("b").len() as i64);
        assert!(w.charged() <= w.quota && w.running("a") + w.running("b") <= most);
    }
}

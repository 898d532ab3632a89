//! Jobs that shrink after some of their pods have ended (the integration suite of Jobs, "Job with elastic jobs via
//! workload-slices support"). The slice shrinks with the job, and the pods that still run are charged at every moment.

use super::*;

impl Harness {
    fn indexed_job(&mut self, name: &str, pods: i64) {
        self.job(name, pods);
        let annotations = json!({names::SYNC_COMPLETIONS: "true"});
        let spec = json!({"completionMode": "Indexed", "completions": pods});
        self.patch(Kind::Job, name, &json!({"metadata": {"annotations": annotations}, "spec": spec}))
            .unwrap();
        self.settle();
        assert_eq!((self.running(name), self.charged()), (pods, pods));
    }

    fn resize(&mut self, name: &str, pods: i64) {
        let spec = json!({"parallelism": pods, "completions": pods});
        self.patch(Kind::Job, name, &json!({ "spec": spec })).unwrap();
    }

    /// So many of the pods that run end.
    fn end(&mut self, job: &str, pods: usize, phase: &str) {
        let runs = |p: &&Value| !super::super::gated(p) && !pod_view::ended(p) && !json::deleting(p);
        let ending: Vec<Value> = self.pods(job).iter().filter(runs).take(pods).cloned().collect();
        assert_eq!(ending.len(), pods);
        for pod in ending {
            self.patch(Kind::Pod, json::name(&pod), &json!({"status": {"phase": phase}})).unwrap();
        }
    }

    /// What an engine charges that starts with what the API server has at this moment.
    fn charged_after_restart(&self) -> i64 {
        let mut engine = Self::engine(self.quota, false, false);
        let workloads = self.server.iter().filter(|((kind, _), _)| *kind == Kind::Workload);
        let events = workloads.filter_map(|(_, wl)| plimsoll_api::kueue::upsert_event(wl).unwrap());
        let mut batch: Vec<CoreEvent> = events.map(CoreEvent::Queueing).collect();
        let tree_of = |engine: &Engine| {
            let tree = engine.queueing().unwrap().quota_tree();
            tree.iter().flat_map(|n| &n.cells).map(|c| c.usage).sum::<i64>() / 1000
        };
        engine.step(self.now, &mut batch, &mut Vec::new());
        tree_of(&engine)
    }

    /// Rounds until nothing changes, in which other workloads keep all quota that is not charged.
    fn settle_charged(&mut self, charged: i64) {
        for _ in 0..12 {
            self.round();
            assert_eq!(
                (self.charged(), self.charged_after_restart()),
                (charged, charged),
                "{:?}",
                self.notes
            );
        }
        self.settle();
        assert_eq!((self.charged(), self.charged_after_restart()), (charged, charged), "{:?}", self.notes);
    }

    /// Number of pods, of reclaimable pods, and whether a charge is kept, of the only slice that has not finished.
    fn slice(&self, job: &str) -> (i64, i64, bool) {
        let live: Vec<&Value> =
            self.workloads(job).into_iter().filter(|w| !json::is_true(w, "Finished")).collect();
        let [wl] = live.as_slice() else { panic!("{live:?}") };
        let rows = json::list(wl, &["status", "reclaimablePods"]);
        let ended = rows.iter().filter_map(|r| r["count"].as_i64()).sum();
        let kept = json::annotation(wl, plimsoll_api::kueue::CHARGED_PODS).is_some();
        (wl["spec"]["podSets"][0]["count"].as_i64().unwrap(), ended, kept)
    }
}

/// "Should not over-reserve quota for a non-indexed Job after a scale-down", with others that want what is not charged.
#[test]
fn a_slice_shrinks_around_the_pods_that_still_run() {
    let mut w = Harness::new(20);
    w.job("a", 20);
    w.patch(Kind::Job, "a", &json!({"spec": {"completions": 20}})).unwrap();
    w.settle();
    w.end("a", 15, "Succeeded");
    w.push("other", 0, 15);
    w.settle();
    assert_eq!((w.running("a"), w.slice("a"), w.charged()), (5, (20, 15, false), 20), "{:?}", w.notes);
    w.push("waits", 0, 1);
    w.scale("a", 10);
    w.settle_charged(20);
    assert_eq!((w.running("a"), w.slice("a")), (5, (10, 5, false)), "{:?}", w.notes);
    w.end("a", 2, "Succeeded");
    w.settle();
    // One of the two is free for the workload that waits.
    assert_eq!((w.running("a"), w.slice("a"), w.charged()), (3, (10, 7, false), 19), "{:?}", w.notes);
    w.finish("a");
    w.settle();
    assert_eq!(w.charged(), 16);
}

/// "Should not wedge the reconciler when scaling down below the accumulated succeeded count": no pod is left.
#[test]
fn a_slice_shrinks_below_the_number_of_pods_that_have_succeeded() {
    let mut w = Harness::new(8);
    w.indexed_job("a", 8);
    w.end("a", 4, "Succeeded");
    w.patch(Kind::Job, "a", &json!({"status": {"completedIndexes": "0-3"}})).unwrap();
    w.settle();
    assert_eq!((w.slice("a"), w.charged()), ((8, 4, false), 4));
    // Pods 4 to 7 are deleted, and are charged until they have gone.
    w.resize("a", 3);
    w.round_without_kubelet();
    w.round_without_kubelet();
    assert_eq!((w.slice("a"), w.charged()), ((8, 4, false), 4));
    w.settle();
    assert_eq!((w.slice("a"), w.running("a"), w.charged()), ((3, 3, false), 0, 0), "{:?}", w.notes);
    // More pods than that take another slice.
    w.resize("a", 5);
    w.settle();
    assert_eq!((w.running("a"), w.charged(), w.workloads("a").len()), (1, 1, 2), "{:?}", w.notes);
}

/// "Should ignore a permanently failed index removed by a scale-down": what that pod gave back is what the job lost.
#[test]
fn a_failed_pod_that_a_smaller_job_no_longer_has_gives_nothing_back() {
    let mut w = Harness::new(5);
    w.indexed_job("a", 5);
    w.end("a", 1, "Failed");
    w.patch(Kind::Job, "a", &json!({"status": {"failedIndexes": "4"}})).unwrap();
    w.push("other", 0, 1);
    w.settle();
    assert_eq!((w.slice("a"), w.charged()), ((5, 1, false), 5));
    w.resize("a", 3);
    w.settle();
    assert_eq!((w.slice("a"), w.charged()), ((3, 0, false), 4), "{:?}", w.notes);
    assert_eq!(w.workloads("a").len(), 1, "shrunk in place");
}

/// A manager that ends between the writes leaves the charge as it is, and the next one goes on.
#[test]
fn a_slice_that_is_half_shrunk_is_charged_for_what_runs() {
    let mut w = Harness::new(20);
    w.job("a", 20);
    w.patch(Kind::Job, "a", &json!({"spec": {"completions": 20}})).unwrap();
    w.settle();
    w.end("a", 6, "Succeeded");
    w.settle();
    assert_eq!((w.running("a"), w.slice("a")), (14, (20, 6, false)));
    w.scale("a", 10);
    let mut half = 0;
    for _ in 0..12 {
        w.round();
        let (count, ended, kept) = w.slice("a");
        half += i32::from(kept && (count, ended) == (10, 6));
        assert!(w.charged_after_restart() >= w.running("a"), "{:?}", w.notes);
    }
    assert!(half > 0, "the test has seen the moment between the two writes");
    assert_eq!((w.running("a"), w.slice("a"), w.charged()), (10, (10, 0, false), 10), "{:?}", w.notes);
}

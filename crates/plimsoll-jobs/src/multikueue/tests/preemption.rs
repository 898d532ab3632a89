//! Orchestrated preemption.

use super::*;

#[test]
fn copies_preempt_on_one_worker_after_the_other() {
    let mut local = workload("Pending", &["QuotaReserved"]);
    local["spec"]["preemptionGates"] = json!([{"name": "own"}]);
    let mut manager = manager(local);
    manager.config.multikueue.orchestrates_preemption = true;
    let none = || worker(None, None);
    let plan = planned(&manager, &[("one", none())], None);
    let Some([Write::Create(_, made)]) = plan.apart.get("one").map(Vec::as_slice) else { panic!("{plan:?}") };
    assert_eq!(made["spec"]["preemptionGates"], json!([{"name": CONTROLLER}]));
    let gated = |conditions: &[(&str, u32)], open: Option<&str>| {
        let mut copy = copy(conditions);
        copy["spec"]["preemptionGates"] = json!([{"name": CONTROLLER}]);
        let (position, at) = open.map_or(("Closed", NOW_TEXT), |at| ("Open", at));
        copy["status"]["preemptionGates"] =
            json!([{"name": CONTROLLER, "position": position, "lastTransitionTime": at}]);
        worker(Some(copy), None)
    };
    const BLOCKED: &str = "BlockedOnPreemptionGates";
    // The one that has been blocked for the longest time is the first.
    let two = [("one", gated(&[(BLOCKED, 7)], None)), ("two", gated(&[(BLOCKED, 3)], None))];
    let plan = planned(&manager, &two, None);
    assert_eq!(remote(&plan), ["two: patch Workload status"]);
    assert_eq!(plan.requeue_after, Some(Duration::from_seconds(300)));
    // The next one waits until that had its time.
    let two = [("one", gated(&[(BLOCKED, 7)], None)), ("two", gated(&[], Some("2023-11-14T22:12:20Z")))];
    let plan = planned(&manager, &two, None);
    assert_eq!((remote(&plan), plan.requeue_after), (Vec::new(), Some(Duration::from_seconds(240))));
    let two = [("one", gated(&[(BLOCKED, 7)], None)), ("two", gated(&[], Some("2023-11-14T22:08:20Z")))];
    assert_eq!(remote(&planned(&manager, &two, None)), ["one: patch Workload status"]);
}

//! Metrics from events and actions.

use super::*;
use plimsoll_scheduler::{PodEvent, PodRef};

fn pod(uid: &str, gates: &[&str], node: &str) -> Event {
    let json = serde_json::json!({
        "metadata": {"name": uid, "namespace": "ns", "uid": uid},
        "spec": {"containers": [{"name": "c"}], "nodeName": node,
                 "schedulingGates": gates.iter().map(|g| serde_json::json!({"name": g})).collect::<Vec<_>>()},
    });
    let pod = plimsoll_api::convert::pod(json.to_string().as_bytes()).unwrap();
    Event::Object(ObjectEvent::PodUpsert(Box::new(pod)))
}

fn named(uid: &str) -> PodRef {
    PodRef { uid: uid.into(), namespace: "ns".into(), name: uid.into() }
}

fn failed(uid: &str, cause: RecordCause) -> Action {
    let (reason, action) = ("FailedScheduling", "Scheduling");
    let event = PodEvent { warning: true, reason, action, message: String::new() };
    Action::Scheduler(SchedulerAction::Record { pod: named(uid), cause, event })
}

fn show(observer: &Observer) -> String {
    let mut out = String::new();
    let counts = QueueCounts { active: 1, backoff: 2, unschedulable: 3, gated: 4, in_flight: 5 };
    super::super::text::write(&mut out, &observer.families(counts), &[]);
    out
}

#[test]
fn attempts_and_waits_are_counted() {
    let s = |n: i64| Time(n * 1_000_000_000);
    let mut o = Observer::new(vec!["default-scheduler".into()]);
    o.event(&pod("a", &["g"], ""), s(0));
    o.event(&pod("a", &[], ""), s(100));
    o.event(&pod("b", &[], ""), s(100));
    o.step(
        &[
            failed("a", RecordCause::Failed(FailureReason::Unschedulable)),
            failed("b", RecordCause::Failed(FailureReason::SchedulerError)),
            failed("b", RecordCause::Deleting),
        ],
        Duration::ZERO,
    );
    let bind = SchedulerAction::Bind { pod: named("a"), node: "n".into() };
    o.step(&[Action::Scheduler(bind)], Duration::from_millis(3));
    // The watch and the answer both tell of the binding: it counts once.
    o.event(&pod("a", &[], "n"), s(103));
    o.event(&Event::Scheduler(SchedulerEvent::Bound("a".into())), s(104));
    let text = show(&o);
    for want in [
        "scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"error\"} 1\n",
        "scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"scheduled\"} 1\n",
        "scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"unschedulable\"} 1\n",
        "scheduler_pod_scheduling_sli_duration_seconds_sum{attempts=\"2\"} 3\n",
        "scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts=\"2\",le=\"2.56\"} 0\n",
        "scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts=\"2\",le=\"5.12\"} 1\n",
        "scheduler_pod_scheduling_attempts_sum 2\n",
        "scheduler_scheduling_attempt_duration_seconds_sum{profile=\"default-scheduler\",result=\"scheduled\"} 0.003\n",
        "scheduler_pending_pods{queue=\"gated\"} 4\n",
    ] {
        assert!(text.contains(want), "{want} not in\n{text}");
    }
}

#[test]
fn a_failed_binding_ends_one_attempt() {
    let at = |n: i64| Time(n * 1_000_000_000);
    let mut o = Observer::new(vec!["default-scheduler".into()]);
    o.event(&pod("a", &[], ""), at(0));
    let what = Box::default();
    let prepare = SchedulerAction::Prepare { pod: named("a"), node: "n".into(), what };
    o.step(&[Action::Scheduler(prepare)], Duration::from_millis(3));
    let bind = || Action::Scheduler(SchedulerAction::Bind { pod: named("a"), node: "n".into() });
    o.step(&[bind()], Duration::from_millis(1));
    let (uid, message) = ("a".into(), "no".into());
    o.event(&Event::Scheduler(SchedulerEvent::BindFailed { uid, message }), at(1));
    o.step(&[failed("a", RecordCause::Failed(FailureReason::SchedulerError))], Duration::from_millis(1));
    o.step(&[bind()], Duration::from_millis(2));
    o.event(&Event::Scheduler(SchedulerEvent::Bound("a".into())), at(2));
    let text = show(&o);
    for want in [
        "scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"error\"} 1\n",
        "scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"scheduled\"} 1\n",
        "scheduler_pod_scheduling_attempts_sum 2\n",
        "scheduler_scheduling_algorithm_duration_seconds_count 2\n",
    ] {
        assert!(text.contains(want), "{want} not in\n{text}");
    }
}

#[test]
fn cycles_of_queueing_are_timed() {
    let mut o = Observer::new(Vec::new());
    o.cycles([0, 0], Duration::from_secs(9));
    o.cycles([1, 1], Duration::from_millis(4));
    let mut out = String::new();
    super::super::text::write(&mut out, &o.queueing_families(), &[]);
    for result in ["success", "inadmissible"] {
        let want = format!("kueue_admission_attempt_duration_seconds_sum{{result=\"{result}\"}} 0.002\n");
        assert!(out.contains(&want), "{want} not in\n{out}");
    }
}

#[test]
fn nothing_is_remembered_of_pods_that_wait_no_more() {
    let mut o = Observer::new(vec!["default-scheduler".into()]);
    for uid in ["a", "b", "c"] {
        o.event(&pod(uid, &[], ""), Time(0));
    }
    o.event(&pod("a", &[], "n"), Time(0));
    o.event(&Event::Object(ObjectEvent::PodDelete("b".into())), Time(0));
    o.event(&Event::Scheduler(SchedulerEvent::Bound("c".into())), Time(0));
    assert!(o.waiting.is_empty());
    let mut other = Observer::new(vec!["mine".into()]);
    other.event(&pod("a", &[], ""), Time(0));
    assert!(other.waiting.is_empty(), "a pod of another scheduler");
}

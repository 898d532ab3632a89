//! What the scheduling queue and preemption count (kube-scheduler's `pkg/scheduler/metrics/metrics.go`).

use plimsoll_queueing::{MetricFamily, MetricKind, MetricSample, MetricValue};
use plimsoll_scheduler::Scheduler;

use super::histogram::Histogram;
use super::plugins::value;

/// 2^k, 7 of them.
const VICTIMS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];

/// The families, sorted by name.
pub fn families(scheduler: &Scheduler) -> Vec<MetricFamily> {
    let number = |labels, n: u64| MetricSample::new(labels, MetricValue::Number(n as f64));
    let in_flight =
        scheduler.events_in_flight().into_iter().map(|(event, n)| number(vec![("event", event)], n));
    let waits = scheduler
        .permit_waits()
        .map(|(result, waits)| MetricSample::new(vec![("result", result.to_owned())], value(waits)));
    let mut victims = Histogram::new(VICTIMS);
    scheduler.preemption_victims().for_each(|(pods, times)| victims.observe_often(pods as f64, times));
    let attempts = number(Vec::new(), scheduler.preemption_attempts());
    let incoming = scheduler
        .incoming_pods()
        .map(|(queue, event, n)| number(vec![("event", event), ("queue", queue.to_owned())], n));
    let unschedulable = scheduler
        .unschedulable_pods()
        .into_iter()
        .map(|(plugin, profile, n)| number(vec![("plugin", plugin), ("profile", profile)], n));
    vec![
        MetricFamily {
            name: "scheduler_inflight_events",
            help: "Events kept for pods that are being scheduled or wait on Permit, for each of them, and such pods",
            kind: MetricKind::Gauge,
            samples: in_flight.collect(),
        },
        MetricFamily {
            name: "scheduler_permit_wait_duration_seconds",
            help: "Time that pods waited on Permit, by how it ended",
            kind: MetricKind::Histogram,
            samples: waits.collect(),
        },
        MetricFamily {
            name: "scheduler_pod_scheduled_after_flush_total",
            help: "Pods bound that were tried because they had waited for an event for too long",
            kind: MetricKind::Counter,
            samples: vec![number(Vec::new(), scheduler.pods_scheduled_after_flush())],
        },
        MetricFamily {
            name: "scheduler_preemption_attempts_total",
            help: "Attempts to make room by preemption",
            kind: MetricKind::Counter,
            samples: vec![attempts],
        },
        MetricFamily {
            name: "scheduler_preemption_victims",
            help: "Pods that had to go for one",
            kind: MetricKind::Histogram,
            samples: vec![MetricSample::new(Vec::new(), victims.value())],
        },
        MetricFamily {
            name: "scheduler_queue_incoming_pods_total",
            help: "Pods that came into a part of the queue, by cause",
            kind: MetricKind::Counter,
            samples: incoming.collect(),
        },
        MetricFamily {
            name: "scheduler_unschedulable_pods",
            help: "Pods that wait, by each plugin that has rejected them or keeps them out",
            kind: MetricKind::Gauge,
            samples: unschedulable.collect(),
        },
    ]
}

#[cfg(test)]
mod tests {
    use plimsoll_scheduler::Config;
    use plimsoll_state::model::{Node, Pod, PodSpec};
    use plimsoll_state::{ObjectEvent, Time};

    use super::*;

    #[test]
    fn pods_are_counted_by_queue_event_and_plugin() {
        let mut scheduler = Scheduler::new(Config::default());
        let now = Time::from_seconds(1_000);
        let node = Node { name: "n".into(), uid: "n".into(), ready: true, ..Node::default() };
        scheduler.handle_object(now, &ObjectEvent::NodeUpsert(Box::new(node)));
        for (uid, gates) in [("gated", vec!["g".to_owned()]), ("large", Vec::new())] {
            let spec = PodSpec {
                scheduler_name: "default-scheduler".into(),
                scheduling_gates: gates,
                ..PodSpec::default()
            };
            let pod =
                Pod { namespace: "ns".into(), name: uid.into(), uid: uid.into(), spec, ..Pod::default() };
            scheduler.handle_object(now, &ObjectEvent::PodUpsert(Box::new(pod)));
        }
        scheduler.decide(now, &mut |_| {});
        let mut out = String::new();
        super::super::text::write(&mut out, &families(&scheduler), &[]);
        let incoming = "scheduler_queue_incoming_pods_total";
        let rejected = "scheduler_unschedulable_pods";
        for want in [
            "scheduler_preemption_attempts_total 1\n".to_owned(),
            "scheduler_preemption_victims_count 0\n".to_owned(),
            "scheduler_pod_scheduled_after_flush_total 0\n".to_owned(),
            format!("{incoming}{{event=\"UnschedulablePodAdd\",queue=\"active\"}} 1\n"),
            format!("{incoming}{{event=\"UnschedulablePodAdd\",queue=\"unschedulable\"}} 1\n"),
            format!("{incoming}{{event=\"ScheduleAttemptFailure\",queue=\"unschedulable\"}} 1\n"),
            format!("# TYPE {rejected} gauge\n"),
            format!("{rejected}{{plugin=\"NodeResourcesFit\",profile=\"default-scheduler\"}} 1\n"),
            format!("{rejected}{{plugin=\"SchedulingGates\",profile=\"default-scheduler\"}} 1\n"),
        ] {
            assert!(out.contains(&want), "{want} not in\n{out}");
        }
    }
}

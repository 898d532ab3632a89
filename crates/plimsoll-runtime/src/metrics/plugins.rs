//! How long the scheduler's extension points and plugins take (kube-scheduler's `pkg/scheduler/metrics/metrics.go`).

use plimsoll_queueing::{MetricFamily, MetricKind, MetricSample, MetricValue};
use plimsoll_scheduler::{Durations, Scheduler};

use super::observe::Observer;

/// The families, sorted by name. The scheduler measures what runs in it, the observer the writes of Bind.
pub fn families(scheduler: &Scheduler, observer: &Observer) -> Vec<MetricFamily> {
    let seen = scheduler.measurements().unwrap_or_default();
    let point = |point: &str, profile: String, status: &str, value| {
        let labels =
            vec![("extension_point", point.to_owned()), ("profile", profile), ("status", status.to_owned())];
        MetricSample::new(labels, value)
    };
    let points = seen
        .extension_points
        .into_iter()
        .map(|run| point(run.extension_point, run.profile, run.status, value(run.durations)));
    let binds =
        observer.binds().map(|(profile, status, value)| point("Bind", profile.to_owned(), status, value));
    let evaluations = seen.evaluations.into_iter().map(|one| {
        let labels = vec![
            ("extension_point", one.extension_point.to_owned()),
            ("plugin", one.plugin),
            ("profile", one.profile),
        ];
        MetricSample::new(labels, MetricValue::Number(one.count as f64))
    });
    let executions = seen.executions.into_iter().map(|one| {
        let labels = vec![
            ("extension_point", one.extension_point.to_owned()),
            ("plugin", one.plugin),
            ("status", one.status.to_owned()),
        ];
        MetricSample::new(labels, value(one.durations))
    });
    vec![
        MetricFamily {
            name: "scheduler_framework_extension_point_duration_seconds",
            help: "Time of all plugins of an extension point, in one attempt of ten, and of each binding",
            kind: MetricKind::Histogram,
            samples: points.chain(binds).collect(),
        },
        MetricFamily {
            name: "scheduler_plugin_evaluation_total",
            help: "Evaluations by a plugin at PreFilter, Filter, PreScore and Score, in one attempt of ten",
            kind: MetricKind::Counter,
            samples: evaluations.collect(),
        },
        MetricFamily {
            name: "scheduler_plugin_execution_duration_seconds",
            help: "Time of a plugin at an extension point, in one attempt of ten",
            kind: MetricKind::Histogram,
            samples: executions.collect(),
        },
    ]
}

pub(super) fn value(Durations { buckets, sum, count }: Durations) -> MetricValue {
    MetricValue::Histogram { buckets, sum, count }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use plimsoll_engine::{Action, Event};
    use plimsoll_scheduler::{Config, Event as SchedulerEvent};
    use plimsoll_state::model::{Node, Pod, PodSpec};
    use plimsoll_state::{ObjectEvent, Time};

    use super::*;
    use crate::clock::Monotonic;

    #[test]
    fn plugins_extension_points_and_bindings_have_upstreams_names() {
        let stopwatch = Some(Arc::new(Monotonic::default()) as _);
        let mut scheduler = Scheduler::new(Config { stopwatch, ..Config::default() });
        let mut observer = Observer::new(vec!["default-scheduler".into()]);
        let mut node = Node { name: "n".into(), uid: "n".into(), ready: true, ..Node::default() };
        node.allocatable.insert("pods".into(), 10);
        let now = Time::from_seconds(1_000);
        scheduler.handle_object(now, &ObjectEvent::NodeUpsert(Box::new(node)));
        for uid in ["p", "q"] {
            let spec = PodSpec { scheduler_name: "default-scheduler".into(), ..PodSpec::default() };
            let pod =
                Pod { namespace: "ns".into(), name: uid.into(), uid: uid.into(), spec, ..Pod::default() };
            let event = ObjectEvent::PodUpsert(Box::new(pod));
            scheduler.handle_object(now, &event);
            observer.events(&[Event::Object(event)], now);
        }
        let mut actions = Vec::new();
        scheduler.decide(now, &mut |a| actions.push(Action::Scheduler(a)));
        observer.step(&actions, Duration::from_millis(500));
        let (uid, message) = ("q".into(), "no".into());
        let failed = Event::Scheduler(SchedulerEvent::BindFailed { uid, message });
        let bound = Event::Scheduler(SchedulerEvent::Bound("p".into()));
        observer.events(&[bound, failed], Time::from_seconds(1_001));
        let mut out = String::new();
        super::super::text::write(&mut out, &families(&scheduler, &observer), &[]);
        let point = "scheduler_framework_extension_point_duration_seconds";
        let labels = |point: &str, status: &str| {
            format!("{{extension_point=\"{point}\",profile=\"default-scheduler\",status=\"{status}\"}}")
        };
        for want in [
            format!("# TYPE {point} histogram\n"),
            format!("{point}_count{} 1\n", labels("Filter", "Success")),
            format!("{point}_count{} 1\n", labels("Reserve", "Success")),
            // From the end of the step on.
            format!("{point}_sum{} 0.5\n", labels("Bind", "Success")),
            format!("{point}_sum{} 0.5\n", labels("Bind", "Error")),
            "# TYPE scheduler_plugin_evaluation_total counter\n".to_owned(),
            "scheduler_plugin_evaluation_total{extension_point=\"Filter\",plugin=\"NodeResourcesFit\",\
             profile=\"default-scheduler\"} 1\n"
                .to_owned(),
            "scheduler_plugin_execution_duration_seconds_count{extension_point=\"PreFilter\",\
             plugin=\"NodeResourcesFit\",status=\"Success\"} 1\n"
                .to_owned(),
            "scheduler_plugin_execution_duration_seconds_bucket{extension_point=\"PreFilter\",\
             plugin=\"NodeResourcesFit\",status=\"Success\",le=\"1e-05\"} "
                .to_owned(),
        ] {
            assert!(out.contains(&want), "{want} not in\n{out}");
        }
    }
}

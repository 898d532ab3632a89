//! `apiserver_flowcontrol_…` metrics.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::{FlowControl, lock};

/// Names of the reasons of rejections, in the order of [`super::Why`].
const REASONS: [&str; 3] = ["queue-full", "concurrency-limit", "time-out"];

/// Counters of a schema at a level.
#[derive(Debug, Default)]
pub struct Counts {
    pub dispatched: AtomicU64,
    pub rejected: [AtomicU64; 3],
    pub waiting: AtomicUsize,
    pub executing: AtomicUsize,
    pub seats: AtomicUsize,
}

impl FlowControl {
    /// The metrics in the text format of Prometheus.
    pub fn metrics_text(&self) -> String {
        let mut out = String::new();
        let head = |out: &mut String, name: &str, kind: &str| {
            let _ = writeln!(out, "# TYPE apiserver_flowcontrol_{name} {kind}");
        };
        let counts = lock(&self.counts);
        type Read = fn(&Counts) -> u64;
        let rows: [(&str, &str, Read); 4] = [
            ("dispatched_requests_total", "counter", |c| c.dispatched.load(Ordering::Relaxed)),
            ("current_inqueue_requests", "gauge", |c| c.waiting.load(Ordering::Relaxed) as u64),
            ("current_executing_requests", "gauge", |c| c.executing.load(Ordering::Relaxed) as u64),
            ("current_executing_seats", "gauge", |c| c.seats.load(Ordering::Relaxed) as u64),
        ];
        for (name, kind, read) in rows {
            head(&mut out, name, kind);
            for ((schema, level), counts) in counts.iter() {
                let labels = format!("flow_schema=\"{schema}\",priority_level=\"{level}\"");
                let _ = writeln!(out, "apiserver_flowcontrol_{name}{{{labels}}} {}", read(counts));
            }
        }
        head(&mut out, "rejected_requests_total", "counter");
        for ((schema, level), counts) in counts.iter() {
            for (reason, count) in REASONS.iter().zip(&counts.rejected) {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    let labels =
                        format!("flow_schema=\"{schema}\",priority_level=\"{level}\",reason=\"{reason}\"");
                    let _ =
                        writeln!(out, "apiserver_flowcontrol_rejected_requests_total{{{labels}}} {count}");
                }
            }
        }
        drop(counts);
        self.limits_text(&mut out);
        out
    }

    fn limits_text(&self, out: &mut String) {
        let levels = lock(&self.levels);
        let seats: Vec<_> = levels.values().map(|(state, _)| (&state.name, *lock(&state.seats))).collect();
        type Read = fn(&super::Shared) -> usize;
        let rows: [(&str, Read); 4] = [
            ("nominal_limit_seats", |s| s.seats.nominal),
            ("lower_limit_seats", |s| s.seats.least),
            ("upper_limit_seats", |s| s.seats.most),
            ("current_limit_seats", |s| s.current),
        ];
        for (name, read) in rows {
            let _ = writeln!(out, "# TYPE apiserver_flowcontrol_{name} gauge");
            for (level, shared) in &seats {
                let count = read(shared);
                let _ = writeln!(out, "apiserver_flowcontrol_{name}{{priority_level=\"{level}\"}} {count}");
            }
        }
    }
}

//! One workload through the engine, timed.

use std::time::Instant;

use anyhow::ensure;
use indicatif::ProgressBar;
use plimsoll_scheduler::{Action, Config, Scheduler};
use plimsoll_state::{ObjectEvent, Time};

use super::workload::{Pods, Workload};
use crate::bench::report::rss;

/// Idle times in a row after which nothing more is expected.
const IDLE: usize = 3;

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Measured pods that got a node.
    pub bound: usize,
    /// Attempts that found no node.
    pub rejected: usize,
    /// Pods that had to go for others.
    pub victims: usize,
    /// Time for all decisions.
    pub seconds: f64,
    /// The part of it in which this thread had a processor; `None` where the system does not tell.
    pub cpu_seconds: Option<f64>,
    /// Time to take in the pods.
    pub handling: f64,
    /// Time to take in the nodes.
    pub nodes: f64,
    /// The longest step, in seconds.
    pub longest_step: f64,
    /// Growth of resident memory by nodes, by pods that wait, and by decisions, in bytes.
    pub growth: [Option<u64>; 3],
    /// Nanoseconds between decisions, sorted.
    decisions: Vec<u64>,
    /// Resident memory at the end, in bytes.
    pub memory: Option<u64>,
}

impl Outcome {
    /// Pods that were decided on (each once).
    pub fn decided(&self, preempted: bool) -> usize {
        if preempted { self.bound } else { self.bound + self.rejected }
    }

    /// A quantile of the time per decision, in microseconds.
    pub fn quantile_us(&self, q: f64) -> f64 {
        let last = self.decisions.len().saturating_sub(1);
        let at = (last as f64 * q).round() as usize;
        self.decisions.get(at).map_or(0.0, |ns| *ns as f64 / 1e3)
    }
}

/// Processor time of this thread in seconds, where the system tells (Linux).
fn cpu() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    stat.split_whitespace().next()?.parse::<u64>().ok().map(|ns| ns as f64 / 1e9)
}

/// Makes the cluster, and measures.
pub fn run(w: &Workload, bar: &ProgressBar) -> anyhow::Result<Outcome> {
    let mut p = Scheduler::new(Config::default());
    let mut now = Time::from_seconds(1000);
    for object in w.objects()? {
        p.handle_object(now, &ObjectEvent::ObjectUpsert(Box::new(object)));
    }
    let (empty, start) = (rss(), Instant::now());
    for node in w.nodes.make()? {
        p.handle_object(now, &node);
    }
    let (nodes, with_nodes) = (start.elapsed().as_secs_f64(), rss());
    for (set, pods) in w.init.iter().enumerate() {
        take_in(&mut p, now, pods, set + 1)?;
        let done = decide(&mut p, &mut now, &ProgressBar::hidden());
        ensure!(done.bound == pods.count, "only {} of {} first pods found a node", done.bound, pods.count);
    }
    let (before, start) = (rss(), Instant::now());
    take_in(&mut p, now, &w.pods, 0)?;
    let (handling, waiting) = (start.elapsed().as_secs_f64(), rss());
    bar.set_length(w.pods.count as u64);
    let mut done = decide(&mut p, &mut now, bar);
    done.handling = handling;
    done.nodes = nodes;
    done.memory = rss();
    let grown = |from: Option<u64>, to: Option<u64>| Some(to?.saturating_sub(from?));
    done.growth = [grown(empty, with_nodes), grown(before, waiting), grown(waiting, done.memory)];
    bar.finish_and_clear();
    Ok(done)
}

fn take_in(p: &mut Scheduler, now: Time, pods: &Pods, set: usize) -> anyhow::Result<()> {
    for pod in pods.make(set)? {
        p.handle_object(now, &pod);
    }
    Ok(())
}

/// Decides until nothing more happens. Victims of preemption are gone at once; clocks jump to the next thing to do
/// while pods that preempted wait for their room.
fn decide(p: &mut Scheduler, now: &mut Time, bar: &ProgressBar) -> Outcome {
    let mut out = Outcome::default();
    let mut victims: Vec<String> = Vec::new();
    let mut idle = 0;
    let (start, cpu_start) = (Instant::now(), cpu());
    let mut last = start;
    while idle < IDLE {
        let mut acted = false;
        let step = Instant::now();
        p.decide(*now, &mut |action| {
            acted = true;
            match action {
                Action::Bind { .. } => out.bound += 1,
                Action::Unschedulable { .. } => out.rejected += 1,
                Action::Preempt { victim, .. } => victims.push(victim.uid),
                _ => return,
            }
            let at = Instant::now();
            out.decisions.push(u64::try_from((at - last).as_nanos()).unwrap_or(u64::MAX));
            last = at;
        });
        out.longest_step = out.longest_step.max(step.elapsed().as_secs_f64());
        out.victims += victims.len();
        for uid in victims.drain(..) {
            p.handle_object(*now, &ObjectEvent::PodDelete(uid));
        }
        bar.set_position(out.bound as u64);
        if acted {
            idle = 0;
            continue;
        }
        match p.next_wake() {
            Some(next) if out.victims > 0 && next > *now => *now = next,
            _ => break,
        }
        idle += 1;
    }
    out.seconds = start.elapsed().as_secs_f64();
    out.cpu_seconds = cpu().zip(cpu_start).map(|(end, start)| end - start);
    out.decisions.sort_unstable();
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_runs_small() {
        for mut w in Workload::all().expect("data").into_iter().filter(Workload::in_process) {
            super::super::resize(&mut w, Some(40), None);
            let done = run(&w, &ProgressBar::hidden()).expect(&w.name);
            assert_eq!(done.bound, w.pods.fitting(), "{}: {done:?}", w.name);
            assert_eq!(done.victims > 0, w.name == "preemption", "{}", w.name);
        }
    }
}

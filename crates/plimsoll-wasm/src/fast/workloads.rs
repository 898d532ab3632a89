//! A plugin of the interface that rules about workloads: which may be admitted, in which order, with which flavor, and which is
//! preempted first.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_plugin::{Flavor, Manifest, PodSet, Workload as Seen};
use plimsoll_queueing::{ResourceFlavor, Ruling, Workload, WorkloadPolicy};

use super::backend::Backend;

/// What a plugin does for workloads, in the words of the manifest.
const POINTS: [&str; 3] = ["workload", "flavor", "victim"];
/// Longest reason of a veto, in bytes: it is part of conditions and events.
const MAX_REASON: usize = 256;

/// What of this a plugin does.
pub fn policy_points(manifest: &Manifest) -> Vec<&'static str> {
    POINTS.into_iter().filter(|point| manifest.points.contains(point)).collect()
}

/// A plugin as rules about workloads. One that fails vetoes the workload, and orders nothing.
#[derive(Debug)]
pub struct GuestPolicy {
    name: Arc<str>,
    manifest: Manifest,
    backend: Mutex<Box<dyn Backend>>,
}

impl GuestPolicy {
    /// The plugin of this name.
    pub fn new(backend: Box<dyn Backend>, name: &str) -> Self {
        Self { name: name.into(), manifest: backend.manifest().clone(), backend: Mutex::new(backend) }
    }

    fn has(&self, point: &str) -> bool {
        self.manifest.points.contains(&point)
    }

    fn ask<T>(&self, f: impl FnOnce(&mut dyn Backend) -> Result<T, String>) -> Result<T, String> {
        f(&mut **self.backend.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn seen(&self, workload: &Workload, requests: &BTreeMap<&str, i64>) -> Seen {
        let request = |name: &String| requests.get(name.as_str()).copied().unwrap_or(0);
        let pod_sets = workload.pod_sets.iter().map(|p| PodSet { name: p.name.clone(), count: p.count });
        Seen {
            priority: workload.effective_priority(),
            requests: self.manifest.workload_requests.iter().map(request).collect(),
            name: workload.key.name.clone(),
            namespace: workload.key.namespace.clone(),
            queue: workload.queue.clone(),
            priority_class: workload.priority_class.clone(),
            pod_sets: pod_sets.collect(),
        }
    }
}

impl WorkloadPolicy for GuestPolicy {
    fn rule(&self, workload: &Workload, requests: &BTreeMap<&str, i64>) -> Ruling {
        if !self.has("workload") {
            return Ruling::default();
        }
        let seen = self.seen(workload, requests);
        match self.ask(|backend| backend.rule(&seen)) {
            Ok(ruling) => {
                Ruling { veto: ruling.veto.map(|why| line(&why)), order: ruling.order, score: ruling.score }
            }
            Err(why) => {
                Ruling { veto: Some(line(&format!("plugin {}: {why}", self.name))), ..Ruling::default() }
            }
        }
    }

    fn scores_flavors(&self) -> bool {
        self.has("flavor")
    }

    fn score_flavors(
        &self,
        workload: &Workload,
        requests: &BTreeMap<&str, i64>,
        flavors: &[&ResourceFlavor],
    ) -> Vec<i32> {
        let label =
            |flavor: &ResourceFlavor, key: &String| flavor.node_labels.get(key).map(ToString::to_string);
        let flavor = |flavor: &&ResourceFlavor| Flavor {
            name: flavor.name.clone(),
            labels: self.manifest.flavor_labels.iter().map(|key| label(flavor, key)).collect(),
        };
        let (seen, flavors) = (self.seen(workload, requests), flavors.iter().map(flavor).collect::<Vec<_>>());
        self.ask(|backend| backend.score_flavors(&seen, &flavors)).unwrap_or_else(|error| {
            tracing::error!(plugin = &*self.name, "failed to score flavors: {error}");
            Vec::new()
        })
    }

    fn orders_victims(&self) -> bool {
        self.has("victim")
    }

    fn victim_order(&self, workload: &Workload, requests: &BTreeMap<&str, i64>) -> i32 {
        let seen = self.seen(workload, requests);
        self.ask(|backend| backend.victim_order(&seen)).unwrap_or_else(|error| {
            tracing::error!(plugin = &*self.name, "failed to order victims: {error}");
            0
        })
    }
}

/// One line of text, not too long.
fn line(text: &str) -> String {
    let cut =
        text.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= MAX_REASON).last();
    let text = &text[..cut.unwrap_or(0)];
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

//! Which jobs may start in the end: what they depend on has had the outcome that they want, or will have it.

use std::sync::Arc;

use plimsoll_api::kueue::DEPENDS_ON;
use serde_json::Value;

use super::Users;
use super::reading::{job_size, size, workload_of};
use crate::api::{Kind, condition, is_true, list, name_of, text};
use crate::network::Network;
use crate::scenario::objects::NAMESPACE;

/// Longest chain of dependencies that is followed; a longer one is a circle.
const DEEP: u32 = 100;

/// The one dependency of an object: the name, without the outcome.
fn dependency(object: &Value) -> Option<&str> {
    let text = object["metadata"]["annotations"][DEPENDS_ON].as_str()?;
    text.split(':').next()
}

impl Users {
    /// Whether what an object depends on does not keep it from starting for ever.
    pub(super) fn may_start(&self, object: &Value, network: &Network) -> bool {
        self.hopes(object, network, 0)
    }

    fn hopes(&self, object: &Value, network: &Network, depth: u32) -> bool {
        let Some(name) = dependency(object) else { return true };
        let own = if object["kind"] == "Workload" {
            Some(Arc::new(object.clone()))
        } else {
            let group = text(object, &["metadata", "labels", "kueue.x-k8s.io/pod-group-name"]);
            let own = name_of(object).1;
            workload_of(if group.is_empty() { &own } else { group }, network)
        };
        if own.is_some_and(|w| is_true(&w, "plimsoll.dev/DependenciesMet")) {
            return true;
        }
        depth < DEEP && self.will_succeed(name, network, depth + 1)
    }

    /// Whether what has this name has succeeded, or has to.
    fn will_succeed(&self, name: &str, network: &Network, depth: u32) -> bool {
        let answers = |w: &&Arc<Value>| {
            // A group answers to its own name, and to none of its pods'.
            let group = w["metadata"]["annotations"]["kueue.x-k8s.io/is-group-workload"] == "true";
            name_of(w).1 == name
                || !group
                    && list(w, &["metadata", "ownerReferences"]).iter().any(|o| text(o, &["name"]) == name)
        };
        let mut found = false;
        for workload in network.api.all(Kind::Workload).filter(answers) {
            match condition(workload, "Finished").map(|c| text(c, &["reason"])) {
                Some("Succeeded") => return true,
                Some("WorkloadSliceReplaced") => {}
                Some(_) => found = true,
                None => {
                    return self.must_run(text(workload, &["spec", "queueName"]), size(workload))
                        && self.hopes(workload, network, depth);
                }
            }
        }
        if found {
            return false;
        }
        let queue = |o: &Value| text(o, &["metadata", "labels", "kueue.x-k8s.io/queue-name"]).to_owned();
        if let Some(job) = network.api.get(Kind::Job, NAMESPACE, name) {
            return self.must_run(&queue(job), job_size(job)) && self.hopes(job, network, depth);
        }
        self.pods.unfinished().any(|(pod, size)| {
            let group = text(pod, &["metadata", "labels", "kueue.x-k8s.io/pod-group-name"]);
            let is = if group.is_empty() { name_of(pod).1 == name } else { group == name };
            is && self.must_run(&queue(pod), size) && self.hopes(pod, network, depth)
        })
    }
}

//! The Job controller, as far as queueing depends on it: pods as many as the spec says, none while it is suspended, counts,
//! and the end (Kubernetes `pkg/controller/job/job_controller.go`, `syncJob`). Failed pods are replaced without limit.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Cluster, owner, pods_named_after};
use crate::api::{Kind, Request, Style, deleting, is_true, name_of, stamp, text, uid};
use crate::network::Network;
use crate::scenario::objects::NAMESPACE;

fn number(job: &Value, key: &str) -> Option<i64> {
    job["spec"][key].as_i64()
}

fn phase(pod: &Value) -> &str {
    text(pod, &["status", "phase"])
}

fn is_active(pod: &Value) -> bool {
    !matches!(phase(pod), "Succeeded" | "Failed") && !deleting(pod)
}

/// Whether a pod is on its way out and has not ended (KEP-3939).
fn terminates(pod: &Value) -> bool {
    !matches!(phase(pod), "Succeeded" | "Failed") && deleting(pod)
}

impl Cluster {
    /// The Job controller looks at a Job.
    pub fn sync_job(&mut self, name: &str, network: &mut Network) {
        self.jobs.remove(name);
        let job = network.api.get(Kind::Job, NAMESPACE, name).cloned();
        let present = job.as_ref().map_or("", |j| uid(j)).to_owned();
        collect(name, &present, network);
        let Some(job) = job else { return };
        if is_true(&job, "Complete") || is_true(&job, "Failed") {
            return;
        }
        let mine = |p: &&Arc<Value>| owner(p) == Some((name, present.as_str()));
        let pods: Vec<Arc<Value>> =
            pods_named_after(name, network).into_iter().filter(mine).cloned().collect();
        let suspended = job["spec"]["suspend"] == true;
        let parallelism = number(&job, "parallelism").unwrap_or(1);
        let completions = number(&job, "completions").unwrap_or(parallelism);
        let count = |phase_name: &str| pods.iter().filter(|p| phase(p) == phase_name).count() as i64;
        // A pod that has ended counts once and for ever (the finalizer batch.kubernetes.io/job-tracking).
        let ended = pods.iter().filter(|p| phase(p) == "Succeeded").map(|p| uid(p).to_owned());
        let counted = self.succeeded.entry(present.clone()).or_default();
        counted.extend(ended);
        let succeeded = counted.len() as i64;
        let mut active: Vec<&Arc<Value>> = pods.iter().filter(|p| is_active(p)).collect();
        // Pods without a node go first (`pkg/controller/controller_utils.go`, `ActivePods`).
        active.sort_by_key(|p| text(p, &["spec", "nodeName"]).is_empty());
        let wanted = if suspended { 0 } else { parallelism.min(completions - succeeded).max(0) };
        let mut present_now = active.len() as i64;
        // Those deleted now count as well (`pkg/controller/job/job_controller.go`, `manageJob`).
        let terminating =
            pods.iter().filter(|p| terminates(p)).count() as i64 + (present_now - wanted).max(0);
        while present_now > wanted {
            if let Some(pod) = active.pop() {
                let (kind, name, uid, now) = (Kind::Pod, name_of(pod), uid(pod).to_owned(), network.now());
                let _ = network.api.handle(Request::Delete { kind, name, uid, grace: None }, now);
            }
            present_now -= 1;
        }
        // Pods that are on their way out still count for the number of those that are made.
        while present_now < wanted {
            self.make_pod(&job, network);
            present_now += 1;
        }
        let ready = active.iter().filter(|p| is_true(p, "Ready")).count();
        let mut status =
            json!({"active": present_now, "succeeded": succeeded, "failed": count("Failed"), "ready": ready});
        if self.terminating {
            status["terminating"] = json!(terminating);
        }
        if !suspended && !job["status"]["startTime"].is_string() {
            status["startTime"] = stamp(network.now());
        }
        // Complete comes when no pod is left that runs (KEP-3939).
        if succeeded >= completions && !pods.iter().any(|p| !matches!(phase(p), "Succeeded" | "Failed")) {
            status["conditions"] =
                json!([{"type": "Complete", "status": "True", "lastTransitionTime": stamp(network.now())}]);
        }
        self.patch_job(name, &status, network);
    }

    fn patch_job(&self, name: &str, status: &Value, network: &mut Network) {
        let (kind, name, style) = (Kind::Job, (NAMESPACE.to_owned(), name.to_owned()), Style::Strategic);
        let (body, now) = (json!({"status": status}), network.now());
        let _ = network.api.handle(Request::Patch { kind, name, status: true, style, body }, now);
    }

    fn make_pod(&mut self, job: &Value, network: &mut Network) {
        let name = text(job, &["metadata", "name"]);
        let made = self.made.entry(name.to_owned()).or_insert(0);
        *made += 1;
        let template = &job["spec"]["template"];
        let mut pod = json!({"metadata": template["metadata"], "spec": template["spec"]});
        if !pod["metadata"].is_object() {
            pod["metadata"] = json!({});
        }
        pod["metadata"]["namespace"] = json!(NAMESPACE);
        pod["metadata"]["name"] = json!(format!("{name}-{made}"));
        pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid(job), "controller": true}]);
        let now = network.now();
        let _ = network.api.handle(Request::Create(Kind::Pod, pod), now);
    }
}

/// Deletes what belongs to Jobs of this name that are gone: the garbage collector.
fn collect(name: &str, present: &str, network: &mut Network) {
    for kind in [Kind::Pod, Kind::Workload] {
        let orphan =
            |o: &&Arc<Value>| owner(o).is_some_and(|(n, u)| n == name && u != present) && !deleting(o);
        let candidates = match kind {
            Kind::Pod => pods_named_after(name, network),
            _ => network.api.all(kind).collect(),
        };
        let all: Vec<Arc<Value>> = candidates.into_iter().filter(orphan).cloned().collect();
        for object in all {
            let (name, uid, now) = (name_of(&object), uid(&object).to_owned(), network.now());
            let _ = network.api.handle(Request::Delete { kind, name, uid, grace: None }, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_state::Time;

    use super::*;
    use crate::agenda::Event;
    use crate::scenario::{Faults, Settings};

    #[test]
    fn a_job_makes_its_pods_unless_it_is_suspended_and_takes_them_along() {
        let mut network = Network::new(1, Faults::default(), Time::from_seconds(1));
        let mut cluster = Cluster::new(1, &Settings::default());
        let template = json!({"spec": {"containers": [{"name": "main"}]}});
        let job = json!({"metadata": {"namespace": NAMESPACE, "name": "j"},
            "spec": {"suspend": true, "parallelism": 2, "template": template}});
        let now = network.now();
        network.api.handle(Request::Create(Kind::Job, job), now).unwrap();
        cluster.sync_job("j", &mut network);
        assert_eq!(network.api.all(Kind::Pod).count(), 0);
        let name = || (NAMESPACE.to_owned(), "j".to_owned());
        let body = json!({"spec": {"suspend": false}});
        let patch =
            Request::Patch { kind: Kind::Job, name: name(), status: false, style: Style::Merge, body };
        network.api.handle(patch, now).unwrap();
        cluster.sync_job("j", &mut network);
        assert_eq!(network.api.all(Kind::Pod).count(), 2);
        let status =
            |network: &Network| network.api.get(Kind::Job, NAMESPACE, "j").unwrap()["status"].clone();
        assert_eq!(status(&network)["active"], 2);
        for pod in ["j-1", "j-2"] {
            let (kind, name, style) = (Kind::Pod, (NAMESPACE.to_owned(), pod.to_owned()), Style::Merge);
            let body = json!({"status": {"phase": "Succeeded"}});
            network.api.handle(Request::Patch { kind, name, status: true, style, body }, now).unwrap();
        }
        cluster.sync_job("j", &mut network);
        assert_eq!(status(&network)["conditions"][0]["type"], "Complete");
        let delete = Request::Delete { kind: Kind::Job, name: name(), uid: String::new(), grace: None };
        network.api.handle(delete, now).unwrap();
        cluster.sync_job("j", &mut network);
        assert_eq!(network.api.all(Kind::Pod).count(), 0);
        assert!(network.agenda.pop().is_none_or(|e| !matches!(e, Event::Job(_))));
    }
}

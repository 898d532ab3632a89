//! The kubelets of all nodes: the stage machine of `plimsoll up`, in virtual time.

use std::sync::Arc;

use plimsoll_kubelet::kubelet::view::PodView;
use plimsoll_kubelet::{Kubelet, Options, Write};
use plimsoll_state::Time;
use serde_json::{Value, json};

use super::{Cluster, owner, pods_named_after};
use crate::agenda::Event;
use crate::api::{Kind, Name, Request, Style, deleting, is_true, name_of, text, uid};
use crate::network::Network;
use crate::scenario::objects::NAMESPACE;

/// The kubelets.
#[derive(Debug)]
pub struct Kubelets {
    machine: Kubelet,
    /// When they are due.
    due: Option<Time>,
}

impl Default for Kubelets {
    fn default() -> Self {
        let options = Options { speed: 1.0, events: false, leases: false };
        Self { machine: Kubelet::new(options), due: None }
    }
}

impl Cluster {
    /// A kubelet looks at a pod.
    pub fn look_at_pod(&mut self, name: &str, network: &mut Network) {
        let pod = network.api.get(Kind::Pod, NAMESPACE, name).cloned();
        let Some(pod) = pod else { return };
        let now = network.now();
        let node = text(&pod, &["spec", "nodeName"]).to_owned();
        if node.is_empty() {
            // Another one of the name.
            return;
        }
        if network.api.get(Kind::Node, "", &node).is_none() {
            self.kubelets.machine.forget_pod(uid(&pod));
            return collect(&pod, network);
        }
        let pods = if self.gangs { self.gang(pod, network) } else { vec![pod] };
        for pod in pods {
            if let Ok(view) = serde_json::from_value::<PodView>((*pod).clone()) {
                self.kubelets.machine.handle_pod(now.0, view);
            }
        }
        self.wake_kubelets(network);
    }

    /// A node has changed, or is gone: its pods are looked at.
    pub fn look_at_node(&mut self, name: &str, network: &mut Network) {
        let now = network.now();
        let node = network.api.get(Kind::Node, "", name).cloned();
        match node.as_ref().filter(|n| is_true(n, "Ready")) {
            Some(node) => self.kubelets.machine.handle_node(now.0, name, uid(node), None),
            None => self.kubelets.machine.forget_node(name),
        }
        let here = |p: &&Arc<Value>| text(p, &["spec", "nodeName"]) == name;
        let pods: Vec<Name> = network.api.all(Kind::Pod).filter(here).map(|p| name_of(p)).collect();
        for pod in pods {
            self.look_at_pod(&pod.1, network);
        }
    }

    fn wake_kubelets(&mut self, network: &mut Network) {
        let Some(wake) = self.kubelets.machine.next_wake() else { return };
        let wake = Time(wake).max(network.now());
        if self.kubelets.due.is_none_or(|due| wake < due) {
            self.kubelets.due = Some(wake);
            network.agenda.at(wake, Event::Kubelets);
        }
    }

    /// The kubelets do what is due; whether anything was.
    pub fn step_kubelets(&mut self, network: &mut Network) -> bool {
        let now = network.now();
        if self.kubelets.due != Some(now) {
            return false;
        }
        self.kubelets.due = None;
        for write in self.kubelets.machine.step(now.0) {
            let request = match write {
                Write::PodStatus { namespace, name, patch: body, .. } => {
                    let (kind, name, style) = (Kind::Pod, (namespace, name), Style::Strategic);
                    Request::Patch { kind, name, status: true, style, body }
                }
                Write::PodDelete { namespace, name, uid } => {
                    Request::Delete { kind: Kind::Pod, name: (namespace, name), uid, grace: Some(0) }
                }
                Write::Event { .. } | Write::Lease { .. } => continue,
            };
            // Gone, or another pod of that name.
            let _ = network.api.handle(request, now);
        }
        self.wake_kubelets(network);
        true
    }

    /// The pods of a Job that start together, once all that have not succeeded have nodes: none before, unless the pod is to
    /// go.
    fn gang(&self, pod: Arc<Value>, network: &Network) -> Vec<Arc<Value>> {
        if deleting(&pod) || text(&pod, &["status", "phase"]) != "Pending" {
            return vec![pod];
        }
        let Some((job, job_uid)) = owner(&pod) else { return vec![pod] };
        let pods = network.api.get(Kind::Job, NAMESPACE, job).and_then(|j| j["spec"]["parallelism"].as_u64());
        let placed = |p: &&Arc<Value>| {
            owner(p) == Some((job, job_uid))
                && !deleting(p)
                && !text(p, &["spec", "nodeName"]).is_empty()
                && text(p, &["status", "phase"]) != "Failed"
        };
        let pods_of_job = pods_named_after(job, network).into_iter();
        let mut placed: Vec<Arc<Value>> = pods_of_job.filter(placed).cloned().collect();
        // Those that succeeded are done, though they may have gone with their nodes.
        let there = |done: &&String| placed.iter().any(|p| uid(p) == done.as_str());
        let gone = self.succeeded.get(job_uid).map_or(0, |done| done.iter().filter(|d| !there(d)).count());
        if ((placed.len() + gone) as u64) < pods.unwrap_or(1) {
            return Vec::new();
        }
        placed.retain(|p| text(p, &["status", "phase"]) == "Pending");
        placed
    }
}

/// Deletes a pod whose node is gone; it has failed then (Kubernetes `pkg/controller/podgc/gc_controller.go`,
/// `markFailedAndDeletePod`).
fn collect(pod: &Value, network: &mut Network) {
    let (kind, name, now) = (Kind::Pod, name_of(pod), network.now());
    if !matches!(text(pod, &["status", "phase"]), "Succeeded" | "Failed") {
        let (style, body) = (Style::Strategic, json!({"status": {"phase": "Failed"}}));
        let request = Request::Patch { kind, name: name.clone(), status: true, style, body };
        let _ = network.api.handle(request, now);
    }
    let _ = network.api.handle(Request::Delete { kind, name, uid: uid(pod).to_owned(), grace: Some(0) }, now);
}

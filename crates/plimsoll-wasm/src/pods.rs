//! Pods of the cluster as guests get them.

use std::sync::Arc;

use plimsoll_scheduler::framework::{Cluster, PodId, WaitingPods};
use plimsoll_state::model::Pod;

use crate::host::Params;
use crate::protobuf::{assume_pod, encode_pod};

/// The pods that wait, as a parameter.
pub fn waiting_params(cluster: &Cluster, waiting: &WaitingPods) -> Params {
    let pods = waiting.pods();
    let one = |pod: &PodId| Some((cluster.pod(*pod)?.uid().to_owned(), assumed(cluster, *pod)));
    Params { waiting: pods.iter().filter_map(one).collect(), ..Params::default() }
}

/// A pod in protobuf; an empty message: there is no such pod.
pub fn encoded(cluster: &Cluster, pod: PodId) -> Arc<[u8]> {
    let Some(view) = cluster.pod(pod) else { return Arc::new([]) };
    match view.object() {
        Some(object) => encode_pod(object),
        None => encode_pod(&Pod {
            name: view.name().to_owned(),
            namespace: view.namespace().to_owned(),
            uid: view.uid().to_owned(),
            ..Pod::default()
        }),
    }
}

/// As [`encoded`], with the node that the pod is assumed to be on (`assume` in `pkg/scheduler/schedule_one.go`).
pub fn assumed(cluster: &Cluster, pod: PodId) -> Arc<[u8]> {
    let bytes = encoded(cluster, pod);
    match cluster.pod(pod).and_then(|view| view.node()) {
        Some(node) => assume_pod(&bytes, node.name()),
        None => bytes,
    }
}

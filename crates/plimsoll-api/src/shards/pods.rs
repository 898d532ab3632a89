//! Which pods the engine of a shard knows: those on its nodes, and those of its queues.

use std::collections::{BTreeSet, HashMap, HashSet};

use plimsoll_state::ObjectEvent;
use plimsoll_state::model::Pod;

/// A pod that is on no node of the shard.
#[derive(Debug)]
struct Held {
    pod: Box<Pod>,
    /// Whether the engine knows it.
    given: bool,
}

type WorkloadName = (String, String);

/// Pods and nodes of the cluster, divided: those of one shard go to its engine, the others are held back, because their node
/// or workload may come to this shard, or is only seen later than they are.
#[derive(Debug, Default)]
pub struct Pods {
    /// Whether everything has been listed once; before that, all pods are held.
    open: bool,
    nodes: HashSet<String>,
    held: HashMap<String, Held>,
    /// Pods that are held, by their node.
    on_node: HashMap<String, BTreeSet<String>>,
    /// Pods that are held, by their workload.
    of_workload: HashMap<WorkloadName, BTreeSet<String>>,
}

impl Pods {
    /// A node of the shard was seen. Returns the pods on it that have been held.
    pub fn node(&mut self, name: &str) -> Vec<ObjectEvent> {
        if !self.nodes.insert(name.to_owned()) || !self.open {
            return Vec::new();
        }
        let uids = self.on_node.remove(name).unwrap_or_default();
        uids.iter().filter_map(|uid| self.take(uid)).map(|held| ObjectEvent::PodUpsert(held.pod)).collect()
    }

    /// A node is gone, or belongs to another shard. Returns whether it was of this one.
    pub fn node_gone(&mut self, name: &str) -> bool {
        self.nodes.remove(name)
    }

    /// Whether a node is of this shard.
    pub fn has_node(&self, name: &str) -> bool {
        self.nodes.contains(name)
    }

    /// A pod was seen or has changed. `mine`: whether it is of one of the shard's queues, or its profile may give it a node.
    /// On a node of another shard such a pod counts nowhere, but its workload does not wait for it.
    pub fn upsert(&mut self, pod: Box<Pod>, mine: impl FnOnce(&Pod) -> bool) -> Option<ObjectEvent> {
        let (node, uid) = (&pod.spec.node_name, pod.uid.clone());
        let before = self.take(&uid).map(|held| held.given);
        if !self.open {
            self.hold(pod, false);
            return None;
        }
        if self.nodes.contains(node) {
            return Some(ObjectEvent::PodUpsert(pod));
        }
        let given = mine(&pod);
        let event = match (given, before) {
            (true, _) => Some(ObjectEvent::PodUpsert(pod.clone())),
            (false, Some(false)) => None,
            // One that is not held may have been given with its node, before that left the shard.
            (false, Some(true) | None) => Some(ObjectEvent::PodDelete(uid)),
        };
        // One that has ended takes nothing from its node, whose ever it is.
        if !pod.status.phase.is_terminal() {
            self.hold(pod, given);
        }
        event
    }

    /// A pod is gone.
    pub fn delete(&mut self, uid: &str) -> Option<ObjectEvent> {
        let held = self.take(uid).is_some_and(|held| !held.given);
        (!held).then(|| ObjectEvent::PodDelete(uid.to_owned()))
    }

    /// Everything has been listed once: returns all pods of the shard.
    pub fn open(&mut self, mine: impl Fn(&Pod) -> bool) -> Vec<ObjectEvent> {
        self.open = true;
        let uids: BTreeSet<String> = self.held.keys().cloned().collect();
        let held: Vec<Held> = uids.iter().filter_map(|uid| self.take(uid)).collect();
        let events = held.into_iter().filter_map(|held| self.upsert(held.pod, &mine));
        // The engine knows none of the others.
        events.filter(|event| matches!(event, ObjectEvent::PodUpsert(_))).collect()
    }

    /// A workload has changed: returns what follows for its pods on no node of the shard.
    pub fn workload_changed(
        &mut self,
        namespace: &str,
        name: &str,
        mine: impl Fn(&Pod) -> bool,
    ) -> Vec<ObjectEvent> {
        let uids = self.of_workload.get(&(namespace.to_owned(), name.to_owned()));
        let uids: Vec<String> = uids.into_iter().flatten().cloned().collect();
        self.judge(&uids, &mine)
    }

    /// Queues have changed: returns what follows for all pods on no node of the shard.
    pub fn queues_changed(&mut self, mine: impl Fn(&Pod) -> bool) -> Vec<ObjectEvent> {
        let uids: BTreeSet<String> = self.held.keys().cloned().collect();
        self.judge(&uids.into_iter().collect::<Vec<_>>(), &mine)
    }

    fn judge(&mut self, uids: &[String], mine: &impl Fn(&Pod) -> bool) -> Vec<ObjectEvent> {
        if !self.open {
            return Vec::new();
        }
        let mut events = Vec::new();
        for uid in uids {
            let Some(held) = self.held.get_mut(uid) else { continue };
            let now = mine(&held.pod);
            match (std::mem::replace(&mut held.given, now), now) {
                (false, true) => events.push(ObjectEvent::PodUpsert(held.pod.clone())),
                (true, false) => events.push(ObjectEvent::PodDelete(uid.clone())),
                (true, true) | (false, false) => {}
            }
        }
        events
    }

    fn hold(&mut self, pod: Box<Pod>, given: bool) {
        let uid = pod.uid.clone();
        let (node, workload) = (&pod.spec.node_name, &pod.workload);
        if !node.is_empty() {
            self.on_node.entry(node.clone()).or_default().insert(uid.clone());
        }
        if !workload.is_empty() {
            let key = (pod.namespace.clone(), workload.clone());
            self.of_workload.entry(key).or_default().insert(uid.clone());
        }
        self.held.insert(uid, Held { pod, given });
    }

    fn take(&mut self, uid: &str) -> Option<Held> {
        let held = self.held.remove(uid)?;
        let (node, workload) = (&held.pod.spec.node_name, &held.pod.workload);
        if let Some(uids) = self.on_node.get_mut(node) {
            uids.remove(uid);
            if uids.is_empty() {
                self.on_node.remove(node);
            }
        }
        let key = (held.pod.namespace.clone(), workload.clone());
        if let Some(uids) = self.of_workload.get_mut(&key) {
            uids.remove(uid);
            if uids.is_empty() {
                self.of_workload.remove(&key);
            }
        }
        Some(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str, node: &str, workload: &str) -> Box<Pod> {
        let mut pod = Pod {
            uid: uid.into(),
            name: uid.into(),
            namespace: "n".into(),
            workload: workload.into(),
            ..Pod::default()
        };
        pod.spec.node_name = node.into();
        Box::new(pod)
    }

    /// Events as words: `+uid` and `-uid`.
    fn words(events: impl IntoIterator<Item = ObjectEvent>) -> Vec<String> {
        let word = |event| match event {
            ObjectEvent::PodUpsert(pod) => format!("+{}", pod.uid),
            ObjectEvent::PodDelete(uid) => format!("-{uid}"),
            other => panic!("{other:?}"),
        };
        events.into_iter().map(word).collect()
    }

    fn no(_: &Pod) -> bool {
        false
    }

    #[test]
    fn before_everything_is_listed_pods_are_held() {
        let mut pods = Pods::default();
        assert!(pods.upsert(pod("here", "mine", ""), no).is_none());
        assert!(pods.upsert(pod("there", "theirs", ""), no).is_none());
        assert!(pods.upsert(pod("waits", "", "w"), no).is_none());
        assert!(pods.upsert(pod("other", "", "v"), no).is_none());
        assert!(pods.node("mine").is_empty(), "held until all is listed");
        assert_eq!(words(pods.open(|pod| pod.workload == "w")), ["+here", "+waits"]);
    }

    #[test]
    fn only_pods_on_own_nodes_and_own_workloads_are_given() {
        let mut pods = Pods::default();
        pods.open(no);
        pods.node("mine");
        assert_eq!(words(pods.upsert(pod("a", "mine", ""), no)), ["+a"]);
        assert_eq!(words(pods.upsert(pod("b", "", "w"), no)), ["-b"], "as if it had been given");
        assert_eq!(words(pods.upsert(pod("b", "", "w"), no)), [""; 0]);
        // Its workload comes to the shard, and leaves it.
        assert_eq!(words(pods.workload_changed("n", "w", |_| true)), ["+b"]);
        assert_eq!(words(pods.workload_changed("n", "w", |_| true)), [""; 0]);
        assert_eq!(words(pods.workload_changed("n", "other", no)), [""; 0]);
        assert_eq!(words(pods.queues_changed(no)), ["-b"]);
        assert_eq!(words(pods.queues_changed(|_| true)), ["+b"]);
        // Bound by another scheduler to a node of another shard: the pod still counts for its workload.
        assert_eq!(words(pods.upsert(pod("b", "theirs", "w"), |_| true)), ["+b"]);
        assert_eq!(words(pods.workload_changed("n", "w", no)), ["-b"]);
        assert_eq!(words(pods.upsert(pod("b", "theirs", "w"), no)), [""; 0], "known to be elsewhere");
        assert_eq!(words(pods.delete("b")), [""; 0]);
        assert_eq!(words(pods.delete("a")), ["-a"]);
    }

    #[test]
    fn a_node_that_moves_takes_its_pods_along() {
        let mut pods = Pods::default();
        pods.open(no);
        assert_eq!(words(pods.upsert(pod("a", "moves", ""), no)), ["-a"], "not known before");
        let mut ended = pod("ended", "moves", "");
        ended.status.phase = plimsoll_state::model::Phase::Succeeded;
        pods.upsert(ended, no);
        assert_eq!(words(pods.node("moves")), ["+a"]);
        assert_eq!(words(pods.node("moves")), [""; 0]);
        assert!(pods.has_node("moves") && pods.node_gone("moves") && !pods.node_gone("moves"));
        // The engine has it until it changes: on a node that is gone it counts nowhere.
        assert_eq!(words(pods.upsert(pod("a", "moves", ""), no)), ["-a"]);
        assert_eq!(words(pods.node("moves")), ["+a"]);
    }
}

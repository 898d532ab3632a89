//! Where capacity was freed: joint admission repeats a dry run that failed only when that could help one of its pods.

use super::Scheduler;
use super::cluster::NodeId;
use plimsoll_state::model;
use std::collections::{BTreeSet, VecDeque};

/// How many changes are remembered.
const LONGEST: usize = 256;

/// Nodes on which capacity was freed, by version of the capacity.
#[derive(Debug, Default)]
pub(crate) struct FreedNodes {
    log: VecDeque<(u64, NodeId)>,
    /// Up to which version it is not known where.
    unknown: u64,
}

impl FreedNodes {
    /// Capacity was freed on this node; `None`: it may have been anywhere.
    fn push(&mut self, version: u64, node: Option<NodeId>) {
        match node {
            None => {
                self.log.clear();
                self.unknown = version;
            }
            Some(node) => {
                self.log.push_back((version, node));
                if self.log.len() > LONGEST
                    && let Some((oldest, _)) = self.log.pop_front()
                {
                    self.unknown = oldest;
                }
            }
        }
    }

    /// The nodes on which capacity was freed after a version, if that is known.
    fn since(&self, version: u64) -> Option<BTreeSet<NodeId>> {
        let after = self.log.iter().rev().take_while(|(v, _)| *v > version);
        (version >= self.unknown).then(|| after.map(|(_, node)| *node).collect())
    }
}

impl Scheduler {
    /// There may be more capacity on nodes than before, here, or on any of them: workloads that wait for some are tried again.
    pub(super) fn capacity_freed(&mut self, node: Option<NodeId>) {
        self.freed = true;
        self.capacity_changed(node);
    }

    /// The same where no workload has waited for it yet.
    pub(super) fn capacity_changed(&mut self, node: Option<NodeId>) {
        self.capacity_version += 1;
        self.freed_nodes.push(self.capacity_version, node);
    }

    /// Whether one of these pods could be placed where capacity was freed after a version. Until then a dry run of them that
    /// failed fails again. Pods that look at other pods or at volumes could always.
    pub fn could_help(&mut self, since: u64, pods: &[(model::Pod, usize)]) -> bool {
        let Some(nodes) = self.freed_nodes.since(since) else { return true };
        pods.iter().filter(|(_, count)| *count > 0).any(|(pod, _)| {
            let Some((row, profile)) = self.placeholder(pod, "", None) else { return true };
            let spec = &self.cluster.shape(row).spec;
            let source = &spec.source;
            let local =
                !spec.depends_on_pods() && source.volumes.is_empty() && source.resource_claims.is_empty();
            let fits = |node: NodeId| {
                self.cluster.nodes.get(node).is_some_and(|n| n.exists)
                    && self.passes_on(row, node, profile).is_some()
            };
            let helps = !local || nodes.iter().any(|node| fits(*node));
            self.cluster.remove_pod(row);
            helps
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use plimsoll_state::ObjectEvent;
    use plimsoll_state::model::{Container, Node, Pod, PodSpec, WorkloadKey};
    use plimsoll_state::time::Time;
    use proptest::prelude::*;

    const NOW: Time = Time::from_seconds(1);

    fn node(name: &str, cpu: i64) -> ObjectEvent {
        let mut node = Node { uid: name.into(), name: name.into(), ready: true, ..Node::default() };
        node.allocatable.insert("cpu".into(), cpu);
        node.allocatable.insert("pods".into(), 10);
        ObjectEvent::NodeUpsert(Box::new(node))
    }

    fn pod(name: &str, cpu: i64, node: &str) -> Pod {
        let container = Container { requests: [("cpu".to_owned(), cpu)].into(), ..Container::default() };
        let spec = PodSpec {
            scheduler_name: "default-scheduler".into(),
            node_name: node.into(),
            containers: vec![container],
            ..PodSpec::default()
        };
        Pod { uid: name.into(), namespace: "n".into(), name: name.into(), spec, ..Pod::default() }
    }

    fn fits(scheduler: &mut Scheduler, pods: &[(Pod, usize)]) -> bool {
        let key = WorkloadKey { namespace: "n".into(), name: "gang".into() };
        let (run, failure) = scheduler.dry_run(NOW, &key, pods);
        scheduler.end_dry_run(run);
        failure.is_none()
    }

    /// Nodes of four CPUs, and pods that fill them.
    fn full(nodes: usize) -> Scheduler {
        let mut scheduler = Scheduler::new(Config::default());
        for n in 0..nodes {
            scheduler.handle_object(NOW, &node(&format!("n{n}"), 4));
            for (i, cpu) in [1, 1, 2].into_iter().enumerate() {
                let pod = pod(&format!("p{n}-{i}"), cpu, &format!("n{n}"));
                scheduler.handle_object(NOW, &ObjectEvent::PodUpsert(Box::new(pod)));
            }
        }
        scheduler
    }

    #[test]
    fn only_what_a_pod_could_use_helps() {
        let mut scheduler = full(2);
        let gang = [(pod("g", 2, ""), 2)];
        assert!(!fits(&mut scheduler, &gang));
        let before = scheduler.capacity_version();
        assert!(!scheduler.could_help(before, &gang), "nothing was freed");
        scheduler.handle_object(NOW, &ObjectEvent::PodDelete("p0-0".into()));
        assert!(!scheduler.could_help(before, &gang), "one CPU of two");
        scheduler.handle_object(NOW, &ObjectEvent::PodDelete("p0-1".into()));
        assert!(scheduler.could_help(before, &gang));
        assert!(!fits(&mut scheduler, &gang), "one of two");
        let before = scheduler.capacity_version();
        scheduler.handle_object(NOW, &node("n2", 4));
        assert!(scheduler.could_help(before, &gang), "a node came");
    }

    #[test]
    fn what_is_not_remembered_could_help() {
        let mut scheduler = full(LONGEST / 2);
        let gang = [(pod("g", 4, ""), 1)];
        let before = scheduler.capacity_version();
        for n in 0..LONGEST / 2 {
            scheduler.handle_object(NOW, &ObjectEvent::PodDelete(format!("p{n}-0")));
        }
        assert!(!scheduler.could_help(before, &gang));
        for n in 0..LONGEST / 2 + 1 {
            scheduler.handle_object(NOW, &ObjectEvent::PodDelete(format!("p{n}-1")));
            scheduler.handle_object(NOW, &ObjectEvent::PodDelete(format!("p{n}-2")));
        }
        assert!(scheduler.could_help(before, &gang));
    }

    /// PodTopologySpread: without its empty domain, the others may take more.
    #[test]
    fn workloads_are_tried_again_when_a_node_is_gone() {
        let mut e = crate::tests::engine();
        crate::tests::step(&mut e, 0, vec![crate::tests::node("a", 1)]);
        e.take_freed();
        let gone = plimsoll_state::ObjectEvent::NodeDelete("a".into());
        crate::tests::step(&mut e, 1, vec![crate::testing::Event::Object(gone)]);
        assert!(e.take_freed());
    }

    proptest! {
        /// What failed fails again as long as nothing that was freed could help.
        #[test]
        fn a_dry_run_that_nothing_could_help_fails_again(
            nodes in 1usize..5,
            gang in prop::collection::vec((1i64..5, 1usize..5), 1..3),
            gone in prop::collection::vec((0usize..5, 0usize..3), 0..10),
        ) {
            let mut scheduler = full(nodes);
            let gang: Vec<(Pod, usize)> = gang.iter().map(|(cpu, n)| (pod("g", *cpu, ""), *n)).collect();
            prop_assert!(!fits(&mut scheduler, &gang));
            let mut failed = scheduler.capacity_version();
            for (n, i) in gone {
                scheduler.handle_object(NOW, &ObjectEvent::PodDelete(format!("p{n}-{i}")));
                let helps = scheduler.could_help(failed, &gang);
                let fits = fits(&mut scheduler, &gang);
                prop_assert!(helps || !fits, "it fits, and nothing could help");
                if fits {
                    break;
                }
                failed = scheduler.capacity_version();
            }
        }
    }
}

//! The bound on volumes beside the exact count.

use super::*;
use crate::testing::Event;
use crate::tests::{engine, node, object, pod, step, upsert};
use plimsoll_state::model::{self, Volume};
use plimsoll_state::rng::Rng;
use plimsoll_state::{ClusterObject, ClusterObjectKey, ClusterObjectKind, ObjectEvent};
use proptest::prelude::*;

const NODES: [&str; 2] = ["a", "b"];
const DRIVERS: [&str; 2] = ["d", "e"];

/// With this probability in thousandths.
fn chance(rng: &mut Rng, probability: u32) -> bool {
    rng.below(1000) < probability
}

fn one_of(rng: &mut Rng, names: [&str; 2]) -> String {
    names[usize::from(chance(rng, 500))].to_owned()
}

fn csi_node(rng: &mut Rng) -> ClusterObject {
    let drivers = DRIVERS.map(|name| model::CsiNodeDriver {
        name: name.into(),
        limit: chance(rng, 800).then(|| i64::from(rng.below(4))),
    });
    ClusterObject::CsiNode(model::CsiNode {
        name: one_of(rng, NODES),
        drivers: drivers.into(),
        ..model::CsiNode::default()
    })
}

fn volume(rng: &mut Rng) -> ClusterObject {
    ClusterObject::Volume(model::PersistentVolume {
        name: format!("v{}", rng.below(5)),
        csi: chance(rng, 800).then(|| (one_of(rng, DRIVERS), format!("h{}", rng.below(3)))),
        ..model::PersistentVolume::default()
    })
}

fn claim(rng: &mut Rng) -> ClusterObject {
    ClusterObject::Claim(model::PersistentVolumeClaim {
        namespace: "ns".into(),
        name: format!("c{}", rng.below(6)),
        volume_name: format!("v{}", rng.below(6)),
        bind_completed: true,
        ..model::PersistentVolumeClaim::default()
    })
}

fn attachment(rng: &mut Rng) -> ClusterObject {
    ClusterObject::VolumeAttachment(model::VolumeAttachment {
        name: format!("x{}", rng.below(4)),
        attacher: if chance(rng, 900) { one_of(rng, DRIVERS) } else { String::new() },
        node: one_of(rng, NODES),
        volume: chance(rng, 900).then(|| format!("v{}", rng.below(6))),
    })
}

fn with_claims(rng: &mut Rng) -> Event {
    let mut pod = pod(&format!("p{}", rng.below(8)), 1);
    for v in 0..rng.below(4) {
        let source = VolumeSource::Claim { name: format!("c{}", rng.below(7)), read_only: false };
        pod.spec.volumes.push(Volume { name: format!("{v}"), source });
    }
    if chance(rng, 700) {
        pod.spec.node_name = one_of(rng, NODES);
    }
    upsert(pod)
}

fn event(rng: &mut Rng) -> Event {
    match rng.below(8) {
        0 => object(csi_node(rng)),
        1 => object(volume(rng)),
        2 => object(claim(rng)),
        3 => object(attachment(rng)),
        4 => {
            let (kind, name) = (ClusterObjectKind::VolumeAttachment, format!("x{}", rng.below(4)));
            Event::Object(ObjectEvent::ObjectDelete(ClusterObjectKey {
                kind,
                namespace: String::new(),
                name,
            }))
        }
        5 => Event::Object(ObjectEvent::PodDelete(format!("uid-p{}", rng.below(8)))),
        _ => with_claims(rng),
    }
}

/// Whether the pod's volumes can be attached, by the exact count alone.
fn exact(cluster: &Cluster, pod: PodId, node: NodeId) -> bool {
    let mut new = Attached::new();
    let name = cluster.strings.text(cluster.nodes[node].name);
    match (attachable(cluster, pod, true, &mut new), cluster.objects.csi_nodes.get(name)) {
        (Err(_), _) => false,
        (Ok(()), None) => true,
        (Ok(()), Some(csi_node)) => fits(cluster, node, &new, csi_node),
    }
}

proptest! {
    #[test]
    fn the_bound_changes_no_verdict(seed in any::<u64>()) {
        let mut rng = Rng::new(seed);
        let mut e = engine();
        let mut first: Vec<Event> = NODES.map(|n| node(n, 100)).into();
        first.extend((0..40).map(|_| event(&mut rng)));
        step(&mut e, 0, first);
        for at in 1..10 {
            step(&mut e, at, (0..4).map(|_| event(&mut rng)).collect());
            let cluster = &e.cluster;
            cluster.check();
            for (id, _) in cluster.pods.iter() {
                let incoming = Incoming::new(cluster, id);
                let go = VolumeLimits.pre_filter(cluster, &incoming, &mut CycleState::default());
                for (node, _) in cluster.nodes.iter() {
                    let success = match &go {
                        PreFilterResult::Go { state, .. } => state.filter(cluster, node).is_success(),
                        PreFilterResult::Skip => true,
                        PreFilterResult::Reject(_) => false,
                    };
                    prop_assert_eq!(success, exact(cluster, id, node));
                }
            }
        }
    }
}

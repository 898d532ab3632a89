use super::*;

fn division(node: &str) -> Division {
    let mut division = Division::new("a", 0);
    division.pods.node(node);
    division
}

#[test]
fn a_node_is_given_away_when_no_binding_is_under_way() {
    let mut division = Division::new("a", 0);
    assert!(!division.may_bind("x"), "not of this shard");
    division = self::division("x");
    assert!(division.may_bind("x") && division.may_bind("x"));
    let leaving = Leaving { to: "b".into(), version: "7".into() };
    let annotations = [(shards::MOVE_TO.to_owned(), "b".to_owned())].into();
    let labels = [(shards::LABEL.to_owned(), "a".to_owned())].into();
    let node = Node { name: "x".into(), annotations, labels, ..Node::default() };
    let mut out = Vec::new();
    assert!(!division.node(node, "7", &mut out) && division.gives_away());
    assert!(matches!(&out[..], [Told::Object(ObjectEvent::NodeDelete(name))] if name == "x"), "{out:?}");
    assert!(!division.may_bind("x"), "no more begins");
    division.bound("x");
    assert_eq!(division.given_away(), []);
    division.bound("x");
    assert_eq!(division.given_away(), [("x".to_owned(), leaving)]);
    division.node_gone("x", &mut out);
    assert!(!division.gives_away());
}

#[test]
fn workloads_of_other_shards_are_not_written() {
    let (mut division, mut objects) = (Division::new("a", 0), ObjectStore::default());
    let lq = |name: &str| json!({"metadata": {"namespace": "n", "name": name, "uid": name}, "spec": {"clusterQueue": name}});
    let wl = |name: &str, queue: &str| json!({"metadata": {"namespace": "n", "name": name, "uid": name}, "spec": {"queueName": queue}});
    for queue in ["qa", "qb"] {
        objects.put(Kind::LocalQueue, lq(queue));
    }
    objects.put(Kind::Workload, wl("of-a", "qa"));
    objects.put(Kind::Workload, wl("of-b", "qb"));
    division.trees.put_cluster_queue("qa", "", "a");
    division.trees.put_cluster_queue("qb", "", "b");
    division.trees.resolve();
    assert!(division.may_write("n", "of-a", &objects) && division.may_write("n", "unknown", &objects));
    assert!(!division.may_write("n", "of-b", &objects));
    let config = crate::Config::default();
    let env = Env { objects: &objects, config: &config, now: plimsoll_state::Time(0) };
    let topology = |name: &str| Key::Topology("n".into(), name.into());
    assert!(division.plans(&topology("of-a"), env) && !division.plans(&topology("of-b"), env));
    assert!(!division.plans(&Key::ResourceFlavor("f".into()), env), "about the whole cluster");
    assert!(Division::new(DEFAULT, 0).plans(&Key::ResourceFlavor("f".into()), env));
}

/// A label moves a whole tree: its workloads leave before their queue, and come after it.
#[test]
fn trees_come_and_go_with_their_workloads() {
    let (mut division, mut objects) = (Division::new("a", 1), ObjectStore::default());
    let cq = |label: &str| {
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue",
            "metadata": {"name": "q", "uid": "q", "labels": {shards::LABEL: label}}, "spec": {}})
    };
    let of_kind = |kind: &str, name: &str, spec: Value| {
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind,
            "metadata": {"namespace": "n", "name": name, "uid": name}, "spec": spec})
    };
    let event_of = |object: &Value| plimsoll_api::kueue::upsert_event(object).ok().flatten();
    let mut see = |kind: Kind, object: Value, out: &mut Vec<Told>| {
        objects.put(kind, object.clone());
        let seen = Seen { objects: &objects, event_of: &event_of };
        division.upsert(event_of(&object).unwrap(), &object, seen, out);
        if !division.is_open() && kind == Kind::Workload {
            division.listed(seen, out);
        }
    };
    let words = |out: &mut Vec<Told>| -> Vec<&'static str> {
        let word = |told| match told {
            Told::Queueing(Event::ClusterQueueUpsert(_)) => Some("+q"),
            Told::Queueing(Event::ClusterQueueDelete(_)) => Some("-q"),
            Told::Queueing(Event::LocalQueueUpsert(_)) => Some("+lq"),
            Told::Queueing(Event::LocalQueueDelete(..)) => Some("-lq"),
            Told::Queueing(Event::WorkloadUpsert(_)) => Some("+wl"),
            Told::Queueing(Event::WorkloadDelete(_)) => Some("-wl"),
            _ => None,
        };
        out.drain(..).filter_map(word).collect()
    };
    let mut out = Vec::new();
    see(Kind::ClusterQueue, cq("a"), &mut out);
    see(Kind::LocalQueue, of_kind("LocalQueue", "lq", json!({"clusterQueue": "q"})), &mut out);
    assert!(out.is_empty(), "before the last list");
    see(Kind::Workload, of_kind("Workload", "wl", json!({"queueName": "lq"})), &mut out);
    assert_eq!(words(&mut out), ["+q", "+lq", "+wl"]);
    see(Kind::ClusterQueue, cq("b"), &mut out);
    assert_eq!(words(&mut out), ["-wl", "-lq", "-q"]);
    see(Kind::ClusterQueue, cq("a"), &mut out);
    assert_eq!(words(&mut out), ["+q", "+lq", "+wl"]);
}

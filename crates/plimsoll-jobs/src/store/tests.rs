//! The store as watches and responses fill it.

use super::*;
use crate::pod_view::GROUP;
use serde_json::json;

fn pod(name: &str, group: &str, version: &str) -> Value {
    json!({"metadata": {"namespace": "ns", "name": name, "resourceVersion": version, "labels": {GROUP: group}}})
}

#[test]
fn newer_wins_and_indexes_follow() {
    let mut objects = ObjectStore::default();
    objects.put(Kind::Pod, pod("a", "g", "5"));
    objects.put(Kind::Pod, pod("b", "g", "6"));
    objects.put(Kind::Pod, pod("a", "old", "4"));
    assert_eq!(objects.pods_of_group("ns", "g").len(), 2);
    objects.put(Kind::Pod, pod("a", "h", "10"));
    assert_eq!((objects.pods_of_group("ns", "g").len(), objects.pods_of_group("ns", "h").len()), (1, 1));
    objects.remove(Kind::Pod, "ns", "b", "");
    assert!(objects.pods_of_group("ns", "g").is_empty());
    objects.refresh(Kind::Pod, pod("b", "g", "99"));
    assert!(objects.get(Kind::Pod, "ns", "b").is_none(), "a response does not restore a deleted object");
    let mut late = pod("c", "g", "100");
    late["metadata"]["uid"] = json!("uc");
    objects.remove(Kind::Pod, "ns", "c", "uc");
    objects.put_created(Kind::Pod, late.clone());
    assert!(objects.get(Kind::Pod, "ns", "c").is_none(), "nor does the response to its creation");
    late["metadata"]["uid"] = json!("ud");
    objects.put_created(Kind::Pod, late);
    assert!(objects.get(Kind::Pod, "ns", "c").is_some());
}

#[test]
fn floats_are_what_they_were_when_an_object_is_packed() {
    let mut rng = plimsoll_state::rng::Rng::new(7);
    let rates: Vec<f64> =
        (0..200).map(|_| f64::from(rng.below(u32::MAX)) / 4_294_967_291.0).chain([1e-30]).collect();
    let object = pod("a", "", "1");
    let object = json!({"metadata": object["metadata"], "spec": {"rates": rates}});
    let mut objects = ObjectStore::default();
    objects.put(Kind::Job, object.clone());
    for i in 0..2_000 {
        let name = format!("other-{i}");
        objects
            .put(Kind::Job, json!({"metadata": {"namespace": "ns", "name": name, "resourceVersion": "2"}}));
    }
    let kept = objects.get(Kind::Job, "ns", "a").unwrap();
    assert_eq!(*kept, object);
}

#[test]
fn what_came_and_went_unseen_is_forgotten_at_the_next_list() {
    let object = |name: &str, uid: &str, version: &str| json!({"metadata": {"namespace": "ns", "name": name, "uid": uid, "resourceVersion": version}});
    let names = |objects: &ObjectStore| -> Vec<String> {
        objects.all(Kind::Job).map(|o| json::uid(&o).to_owned()).collect()
    };
    let mut objects = ObjectStore::default();
    objects.put(Kind::Job, object("a", "a1", "5"));
    objects.refresh(Kind::Job, object("a", "a2", "7"));
    objects.put_created(Kind::Job, object("b", "b1", "8"));
    objects.put_created(Kind::Job, object("c", "c1", "11"));
    objects.put_created(Kind::Job, object("d", "d1", "6"));
    // The watch breaks; a list of version 10 has only d, and the watch tells that a1 is gone.
    objects.put(Kind::Job, object("d", "d1", "6"));
    objects.remove(Kind::Job, "ns", "a", "a1");
    assert_eq!(names(&objects), ["a2", "b1", "c1", "d1"]);
    let gone: Vec<String> = objects.listed(Kind::Job, "10").iter().map(|o| json::uid(o).to_owned()).collect();
    assert_eq!(gone, ["a2", "b1"]);
    assert_eq!(names(&objects), ["c1", "d1"]);
    // A response of the time before the list comes late.
    objects.put_created(Kind::Job, object("e", "e1", "9"));
    objects.refresh(Kind::Job, object("d", "d1", "9"));
    assert_eq!(names(&objects), ["c1", "d1"]);
    assert_eq!(objects.get(Kind::Job, "ns", "d").map(|o| revision(&o)), Some(9));
}

#[test]
fn managed_fields_are_not_kept() {
    let mut objects = ObjectStore::default();
    let mut shown = pod("a", "g", "5");
    shown["metadata"]["managedFields"] = json!([{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}]);
    objects.put(Kind::Pod, shown);
    assert_eq!(objects.get(Kind::Pod, "ns", "a").as_deref(), Some(&pod("a", "g", "5")));
}

#[test]
fn an_answer_that_comes_after_its_echo_brings_nothing() {
    let mut objects = ObjectStore::default();
    let object = |version: &str, uid: &str| json!({"metadata": {"namespace": "ns", "name": "a", "uid": uid, "resourceVersion": version}});
    let known = |objects: &ObjectStore| objects.get(Kind::Job, "ns", "a").unwrap();
    objects.put(Kind::Job, object("5", "a1"));
    let shown = known(&objects);
    objects.refresh(Kind::Job, object("5", "a1"));
    assert!(Arc::ptr_eq(&shown, &known(&objects)));
    objects.deletion_accepted(Kind::Job, "ns", "a", "a1", plimsoll_state::Time::from_seconds(1));
    assert!(json::deleting(&known(&objects)), "of the same version");
    objects.refresh(Kind::Job, object("5", "a1"));
    assert!(json::deleting(&known(&objects)));
    objects.refresh(Kind::Job, object("6", "a2"));
    assert_eq!(*known(&objects), object("6", "a2"));
    // In another version of its API a list shows it as it was.
    let mut other = object("6", "a2");
    other["apiVersion"] = json!("v2");
    objects.put(Kind::Job, other.clone());
    assert_eq!(*known(&objects), other);
}

#[test]
fn workloads_are_found_by_owner() {
    let mut objects = ObjectStore::default();
    let w = json!({"metadata": {"namespace": "ns", "name": "w", "uid": "own", "resourceVersion": "1", "ownerReferences":
        [{"kind": "Job", "name": "j", "uid": "u"}]}});
    objects.put(Kind::Workload, w);
    assert_eq!(objects.owned_by("u").count(), 1);
    assert_eq!(objects.owned_by_name("ns", "Job", "j").len(), 1);
    assert!(objects.owned_by_name("n", "Job", "j").is_empty());
    objects.remove(Kind::Workload, "ns", "w", "other");
    assert_eq!(objects.owned_by("u").count(), 1);
    objects.remove(Kind::Workload, "ns", "w", "own");
    assert!(objects.owned_by("u").next().is_none());
}

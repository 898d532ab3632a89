//! The finalizer of ClusterQueues and ResourceFlavors: a queue goes when nothing is reserved in it, a flavor when no
//! queue refers to it (spec sections 1.2 and 1.4).

use std::sync::Arc;

use serde_json::Value;

use super::control::Key;
use super::{Write, drop_finalizer, names};
use crate::api::{ADMISSION_CHECKS, CLUSTER_QUEUES, FLAVORS};
use crate::cache::{Cache, Kind};
use crate::json;

/// What may be free now that `object` has changed or gone.
pub fn concerned(cache: &Cache, kind: Kind, object: &Value) -> Vec<Key> {
    match kind {
        Kind::Workload => {
            let queue = json::text(object, &["status", "admission", "clusterQueue"]);
            let leaving = cache.all(Kind::ClusterQueue).into_iter().filter(|q| json::deleting(q));
            // The workload's last state may no longer name the queue it was in.
            let of_queue = |q: &Arc<Value>| queue.is_empty() || json::name(q) == queue;
            leaving.filter(of_queue).map(|q| Key::ClusterQueue(json::name(&q).to_owned())).collect()
        }
        Kind::ClusterQueue => {
            let mut keys = vec![Key::ClusterQueue(json::name(object).to_owned())];
            let leaving = cache.all(Kind::Flavor).into_iter().filter(|f| json::deleting(f));
            keys.extend(leaving.map(|f| Key::Flavor(json::name(&f).to_owned())));
            let leaving = cache.all(Kind::AdmissionCheck).into_iter().filter(|c| json::deleting(c));
            keys.extend(leaving.map(|c| Key::Check(json::name(&c).to_owned())));
            keys
        }
        Kind::AdmissionCheck => vec![Key::Check(json::name(object).to_owned())],
        Kind::Flavor => vec![Key::Flavor(json::name(object).to_owned())],
        _ => Vec::new(),
    }
}

/// Lets a ClusterQueue go that should and can.
pub fn cluster_queue(cache: &Cache, name: &str) -> Vec<Write> {
    let Some(queue) = cache.get(Kind::ClusterQueue, "", name).filter(|q| json::deleting(q)) else {
        return Vec::new();
    };
    let reserved = cache.all(Kind::Workload).iter().any(|w| {
        json::text(w, &["status", "admission", "clusterQueue"]) == name && !json::is_true(w, "Finished")
    });
    if reserved {
        return Vec::new();
    }
    drop_finalizer(CLUSTER_QUEUES, &queue, names::IN_USE).into_iter().collect()
}

/// Lets a ResourceFlavor go that should and can.
pub fn flavor(cache: &Cache, name: &str) -> Vec<Write> {
    let Some(flavor) = cache.get(Kind::Flavor, "", name).filter(|f| json::deleting(f)) else {
        return Vec::new();
    };
    let named = |q: &Arc<Value>| {
        let groups = json::list(q, &["spec", "resourceGroups"]).iter();
        groups.flat_map(|g| json::list(g, &["flavors"])).any(|f| f["name"] == name)
    };
    if cache.all(Kind::ClusterQueue).iter().any(named) {
        return Vec::new();
    }
    drop_finalizer(FLAVORS, &flavor, names::IN_USE).into_iter().collect()
}

/// Marks an AdmissionCheck as in use, and lets one go that should and can.
pub fn check(cache: &Cache, name: &str) -> Vec<Write> {
    let Some(check) = cache.get(Kind::AdmissionCheck, "", name) else { return Vec::new() };
    if !json::deleting(&check) {
        if json::has_finalizer(&check, names::IN_USE) {
            return Vec::new();
        }
        let mut new = (*check).clone();
        let mut finalizers = json::list(&check, &["metadata", "finalizers"]).to_vec();
        finalizers.push(names::IN_USE.into());
        json::set(&mut new, &["metadata", "finalizers"], Value::Array(finalizers));
        return super::patch(ADMISSION_CHECKS, &check, &new).into_iter().collect();
    }
    let named = |q: &Arc<Value>| {
        let checks = json::list(q, &["spec", "admissionChecksStrategy", "admissionChecks"]);
        checks.iter().any(|c| c["name"] == name)
    };
    if cache.all(Kind::ClusterQueue).iter().any(named) {
        return Vec::new();
    }
    drop_finalizer(ADMISSION_CHECKS, &check, names::IN_USE).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn leaving(name: &str, spec: &Value) -> Value {
        json!({"metadata": {"name": name, "deletionTimestamp": "2023-11-14T22:13:20Z", "finalizers": [names::IN_USE]},
               "spec": spec})
    }

    #[test]
    fn a_check_goes_after_the_queues_that_name_it() {
        let cache = Cache::default();
        cache.put(Kind::AdmissionCheck, json!({"metadata": {"name": "c", "finalizers": ["other"]}}));
        let queue = json!({"metadata": {"name": "q"}, "spec": {
            "admissionChecksStrategy": {"admissionChecks": [{"name": "c"}]}}});
        cache.put(Kind::ClusterQueue, queue);
        let writes = check(&cache, "c");
        let [Write::Patch { body, .. }] = writes.as_slice() else { panic!("{writes:?}") };
        assert_eq!(body["metadata"]["finalizers"], json!(["other", names::IN_USE]));
        let leaving = leaving("c", &json!({}));
        cache.put(Kind::AdmissionCheck, leaving.clone());
        assert!(check(&cache, "c").is_empty());
        let gone = cache.remove(Kind::ClusterQueue, "", "q").unwrap();
        assert!(concerned(&cache, Kind::ClusterQueue, &gone).contains(&Key::Check("c".into())));
        assert_eq!(check(&cache, "c").len(), 1);
        assert_eq!(concerned(&cache, Kind::AdmissionCheck, &leaving), [Key::Check("c".into())]);
    }

    #[test]
    fn a_queue_goes_when_nothing_is_reserved_and_its_flavor_after_it() {
        let cache = Cache::default();
        let groups = json!({"resourceGroups": [{"flavors": [{"name": "f"}]}]});
        cache.put(Kind::ClusterQueue, leaving("q", &groups));
        cache.put(Kind::Flavor, leaving("f", &json!({})));
        let wl = json!({"metadata": {"namespace": "n", "name": "w"}, "status": {"admission": {"clusterQueue": "q"}}});
        cache.put(Kind::Workload, wl.clone());
        assert!(cluster_queue(&cache, "q").is_empty());
        assert!(flavor(&cache, "f").is_empty());
        let gone = cache.remove(Kind::Workload, "n", "w").unwrap();
        assert_eq!(concerned(&cache, Kind::Workload, &gone), [Key::ClusterQueue("q".into())]);
        assert_eq!(cluster_queue(&cache, "q").len(), 1);
        let gone = cache.remove(Kind::ClusterQueue, "", "q").unwrap();
        assert!(concerned(&cache, Kind::ClusterQueue, &gone).contains(&Key::Flavor("f".into())));
        assert_eq!(flavor(&cache, "f").len(), 1);
    }
}

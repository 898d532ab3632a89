//! Pods with prebuilt workloads, and what workloads of pods get from them.

use super::*;
use crate::affected;

fn key() -> Key {
    Key::PodGroup("ns".into(), "g".into())
}

#[test]
fn labels_of_a_group_are_copied_unless_they_differ() {
    let mut cache = cache();
    cache.config.label_keys_to_copy = vec!["team".into(), "cost".into()];
    cache.put(Kind::Pod, member("a", &json!({})));
    cache.put(Kind::Pod, member("b", &json!({"metadata|labels|team": "x"})));
    let writes = run(&cache, &key());
    assert_eq!(body(&writes, 0)["metadata"]["labels"], json!({"team": "x"}), "from any of the pods");
    cache.put(Kind::Pod, member("a", &json!({"metadata|labels|team": "y"})));
    let text = "ErrWorkloadCompose: constructing workload: pods have different label values";
    assert_eq!(short(&run(&cache, &key())), [text]);
    cache.config.label_keys_to_copy.clear();
    cache.config.annotation_keys_to_copy = vec!["kind".into()];
    cache.put(Kind::Pod, member("a", &json!({"metadata|annotations|kind": "k"})));
    let writes = run(&cache, &key());
    assert_eq!(body(&writes, 0)["metadata"]["annotations"]["kind"], "k");
    cache.put(Kind::Pod, member("b", &json!({"metadata|annotations|kind": "l"})));
    let text = "ErrWorkloadCompose: constructing workload: pods have different annotation values";
    assert_eq!(short(&run(&cache, &key())), [text]);
}

#[test]
fn all_members_own_a_prebuilt_workload() {
    let mut cache = cache();
    // A user who creates the workload may leave out the annotation that says that it is a group's.
    for (prebuilt, annotations) in [
        ("metadata|labels|kueue.x-k8s.io/prebuilt-workload-name", json!({names::IS_GROUP: "true"})),
        ("metadata|annotations|kueue.x-k8s.io/prebuilt-workload-name", json!({names::IS_GROUP: "true"})),
        ("metadata|labels|kueue.x-k8s.io/prebuilt-workload-name", json!({})),
    ] {
        cache.remove(Kind::Pod, "ns", "b", "");
        cache.put(Kind::Pod, member("a", &json!({prebuilt: "g"})));
        let podset = json!({"name": "aaaa", "count": 2, "template": {"spec": {}}});
        let wl = json!({"metadata": {"namespace": "ns", "name": "g", "uid": "wl-uid", "resourceVersion": "6",
            "annotations": annotations}, "spec": {"podSets": [podset]}});
        let mut wl = admit(&wl, &json!([{"name": "aaaa", "count": 2, "flavors": {"cpu": "f"}}]));
        cache.put(Kind::Workload, wl.clone());
        for (pod, owners) in [("a", 1), ("b", 2)] {
            cache.put(Kind::Pod, member(pod, &json!({prebuilt: "g"})));
            let writes = run(&cache, &key());
            let refs = body(&writes, 0)["metadata"]["ownerReferences"].clone();
            assert_eq!(refs.as_array().unwrap().len(), owners);
            assert!(refs.as_array().unwrap().iter().all(|o| o["controller"].is_null()), "{refs}");
            json::set(&mut wl, &["metadata", "ownerReferences"], refs);
            cache.put(Kind::Workload, wl.clone());
        }
        let keys = affected(Kind::Workload, &wl, &cache.objects);
        assert!(keys.contains(&key()), "{keys:?}");
        // Admitted whole, after the condition that says that no pod is missing any more.
        let started = (0..3).any(|_| {
            let writes = run(&cache, &key());
            if let Some(Write::Patch { subresource: "status", body, .. }) = writes.first() {
                json_patch_merge(&mut wl, body);
                cache.put(Kind::Workload, wl.clone());
            }
            short(&writes).iter().filter(|w| w.starts_with("patch pods")).count() == 2
        });
        assert!(started, "{prebuilt}");
    }
}

#[test]
fn a_group_with_fast_admission_is_whole_with_its_first_pod() {
    for (fast, waits) in [("true", false), ("false", true)] {
        let mut cache = cache();
        let fast = json!({"metadata|annotations|kueue.x-k8s.io/pod-group-fast-admission": fast});
        cache.put(Kind::Pod, member("a", &fast));
        let podset = json!({"name": "aaaa", "count": 2, "template": {"spec": {}}});
        let wl = json!({"metadata": {"namespace": "ns", "name": "g", "uid": "wl-uid", "resourceVersion": "6",
            "annotations": {names::IS_GROUP: "true"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "uid-a"}]},
            "spec": {"podSets": [podset], "queueName": "q"}});
        cache.put(Kind::Workload, wl);
        let writes = run(&cache, &key());
        assert_eq!(
            short(&writes).contains(&"patch workloads g status".to_owned()),
            waits,
            "{:?}",
            short(&writes)
        );
    }
}

#[test]
fn topology_requests_name_the_label_of_the_index() {
    let mut cache = cache();
    let required = "metadata|annotations|kueue.x-k8s.io/podset-required-topology";
    cache.put(Kind::Pod, pod("p", &json!({required: "rack"})));
    let writes = run(&cache, &Key::job(POD, "ns", "p"));
    let request = |writes: &[Write]| body(writes, 0)["spec"]["podSets"][0]["topologyRequest"].clone();
    let label = "kueue.x-k8s.io/pod-group-pod-index";
    assert_eq!(request(&writes), json!({"required": "rack", "podIndexLabel": label}));
    let mut own = job();
    let path = ["spec", "template", "metadata", "annotations", "kueue.x-k8s.io/podset-required-topology"];
    json::set(&mut own, &path, json!("rack"));
    cache.put(Kind::Job, own);
    let label = "batch.kubernetes.io/job-completion-index";
    let writes = run(&cache, &super::key());
    assert_eq!(request(&writes), json!({"required": "rack", "podIndexLabel": label}), "also not indexed");
}

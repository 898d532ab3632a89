//! Pods as they are made.

use super::super::plan::NewPod;
use super::super::template;
use super::*;

#[test]
fn pods_from_the_template() {
    let mut job = job(
        &json!({"template": {
            "metadata": {"labels": {"app": "x"}, "finalizers": ["mine.example/f"]},
            "spec": {"restartPolicy": "Never", "containers": [
                {"name": "a"}, {"name": "b", "env": [{"name": "JOB_COMPLETION_INDEX", "value": "mine"}]},
            ]},
        }}),
        &json!({}),
    );
    let plain = template::pod(&job, NewPod::default());
    assert_eq!(plain["metadata"]["generateName"], "j-");
    assert_eq!(
        plain["metadata"]["finalizers"],
        json!(["mine.example/f", "batch.kubernetes.io/job-tracking"])
    );
    assert_eq!(
        plain["metadata"]["ownerReferences"][0],
        json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job-uid", "controller": true, "blockOwnerDeletion": true})
    );
    assert_eq!(plain["spec"], job.spec.template["spec"]);
    let new = NewPod { index: Some(12), failures: Some((2, 0)) };
    let indexed = template::pod(&job, new);
    assert_eq!(indexed["metadata"]["generateName"], "j-12-");
    assert_eq!(
        indexed["metadata"]["labels"],
        json!({"app": "x", "batch.kubernetes.io/job-completion-index": "12"})
    );
    assert_eq!(
        indexed["metadata"]["annotations"],
        json!({"batch.kubernetes.io/job-completion-index": "12", "batch.kubernetes.io/job-index-failure-count": "2"})
    );
    assert_eq!(indexed["spec"]["hostname"], "j-12");
    let env = |i: usize| indexed["spec"]["containers"][i]["env"].clone();
    assert_eq!(
        env(0)[0]["valueFrom"]["fieldRef"]["fieldPath"],
        "metadata.labels['batch.kubernetes.io/job-completion-index']"
    );
    assert_eq!(env(1), json!([{"name": "JOB_COMPLETION_INDEX", "value": "mine"}]));
    job.metadata.name = "x".repeat(63);
    let long = template::pod(&job, new)["metadata"]["generateName"].as_str().unwrap().to_owned();
    assert_eq!((long.len(), long.ends_with("x-12-")), (58, true));
}

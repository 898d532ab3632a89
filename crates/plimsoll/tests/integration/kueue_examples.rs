//! Kueue's own examples against `plimsoll up --with all`: `PLIMSOLL_KUEUE_EXAMPLES` is the directory `site/static/examples` of
//! its repository; without it the test says that it was skipped.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use crate::common::Up;
use plimsoll_api::json;
use plimsoll_runtime::api::{Resource, WORKLOADS};
use serde_json::Value;

/// Of each manifest: the file, and what its last object's status has at the end, as a JSON pointer and a value, or the type of
/// a condition.
const FILES: [(&str, &str, &str); 16] = [
    ("jobs/sample-job.yaml", "", "Complete"),
    ("jobs/sample-job-partial-admission.yaml", "", "Complete"),
    ("jobs/sample-jobset.yaml", "", "Completed"),
    ("jobs/sample-jaxjob.yaml", "", "Succeeded"),
    ("jobs/sample-mpijob.yaml", "", "Succeeded"),
    ("jobs/sample-paddlejob.yaml", "", "Succeeded"),
    ("jobs/sample-pytorchjob.yaml", "", "Succeeded"),
    ("jobs/sample-tfjob.yaml", "", "Succeeded"),
    ("jobs/sample-xgboostjob.yaml", "", "Succeeded"),
    ("jobs/ray-job-sample.yaml", "/status/jobDeploymentStatus", "Complete"),
    ("jobs/ray-cluster-sample.yaml", "/status/state", "ready"),
    ("jobs/ray-service-sample.yaml", "", "Ready"),
    ("serving-workloads/sample-deployment.yaml", "", "Available"),
    ("serving-workloads/sample-statefulset.yaml", "/status/readyReplicas", "3"),
    ("serving-workloads/sample-leaderworkerset.yaml", "", "Available"),
    ("pods-kueue/kueue-pod.yaml", "/status/phase", "Succeeded"),
];

/// The resource of an object, by its kind.
fn resource_of(object: &Value) -> Resource {
    let kind = json::text(object, &["kind"]).to_owned();
    let plural = format!("{}s", kind.to_lowercase());
    let api_version = json::text(object, &["apiVersion"]).to_owned();
    Resource { api_version: api_version.leak(), plural: plural.leak(), kind: kind.leak() }
}

async fn create(up: &Up, path: &Path) -> Vec<(Resource, Value)> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut made = Vec::new();
    for mut object in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
        if object.is_null() {
            continue;
        }
        let cluster = ["ResourceFlavor", "ClusterQueue"].contains(&json::text(&object, &["kind"]));
        if !cluster && json::namespace(&object).is_empty() {
            json::set(&mut object, &["metadata", "namespace"], "default".into());
        }
        let resource = resource_of(&object);
        let created = up.api.create(resource, &object).await;
        let object = created.unwrap_or_else(|e| panic!("{}: {e}: {object}", path.display()));
        made.push((resource, object));
    }
    made
}

#[tokio::test(flavor = "multi_thread")]
async fn kueues_examples_end_as_its_documentation_says() {
    let Some(dir) = std::env::var_os("PLIMSOLL_KUEUE_EXAMPLES") else {
        eprintln!("skipped: PLIMSOLL_KUEUE_EXAMPLES is not set");
        return;
    };
    let dir = Path::new(&dir);
    let up = Up::start(&["--speed", "60", "--with", "all"]).await;
    create(&up, &dir.join("admin/single-clusterqueue-setup.yaml")).await;
    for (file, at, want) in FILES {
        let made = create(&up, &dir.join(file)).await;
        let (resource, object) = made.last().unwrap();
        up.until_shown(&format!("{file} ends"), async |up| {
            let now = up.get(*resource, json::namespace(object), json::name(object)).await;
            let holds = match (at, now.pointer(at)) {
                ("", _) => json::is_true(&now, want),
                (_, Some(Value::String(text))) => text == want,
                (_, found) => found.is_some_and(|found| *found == *want),
            };
            holds.then_some(()).ok_or(now.to_string())
        })
        .await;
        for (resource, object) in made.iter().rev() {
            let deleted =
                up.api.delete(*resource, json::namespace(object), json::name(object), "", None).await;
            deleted.unwrap_or_else(|e| panic!("{file}: {e}"));
        }
        up.until_shown(&format!("{file} leaves nothing"), async |up| {
            let left = up.list(WORKLOADS).await;
            left.first().map_or(Ok(()), |wl| Err(wl.to_string()))
        })
        .await;
    }
}

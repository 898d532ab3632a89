//! AppWrappers, framework `workload.codeflare.dev/appwrapper` (Kueue `pkg/controller/jobs/appwrapper`): a podset for each one
//! that a component declares, or that the kind of the wrapped object implies (AppWrapper `pkg/utils/utils.go`).

use std::borrow::Cow;

use plimsoll_api::json;
use serde_json::{Map, Value, json};

use super::{Inject, JobKind, PodTemplate, Updates};
use crate::custom_kind::CustomKind;
use crate::generic_job::Finished;
use crate::podset::{PodSetInfo, Ranks};

const INDEX_LABEL: &str = "workload.codeflare.dev.appwrapper/tas-pod-index-label";
const GROUP_LABEL: &str = "workload.codeflare.dev.appwrapper/tas-sub-group-index-label";
const GROUP_COUNT: &str = "workload.codeflare.dev.appwrapper/tas-sub-group-count";
const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// The kind.
pub(crate) const APP_WRAPPER: JobKind = JobKind {
    kind: CustomKind::APP_WRAPPER,
    validating_webhook: "vappwrapper.kb.io",
    suspend: &["spec", "suspend"],
    templates,
    groups: false,
    inject: Inject::Elsewhere { run, restore },
    is_active: |wrapper| json::is_true(wrapper, "QuotaReserved"),
    finished,
    pods_ready: |wrapper| json::is_true(wrapper, "PodsReady"),
    reclaimable_pods: None,
    priority_class: |_| None,
    default: |_| (),
    adjust: |_, pod_sets| pod_sets.iter_mut().for_each(keep_template),
    skip: |_| false,
    on_hold: None,
    updates: Updates::Changes,
    takes_prebuilt: true,
    validate: |_, _, _| true,
    elastic: None,
};

fn components(wrapper: &Value) -> &[Value] {
    json::list(wrapper, &["spec", "components"])
}

/// The podsets of each component: as its controller has recorded them, as declared, or as implied.
fn pod_sets(wrapper: &Value) -> Vec<Vec<Value>> {
    let recorded = json::list(wrapper, &["status", "componentStatus"]);
    let components = components(wrapper);
    let of = |(i, component): (usize, &Value)| {
        if recorded.len() == components.len() {
            return recorded.get(i).map_or_else(Vec::new, |r| json::list(r, &["podSets"]).to_vec());
        }
        let declared = json::list(component, &["podSets"]);
        if declared.is_empty() { implied(&component["template"]) } else { declared.to_vec() }
    };
    components.iter().enumerate().map(of).collect()
}

/// The JSON pointer of a path such as `template.spec.replicatedJobs[0].template`; `None`: malformed.
fn pointer(path: &str) -> Option<String> {
    let rest = path.strip_prefix("template").filter(|r| r.is_empty() || r.starts_with(['.', '[']))?;
    let mut out = "/template".to_owned();
    for part in rest.split('.').flat_map(|part| part.split('[')).filter(|p| !p.is_empty()) {
        let key = match part.strip_suffix(']') {
            Some(index) => index.parse::<usize>().ok()?.to_string(),
            None => part.replace('~', "~0").replace('/', "~1"),
        };
        out.push('/');
        out.push_str(&key);
    }
    Some(out)
}

/// Podsets whose path leads to no pod are left out.
fn templates(wrapper: &Value) -> Vec<PodTemplate> {
    let mut out = Vec::new();
    for (component, pod_sets) in pod_sets(wrapper).into_iter().enumerate() {
        for pod_set in pod_sets {
            let Some(path) = pointer(json::text(&pod_set, &["path"])) else { continue };
            let pointer = format!("/spec/components/{component}{path}");
            if !wrapper.pointer(&pointer).is_some_and(|template| template["spec"].is_object()) {
                continue;
            }
            out.push(PodTemplate {
                podset: format!("{}-{}", json::name(wrapper), out.len()).to_lowercase(),
                count: json::int(&pod_set, &["replicas"]).unwrap_or(1),
                pointer,
                // Kueue does not validate them.
                field: String::new(),
                ranks: ranks(&pod_set),
                otherwise: None,
            });
        }
    }
    out
}

fn ranks(pod_set: &Value) -> Ranks {
    let get = |key: &str| pod_set["annotations"][key].as_str().map(str::to_owned);
    let count = get(GROUP_COUNT).and_then(|count| count.parse().ok());
    Ranks {
        index_label: get(INDEX_LABEL).map(Cow::Owned),
        groups: get(GROUP_LABEL).zip(count).map(|(label, count)| (Cow::Owned(label), count)),
    }
}

/// A wrapped pod has more than a template: of its metadata labels and annotations are kept.
fn keep_template(pod_set: &mut Value) {
    let template = pod_set["template"].take();
    let mut metadata = Map::new();
    for key in ["labels", "annotations"] {
        if template["metadata"][key].is_object() {
            metadata.insert(key.to_owned(), template["metadata"][key].clone());
        }
    }
    pod_set["template"] = json!({"metadata": metadata, "spec": template["spec"]});
}

/// What was assigned is written beside the wrapped objects; the controller of AppWrappers injects it.
fn run(wrapper: &mut Value, infos: &[PodSetInfo]) -> Result<(), String> {
    let counts: Vec<usize> = pod_sets(wrapper).iter().map(Vec::len).collect();
    let want: usize = counts.iter().sum();
    if want != infos.len() {
        return Err(format!("invalid podset infos: expecting {want} podsets, got {}", infos.len()));
    }
    let mut infos = infos.iter().map(written);
    if let Some(Value::Array(components)) = wrapper.pointer_mut("/spec/components") {
        for (component, count) in components.iter_mut().zip(counts) {
            component["podSetInfos"] = infos.by_ref().take(count).collect();
        }
    }
    Ok(())
}

fn written(info: &PodSetInfo) -> Value {
    let mut out = Map::new();
    let maps =
        [("annotations", &info.annotations), ("labels", &info.labels), ("nodeSelector", &info.node_selector)];
    for (key, map) in maps {
        if !map.is_empty() {
            out.insert(key.to_owned(), Value::Object(map.clone()));
        }
    }
    for (key, list) in [("tolerations", &info.tolerations), ("schedulingGates", &info.scheduling_gates)] {
        if !list.is_empty() {
            out.insert(key.to_owned(), Value::Array(list.clone()));
        }
    }
    Value::Object(out)
}

fn restore(wrapper: &mut Value, _pod_sets: &[Value]) {
    if let Some(Value::Array(components)) = wrapper.pointer_mut("/spec/components") {
        for component in components {
            json::remove(component, &["podSetInfos"]);
        }
    }
}

/// A failed one has ended when its objects are gone.
fn finished(wrapper: &Value) -> Option<Finished> {
    let ended = |message: &str, success| Some(Finished { message: message.to_owned(), success });
    match json::text(wrapper, &["status", "phase"]) {
        "Succeeded" => ended("AppWrapper finished successfully", true),
        "Failed" if !json::is_true(wrapper, "ResourcesDeployed") => ended("AppWrapper failed", false),
        _ => None,
    }
}

/// The podsets that the kind of a wrapped object implies (AppWrapper `InferPodSets`).
fn implied(object: &Value) -> Vec<Value> {
    let row = |path: &str, replicas: i64| json!({"path": path, "replicas": replicas});
    let number = |at: &Value, key: &str| json::int(at, &[key]).unwrap_or(1);
    let pods =
        |spec: &Value| number(spec, "parallelism").min(json::int(spec, &["completions"]).unwrap_or(i64::MAX));
    let spec = &object["spec"];
    match (json::text(object, &["apiVersion"]), json::text(object, &["kind"])) {
        ("v1", "Pod") => vec![row("template", 1)],
        ("apps/v1", "Deployment" | "StatefulSet") => {
            vec![row("template.spec.template", number(spec, "replicas"))]
        }
        ("batch/v1", "Job") => {
            let mut one = row("template.spec.template", pods(spec));
            one["annotations"] = json!({INDEX_LABEL: COMPLETION_INDEX});
            vec![one]
        }
        ("jobset.x-k8s.io/v1alpha2", "JobSet") => {
            let replicated = json::list(spec, &["replicatedJobs"]).iter().enumerate();
            let of = |(i, replicated): (usize, &Value)| {
                let replicas = number(replicated, "replicas");
                let path = format!("template.spec.replicatedJobs[{i}].template.spec.template");
                let mut one = row(&path, replicas.saturating_mul(pods(&replicated["template"]["spec"])));
                one["annotations"] = json!({INDEX_LABEL: COMPLETION_INDEX,
                    GROUP_LABEL: "jobset.sigs.k8s.io/job-index", GROUP_COUNT: replicas.to_string()});
                one
            };
            replicated.map(of).collect()
        }
        ("kubeflow.org/v1", "PyTorchJob") => {
            let has = |kind: &&str| spec["pytorchReplicaSpecs"][*kind]["template"].is_object();
            let of = |kind: &str| {
                let path = format!("template.spec.pytorchReplicaSpecs.{kind}.template");
                let mut one = row(&path, number(&spec["pytorchReplicaSpecs"][kind], "replicas"));
                one["annotations"] = json!({INDEX_LABEL: "training.kubeflow.org/replica-index"});
                one
            };
            ["Master", "Worker"].into_iter().filter(has).map(of).collect()
        }
        ("ray.io/v1", "RayCluster") => implied_by_ray(spec, "template.spec"),
        ("ray.io/v1", "RayJob") => implied_by_ray(&spec["rayClusterSpec"], "template.spec.rayClusterSpec"),
        _ => Vec::new(),
    }
}

fn implied_by_ray(cluster: &Value, at: &str) -> Vec<Value> {
    let head = json!({"path": format!("{at}.headGroupSpec.template"), "replicas": 1});
    let workers = json::list(cluster, &["workerGroupSpecs"]).iter().enumerate();
    let of = |(i, group): (usize, &Value)| {
        let replicas = json::int(group, &["replicas"]).unwrap_or(1);
        json!({"path": format!("{at}.workerGroupSpecs[{i}].template"), "replicas": replicas})
    };
    std::iter::once(head).chain(workers.map(of)).collect()
}

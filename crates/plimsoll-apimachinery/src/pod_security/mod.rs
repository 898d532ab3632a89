//! Pod Security Standards (`k8s.io/pod-security-admission`): the policy in the labels of a namespace, and a pod's
//! violations of it, version by version.

mod baseline;
mod checks;
mod policy;
mod restricted;
#[cfg(test)]
mod tests;

use serde_json::Value;

pub use checks::evaluate;
pub use policy::{Level, LevelVersion, Policy, Version};

/// A violation of a check by a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// In few words: `hostPort`.
    pub reason: String,
    /// The fields that violate the check, and their required values.
    pub detail: String,
}

impl Violation {
    fn new(reason: &str, detail: String) -> Self {
        Self { reason: reason.to_owned(), detail }
    }
}

/// The reasons alone, for many pods (`AggregateCheckResult.ForbiddenReason`).
pub fn reasons(violations: &[Violation]) -> String {
    violations.iter().map(|v| v.reason.as_str()).collect::<Vec<_>>().join(", ")
}

/// The reasons with their details (`AggregateCheckResult.ForbiddenDetail`).
pub fn details(violations: &[Violation]) -> String {
    violations.iter().map(|v| format!("{} ({})", v.reason, v.detail)).collect::<Vec<_>>().join(", ")
}

/// The metadata and the spec of a pod or of the template in an object of a resource; `None`: such objects have no pod
/// spec (`DefaultPodSpecExtractor`).
pub fn pod_of<'a>(group: &str, plural: &str, object: &'a Value) -> Option<(&'a Value, &'a Value)> {
    let template = match (group, plural) {
        ("", "pods") => object,
        ("", "podtemplates") => &object["template"],
        ("", "replicationcontrollers")
        | ("apps", "replicasets" | "deployments" | "statefulsets" | "daemonsets")
        | ("batch", "jobs") => &object["spec"]["template"],
        ("batch", "cronjobs") => &object["spec"]["jobTemplate"]["spec"]["template"],
        _ => return None,
    };
    template.is_object().then(|| (&template["metadata"], &template["spec"]))
}

/// Whether a pod has changed so that it has to be checked again: containers or their images (`isSignificantPodUpdate`).
pub fn is_significant(pod: &Value, old: &Value) -> bool {
    for field in ["containers", "initContainers"] {
        let (new, old) = (list(&pod["spec"][field]), list(&old["spec"][field]));
        if new.len() != old.len() || new.iter().zip(old).any(|(new, old)| new["image"] != old["image"]) {
            return true;
        }
    }
    let before = list(&old["spec"]["ephemeralContainers"]);
    list(&pod["spec"]["ephemeralContainers"]).iter().any(|new| {
        before.iter().find(|old| old["name"] == new["name"]).is_none_or(|old| old["image"] != new["image"])
    })
}

/// A pod as checks see it.
struct Pod<'a> {
    metadata: &'a Value,
    spec: &'a Value,
}

fn list(v: &Value) -> &[Value] {
    v.as_array().map_or(&[], Vec::as_slice)
}

fn text(v: &Value) -> &str {
    v.as_str().unwrap_or("")
}

impl<'a> Pod<'a> {
    /// All containers, in upstream's order.
    fn containers(&self) -> impl Iterator<Item = &'a Value> {
        let spec = self.spec;
        ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(move |f| list(&spec[f]))
    }

    /// The names of containers that a check is against.
    fn names(&self, mut is_bad: impl FnMut(&'a Value) -> bool) -> Vec<&'a str> {
        self.containers().filter(|&c| is_bad(c)).map(|c| text(&c["name"])).collect()
    }

    /// The pod's own security context.
    fn security(&self) -> &'a Value {
        &self.spec["securityContext"]
    }

    fn is_windows(&self) -> bool {
        self.spec["os"]["name"] == "windows"
    }

    /// Whether root in the pod is another user on the node (`relaxPolicyForUserNamespacePod`).
    fn is_in_user_namespace(&self) -> bool {
        self.spec["hostUsers"] == false
    }

    fn annotations(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let all = self.metadata["annotations"].as_object();
        all.into_iter().flatten().map(|(key, value)| (key.as_str(), text(value)))
    }
}

fn quoted<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|i| format!("\"{}\"", i.as_ref())).collect();
    items.join(", ")
}

const fn plural<'a>(one: &'a str, many: &'a str, count: usize) -> &'a str {
    if count == 1 { one } else { many }
}

/// `container "a"`, `containers "a", "b"`.
fn containers(names: &[&str]) -> String {
    format!("{} {}", plural("container", "containers", names.len()), quoted(names))
}

/// The setters of a field: `pod and container "a"`; `None`: there are none.
fn setters(pod: bool, names: &[&str]) -> Option<String> {
    match (pod, names) {
        (false, []) => None,
        (true, []) => Some("pod".to_owned()),
        (false, names) => Some(containers(names)),
        (true, names) => Some(format!("pod and {}", containers(names))),
    }
}

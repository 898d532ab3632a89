//! LimitRanger: defaults and bounds of a namespace's LimitRanges.

use plimsoll_api::quantity::Quantity;
use plimsoll_apimachinery::ApiError;
use serde_json::{Value, json};

use super::{Operation, forbidden, subject};
use crate::write::Write;
use plimsoll_apimachinery::amounts::{Amounts, Part, View, amounts, total};

const ANNOTATION: &str = "kubernetes.io/limit-ranger";
const CONTAINERS: [(&str, &str); 2] = [("containers", "container"), ("initContainers", "init container")];

fn ranges(w: &Write) -> Vec<Value> {
    let all = w.server.store().list("/limitranges", Some(&w.namespace));
    all.iter().filter_map(|r| r.value().ok()).collect()
}

fn limits_of<'a>(range: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    range["spec"]["limits"].as_array().into_iter().flatten().filter(move |l| l["type"] == kind)
}

/// Fills in requests and limits of the containers of a new pod, or of one that is resized.
pub fn default(w: &Write, pod: &mut Value, old: Option<&Value>, operation: Operation) {
    if concerns(w, old, operation) != Some(Concern::Pod) {
        return;
    }
    for range in ranges(w) {
        let (mut requests, mut limits) = (json!({}), json!({}));
        for limit in limits_of(&range, "Container") {
            for (from, to) in [("defaultRequest", &mut requests), ("default", &mut limits)] {
                for (name, value) in limit[from].as_object().into_iter().flatten() {
                    to[name] = value.clone();
                }
            }
        }
        let mut notes = Vec::new();
        for (field, word) in CONTAINERS {
            let list = pod.pointer_mut(&format!("/spec/{field}")).and_then(Value::as_array_mut);
            for container in list.into_iter().flatten() {
                let name = container["name"].as_str().unwrap_or("").to_owned();
                for (part, defaults, what) in
                    [("requests", &requests, "request"), ("limits", &limits, "limit")]
                {
                    let set = merge(container, part, defaults);
                    if !set.is_empty() {
                        notes.push(format!("{} {what} for {word} {name}", set.join(", ")));
                    }
                }
            }
        }
        if !notes.is_empty() {
            if !pod["metadata"]["annotations"].is_object() {
                pod["metadata"]["annotations"] = json!({});
            }
            let text = format!("LimitRanger plugin set: {}", notes.join("; "));
            pod["metadata"]["annotations"][ANNOTATION] = json!(text);
        }
    }
}

/// Adds what is missing; the names of what was.
fn merge(container: &mut Value, part: &str, defaults: &Value) -> Vec<String> {
    let mut set = Vec::new();
    for (name, value) in defaults.as_object().into_iter().flatten() {
        if container["resources"][part].get(name).is_none() {
            if !container["resources"].is_object() {
                container["resources"] = json!({});
            }
            if !container["resources"][part].is_object() {
                container["resources"][part] = json!({});
            }
            container["resources"][part][name] = value.clone();
            set.push(name.clone());
        }
    }
    set
}

/// What ranges look at: new pods, resizes, and claims; nothing that is going away.
fn concerns(w: &Write, old: Option<&Value>, operation: Operation) -> Option<Concern> {
    if old.is_some_and(|old| !old["metadata"]["deletionTimestamp"].is_null()) {
        return None;
    }
    let s = subject(w);
    match (s.group, s.plural, s.subresource, operation) {
        ("", "pods", "", Operation::Create) | ("", "pods", "resize", Operation::Update) => Some(Concern::Pod),
        ("", "persistentvolumeclaims", "", Operation::Create | Operation::Update) => Some(Concern::Claim),
        _ => None,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Concern {
    Pod,
    Claim,
}

/// Refuses what is out of bounds.
pub fn validate(
    w: &Write,
    object: &Value,
    old: Option<&Value>,
    operation: Operation,
) -> Result<(), ApiError> {
    let Some(concern) = concerns(w, old, operation) else { return Ok(()) };
    for range in ranges(w) {
        let errors = match concern {
            Concern::Pod => check_pod(&range, object),
            Concern::Claim => check_claim(&range, object),
        };
        if let Some(why) = aggregate(errors) {
            return Err(forbidden(w, object, &why));
        }
    }
    Ok(())
}

/// Several errors as one text, each said once (`NewAggregate`).
fn aggregate(errors: Vec<String>) -> Option<String> {
    let mut texts: Vec<String> = Vec::new();
    for error in errors {
        if !texts.contains(&error) {
            texts.push(error);
        }
    }
    match texts.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}

fn check_pod(range: &Value, pod: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    for limit in range["spec"]["limits"].as_array().into_iter().flatten() {
        match limit["type"].as_str() {
            Some("Container") => {
                let lists = CONTAINERS.iter().filter_map(|(field, _)| pod["spec"][field].as_array());
                for container in lists.flatten() {
                    let [requests, limits] =
                        ["requests", "limits"].map(|part| amounts(&container["resources"][part]));
                    bounds("Container", limit, &requests, &limits, &mut errors);
                }
            }
            Some("Pod") => {
                let [requests, limits] =
                    [Part::Requests, Part::Limits].map(|part| total(pod, part, View::Written));
                bounds("Pod", limit, &requests, &limits, &mut errors);
            }
            _ => {}
        }
    }
    errors
}

fn bounds(kind: &str, limit: &Value, requests: &Amounts, limits: &Amounts, errors: &mut Vec<String>) {
    for (name, min) in amounts(&limit["min"]) {
        let what = format!("minimum {name} usage per {kind} is {min}");
        match (requests.get(&name), limits.get(&name)) {
            (None, _) => errors.push(format!("{what}.  No request is specified")),
            (Some(r), _) if *r < min => errors.push(format!("{what}, but request is {r}")),
            (_, Some(l)) if *l < min => errors.push(format!("{what}, but limit is {l}")),
            _ => {}
        }
    }
    for (name, max) in amounts(&limit["max"]) {
        let what = format!("maximum {name} usage per {kind} is {max}");
        match (requests.get(&name), limits.get(&name)) {
            (_, None) => errors.push(format!("{what}.  No limit is specified")),
            (_, Some(l)) if *l > max => errors.push(format!("{what}, but limit is {l}")),
            (Some(r), _) if *r > max => errors.push(format!("{what}, but request is {r}")),
            _ => {}
        }
    }
    for (name, ratio) in amounts(&limit["maxLimitRequestRatio"]) {
        let what = format!("{name} max limit to request ratio per {kind} is {ratio}");
        let zero = |q: Option<&Quantity>| q.is_none_or(|q| q.to_f64() == 0.0);
        let (request, limit) = (requests.get(&name), limits.get(&name));
        if zero(request) {
            errors.push(format!("{what}, but no request is specified or request is 0"));
        } else if zero(limit) {
            errors.push(format!("{what}, but no limit is specified or limit is 0"));
        } else if let (Some(request), Some(limit)) = (request, limit) {
            let found = limit.to_f64() / request.to_f64();
            if found > ratio.to_f64() {
                errors.push(format!("{what}, but provided ratio is {found:.6}"));
            }
        }
    }
}

fn check_claim(range: &Value, claim: &Value) -> Vec<String> {
    let kind = "PersistentVolumeClaim";
    let requests = amounts(&claim["spec"]["resources"]["requests"]);
    let mut errors = Vec::new();
    for limit in limits_of(range, kind) {
        for (name, min) in amounts(&limit["min"]) {
            let what = format!("minimum {name} usage per {kind} is {min}");
            match requests.get(&name) {
                None => errors.push(format!("{what}.  No request is specified")),
                Some(r) if *r < min => errors.push(format!("{what}, but request is {r}")),
                _ => {}
            }
        }
        for (name, max) in amounts(&limit["max"]) {
            let what = format!("maximum {name} usage per {kind} is {max}");
            match requests.get(&name) {
                None => errors.push(format!("{what}.  No request is specified")),
                Some(r) if *r > max => errors.push(format!("{what}, but request is {r}")),
                _ => {}
            }
        }
    }
    errors
}

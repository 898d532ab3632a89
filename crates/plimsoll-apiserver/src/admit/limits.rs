//! LimitRanger: defaults and bounds of a namespace's LimitRanges.

use std::collections::BTreeMap;

use plimsoll_api::quantity::Quantity;
use plimsoll_machinery::ApiError;
use serde_json::{Value, json};

use super::{Operation, forbidden, subject};
use crate::pipeline::Write;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";
const CONTAINERS: [(&str, &str); 2] = [("containers", "container"), ("initContainers", "init container")];

type Amounts = BTreeMap<String, Quantity>;

fn amounts(v: &Value) -> Amounts {
    v.as_object()
        .into_iter()
        .flatten()
        .filter_map(|(k, v)| Some((k.clone(), v.as_str()?.parse().ok()?)))
        .collect()
}

fn ranges(w: &Write) -> Vec<Value> {
    let all = w.server.store().list("/limitranges", Some(&w.namespace));
    all.iter().filter_map(|r| r.value().ok()).collect()
}

fn limits_of<'a>(range: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    range["spec"]["limits"].as_array().into_iter().flatten().filter(move |l| l["type"] == kind)
}

/// Fills in requests and limits of a new pod's containers.
pub fn default(w: &Write, pod: &mut Value, operation: Operation) {
    if operation != Operation::Create || !subject(w).is("", "pods") {
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

/// Refuses what is out of bounds.
pub fn validate(w: &Write, object: &Value, operation: Operation) -> Result<(), ApiError> {
    let subject = subject(w);
    let pod = subject.is("", "pods") && operation == Operation::Create;
    let claim = subject.is("", "persistentvolumeclaims");
    if !pod && !claim {
        return Ok(());
    }
    for range in ranges(w) {
        let errors = if pod { check_pod(&range, object) } else { check_claim(&range, object) };
        let why = match errors.as_slice() {
            [] => continue,
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        return Err(forbidden(w, object, &why));
    }
    Ok(())
}

fn check_pod(range: &Value, pod: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    let mut totals = [Amounts::new(), Amounts::new()];
    for (field, _) in CONTAINERS {
        for container in pod["spec"][field].as_array().into_iter().flatten() {
            let requests = amounts(&container["resources"]["requests"]);
            let limits = amounts(&container["resources"]["limits"]);
            for limit in limits_of(range, "Container") {
                bounds("Container", limit, &requests, &limits, &mut errors);
            }
            for (total, part) in totals.iter_mut().zip([&requests, &limits]) {
                for (name, value) in part {
                    let entry = total.entry(name.clone()).or_insert(Quantity::new(0, value.format()));
                    // Init containers run one after the other.
                    *entry = if field == "containers" {
                        entry.saturating_add(*value)
                    } else {
                        (*entry).max(*value)
                    };
                }
            }
        }
    }
    let [requests, limits] = &totals;
    for limit in limits_of(range, "Pod") {
        bounds("Pod", limit, requests, limits, &mut errors);
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

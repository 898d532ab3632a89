//! PodSecurity (`k8s.io/pod-security-admission/admission`): the standards that the labels of a namespace ask for, against
//! its pods and the templates of its workloads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use plimsoll_apimachinery::pod_security::{
    Level, LevelVersion, Policy, details, evaluate, is_significant, pod_of, reasons,
};
use plimsoll_apimachinery::{ApiError, FieldError};
use serde::Deserialize;
use serde_json::Value;

use super::{Operation, forbidden, subject};
use crate::store::{Key, Record};
use crate::write::Write;

/// Subresources of pods that do not change what pods may do.
const IGNORED: [&str; 8] = ["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];
/// Pods of a namespace that are checked when its labels change, and for how long.
const MAX_PODS: usize = 3000;
const MAX_TIME: Duration = Duration::from_secs(1);
/// Pods that are checked before others get their turn.
const AT_ONCE: usize = 50;

/// Checks a namespace, a pod or an object with a template of pods; warns and annotates.
///
/// # Errors
/// 422 for labels that are not understood, 403 for a pod that does not meet what is enforced.
pub async fn validate(
    w: &mut Write,
    object: &Value,
    old: Option<&Value>,
    operation: Operation,
) -> Result<(), ApiError> {
    if !matches!(operation, Operation::Create | Operation::Update) {
        return Ok(());
    }
    let s = subject(w);
    if s.is("", "namespaces") {
        return namespace(w, object, old).await;
    }
    let is_pod = s.group.is_empty() && s.plural == "pods";
    if (is_pod && IGNORED.contains(&s.subresource)) || (!is_pod && !s.subresource.is_empty()) {
        return Ok(());
    }
    let Some((metadata, spec)) = pod_of(s.group, s.plural, object) else { return Ok(()) };
    let record = w.server.store().latest(&Key::new("/namespaces", "", w.namespace.as_str()));
    let Some(record) = record.filter(|r| has_labels(r)) else {
        if is_pod {
            annotate(w, "enforce-policy", "privileged:latest".to_owned());
        }
        return Ok(());
    };
    let (policy, errors) = Policy::of(&record.labels);
    if errors.is_empty() && policy.is_privileged() {
        if is_pod {
            annotate(w, "enforce-policy", policy.enforce.to_string());
        }
        return Ok(());
    }
    if is_pod && old.is_some_and(|old| !is_significant(object, old)) {
        return Ok(());
    }
    if !errors.is_empty() {
        annotate(w, "error", format!("Failed to parse policy: {}", aggregate(&errors)));
    }
    judge(w, &policy, (metadata, spec), is_pod).map_err(|why| forbidden(w, object, &why))
}

/// Whether a namespace may ask for anything; a look at its labels, since most have none.
fn has_labels(namespace: &Record) -> bool {
    namespace.labels.keys().any(|key| key.starts_with("pod-security.kubernetes.io/"))
}

/// `EvaluatePod`; the error says why the pod is refused.
fn judge(
    w: &mut Write,
    policy: &Policy,
    (metadata, spec): (&Value, &Value),
    enforce: bool,
) -> Result<(), String> {
    let against = |wanted: LevelVersion| {
        let violations = evaluate(wanted, metadata, spec);
        (!violations.is_empty())
            .then(|| format!("violate PodSecurity \"{wanted}\": {}", details(&violations)))
    };
    let mut refused = None;
    if enforce {
        annotate(w, "enforce-policy", policy.enforce.to_string());
        refused = against(policy.enforce);
    }
    if let Some(why) = against(policy.audit) {
        annotate(w, "audit-violations", format!("would {why}"));
    }
    match refused {
        Some(why) => Err(why.replacen("violate", "violates", 1)),
        None => {
            w.warnings.extend(against(policy.warn).map(|why| format!("would {why}")));
            Ok(())
        }
    }
}

/// `ValidateNamespace`: labels have to be right when they are set, and pods that are there are held against them.
async fn namespace(w: &mut Write, object: &Value, old: Option<&Value>) -> Result<(), ApiError> {
    let labels = |object: &Value| -> BTreeMap<String, String> {
        let all = object["metadata"]["labels"].as_object().into_iter().flatten();
        all.map(|(key, value)| (key.clone(), value.as_str().unwrap_or("").to_owned())).collect()
    };
    let (policy, errors) = Policy::of(&labels(object));
    let before = old.map(|old| Policy::of(&labels(old)));
    if !errors.is_empty() && before.as_ref().is_none_or(|(_, before)| *before != errors) {
        return Err(ApiError::invalid("", "Namespace", &w.name, &errors));
    }
    let Some((before, _)) = before else { return Ok(()) };
    let (new, old) = (policy.enforce, before.enforce);
    let relaxed = new.version == old.version && new.level <= old.level;
    if new == old || new.level == Level::Privileged || relaxed {
        return Ok(());
    }
    let warnings = pods_in_namespace(w, new).await;
    w.warnings.extend(warnings);
    Ok(())
}

/// `EvaluatePodsInNamespace`: warnings about pods that are there, those with the same faults together.
async fn pods_in_namespace(w: &Write, enforce: LevelVersion) -> Vec<String> {
    let pods = w.server.store().list("/pods", Some(&w.name));
    let total = pods.len();
    let deadline = Instant::now() + MAX_TIME;
    // Of the pods of one controller one goes first: the others are most likely like it.
    let (mut first, mut others, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
    for (i, record) in pods.iter().enumerate() {
        match controller(record) {
            Some(uid) if !seen.insert(uid.clone()) => others.push(record),
            _ => first.push(record),
        }
        if i % AT_ONCE == 0 {
            tokio::task::yield_now().await;
        }
    }
    let mut faults: BTreeMap<String, (String, usize)> = BTreeMap::new();
    let mut checked = 0;
    for record in first.into_iter().chain(others).take(MAX_PODS) {
        checked += 1;
        let Ok(pod) = record.value() else { continue };
        let violations = evaluate(enforce, &pod["metadata"], &pod["spec"]);
        if !violations.is_empty() {
            let name = record.key.name.clone();
            let (least, count) = faults.entry(reasons(&violations)).or_insert_with(|| (name.clone(), 0));
            *count += 1;
            if name < *least {
                *least = name;
            }
        }
        if Instant::now() > deadline {
            break;
        }
        if checked % AT_ONCE == 0 {
            tokio::task::yield_now().await;
        }
    }
    let mut warnings = Vec::new();
    if checked < total {
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {checked} of {total} existing pods"
        ));
    }
    if !faults.is_empty() {
        warnings.push(format!(
            "existing pods in namespace \"{}\" violate the new PodSecurity enforce level \"{enforce}\"",
            w.name
        ));
    }
    let mut of_pods: Vec<String> = faults
        .into_iter()
        .map(|(reason, (name, count))| match count {
            1 => format!("{name}: {reason}"),
            2 => format!("{name} (and 1 other pod): {reason}"),
            _ => format!("{name} (and {} other pods): {reason}", count - 1),
        })
        .collect();
    of_pods.sort();
    warnings.extend(of_pods);
    warnings
}

/// The UID of what controls a pod.
fn controller(pod: &Record) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Owned {
        metadata: Meta,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Meta {
        #[serde(default)]
        owner_references: Vec<Owner>,
    }
    #[derive(Deserialize)]
    struct Owner {
        uid: String,
        #[serde(default)]
        controller: Option<bool>,
    }
    let pod: Owned = serde_json::from_slice(&pod.json).ok()?;
    let mut owners = pod.metadata.owner_references.into_iter();
    owners.find(|owner| owner.controller == Some(true)).map(|owner| owner.uid)
}

/// Several errors as Go's aggregate prints them.
fn aggregate(errors: &[FieldError]) -> String {
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    match errors.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

/// Annotates the request's audit event, where requests are recorded.
fn annotate(w: &Write, key: &str, value: String) {
    if w.server.config().audit.is_some() {
        let mut annotations = w.annotations.lock().unwrap_or_else(PoisonError::into_inner);
        annotations.entry(format!("pod-security.kubernetes.io/{key}")).or_insert(value);
    }
}

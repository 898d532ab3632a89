//! ResourceQuota: what a write uses is charged to the quotas of its namespace before it is committed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_api::quantity::{Format, Quantity};
use plimsoll_machinery::{ApiError, Kind, KindTable};
use serde_json::{Value, json};

use super::{Operation, forbidden, subject};
use crate::machine;
use crate::pipeline::Write;
use crate::store::{Expected, Record, Store, StoreError};

/// Attempts against other writers of the same quota.
const MAX_ATTEMPTS: usize = 20;

type Usage = BTreeMap<String, Quantity>;

/// Namespaces in which writes are charged for that are not committed yet. A count of what is there would miss
/// them.
#[derive(Debug, Default)]
pub struct UnderWay(Mutex<BTreeMap<String, usize>>);

impl UnderWay {
    /// Whether quotas of the namespace hold charges for writes still to come.
    pub fn any(&self, namespace: &str) -> bool {
        self.lock().contains_key(namespace)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(self: &Arc<Self>, namespace: &str) -> Charge {
        *self.lock().entry(namespace.to_owned()).or_default() += 1;
        Charge(Some((Arc::clone(self), namespace.to_owned())))
    }
}

/// What a write was charged for, to be kept until the write is done. If that fails, the next count gives it back.
#[derive(Debug, Default)]
#[must_use]
pub struct Charge(Option<(Arc<UnderWay>, String)>);

impl Drop for Charge {
    fn drop(&mut self) {
        let Some((under_way, namespace)) = self.0.take() else { return };
        let mut writes = under_way.lock();
        if let Some(n) = writes.get_mut(&namespace) {
            *n -= 1;
            if *n == 0 {
                writes.remove(&namespace);
            }
        }
    }
}

/// Checks and charges. The charge has to live until the write is committed or given up.
///
/// # Errors
/// 403 when a quota would be exceeded, or says nothing about what it limits yet.
pub async fn charge(
    w: &Write,
    object: &Value,
    old: Option<&Value>,
    operation: Operation,
) -> Result<Charge, ApiError> {
    if !w.kind.namespaced || !w.subresource.is_empty() || !is_charged(w, operation) {
        return Ok(Charge::default());
    }
    let quotas = w.server.store().list("/resourcequotas", Some(&w.namespace));
    if quotas.is_empty() {
        return Ok(Charge::default());
    }
    let mut delta = usage(&w.kind, object);
    if let Some(old) = old {
        for (name, before) in usage(&w.kind, old) {
            if let Some(now) = delta.get_mut(&name) {
                *now = now.saturating_sub(before);
            }
        }
    }
    let records: Vec<Arc<Record>> = quotas.iter().map(Arc::clone).collect();
    // All are checked before any is charged.
    let mut charged = Vec::new();
    for record in &records {
        let quota = record.value().map_err(ApiError::internal)?;
        if evaluate(w, object, &quota, &delta, operation)?.is_some() {
            charged.push(record);
        }
    }
    if w.dry_run || charged.is_empty() {
        return Ok(Charge::default());
    }
    let charge = w.server.charges().begin(&w.namespace);
    for record in charged {
        commit(w, object, record, &delta, operation).await?;
    }
    Ok(charge)
}

/// Updates are charged where they can grow.
fn is_charged(w: &Write, operation: Operation) -> bool {
    let s = subject(w);
    operation == Operation::Create
        || (operation == Operation::Update && (s.is("", "services") || s.is("", "persistentvolumeclaims")))
}

async fn commit(
    w: &Write,
    object: &Value,
    record: &Arc<Record>,
    delta: &Usage,
    operation: Operation,
) -> Result<(), ApiError> {
    for _ in 0..MAX_ATTEMPTS {
        let Some(current) = w.server.store().latest(&record.key) else { return Ok(()) };
        let quota = current.value().map_err(ApiError::internal)?;
        let Some(mut new) = evaluate(w, object, &quota, delta, operation)? else { return Ok(()) };
        if let Some(kind) = w.table.resource("", "v1", "resourcequotas") {
            machine::own_update(kind, Some(&quota), &mut new, "kube-apiserver", "status", w.now)?;
        }
        let key = record.key.clone();
        match w.server.put(key, Expected::Revision(current.revision), &new).await {
            Ok(_) => return Ok(()),
            Err(StoreError::Conflict { .. } | StoreError::NotFound) => {}
            Err(e) => return Err(ApiError::internal(e)),
        }
    }
    Err(ApiError::internal("the quota of the namespace changes too fast"))
}

/// The quota with the charge added; `None`: it has nothing to do with the write.
fn evaluate(
    w: &Write,
    object: &Value,
    quota: &Value,
    delta: &Usage,
    operation: Operation,
) -> Result<Option<Value>, ApiError> {
    let name = quota["metadata"]["name"].as_str().unwrap_or("");
    if !in_scope(&w.kind, object, &quota["spec"]) {
        return Ok(None);
    }
    let spec_hard = &quota["spec"]["hard"];
    let concerned: Vec<&String> = spec_hard
        .as_object()
        .into_iter()
        .flatten()
        .map(|(k, _)| k)
        .filter(|k| concerns(&w.kind, k))
        .collect();
    if concerned.is_empty() {
        return Ok(None);
    }
    if operation == Operation::Create {
        must_specify(w, object, name, &concerned)?;
    }
    let zero = |q: &Quantity| *q <= Quantity::new(0, q.format());
    let mine: Usage = delta
        .iter()
        .filter(|(k, v)| concerned.contains(k) && !zero(v))
        .map(|(k, v)| (k.clone(), *v))
        .collect();
    if mine.is_empty() {
        return Ok(None);
    }
    let hard = &quota["status"]["hard"];
    let unknown: Vec<&str> =
        mine.keys().filter(|k| hard.get(k.as_str()).is_none()).map(String::as_str).collect();
    if !unknown.is_empty() {
        let why = format!("status unknown for quota: {name}, resources: {}", unknown.join(","));
        return Err(forbidden(w, object, &why));
    }
    let parse = |v: &Value| v.as_str().and_then(|t| t.parse::<Quantity>().ok());
    let mut new = quota.clone();
    let (mut requested, mut used_text, mut limited) = (Vec::new(), Vec::new(), Vec::new());
    for (resource, amount) in &mine {
        let used = parse(&quota["status"]["used"][resource]);
        let total = used.map_or(*amount, |u| u.saturating_add(*amount));
        let Some(limit) = parse(&hard[resource]) else { continue };
        if total > limit {
            requested.push(format!("{resource}={amount}"));
            used_text.push(format!("{resource}={}", used.map_or("0".to_owned(), |u| u.to_string())));
            limited.push(format!("{resource}={limit}"));
        }
        new["status"]["used"][resource] = json!(total.to_string());
    }
    if !requested.is_empty() {
        let why = format!(
            "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
            requested.join(","),
            used_text.join(","),
            limited.join(",")
        );
        return Err(forbidden(w, object, &why));
    }
    Ok(Some(new))
}

fn count_name(kind: &Kind) -> String {
    format!("count/{}", kind.qualified_resource())
}

/// Whether a resource of a quota is one that the kind uses.
fn concerns(kind: &Kind, resource: &str) -> bool {
    if resource == count_name(kind) {
        return true;
    }
    if !kind.gvk.group.is_empty() {
        return false;
    }
    match kind.plural.as_str() {
        "pods" => {
            matches!(resource, "pods" | "cpu" | "memory" | "ephemeral-storage")
                || resource.starts_with("limits.")
                || (resource.starts_with("requests.") && resource != "requests.storage")
                || resource.starts_with("hugepages-")
        }
        "services" => matches!(resource, "services" | "services.nodeports" | "services.loadbalancers"),
        "persistentvolumeclaims" => {
            matches!(resource, "persistentvolumeclaims" | "requests.storage")
                || resource.contains(".storageclass.storage.k8s.io/")
        }
        plural @ ("configmaps" | "secrets" | "replicationcontrollers" | "resourcequotas") => {
            resource == plural
        }
        _ => false,
    }
}

/// Kinds that a quota counts, one for each resource.
pub(crate) fn counted<'a>(table: &'a KindTable, quota: &Value) -> BTreeMap<&'a str, &'a Arc<Kind>> {
    let hard = quota["spec"]["hard"].as_object();
    let mut kinds = BTreeMap::new();
    for kind in table.iter().filter(|k| k.namespaced && k.verbs.iter().any(|v| v == "list")) {
        if hard.into_iter().flatten().any(|(resource, _)| concerns(kind, resource)) {
            kinds.entry(kind.storage.as_str()).or_insert(kind);
        }
    }
    kinds
}

/// `status` of a quota, from everything that there is in its namespace now.
pub(crate) fn recount(table: &KindTable, store: &Store, quota: &Value) -> Value {
    let hard = &quota["spec"]["hard"];
    let limits = hard.as_object().into_iter().flatten();
    let parse = |v: &Value| v.as_str().and_then(|t| t.parse::<Quantity>().ok());
    let mut used: Usage = limits
        .map(|(name, limit)| {
            let format = parse(limit).map_or(Format::DecimalSi, |q| q.format());
            (name.clone(), Quantity::new(0, format))
        })
        .collect();
    let namespace = quota["metadata"]["namespace"].as_str().unwrap_or("");
    for kind in counted(table, quota).into_values() {
        for record in store.list(&kind.storage, Some(namespace)).iter() {
            let Ok(object) = record.value() else { continue };
            if !in_scope(kind, &object, &quota["spec"]) {
                continue;
            }
            for (name, amount) in usage(kind, &object) {
                if let Some(total) = used.get_mut(&name) {
                    // The first amount gives the form in which the sum is written.
                    let zero = *total == Quantity::new(0, total.format());
                    *total = if zero { amount } else { total.saturating_add(amount) };
                }
            }
        }
    }
    let used: BTreeMap<String, String> = used.into_iter().map(|(k, v)| (k, v.to_string())).collect();
    json!({"hard": hard, "used": used})
}

fn one() -> Quantity {
    Quantity::new(1, Format::DecimalSi)
}

/// What an object uses.
fn usage(kind: &Kind, object: &Value) -> Usage {
    let mut out = Usage::from([(count_name(kind), one())]);
    if !kind.gvk.group.is_empty() {
        return out;
    }
    let mut add = |name: &str, amount: Quantity| {
        out.insert(name.to_owned(), amount);
    };
    match kind.plural.as_str() {
        "pods" if matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) => {}
        "pods" => {
            add("pods", one());
            for (name, amount) in pod_total(object, "requests") {
                if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage")
                    || name.starts_with("hugepages-")
                {
                    add(&name, amount);
                }
                add(&format!("requests.{name}"), amount);
            }
            for (name, amount) in pod_total(object, "limits") {
                add(&format!("limits.{name}"), amount);
            }
        }
        "services" => {
            add("services", one());
            let ports = object["spec"]["ports"].as_array().map_or(0, Vec::len);
            let count = Quantity::new(i64::try_from(ports).unwrap_or(i64::MAX), Format::DecimalSi);
            match object["spec"]["type"].as_str() {
                Some("NodePort") => add("services.nodeports", count),
                Some("LoadBalancer") => {
                    add("services.loadbalancers", one());
                    if object["spec"]["allocateLoadBalancerNodePorts"] != false {
                        add("services.nodeports", count);
                    }
                }
                _ => {}
            }
        }
        "persistentvolumeclaims" => {
            add("persistentvolumeclaims", one());
            let storage = object["spec"]["resources"]["requests"]["storage"].as_str();
            let storage = storage.and_then(|s| s.parse::<Quantity>().ok());
            let class = object["spec"]["storageClassName"].as_str().unwrap_or("");
            if let Some(storage) = storage {
                add("requests.storage", storage);
                if !class.is_empty() {
                    add(&format!("{class}.storageclass.storage.k8s.io/requests.storage"), storage);
                }
            }
            if !class.is_empty() {
                add(&format!("{class}.storageclass.storage.k8s.io/persistentvolumeclaims"), one());
            }
        }
        plural @ ("configmaps" | "secrets" | "replicationcontrollers" | "resourcequotas") => {
            add(plural, one());
        }
        _ => {}
    }
    out
}

/// Requests or limits of a pod: the sum of its containers, or the largest init container if that is more, and
/// the overhead.
fn pod_total(pod: &Value, part: &str) -> Usage {
    let mut total = Usage::new();
    let amounts = |c: &Value, path: &str| -> Vec<(String, Quantity)> {
        let map = if path.is_empty() { c.as_object() } else { c["resources"][path].as_object() };
        map.into_iter().flatten().filter_map(|(k, v)| Some((k.clone(), v.as_str()?.parse().ok()?))).collect()
    };
    let add = |total: &mut Usage, name: String, amount: Quantity| {
        let entry = total.entry(name).or_insert(Quantity::new(0, amount.format()));
        *entry = entry.saturating_add(amount);
    };
    let spec = &pod["spec"];
    for c in spec["containers"].as_array().into_iter().flatten() {
        for (name, amount) in amounts(c, part) {
            add(&mut total, name, amount);
        }
    }
    for c in spec["initContainers"].as_array().into_iter().flatten() {
        let stays = c["restartPolicy"] == "Always";
        for (name, amount) in amounts(c, part) {
            if stays {
                add(&mut total, name, amount);
            } else {
                let entry = total.entry(name).or_insert(amount);
                *entry = (*entry).max(amount);
            }
        }
    }
    for (name, amount) in amounts(&spec["overhead"], "") {
        if part == "requests" || total.contains_key(&name) {
            add(&mut total, name, amount);
        }
    }
    total
}

/// Quotas of compute resources want every container to say what it needs.
fn must_specify(w: &Write, pod: &Value, quota: &str, concerned: &[&String]) -> Result<(), ApiError> {
    if !subject(w).is("", "pods") {
        return Ok(());
    }
    let mut missing: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let spec = &pod["spec"];
    let containers =
        ["containers", "initContainers"].into_iter().flat_map(|f| spec[f].as_array().into_iter().flatten());
    for c in containers {
        for resource in concerned {
            let (part, name) = match resource.as_str() {
                r @ ("cpu" | "memory") => ("requests", r),
                r => match r.split_once('.') {
                    Some((part @ ("requests" | "limits"), name @ ("cpu" | "memory"))) => (part, name),
                    _ => continue,
                },
            };
            if c["resources"][part].get(name).is_none() {
                missing.entry(resource).or_default().push(c["name"].as_str().unwrap_or(""));
            }
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let parts: Vec<String> =
        missing.iter().map(|(r, names)| format!("{r} for: {}", names.join(","))).collect();
    Err(forbidden(w, pod, &format!("failed quota: {quota}: must specify {}", parts.join("; "))))
}

/// Whether a quota's scopes take the object in.
fn in_scope(kind: &Kind, object: &Value, spec: &Value) -> bool {
    let plain = spec["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let selected = spec["scopeSelector"]["matchExpressions"].as_array().into_iter().flatten();
    let pods = kind.gvk.group.is_empty() && kind.plural == "pods";
    for scope in plain {
        if !pods || !pod_in_scope(object, scope, "Exists", &[]) {
            return false;
        }
    }
    for e in selected {
        let values: Vec<&str> =
            e["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let (scope, op) = (e["scopeName"].as_str().unwrap_or(""), e["operator"].as_str().unwrap_or(""));
        if !pods || !pod_in_scope(object, scope, op, &values) {
            return false;
        }
    }
    true
}

fn pod_in_scope(pod: &Value, scope: &str, operator: &str, values: &[&str]) -> bool {
    let spec = &pod["spec"];
    let terminating = spec["activeDeadlineSeconds"].as_i64().is_some();
    let best_effort = plimsoll_machinery::strategy::qos_class(&spec.as_object().cloned().unwrap_or_default())
        == "BestEffort";
    match scope {
        "Terminating" => terminating,
        "NotTerminating" => !terminating,
        "BestEffort" => best_effort,
        "NotBestEffort" => !best_effort,
        "PriorityClass" => {
            let class = spec["priorityClassName"].as_str().unwrap_or("");
            match operator {
                "In" => values.contains(&class),
                "NotIn" => !values.contains(&class),
                "Exists" => !class.is_empty(),
                "DoesNotExist" => class.is_empty(),
                _ => false,
            }
        }
        _ => false,
    }
}

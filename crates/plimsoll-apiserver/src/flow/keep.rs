//! Follows the objects that configure flow control: takes on what is written, keeps the status of FlowSchemas, and
//! keeps the objects that exist from the start.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::future::BoxFuture;
use plimsoll_apimachinery::{Gvk, Kind};
use serde_json::{Value, json};

use super::config;
use super::{FlowControl, bootstrap};
use crate::machine;
use crate::server::{Follower, Server};
use crate::store::{Expected, Key, Record};

/// API group of the objects.
pub const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const LEVELS: &str = "flowcontrol.apiserver.k8s.io/prioritylevelconfigurations";
const SCHEMAS: &str = "flowcontrol.apiserver.k8s.io/flowschemas";
/// Field manager of the status of FlowSchemas (`ConfigConsumerAsFieldManager`).
const CONSUMER: &str = "api-priority-and-fairness-config-consumer-v1";
/// Field manager of the objects that exist from the start (`fieldManager` of the ensurer).
pub const PRODUCER: &str = "api-priority-and-fairness-config-producer-v1";

/// Follows the objects that flow control is configured with.
pub fn follower() -> Box<dyn Follower> {
    Box::new(Configuration)
}

struct Configuration;

impl Follower for Configuration {
    fn follows(&self, kind: &Kind) -> bool {
        kind.gvk.group == GROUP
    }

    fn written<'a>(&'a self, server: &'a Arc<Server>, _record: &'a Arc<Record>) -> BoxFuture<'a, ()> {
        Box::pin(changed(server, server.flow()))
    }

    fn deleted<'a>(&'a self, server: &'a Arc<Server>, record: &'a Arc<Record>) -> BoxFuture<'a, ()> {
        self.written(server, record)
    }
}

/// An object has been written, or is gone: takes on the configuration as it is now, and says in the status of each
/// FlowSchema whether its level is there.
async fn changed(server: &Server, flow: &FlowControl) {
    if flow.paused.load(Ordering::Relaxed) {
        return;
    }
    let store = server.store();
    let levels = config::levels(store.list(LEVELS, None).iter());
    let schemas = config::schemas(store.list(SCHEMAS, None).iter());
    let statuses: Vec<(String, Value)> = schemas
        .iter()
        .filter_map(|s| {
            let found = levels.contains_key(&s.spec.priority_level_configuration.name);
            Some((s.name.clone(), config::condition(s, found)?))
        })
        .collect();
    flow.configure(&levels, config::in_order(schemas, &levels));
    for (name, condition) in statuses {
        set_condition(server, &name, condition).await;
    }
}

fn kind_of(server: &Server, kind: &str) -> Option<Arc<Kind>> {
    let gvk = Gvk { group: GROUP.to_owned(), version: "v1".to_owned(), kind: kind.to_owned() };
    server.kinds().kind(&gvk).cloned()
}

async fn set_condition(server: &Server, name: &str, mut condition: Value) {
    let Some(kind) = kind_of(server, "FlowSchema") else { return };
    let Some(record) = server.store().get(&Key::new(SCHEMAS, "", name)) else { return };
    let Ok(old) = record.value() else { return };
    condition["lastTransitionTime"] = json!(crate::time::seconds(server.now()));
    let mut conditions = match &old["status"]["conditions"] {
        Value::Array(all) => all.clone(),
        _ => Vec::new(),
    };
    conditions.retain(|c| c["type"] != condition["type"]);
    conditions.push(condition);
    let mut new = old.clone();
    new["status"] = json!({"conditions": conditions});
    put(server, &kind, &record, &old, new, CONSUMER, "status").await;
}

/// Writes an object as it is; another client's write meanwhile brings the change here again.
async fn put(
    server: &Server,
    kind: &Kind,
    record: &Record,
    old: &Value,
    mut new: Value,
    manager: &str,
    subresource: &str,
) {
    if let Err(e) = machine::own_update(kind, Some(old), &mut new, manager, subresource, server.now()) {
        tracing::debug!(error = %e, "ownership of flow control's objects");
    }
    if let Err(e) = server.put(record.key.clone(), Expected::Revision(record.revision), &new).await {
        tracing::debug!(name = record.key.name, error = %e, "an object of flow control was not written");
    }
}

/// Leaves changes for later while many objects are written; the last call takes them on.
pub async fn pause(server: &Server, flow: &FlowControl, paused: bool) {
    flow.paused.store(paused, Ordering::Relaxed);
    if !paused {
        changed(server, flow).await;
    }
}

/// Brings the objects that exist from the start back to what they should be; returns those that aren't there. Those of
/// earlier versions go, unless an operator has made them their own.
pub async fn ensure(server: &Server, flow: &FlowControl) -> Vec<Value> {
    let mut missing = Vec::new();
    let mut any = false;
    for (resource, all) in [(LEVELS, bootstrap::levels()), (SCHEMAS, bootstrap::schemas())] {
        for record in server.store().list(resource, None).iter() {
            let Ok(current) = record.value() else { continue };
            let kept = current["metadata"]["annotations"][bootstrap::AUTO_UPDATE] == "true";
            if kept && !all.iter().any(|o| o["metadata"]["name"] == record.key.name.as_str()) {
                let gone = server.remove(record.key.clone(), Expected::Revision(record.revision), None).await;
                any |= gone.is_ok();
            }
        }
        for wanted in all {
            let key = Key::new(resource, "", wanted["metadata"]["name"].as_str().unwrap_or(""));
            let Some(record) = server.store().get(&key) else {
                missing.push(wanted);
                continue;
            };
            let Some(kind) = wanted["kind"].as_str().and_then(|k| kind_of(server, k)) else { continue };
            let Ok(current) = record.value() else { continue };
            let Some(mut revised) = bootstrap::revise(&current, &wanted) else { continue };
            if revised["spec"] != current["spec"]
                && let Some(generation) = current["metadata"]["generation"].as_i64()
            {
                revised["metadata"]["generation"] = json!(generation + 1);
            }
            put(server, &kind, &record, &current, revised, PRODUCER, "").await;
            any = true;
        }
    }
    if any {
        changed(server, flow).await;
    }
    missing
}

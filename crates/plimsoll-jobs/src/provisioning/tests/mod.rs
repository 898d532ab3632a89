//! The check against an API server of a few kinds.

mod attempts;
mod checks;
mod conditions;
mod requests;

use std::collections::BTreeMap;

use plimsoll_api::resource::{PROVISIONING_REQUESTS, PROVISIONING_REQUESTS_BETA};
use serde_json::{Value, json};

use super::*;
use crate::testing::Fixture;
use crate::{Config, reconcile};

const NOW: Time = Time::from_seconds(1_700_000_000);

/// Objects of a few kinds as the API has them, and a cache that follows them. One workload; the tests say what follows.
struct Harness {
    objects: BTreeMap<(Kind, String, String), Value>,
    cache: Fixture,
    version: u64,
    made: Vec<String>,
}

fn kind_of(resource: Resource) -> Kind {
    match resource.kind {
        "Workload" => Kind::Workload,
        "AdmissionCheck" => Kind::AdmissionCheck,
        "PodTemplate" => Kind::PodTemplate,
        _ => Kind::ProvisioningRequest,
    }
}

fn merge(into: &mut Value, patch: &Value) {
    let (Some(target), Some(changes)) = (into.as_object_mut(), patch.as_object()) else {
        *into = patch.clone();
        return;
    };
    for (key, value) in changes {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

impl Harness {
    fn new(workload: Value, config: &Value) -> Self {
        let mut cache = Fixture::default();
        cache.serve(Kind::ProvisioningRequest, Some(PROVISIONING_REQUESTS));
        let mut harness = Self { objects: BTreeMap::new(), cache, version: 1, made: Vec::new() };
        let flavor = json!({"metadata": {"name": "f"}, "spec": {"nodeLabels": {"pool": "gpu"},
            "tolerations": [{"key": "spot", "operator": "Exists"}]}});
        harness.put(Kind::Flavor, flavor);
        let parameters =
            json!({"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "prc"});
        harness.put(
            Kind::AdmissionCheck,
            json!({"metadata": {"name": "ac"}, "spec": {"controllerName": config::CONTROLLER, "parameters": parameters}}),
        );
        harness.put(Kind::ProvisioningConfig, json!({"metadata": {"name": "prc"}, "spec": config}));
        harness.put(Kind::Workload, workload);
        harness
    }

    fn put(&mut self, kind: Kind, mut object: Value) {
        self.version += 1;
        json::set(&mut object, &["metadata", "resourceVersion"], json!(self.version.to_string()));
        if json::uid(&object).is_empty() {
            json::set(&mut object, &["metadata", "uid"], json!(format!("uid-{}", self.version)));
        }
        let key = (kind, json::namespace(&object).to_owned(), json::name(&object).to_owned());
        self.objects.insert(key, object.clone());
        self.cache.put(kind, object);
    }

    fn change(&mut self, kind: Kind, name: &str, patch: &Value) {
        let ns = if matches!(kind, Kind::AdmissionCheck | Kind::ProvisioningConfig) { "" } else { "ns" };
        let mut object = self.objects[&(kind, ns.to_owned(), name.to_owned())].clone();
        merge(&mut object, patch);
        self.put(kind, object);
    }

    fn request(&self, name: &str) -> Option<&Value> {
        self.objects.get(&(Kind::ProvisioningRequest, "ns".into(), name.into()))
    }

    fn requests(&self) -> Vec<&str> {
        let all = self.objects.keys().filter(|k| k.0 == Kind::ProvisioningRequest);
        all.map(|k| k.2.as_str()).collect()
    }

    fn conditions(&mut self, request: &str, conditions: &[(&str, &str, &str)]) {
        let rows: Vec<Value> = conditions
            .iter()
            .map(|(t, s, m)| json!({"type": t, "status": s, "message": m, "reason": t}))
            .collect();
        self.change(Kind::ProvisioningRequest, request, &json!({"status": {"conditions": rows}}));
    }

    fn check(&self) -> &Value {
        &self.objects[&(Kind::Workload, "ns".into(), "wl".into())]["status"]["admissionChecks"][0]
    }

    /// One write: whether the next one follows.
    fn write(&mut self, write: &Write) -> bool {
        match write {
            Write::CreateForCheck(order) => {
                let key = (kind_of(order.resource), "ns".to_owned(), json::name(&order.object).to_owned());
                if self.objects.contains_key(&key) {
                    let found = self.objects[&key].clone();
                    self.cache.put(key.0, found);
                    return false;
                }
                self.made.push(key.2.clone());
                self.put(key.0, order.object.clone());
                true
            }
            Write::Patch { resource, namespace, name, body, .. } => {
                let key = (kind_of(*resource), namespace.clone(), name.clone());
                let Some(mut object) = self.objects.get(&key).cloned() else { return true };
                if body["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
                    return false;
                }
                merge(&mut object, body);
                self.put(key.0, object);
                true
            }
            Write::Delete { resource, namespace, name, .. } => {
                self.objects.remove(&(kind_of(*resource), namespace.clone(), name.clone()));
                self.cache.remove(kind_of(*resource), namespace, name, "");
                true
            }
            Write::IfUnchanged { resource, namespace, name, version } => {
                let key = (kind_of(*resource), namespace.clone(), name.clone());
                self.objects.get(&key).is_some_and(|o| json::version(o) == version)
            }
            _ => true,
        }
    }

    fn plan(&self) -> Plan {
        reconcile(&Key::Provisioning("ns".into(), "wl".into()), self.cache.env(NOW))
    }

    /// Plans and writes until there is nothing more to do; what was written.
    fn settle(&mut self) -> Vec<String> {
        let mut log = Vec::new();
        for _ in 0..10 {
            let writes = self.plan();
            if writes.is_empty() {
                return log;
            }
            for write in &writes {
                log.extend(text(write));
                if matches!(write, Write::RequeueAfter(_)) {
                    return log;
                }
                if !self.write(write) {
                    break;
                }
            }
        }
        panic!("never done: {log:?}");
    }

    /// Everything is read again, as after a restart or a lost watch.
    fn restart(&mut self) {
        let mut cache = Fixture::with_config(self.cache.config.clone());
        cache.serve(Kind::ProvisioningRequest, self.cache.served(Kind::ProvisioningRequest));
        for ((kind, _, _), object) in &self.objects {
            cache.put(*kind, object.clone());
        }
        self.cache = cache;
    }
}

fn text(write: &Write) -> Option<String> {
    Some(match write {
        Write::CreateForCheck(o) => format!("+{}", json::name(&o.object)),
        Write::Patch { name, subresource, .. } => {
            format!("{name}{}{subresource}", if subresource.is_empty() { "" } else { "/" })
        }
        Write::Delete { name, .. } => format!("-{name}"),
        Write::IfUnchanged { name, .. } => format!("?{name}"),
        Write::Event(n) => format!("{}: {}", n.reason, n.message),
        _ => return None,
    })
}

fn container(resources: &Value) -> Value {
    json!([{"name": "c", "image": "i", "resources": resources}])
}

fn podset(name: &str, count: i64, resources: &Value) -> Value {
    json!({"name": name, "count": count, "template": {"spec": {"containers": container(resources)}}})
}

/// A workload with a reservation for podsets of (name, declared count, admitted count, resources).
fn reserved(podsets: &[(&str, i64, i64, Value)]) -> Value {
    let specs: Vec<Value> = podsets.iter().map(|p| podset(p.0, p.1, &p.3)).collect();
    let assigned: Vec<Value> =
        podsets.iter().map(|p| json!({"name": p.0, "count": p.2, "flavors": {"cpu": "f"}})).collect();
    json!({
        "metadata": {"namespace": "ns", "name": "wl", "uid": "wl-uid", "annotations": {
            "provreq.kueue.x-k8s.io/ValidUntilSeconds": "0", "other": "x"}},
        "spec": {"active": true, "podSets": specs},
        "status": {
            "admission": {"clusterQueue": "cq", "podSetAssignments": assigned},
            "conditions": [{"type": "QuotaReserved", "status": "True"}],
            "admissionChecks": [{"name": "ac", "state": "Pending", "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z"}],
        },
    })
}

fn one() -> Value {
    reserved(&[("main", 3, 2, json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}}))])
}

fn config() -> Value {
    json!({"provisioningClassName": "check-capacity.autoscaling.x-k8s.io", "parameters": {"p1": "v1"},
           "retryStrategy": {"backoffLimitCount": 3, "backoffBaseSeconds": 60, "backoffMaxSeconds": 1800}})
}

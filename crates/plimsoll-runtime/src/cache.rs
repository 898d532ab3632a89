//! Last seen state of the objects that job integrations and webhooks look up. Filled by the watches and by answers
//! to our own writes; the newer version wins.
//!
//! Pods are kept only when a queue manages them, so memory grows with queued work, not with the cluster.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value;

use crate::api::Resource;
use crate::jobs::rules::Rules;
use crate::json;

/// Kinds that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Pods that a queue manages.
    Pod,
    /// Jobs.
    Job,
    /// Workloads.
    Workload,
    /// Local queues.
    LocalQueue,
    /// Cluster queues.
    ClusterQueue,
    /// Cohorts.
    Cohort,
    /// Flavors.
    Flavor,
    /// Kueue priority classes.
    WorkloadPriorityClass,
    /// Priority classes of pods.
    PriorityClass,
    /// Namespaces.
    Namespace,
    /// Run windows.
    RunWindow,
    /// Admission checks.
    AdmissionCheck,
    /// What checks ask the cluster autoscaler with.
    ProvisioningConfig,
    /// Requests to the cluster autoscaler.
    ProvisioningRequest,
    /// Templates of pods that we made.
    PodTemplate,
}

const KINDS: usize = 15;

type Name = (String, String);

#[derive(Debug, Default)]
struct Tables {
    objects: [BTreeMap<Name, Arc<Value>>; KINDS],
    /// Names of pods by (namespace, group).
    groups: HashMap<Name, BTreeSet<String>>,
    /// Names of pods by (namespace, workload).
    admitted: HashMap<Name, BTreeSet<String>>,
    /// Names of pods by (namespace, first slice of an elastic job).
    sliced: HashMap<Name, BTreeSet<String>>,
    /// Workloads by UID of an owner.
    owned: HashMap<String, BTreeSet<Name>>,
    /// Names of provisioning requests by (namespace, workload that owns them).
    requests: HashMap<Name, BTreeSet<String>>,
    /// The version in which provisioning requests are served.
    requests_served: Option<Resource>,
}

/// The cache; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    tables: Arc<RwLock<Tables>>,
    rules: Arc<Rules>,
}

/// Label or annotation that makes a pod a member of a group (Kueue KEP-976).
pub const GROUP: &str = "kueue.x-k8s.io/pod-group-name";

/// Name of the pod's group, from the label or, since 0.18, the annotation.
pub fn group_of(pod: &Value) -> &str {
    json::label_opt(pod, GROUP).or_else(|| json::annotation(pod, GROUP)).unwrap_or_default()
}

/// Name of the workload that the pod was admitted with; empty when it was not.
pub fn workload_of(pod: &Value) -> &str {
    json::annotation(pod, crate::jobs::names::WORKLOAD).unwrap_or_default()
}

/// Name of the first slice of the elastic job that a pod belongs to, or empty.
fn slice_of(pod: &Value) -> &str {
    json::annotation(pod, crate::jobs::names::SLICE).unwrap_or_default()
}

fn forget(index: &mut HashMap<Name, BTreeSet<String>>, of: &Name, pod: &str) {
    if let Some(members) = index.get_mut(of) {
        members.remove(pod);
        if members.is_empty() {
            index.remove(of);
        }
    }
}

fn key(object: &Value) -> Name {
    (json::namespace(object).to_owned(), json::name(object).to_owned())
}

fn revision(object: &Value) -> u128 {
    json::version(object).parse().unwrap_or(0)
}

/// Workloads that own an object, by name.
fn workloads_of(object: &Value) -> impl Iterator<Item = &str> {
    let owners = json::list(object, &["metadata", "ownerReferences"]).iter();
    owners.filter(|o| o["kind"] == "Workload").map(|o| json::text(o, &["name"]))
}

impl Tables {
    fn unindex(&mut self, kind: Kind, name: &Name, object: &Value) {
        match kind {
            Kind::Pod => {
                forget(&mut self.groups, &(name.0.clone(), group_of(object).to_owned()), &name.1);
                forget(&mut self.admitted, &(name.0.clone(), workload_of(object).to_owned()), &name.1);
                forget(&mut self.sliced, &(name.0.clone(), slice_of(object).to_owned()), &name.1);
            }
            Kind::Workload => {
                for owner in json::list(object, &["metadata", "ownerReferences"]) {
                    let uid = json::text(owner, &["uid"]);
                    if let Some(set) = self.owned.get_mut(uid) {
                        set.remove(name);
                        if set.is_empty() {
                            self.owned.remove(uid);
                        }
                    }
                }
            }
            Kind::ProvisioningRequest => {
                for workload in workloads_of(object) {
                    forget(&mut self.requests, &(name.0.clone(), workload.to_owned()), &name.1);
                }
            }
            _ => {}
        }
    }

    fn index(&mut self, kind: Kind, name: &Name, object: &Value) {
        match kind {
            Kind::Pod => {
                for (index, of) in [
                    (&mut self.groups, group_of(object)),
                    (&mut self.admitted, workload_of(object)),
                    (&mut self.sliced, slice_of(object)),
                ] {
                    if !of.is_empty() {
                        index.entry((name.0.clone(), of.to_owned())).or_default().insert(name.1.clone());
                    }
                }
            }
            Kind::Workload => {
                for owner in json::list(object, &["metadata", "ownerReferences"]) {
                    let uid = json::text(owner, &["uid"]).to_owned();
                    self.owned.entry(uid).or_default().insert(name.clone());
                }
            }
            Kind::ProvisioningRequest => {
                for workload in workloads_of(object) {
                    let of = (name.0.clone(), workload.to_owned());
                    self.requests.entry(of).or_default().insert(name.1.clone());
                }
            }
            _ => {}
        }
    }
}

impl Cache {
    /// An empty cache for integrations that follow these rules.
    pub fn with_rules(rules: Rules) -> Self {
        Self { tables: Arc::default(), rules: Arc::new(rules) }
    }

    /// What integrations and webhooks go by.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    fn read<T>(&self, f: impl FnOnce(&Tables) -> T) -> T {
        f(&self.tables.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, f: impl FnOnce(&mut Tables) -> T) -> T {
        f(&mut self.tables.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Keeps `object` unless a newer version is known.
    pub fn put(&self, kind: Kind, object: Value) {
        let name = key(&object);
        self.write(|t| {
            let old = t.objects[kind as usize].get(&name).cloned();
            if let Some(old) = &old {
                if revision(old) > revision(&object) {
                    return;
                }
                t.unindex(kind, &name, old);
            }
            t.index(kind, &name, &object);
            t.objects[kind as usize].insert(name, Arc::new(object));
        });
    }

    /// Keeps the answer to a write, but does not bring back what has been deleted meanwhile.
    pub fn refresh(&self, kind: Kind, object: Value) {
        if self.get(kind, json::namespace(&object), json::name(&object)).is_some() {
            self.put(kind, object);
        }
    }

    /// Forgets an object.
    pub fn remove(&self, kind: Kind, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let name = (namespace.to_owned(), name.to_owned());
        self.write(|t| {
            let old = t.objects[kind as usize].remove(&name)?;
            t.unindex(kind, &name, &old);
            Some(old)
        })
    }

    /// An object, if known. The namespace is empty for kinds of cluster scope.
    pub fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let name = (namespace.to_owned(), name.to_owned());
        self.read(|t| t.objects[kind as usize].get(&name).cloned())
    }

    /// All objects of a kind, by namespace and name.
    pub fn all(&self, kind: Kind) -> Vec<Arc<Value>> {
        self.read(|t| t.objects[kind as usize].values().cloned().collect())
    }

    /// Members of a pod group, by name.
    pub fn group(&self, namespace: &str, group: &str) -> Vec<Arc<Value>> {
        self.pods(&(namespace.to_owned(), group.to_owned()), |t| &t.groups)
    }

    /// Pods that were admitted with a workload, by name.
    pub fn of_workload(&self, namespace: &str, workload: &str) -> Vec<Arc<Value>> {
        self.pods(&(namespace.to_owned(), workload.to_owned()), |t| &t.admitted)
    }

    /// Pods of an elastic job whose first slice has this name, by name.
    pub fn of_slice(&self, namespace: &str, first: &str) -> Vec<Arc<Value>> {
        self.pods(&(namespace.to_owned(), first.to_owned()), |t| &t.sliced)
    }

    fn pods(
        &self,
        of: &Name,
        index: impl FnOnce(&Tables) -> &HashMap<Name, BTreeSet<String>>,
    ) -> Vec<Arc<Value>> {
        self.read(|t| {
            let names = index(t).get(of).into_iter().flatten();
            let pods = &t.objects[Kind::Pod as usize];
            names.filter_map(|n| pods.get(&(of.0.clone(), n.clone())).cloned()).collect()
        })
    }

    /// Provisioning requests that a workload of this name owns, by name.
    pub fn requests_of(&self, namespace: &str, workload: &str) -> Vec<Arc<Value>> {
        let of = (namespace.to_owned(), workload.to_owned());
        self.read(|t| {
            let names = t.requests.get(&of).into_iter().flatten();
            let all = &t.objects[Kind::ProvisioningRequest as usize];
            names.filter_map(|n| all.get(&(of.0.clone(), n.clone())).cloned()).collect()
        })
    }

    /// The version in which provisioning requests are served; `None`: the cluster knows none.
    pub fn requests_served(&self) -> Option<Resource> {
        self.read(|t| t.requests_served)
    }

    /// Notes in which version provisioning requests are served; whether that is news.
    pub fn serve_requests(&self, resource: Option<Resource>) -> bool {
        self.write(|t| std::mem::replace(&mut t.requests_served, resource) != resource)
    }

    /// Workloads that name `uid` as an owner, by name.
    pub fn owned_by(&self, uid: &str) -> Vec<Arc<Value>> {
        self.read(|t| {
            let names = t.owned.get(uid).into_iter().flatten();
            names.filter_map(|n| t.objects[Kind::Workload as usize].get(n).cloned()).collect()
        })
    }

    /// Workloads of a namespace with an owner of this kind and name.
    pub fn owned_by_name(&self, namespace: &str, kind: &str, name: &str) -> Vec<Arc<Value>> {
        let from = (namespace.to_owned(), String::new());
        let owns = |w: &Value| {
            let owners = json::list(w, &["metadata", "ownerReferences"]);
            owners.iter().any(|o| o["kind"] == kind && o["name"] == name)
        };
        self.read(|t| {
            let range = t.objects[Kind::Workload as usize].range(from..);
            range
                .take_while(|(k, _)| k.0 == namespace)
                .filter(|(_, w)| owns(w))
                .map(|(_, w)| w.clone())
                .collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, group: &str, version: &str) -> Value {
        json!({"metadata": {"namespace": "ns", "name": name, "resourceVersion": version, "labels": {GROUP: group}}})
    }

    #[test]
    fn newer_wins_and_indexes_follow() {
        let cache = Cache::default();
        cache.put(Kind::Pod, pod("a", "g", "5"));
        cache.put(Kind::Pod, pod("b", "g", "6"));
        cache.put(Kind::Pod, pod("a", "old", "4"));
        assert_eq!(cache.group("ns", "g").len(), 2);
        cache.put(Kind::Pod, pod("a", "h", "10"));
        assert_eq!((cache.group("ns", "g").len(), cache.group("ns", "h").len()), (1, 1));
        cache.remove(Kind::Pod, "ns", "b");
        assert!(cache.group("ns", "g").is_empty());
        cache.refresh(Kind::Pod, pod("b", "g", "99"));
        assert!(cache.get(Kind::Pod, "ns", "b").is_none(), "an answer does not bring back the dead");
    }

    #[test]
    fn workloads_are_found_by_owner() {
        let cache = Cache::default();
        let w = json!({"metadata": {"namespace": "ns", "name": "w", "resourceVersion": "1", "ownerReferences":
            [{"kind": "Job", "name": "j", "uid": "u"}]}});
        cache.put(Kind::Workload, w);
        assert_eq!(cache.owned_by("u").len(), 1);
        assert_eq!(cache.owned_by_name("ns", "Job", "j").len(), 1);
        assert!(cache.owned_by_name("n", "Job", "j").is_empty());
        cache.remove(Kind::Workload, "ns", "w");
        assert!(cache.owned_by("u").is_empty());
    }
}

//! The objects that job integrations and webhooks look up (an informer's indexer in client-go), without locks: a caller
//! that shares an [`ObjectStore`] between threads adds its own.

mod declared;
mod gone;
mod kept;
mod packed;
mod terminating;
mod unreachable;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use plimsoll_api::json;
use plimsoll_api::kueue::variants;
use plimsoll_api::resource::{self, Resource};
use serde_json::Value;

use self::declared::DeclaredKinds;
pub use self::declared::KnownKind;
use self::kept::{Kept, Recent, is_before_deletion, without_managed_fields};
use self::terminating::Terminating;
use self::unreachable::UnreachableNodes;
use crate::custom_kind::CustomKind;
use crate::pod_view::{Identifiers, slice_of, workload_of};

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
    /// Worker clusters of checks of MultiKueue.
    MultiKueueConfig,
    /// Worker clusters.
    MultiKueueCluster,
    /// Topologies.
    Topology,
    /// Configurations of requests to the cluster autoscaler.
    ProvisioningConfig,
    /// Requests to the cluster autoscaler.
    ProvisioningRequest,
    /// Pod templates of requests to the cluster autoscaler.
    PodTemplate,
    /// Declarations of kinds of jobs.
    JobKind,
    /// Stateful sets that a queue manages.
    StatefulSet,
    /// Jobs of a kind that a CustomResourceDefinition adds.
    Custom(CustomKind),
}

impl Kind {
    /// The kind of a resource, if it is kept.
    pub fn of(resource: Resource) -> Option<Self> {
        Some(match resource {
            resource::PODS => Self::Pod,
            resource::JOBS => Self::Job,
            resource::WORKLOADS => Self::Workload,
            resource::LOCAL_QUEUES => Self::LocalQueue,
            resource::CLUSTER_QUEUES => Self::ClusterQueue,
            resource::COHORTS => Self::Cohort,
            resource::FLAVORS => Self::Flavor,
            resource::WORKLOAD_PRIORITY_CLASSES => Self::WorkloadPriorityClass,
            resource::PRIORITY_CLASSES => Self::PriorityClass,
            resource::NAMESPACES => Self::Namespace,
            resource::RUN_WINDOWS => Self::RunWindow,
            resource::ADMISSION_CHECKS => Self::AdmissionCheck,
            resource::MULTIKUEUE_CONFIGS => Self::MultiKueueConfig,
            resource::MULTIKUEUE_CLUSTERS => Self::MultiKueueCluster,
            resource::TOPOLOGIES => Self::Topology,
            resource::PROVISIONING_CONFIGS => Self::ProvisioningConfig,
            resource::PROVISIONING_REQUESTS | resource::PROVISIONING_REQUESTS_BETA => {
                Self::ProvisioningRequest
            }
            resource::POD_TEMPLATES => Self::PodTemplate,
            resource::JOB_KINDS => Self::JobKind,
            resource::STATEFUL_SETS => Self::StatefulSet,
            _ => return CustomKind::of_resource(resource.group(), resource.plural).map(Self::Custom),
        })
    }
}

/// The objects of one kind.
#[derive(Debug, Default)]
struct Table {
    objects: BTreeMap<Name, Kept>,
    /// Objects that only responses to our own requests have shown: when they go, no watch may know that they were there.
    unseen: BTreeSet<Name>,
    /// Version of the last complete list.
    listed: u128,
    /// The version in which the resource is served, for kinds that a CustomResourceDefinition adds.
    served: Option<Resource>,
    /// Whether it has been listed, or is known not to be served.
    is_listed: bool,
}

type Name = (String, String);

/// Where an object comes from.
#[derive(Clone, Copy)]
enum Source<'a> {
    /// A watch has shown it, perhaps as this text.
    Watch(Option<&'a [u8]>),
    /// The answer to a request.
    Answer,
}

impl<'a> Source<'a> {
    fn text(self) -> Option<&'a [u8]> {
        match self {
            Self::Watch(text) => text,
            Self::Answer => None,
        }
    }
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

/// Last seen state of objects, with the indexes that job integrations and webhooks look up.
///
/// Watches fill it, and the responses to our own writes; the newer resourceVersion wins. Pods are kept only when a queue
/// manages them, so memory grows with queued work, not with the cluster. Lookups cost O(log objects) and clone nothing
/// but reference counts.
#[derive(Debug, Default)]
pub struct ObjectStore {
    tables: BTreeMap<Kind, Table>,
    /// Where pods and jobs have the names of their groups and workloads.
    identifiers: Identifiers,
    /// Names of pods by (namespace, group).
    groups: HashMap<Name, BTreeSet<String>>,
    /// Names of pods by (namespace, workload).
    admitted: HashMap<Name, BTreeSet<String>>,
    /// Names of pods by (namespace, first slice of an elastic job).
    sliced: HashMap<Name, BTreeSet<String>>,
    /// Workloads by UID of an owner.
    owned: HashMap<String, BTreeSet<Name>>,
    /// Names of workloads by (namespace, kind and name of an owner).
    owned_by_name: HashMap<Name, BTreeSet<String>>,
    /// What changed of late.
    recent: Recent,
    /// Names of provisioning requests by (namespace, workload that owns them).
    requests: HashMap<Name, BTreeSet<String>>,
    /// UIDs of objects that were removed, the last one first.
    removed: VecDeque<String>,
    /// ClusterQueues with a policy of concurrent admission.
    with_variants: BTreeSet<String>,
    /// Priority classes of workloads whose last change has left their value.
    same_value: BTreeSet<String>,
    /// Kinds that are not built in.
    declared: DeclaredKinds,
    /// Unreachable nodes, and the pods that may be deleted from them.
    unreachable: UnreachableNodes,
    /// Objects that are being deleted, of kinds of which there are few.
    terminating: Terminating,
}

impl ObjectStore {
    /// An empty store.
    pub fn new(identifiers: Identifiers) -> Self {
        Self { identifiers, ..Self::default() }
    }

    /// Where pods and jobs have the names of their groups and workloads.
    pub const fn identifiers(&self) -> Identifiers {
        self.identifiers
    }

    fn unindex(&mut self, kind: Kind, name: &Name, object: &Value) {
        self.terminating.forget(kind, name);
        match kind {
            Kind::Pod => {
                let group = self.identifiers.group_of(object).to_owned();
                forget(&mut self.groups, &(name.0.clone(), group), &name.1);
                forget(&mut self.admitted, &(name.0.clone(), workload_of(object).to_owned()), &name.1);
                forget(&mut self.sliced, &(name.0.clone(), slice_of(object).to_owned()), &name.1);
                self.unreachable.forget_pod(name, object);
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
                    forget(&mut self.owned_by_name, &(name.0.clone(), named(owner)), &name.1);
                }
            }
            Kind::ClusterQueue => {
                self.with_variants.remove(&name.1);
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
        self.terminating.keep(kind, name, object);
        match kind {
            Kind::Pod => {
                for (index, of) in [
                    (&mut self.groups, self.identifiers.group_of(object)),
                    (&mut self.admitted, workload_of(object)),
                    (&mut self.sliced, slice_of(object)),
                ] {
                    if !of.is_empty() {
                        index.entry((name.0.clone(), of.to_owned())).or_default().insert(name.1.clone());
                    }
                }
                self.unreachable.keep_pod(name, object);
            }
            Kind::Workload => {
                for owner in json::list(object, &["metadata", "ownerReferences"]) {
                    let uid = json::text(owner, &["uid"]).to_owned();
                    self.owned.entry(uid).or_default().insert(name.clone());
                    let of = (name.0.clone(), named(owner));
                    self.owned_by_name.entry(of).or_default().insert(name.1.clone());
                }
            }
            Kind::ProvisioningRequest => {
                for workload in workloads_of(object) {
                    let of = (name.0.clone(), workload.to_owned());
                    self.requests.entry(of).or_default().insert(name.1.clone());
                }
            }
            Kind::ClusterQueue if variants::has_policy(object) => {
                self.with_variants.insert(name.1.clone());
            }
            Kind::JobKind => self.declared.declare(object),
            _ => {}
        }
    }

    /// Keeps `object`, which a watch has shown, unless a newer version is known.
    pub fn put(&mut self, kind: Kind, object: impl Into<Arc<Value>>) {
        self.put_shown(kind, object.into(), None);
    }

    /// [`ObjectStore::put`] of an object that the watch has shown as this text.
    pub fn put_text(&mut self, kind: Kind, object: Arc<Value>, text: &[u8]) {
        self.put_shown(kind, object, Some(text));
    }

    fn put_shown(&mut self, kind: Kind, object: Arc<Value>, text: Option<&[u8]>) {
        let name = key(&object);
        let unseen = self.tables.get(&kind).is_some_and(|table| table.unseen.contains(&name));
        let uid = unseen.then(|| json::uid(&object).to_owned());
        self.keep(kind, &name, object, Source::Watch(text));
        if uid.is_some_and(|uid| self.has(kind, &name, &uid)) {
            self.table_mut(kind).unseen.remove(&name);
        }
    }

    fn table_mut(&mut self, kind: Kind) -> &mut Table {
        self.tables.entry(kind).or_default()
    }

    fn find(&self, kind: Kind, name: &Name) -> Option<&Kept> {
        self.tables.get(&kind)?.objects.get(name)
    }

    fn has(&self, kind: Kind, name: &Name, uid: &str) -> bool {
        self.find(kind, name).is_some_and(|o| o.uid() == uid)
    }

    fn keep(&mut self, kind: Kind, name: &Name, object: Arc<Value>, from: Source<'_>) {
        let object = without_managed_fields(object);
        let mut reindex = true;
        if let Some(old) = self.find(kind, name) {
            if old.revision() > revision(&object) {
                return;
            }
            if let Some(change) = old.brought(&object) {
                // That its deletion was accepted is not in the text.
                let text = from.text().filter(|_| !json::deleting(&object));
                return self.recent.shown(kind, change, text);
            }
            if matches!(from, Source::Answer) && old.is_version_of(&object) {
                return;
            }
            let old = old.head();
            if is_before_deletion(&object, &old) {
                return;
            }
            reindex = !has_same_keys(kind, &object, &old);
            if reindex {
                self.unindex(kind, name, &old);
            }
            if kind == Kind::WorkloadPriorityClass {
                let same = json::uid(&old) == json::uid(&object) && old["value"] == object["value"];
                match same {
                    true => self.same_value.insert(name.1.clone()),
                    false => self.same_value.remove(&name.1),
                };
            }
        }
        if reindex {
            self.index(kind, name, &object);
        }
        let (kept, unchanged) = self.recent.keep(kind, name, object, from.text());
        self.table_mut(kind).objects.insert(name.clone(), kept);
        if let Some((kind, name, change)) = unchanged {
            let kept = self.tables.get_mut(&kind).and_then(|t| t.objects.get_mut(&name));
            self.recent.pack(kind, kept, change);
        }
    }

    /// Whether the last change of a WorkloadPriorityClass has left its value: priorities that users have set since stay.
    pub fn kept_value(&self, class: &str) -> bool {
        self.same_value.contains(class)
    }

    /// Keeps the response to a creation, unless the watch has shown the end of the object already: nothing would remove it
    /// again.
    pub fn put_created(&mut self, kind: Kind, object: impl Into<Arc<Value>>) {
        let object = object.into();
        if !self.was_removed(json::uid(&object)) {
            self.keep_response(kind, object);
        }
    }

    /// Keeps the response to a write, but does not restore an object that has been deleted meanwhile.
    pub fn refresh(&mut self, kind: Kind, object: impl Into<Arc<Value>>) {
        let object = object.into();
        if self.find(kind, &key(&object)).is_some() {
            self.keep_response(kind, object);
        }
    }

    /// Keeps what a response has shown. One that the watch has not shown yet, and that a list of its version or a later one
    /// lacks, is gone.
    fn keep_response(&mut self, kind: Kind, object: Arc<Value>) {
        let name = key(&object);
        let uid = json::uid(&object).to_owned();
        if self.has(kind, &name, &uid) {
            return self.keep(kind, &name, object, Source::Answer);
        }
        if revision(&object) <= self.tables.get(&kind).map_or(0, |t| t.listed) {
            return;
        }
        self.keep(kind, &name, object, Source::Answer);
        if self.has(kind, &name, &uid) {
            self.table_mut(kind).unseen.insert(name);
        }
    }

    /// A watch has handed on a complete list of this version. Forgets what only responses have shown and the list lacks:
    /// it came and went while the watch was broken.
    pub fn listed(&mut self, kind: Kind, version: &str) -> Vec<Arc<Value>> {
        let version: u128 = version.parse().unwrap_or(0);
        let table = self.table_mut(kind);
        table.listed = version;
        table.is_listed = true;
        let gone = |name: &&Name| table.objects.get(*name).is_some_and(|o| o.revision() <= version);
        let gone: Vec<Name> = table.unseen.iter().filter(gone).cloned().collect();
        gone.into_iter().filter_map(|name| self.remove(kind, &name.0, &name.1, "")).collect()
    }

    /// An object, if known. The namespace is empty for kinds of cluster scope.
    pub fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.find(kind, &(namespace.to_owned(), name.to_owned())).map(Kept::object)
    }

    /// Whether any ClusterQueue has a policy of concurrent admission.
    pub(crate) fn are_variants_wanted(&self) -> bool {
        !self.with_variants.is_empty()
    }

    /// The UID of an object, if known.
    pub fn uid(&self, kind: Kind, namespace: &str, name: &str) -> Option<&str> {
        self.find(kind, &(namespace.to_owned(), name.to_owned())).map(Kept::uid)
    }

    /// All objects of a kind, by namespace and name. Those that have not changed for long are parsed: for kinds of which there
    /// are many only on rare occasions.
    pub fn all(&self, kind: Kind) -> impl Iterator<Item = Arc<Value>> {
        self.tables.get(&kind).into_iter().flat_map(|t| t.objects.values()).map(Kept::object)
    }

    /// Workloads that have an admission and have not finished, by namespace and name.
    pub fn reserving_workloads(&self) -> impl Iterator<Item = Arc<Value>> {
        let all = self.tables.get(&Kind::Workload).into_iter().flat_map(|t| t.objects.values());
        all.filter(|w| w.is_reserving()).map(Kept::object)
    }

    /// Members of a pod group, by name.
    pub fn pods_of_group(&self, namespace: &str, group: &str) -> Vec<Arc<Value>> {
        self.indexed(Kind::Pod, &self.groups, namespace, group)
    }

    /// Pods that were admitted with a workload, by name.
    pub fn pods_of_workload(&self, namespace: &str, workload: &str) -> Vec<Arc<Value>> {
        self.indexed(Kind::Pod, &self.admitted, namespace, workload)
    }

    /// Pods of an elastic job whose first slice has this name, by name.
    pub fn pods_of_slice(&self, namespace: &str, first: &str) -> Vec<Arc<Value>> {
        self.indexed(Kind::Pod, &self.sliced, namespace, first)
    }

    /// Provisioning requests that a workload of this name owns, by name.
    pub fn requests_of(&self, namespace: &str, workload: &str) -> Vec<Arc<Value>> {
        self.indexed(Kind::ProvisioningRequest, &self.requests, namespace, workload)
    }

    fn indexed(
        &self,
        kind: Kind,
        index: &HashMap<Name, BTreeSet<String>>,
        namespace: &str,
        of: &str,
    ) -> Vec<Arc<Value>> {
        let names = index.get(&(namespace.to_owned(), of.to_owned())).into_iter().flatten();
        names.filter_map(|n| self.find(kind, &(namespace.to_owned(), n.clone()))).map(Kept::object).collect()
    }

    /// Workloads that name `uid` as an owner, by name.
    pub fn owned_by(&self, uid: &str) -> impl Iterator<Item = Arc<Value>> {
        let names = self.owned.get(uid).into_iter().flatten();
        names.filter_map(|n| self.find(Kind::Workload, n)).map(Kept::object)
    }

    /// Workloads of a namespace with an owner of this kind and name, by name.
    pub fn owned_by_name(&self, namespace: &str, kind: &str, name: &str) -> Vec<Arc<Value>> {
        self.indexed(Kind::Workload, &self.owned_by_name, namespace, &format!("{kind}/{name}"))
    }
}

/// Kind and name of an owner.
fn named(owner: &Value) -> String {
    format!("{}/{}", json::text(owner, &["kind"]), json::text(owner, &["name"]))
}

/// Whether the indexes find two versions of an object by the same keys.
fn has_same_keys(kind: Kind, new: &Value, old: &Value) -> bool {
    kind == Kind::Workload
        && json::at(new, &["metadata", "ownerReferences"]) == json::at(old, &["metadata", "ownerReferences"])
}

#[cfg(test)]
mod tests;

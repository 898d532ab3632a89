//! A model of the Kubernetes API: objects with versions, preconditions, finalizers, bindings, the webhooks of
//! `plimsoll-jobs`, and a log of changes per kind that watches read. It never fails by itself; faults happen on the way to it and back.

mod claims;
mod client;
mod kind;
pub mod merge;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_jobs::webhook::{self, Operation, Review};
use plimsoll_jobs::{Config, Env, ObjectStore};
use plimsoll_state::Time;
use serde_json::{Value, json};

pub use client::response;
pub use kind::Kind;
pub use merge::Style;
pub use watch::{Delta, Watch};

/// Namespace and name; the namespace is empty for kinds of cluster scope.
pub type Name = (String, String);

/// An error as the API server answers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// HTTP status code; 0: the connection failed, and whether anything was done isn't known.
    pub code: u16,
    /// The message.
    pub message: String,
}

impl ApiError {
    /// An error with this code.
    pub fn new(code: u16, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// A request.
#[derive(Clone, Debug)]
pub enum Request {
    /// Read one object.
    Get(Kind, Name),
    /// Read one object that may not be there: null then.
    Find(Kind, Name),
    /// Create an object.
    Create(Kind, Value),
    /// Patch an object, or its status.
    Patch {
        /// Kind.
        kind: Kind,
        /// Namespace and name.
        name: Name,
        /// Whether it goes to the subresource `status`.
        status: bool,
        /// How it is applied.
        style: Style,
        /// The patch; `metadata.uid` and `metadata.resourceVersion` are preconditions.
        body: Value,
    },
    /// Delete an object with this UID.
    Delete {
        /// Kind.
        kind: Kind,
        /// Namespace and name.
        name: Name,
        /// UID; empty: any.
        uid: String,
        /// Grace period in seconds; `None`: the pod's own.
        grace: Option<i64>,
    },
    /// Create `pods/binding`.
    Bind {
        /// Namespace and name.
        name: Name,
        /// UID.
        uid: String,
        /// Node.
        node: String,
    },
}

impl Request {
    /// Kind and name of the object it is about.
    pub fn target(&self) -> (Kind, Name) {
        match self {
            Self::Get(kind, name)
            | Self::Find(kind, name)
            | Self::Patch { kind, name, .. }
            | Self::Delete { kind, name, .. } => (*kind, name.clone()),
            Self::Create(kind, object) => (*kind, name_of(object)),
            Self::Bind { name, .. } => (Kind::Pod, name.clone()),
        }
    }
}

/// A change of an object.
#[derive(Clone, Debug)]
pub struct Change {
    /// Version of the store after the change.
    pub version: u64,
    /// The object after the change, or as it was when it was removed.
    pub object: Arc<Value>,
    /// Whether it was removed.
    pub deleted: bool,
}

/// The API server.
#[derive(Debug, Default)]
pub struct Api {
    version: u64,
    tables: BTreeMap<Kind, BTreeMap<Name, Arc<Value>>>,
    logs: BTreeMap<Kind, Vec<Change>>,
    /// How often an object of a name was created: the source of UIDs.
    made: BTreeMap<(Kind, Name), u32>,
    /// What the webhooks know.
    known: ObjectStore,
    config: Settings,
}

/// The configuration of the webhooks: with the gates of partial scale-up and partial preemption.
#[derive(Debug)]
struct Settings(Config);

impl Default for Settings {
    fn default() -> Self {
        Self(Config { partial_scale_up: true, partial_preemption: true, ..Config::default() })
    }
}

/// Text at a path; empty when there is none.
pub fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    path.iter().fold(value, |v, key| &v[*key]).as_str().unwrap_or_default()
}

/// List at a path; empty when there is none.
pub fn list<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    path.iter().fold(value, |v, key| &v[*key]).as_array().map_or(&[], Vec::as_slice)
}

/// UID of an object.
pub fn uid(object: &Value) -> &str {
    text(object, &["metadata", "uid"])
}

/// Version of an object as a number.
pub fn version(object: &Value) -> u64 {
    text(object, &["metadata", "resourceVersion"]).parse().unwrap_or(0)
}

/// Namespace and name of an object.
pub fn name_of(object: &Value) -> Name {
    (text(object, &["metadata", "namespace"]).to_owned(), text(object, &["metadata", "name"]).to_owned())
}

/// Whether deletion has been asked for.
pub fn deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// The condition of this type, where it is `True`.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list(object, &["status", "conditions"]).iter().find(|c| c["type"] == kind && c["status"] == "True")
}

/// Whether the condition of this type is `True`.
pub fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some()
}

fn review<'a>(kind: Kind, name: &'a Name, old: Option<&'a Value>) -> Review<'a> {
    let operation = if old.is_some() { Operation::Update } else { Operation::Create };
    let resource = kind.resource();
    Review { group: resource.group(), plural: resource.plural, operation, namespace: &name.0, old }
}

/// Whether a kubelet has to stop it before it can go, or it has to be empty.
fn runs(kind: Kind, object: &Value) -> bool {
    kind == Kind::Namespace
        || kind == Kind::Pod
            && !text(object, &["spec", "nodeName"]).is_empty()
            && !matches!(text(object, &["status", "phase"]), "Succeeded" | "Failed")
}

/// A time as the API writes it.
pub fn stamp(at: Time) -> Value {
    json!(plimsoll_api::timestamp::text(at))
}

impl Api {
    /// The version of the latest change.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// An object.
    pub fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        self.tables.get(&kind)?.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// All objects of a kind, by namespace and name.
    pub fn all(&self, kind: Kind) -> impl Iterator<Item = &Arc<Value>> {
        self.tables.get(&kind).into_iter().flat_map(BTreeMap::values)
    }

    /// The objects of a kind and namespace whose names begin so, by name.
    pub fn named<'a>(
        &'a self,
        kind: Kind,
        namespace: &str,
        prefix: &str,
    ) -> impl Iterator<Item = &'a Arc<Value>> {
        let first = (namespace.to_owned(), prefix.to_owned());
        let from = self.tables.get(&kind).map(|table| table.range(first.clone()..));
        let named = move |name: &Name| name.0 == first.0 && name.1.starts_with(&first.1);
        from.into_iter().flatten().take_while(move |(name, _)| named(name)).map(|(_, object)| object)
    }

    /// All changes of a kind so far.
    pub fn log(&self, kind: Kind) -> &[Change] {
        self.logs.get(&kind).map_or(&[], Vec::as_slice)
    }

    /// Carries out a request.
    ///
    /// # Errors
    /// As the API server: 404, 409 and 422.
    pub fn handle(&mut self, request: Request, now: Time) -> Result<Arc<Value>, ApiError> {
        match request {
            Request::Get(kind, name) => self.find(kind, &name).cloned(),
            Request::Find(kind, name) => Ok(self.find(kind, &name).cloned().unwrap_or_default()),
            Request::Create(kind, object) => self.create(kind, object, now),
            Request::Patch { kind, name, status, style, body } => {
                self.patch(kind, &name, status, (style, &body), now)
            }
            Request::Delete { kind, name, uid, grace } => self.delete(kind, &name, &uid, grace, now),
            Request::Bind { name, uid, node } => self.bind(&name, &uid, &node, now),
        }
    }

    /// Removes a deleted namespace: it is empty.
    pub fn end_namespace(&mut self, name: &str) {
        let name = (String::new(), name.to_owned());
        if let Ok(namespace) = self.find(Kind::Namespace, &name).cloned()
            && deleting(&namespace)
        {
            self.remove(Kind::Namespace, &name, Arc::unwrap_or_clone(namespace));
        }
    }

    fn find(&self, kind: Kind, name: &Name) -> Result<&Arc<Value>, ApiError> {
        let object = self.tables.get(&kind).and_then(|t| t.get(name));
        object.ok_or_else(|| ApiError::new(404, format!("{} {:?} not found", kind.name(), name.1)))
    }

    fn create(&mut self, kind: Kind, mut object: Value, now: Time) -> Result<Arc<Value>, ApiError> {
        let name = name_of(&object);
        if self.find(kind, &name).is_ok() {
            return Err(ApiError::new(409, format!("{} {:?} already exists", kind.name(), name.1)));
        }
        // As the admission plugin NamespaceLifecycle does.
        if !name.0.is_empty()
            && self.find(Kind::Namespace, &(String::new(), name.0.clone())).is_ok_and(|n| deleting(n))
        {
            let message = format!(
                "unable to create new content in namespace {} because it is being terminated",
                name.0
            );
            return Err(ApiError::new(403, message));
        }
        let count = self.made.entry((kind, name.clone())).or_insert(0);
        *count += 1;
        object["apiVersion"] = json!(kind.api_version());
        object["kind"] = json!(kind.name());
        object["metadata"]["uid"] = json!(format!("{}-{}-{count}", kind.name().to_lowercase(), name.1));
        object["metadata"]["creationTimestamp"] = stamp(now);
        webhook::mutate(&review(kind, &name, None), &mut object, self.env(now));
        self.validate(kind, &name, "", &object, None, now)?;
        object["metadata"]["generation"] = json!(1);
        if kind == Kind::Pod {
            object["status"] = json!({"phase": "Pending"});
        }
        if kind == Kind::Namespace {
            object["spec"]["finalizers"] = json!(["kubernetes"]);
        }
        Ok(self.commit(kind, name, object))
    }

    const fn env(&self, now: Time) -> Env<'_> {
        Env { objects: &self.known, config: &self.config.0, now }
    }

    /// The validating webhook of Workloads, which the process writes itself. What users write is as a scenario draws it.
    fn validate(
        &self,
        kind: Kind,
        name: &Name,
        subresource: &str,
        new: &Value,
        old: Option<&Value>,
        now: Time,
    ) -> Result<(), ApiError> {
        let review = review(kind, name, old);
        if kind != Kind::Workload || !webhook::concerns(review.group, review.plural, subresource, false) {
            return Ok(());
        }
        let result = webhook::validate(&review, new, self.env(now));
        result.map(drop).map_err(|denied| ApiError::new(403, denied.to_string()))
    }

    fn patch(
        &mut self,
        kind: Kind,
        name: &Name,
        status: bool,
        (style, body): (Style, &Value),
        now: Time,
    ) -> Result<Arc<Value>, ApiError> {
        let old = Arc::clone(self.find(kind, name)?);
        for key in ["uid", "resourceVersion"] {
            let (want, have) = (&body["metadata"][key], &old["metadata"][key]);
            if want.is_string() && want != have {
                return Err(ApiError::new(409, format!("precondition failed: {key} is {have}, not {want}")));
            }
        }
        let mut new = (*old).clone();
        if status {
            merge::apply(&mut new["status"], &body["status"], style);
        } else {
            merge::apply(&mut new, body, style);
            new["status"] = old["status"].clone();
        }
        if new["status"].is_null()
            && let Some(map) = new.as_object_mut()
        {
            map.remove("status");
        }
        for key in ["uid", "resourceVersion", "creationTimestamp", "deletionTimestamp"] {
            new["metadata"][key] = old["metadata"][key].clone();
        }
        if new == *old {
            return Ok(old);
        }
        if kind == Kind::ResourceClaim {
            claims::validate(&old, &new)?;
        }
        self.validate(kind, name, if status { "status" } else { "" }, &new, Some(&old), now)?;
        if new["spec"] != old["spec"] {
            new["metadata"]["generation"] = json!(old["metadata"]["generation"].as_i64().unwrap_or(0) + 1);
        }
        if deleting(&new) && list(&new, &["metadata", "finalizers"]).is_empty() && !runs(kind, &new) {
            return Ok(self.remove(kind, name, new));
        }
        Ok(self.commit(kind, name.clone(), new))
    }

    fn delete(
        &mut self,
        kind: Kind,
        name: &Name,
        want: &str,
        grace: Option<i64>,
        now: Time,
    ) -> Result<Arc<Value>, ApiError> {
        let old = Arc::clone(self.find(kind, name)?);
        if !want.is_empty() && uid(&old) != want {
            return Err(ApiError::new(409, "precondition failed: UID"));
        }
        let stays = runs(kind, &old) && grace != Some(0);
        if list(&old, &["metadata", "finalizers"]).is_empty() && !stays {
            return Ok(self.remove(kind, name, (*old).clone()));
        }
        if deleting(&old) {
            return Ok(old);
        }
        let mut new = (*old).clone();
        new["metadata"]["deletionTimestamp"] = stamp(now);
        if kind == Kind::Pod {
            new["metadata"]["deletionGracePeriodSeconds"] = json!(grace.unwrap_or(30));
        }
        Ok(self.commit(kind, name.clone(), new))
    }

    fn bind(&mut self, name: &Name, want: &str, node: &str, now: Time) -> Result<Arc<Value>, ApiError> {
        let old = Arc::clone(self.find(Kind::Pod, name)?);
        let conflict = |why: &str| Err(ApiError::new(409, why));
        if uid(&old) != want {
            return conflict("precondition failed: UID");
        }
        if !text(&old, &["spec", "nodeName"]).is_empty() {
            return conflict("the pod is already assigned to a node");
        }
        if deleting(&old) || !list(&old, &["spec", "schedulingGates"]).is_empty() {
            return conflict("the pod is being deleted or has scheduling gates");
        }
        let mut new = (*old).clone();
        new["spec"]["nodeName"] = json!(node);
        let scheduled = json!({"conditions": [{"type": "PodScheduled", "status": "True",
            "lastTransitionTime": stamp(now)}]});
        merge::apply(&mut new["status"], &scheduled, Style::Strategic);
        Ok(self.commit(Kind::Pod, name.clone(), new))
    }

    fn commit(&mut self, kind: Kind, name: Name, mut object: Value) -> Arc<Value> {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Arc::new(object);
        if let Some(kind) = plimsoll_jobs::Kind::of(kind.resource()) {
            self.known.put(kind, Arc::clone(&object));
        }
        self.tables.entry(kind).or_default().insert(name, Arc::clone(&object));
        self.note(kind, Arc::clone(&object), false);
        object
    }

    fn remove(&mut self, kind: Kind, name: &Name, mut object: Value) -> Arc<Value> {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Arc::new(object);
        if let Some(table) = self.tables.get_mut(&kind) {
            table.remove(name);
        }
        if let Some(kind) = plimsoll_jobs::Kind::of(kind.resource()) {
            self.known.remove(kind, &name.0, &name.1, uid(&object));
        }
        self.note(kind, Arc::clone(&object), true);
        object
    }

    fn note(&mut self, kind: Kind, object: Arc<Value>, deleted: bool) {
        let version = self.version;
        self.logs.entry(kind).or_default().push(Change { version, object, deleted });
    }
}

#[cfg(test)]
mod tests;

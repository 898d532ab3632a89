//! How the plan of a key is carried out, without waiting: from its writes to requests, and from their responses to what
//! comes next.
//!
//! A caller begins an [`Execution`] for a key with [`UnconfirmedWrites::begin`], does what [`Execution::next`] says until it is
//! done, and hands it back with [`UnconfirmedWrites::ended`]: `plimsoll-runtime` in an async task per key, the simulator from its event
//! queue in virtual time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_api::event::{EventRecord, ObjectReference};
use plimsoll_api::json;
use plimsoll_api::request::{Error, PatchKind, Request};
use plimsoll_api::resource::{PODS, Resource};
use plimsoll_queueing::{Event as QueueEvent, WorkloadKey};
use plimsoll_state::Time;
use serde_json::Value;

use crate::plan::{CheckObject, Write};
use crate::pod_view::force_deleted;
use crate::provisioning::creation_failed;
use crate::{Config, Env, Key, Kind, ObjectStore, reconcile, refused};

/// The object is not valid (`StatusUnprocessableEntity`).
const UNPROCESSABLE: u16 = 422;

/// An object that a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    resource: Resource,
    /// Empty for cluster scope.
    namespace: String,
    name: String,
}

/// What the caller has to do next.
#[derive(Debug)]
pub enum Step {
    /// Send this request, and hand its response to [`Execution::answered`].
    Send(Request),
    /// Tell the engine that an evicted workload has no running pods.
    WorkloadStopped(Box<QueueEvent>),
    /// Record an Event.
    Record(Box<EventRecord>),
    /// Reconcile the same key again after this time.
    RequeueAfter(Duration),
    /// It has ended. After an error the key is to be reconciled again.
    Done(Result<(), Error>),
}

/// A request without a response.
#[derive(Debug)]
enum Asked {
    /// Reads an object of which it isn't known whether a write to it was done.
    Unconfirmed(Target),
    /// Creates an object; a Workload with its owner.
    Create(Resource, Option<Box<ObjectReference>>),
    Patch(Target),
    Delete(Target, String),
    /// Looks whether the object with this UID is there.
    IfGone(Target, String),
    /// Looks whether the object is still of this version.
    IfUnchanged(Target, String),
    CreateForCheck(Box<CheckObject>),
    /// Reads what could not be created because it exists, which no watch has shown yet.
    Existing(Kind, Error),
}

/// One reconcile of a key under way.
#[derive(Debug)]
pub struct Execution {
    key: Key,
    /// Objects to read before anything is planned: what the store shows may be older than a write to them.
    unconfirmed: VecDeque<Target>,
    /// Objects that the next reconcile reads, because this one goes on after a write to them has failed.
    later: Vec<Target>,
    /// What is left of the plan, once it is made.
    plan: Option<VecDeque<Write>>,
    asked: Option<Asked>,
    /// A request that comes before what is left of the plan.
    first: Option<(Request, Asked)>,
    /// Why it fails once its plan has been carried out.
    failed: Option<Error>,
}

/// Objects of which it isn't known whether a write to them was done, by the key whose plan it was in.
#[derive(Debug, Default)]
pub struct UnconfirmedWrites(BTreeMap<Key, VecDeque<Target>>);

impl UnconfirmedWrites {
    /// Begins with a key, which nothing else works on.
    pub fn begin(&self, key: Key) -> Execution {
        let unconfirmed = self.0.get(&key).cloned().unwrap_or_default();
        Execution { key, unconfirmed, later: Vec::new(), plan: None, asked: None, first: None, failed: None }
    }

    /// Keeps the unconfirmed writes of an execution that has ended.
    pub fn ended(&mut self, mut execution: Execution) {
        execution.unconfirmed.append(&mut execution.later.into());
        if execution.unconfirmed.is_empty() {
            self.0.remove(&execution.key);
        } else {
            self.0.insert(execution.key, execution.unconfirmed);
        }
    }
}

/// Whether the store still has the object, with this UID if there is one. A 404 may come from a proxy or from a definition
/// that is briefly not served, so a write is repeated until the watch shows the deletion.
fn known(objects: &ObjectStore, target: &Target, uid: Option<&str>) -> bool {
    let object =
        objects.kind_of(target.resource).and_then(|k| objects.get(k, &target.namespace, &target.name));
    object.is_some_and(|o| uid.is_none_or(|uid| json::uid(&o) == uid))
}

fn put_created(resource: Resource, object: Arc<Value>, objects: &mut ObjectStore) {
    if let Some(kind) = objects.kind_of(resource) {
        objects.put_created(kind, object);
    }
}

fn refresh(resource: Resource, object: Arc<Value>, objects: &mut ObjectStore) {
    if let Some(kind) = objects.kind_of(resource) {
        objects.refresh(kind, object);
    }
}

impl Execution {
    /// The key.
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// What to do next. The plan is made when no write is unconfirmed any more.
    pub fn next(&mut self, env: Env<'_>) -> Step {
        if let Some(target) = self.unconfirmed.front() {
            let request = Request::get(target.resource, &target.namespace, &target.name);
            self.asked = Some(Asked::Unconfirmed(target.clone()));
            return Step::Send(request);
        }
        if let Some((request, asked)) = self.first.take() {
            self.asked = Some(asked);
            return Step::Send(request);
        }
        let key = &self.key;
        let plan = self.plan.get_or_insert_with(|| reconcile(key, env).into());
        match plan.pop_front() {
            Some(write) => self.begin(write),
            None => Step::Done(self.failed.take().map_or(Ok(()), Err)),
        }
    }

    fn begin(&mut self, write: Write) -> Step {
        let (asked, request) = match write {
            Write::Create(resource, object) => {
                let owner = refused::owner(resource, &object);
                (Asked::Create(resource, owner), Request::Create { resource, object })
            }
            Write::Patch { resource, namespace, name, subresource, body } => {
                let request =
                    Request::patch(resource, &namespace, &name, subresource, PatchKind::Merge, body);
                (Asked::Patch(Target { resource, namespace, name }), request)
            }
            Write::Delete { resource, namespace, name, uid, grace_seconds } => {
                let target = Target { resource, namespace: namespace.clone(), name: name.clone() };
                let asked = Asked::Delete(target, uid.clone());
                (asked, Request::Delete { resource, namespace, name, uid, grace_seconds })
            }
            Write::IfGone { resource, namespace, name, uid } => {
                let request = Request::Find { resource, namespace: namespace.clone(), name: name.clone() };
                (Asked::IfGone(Target { resource, namespace, name }, uid), request)
            }
            Write::IfUnchanged { resource, namespace, name, version } => {
                let request = Request::get(resource, &namespace, &name);
                (Asked::IfUnchanged(Target { resource, namespace, name }, version), request)
            }
            Write::CreateForCheck(order) => {
                let request = Request::Create { resource: order.resource, object: order.object.clone() };
                (Asked::CreateForCheck(order), request)
            }
            Write::WorkloadStopped { namespace, name, ended } => {
                let key = WorkloadKey { namespace, name };
                let event = if ended { QueueEvent::WorkloadEnded } else { QueueEvent::WorkloadStopped };
                return Step::WorkloadStopped(Box::new(event(key)));
            }
            Write::Event(event) => return Step::Record(event),
            Write::RequeueAfter(after) => return Step::RequeueAfter(after),
        };
        self.asked = Some(asked);
        Step::Send(request)
    }

    /// Takes in the response to the request that was sent last. Objects are kept in the store, so that the next reconcile
    /// doesn't decide without them.
    ///
    /// # Errors
    /// When the rest of the plan must not be carried out. Where writes are independent, the error comes with the end of the plan.
    pub fn answered(
        &mut self,
        response: Result<Arc<Value>, Error>,
        objects: &mut ObjectStore,
        config: &Config,
        now: Time,
    ) -> Result<(), Error> {
        match (self.asked.take(), response) {
            (Some(asked), Ok(object)) => self.succeeded(asked, object, objects, now),
            (Some(asked), Err(e)) => self.refused(asked, e, objects, config, now),
            (None, response) => response.map(|_| ()),
        }
    }

    fn succeeded(
        &mut self,
        asked: Asked,
        object: Arc<Value>,
        objects: &mut ObjectStore,
        now: Time,
    ) -> Result<(), Error> {
        match asked {
            Asked::Unconfirmed(target) => {
                self.unconfirmed.pop_front();
                refresh(target.resource, object, objects);
            }
            Asked::Create(resource, _) => put_created(resource, object, objects),
            Asked::CreateForCheck(order) => put_created(order.resource, object, objects),
            Asked::Patch(target) => refresh(target.resource, object, objects),
            Asked::Delete(target, uid) => {
                // Until its end is seen it must not be taken for one that is still wanted.
                if let Some(kind @ Kind::ProvisioningRequest) = Kind::of(target.resource) {
                    objects.deletion_accepted(kind, &target.namespace, &target.name, &uid, now);
                }
                // A pod that finalizers hold needs no second request.
                if target.resource == PODS && force_deleted(&object) {
                    objects.refresh(Kind::Pod, object);
                }
            }
            Asked::IfGone(target, uid) if json::uid(&object) == uid => {
                put_created(target.resource, object, objects);
                let (kind, name) = (target.resource.kind, target.name);
                let there = format!("{kind} {name} is there, and no watch has shown it yet");
                return Err(Error::Malformed(there));
            }
            Asked::IfGone(..) => {}
            Asked::IfUnchanged(_, version) if json::version(&object) == version => {}
            Asked::IfUnchanged(target, _) => {
                refresh(target.resource, object, objects);
                let (kind, name) = (target.resource.kind, target.name);
                let changed = format!("{kind} {name} has changed, and no watch has shown it yet");
                return Err(Error::Malformed(changed));
            }
            Asked::Existing(kind, error) => {
                objects.put_created(kind, object);
                return Err(error);
            }
        }
        Ok(())
    }

    fn refused(
        &mut self,
        asked: Asked,
        error: Error,
        objects: &ObjectStore,
        config: &Config,
        now: Time,
    ) -> Result<(), Error> {
        match asked {
            // The watch shows the deletion as well.
            Asked::Unconfirmed(_) if error.is_not_found() => {
                self.unconfirmed.pop_front();
            }
            Asked::Create(_, Some(owner)) if error.code() == UNPROCESSABLE => {
                let env = Env { objects, config, now };
                self.plan = Some(refused::plan(*owner, &error.to_string(), env).into());
                self.failed = Some(error);
            }
            // A watch that shows the end of the object enqueues the key.
            Asked::Unconfirmed(_) | Asked::Create(..) | Asked::IfGone(..) | Asked::IfUnchanged(..) => {
                return Err(error);
            }
            Asked::Patch(target) if error.is_not_found() && !known(objects, &target, None) => {}
            Asked::Patch(target) if self.key.has_independent_writes() => {
                self.later.push(target);
                self.failed.get_or_insert(error);
            }
            Asked::Patch(target) => {
                self.unconfirmed.push_back(target);
                return Err(error);
            }
            // Neither 404 nor a conflict, which says that the UID is another one, is believed before the watch says so.
            Asked::Delete(target, uid)
                if (error.is_not_found() || error.is_conflict()) && !known(objects, &target, Some(&uid)) => {}
            Asked::Delete(..) => return Err(error),
            Asked::CreateForCheck(order) => {
                return self.refused_for_check(&order, error, Env { objects, config, now });
            }
            Asked::Existing(_, first) => return Err(first),
        }
        Ok(())
    }

    /// One that exists without having been seen comes from a try whose response was lost: it is looked at, and nothing is
    /// said about it. Of other refusals the check's message says why, and the key fails.
    fn refused_for_check(&mut self, order: &CheckObject, error: Error, env: Env<'_>) -> Result<(), Error> {
        let (namespace, name) = (json::namespace(&order.object), json::name(&order.object));
        if let Some(kind) = Kind::of(order.resource)
            && error.is_conflict()
            && env.objects.get(kind, namespace, name).is_none()
        {
            let request = Request::get(order.resource, namespace, name);
            self.first = Some((request, Asked::Existing(kind, error)));
            return Ok(());
        }
        self.plan = Some(creation_failed(order, &error.to_string(), env).into());
        self.failed = Some(error);
        Ok(())
    }
}

#[cfg(test)]
mod tests;

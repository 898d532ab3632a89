//! ControllerRevisions: the pod templates that a controller has rolled out (`pkg/controller/history` upstream).

use std::sync::Arc;

use plimsoll_apimachinery::ApiError;
use plimsoll_apimachinery::meta::{Meta, Selector, controller_reference, orphans};
use plimsoll_client::{Client, Deletion, Informer, Resource, Target, resources};
use serde::Deserialize;
use serde_json::{Value, json};

use super::deployment::hash::template_hash;
use super::replicaset::write_status;
use crate::pod_control::adopt;

/// Label: the hash of the template.
pub(super) const HASH: &str = "controller.kubernetes.io/hash";

/// `apps/v1` ControllerRevision.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Revision {
    /// `metadata`.
    pub metadata: Meta,
    /// What is kept: a patch of the owner's `spec.template`.
    pub data: Value,
    /// Its number: the highest is the newest.
    pub revision: i64,
}

impl Revision {
    /// The template, without the mark of the patch.
    pub fn template(&self) -> Value {
        let mut template = self.data["spec"]["template"].clone();
        if let Some(map) = template.as_object_mut() {
            map.remove("$patch");
        }
        template
    }
}

/// Index of revisions by [`Meta::owner_index`].
pub fn owner_index(revision: &Revision) -> Option<String> {
    Some(revision.metadata.owner_index())
}

/// A set's revisions, by number; those without an owner that its selector matches become its own, unless it is being deleted.
/// `owner`: the reference that they get.
///
/// # Errors
/// What the server answers.
pub async fn claimed(
    client: &dyn Client,
    revisions: &Informer<Revision>,
    selector: &Selector,
    (meta, owner): (&Meta, &Value),
) -> Result<Vec<Arc<Revision>>, ApiError> {
    let mut known = revisions.indexed(&meta.uid);
    if meta.deletion_timestamp.is_none() {
        for orphan in revisions.indexed(&orphans(&meta.namespace)) {
            let of = &orphan.metadata;
            if of.deletion_timestamp.is_none() && selector.matches(&of.labels) {
                adopt(client, &resources::REVISIONS, of, owner, None).await?;
                known.push(orphan);
            }
        }
    }
    known.sort_by_key(|r| r.revision);
    Ok(known)
}

/// Whose revisions they are.
#[derive(Clone, Copy)]
pub struct Owner<'a> {
    /// Kind in `apps/v1`.
    pub kind: &'a str,
    /// Its metadata.
    pub meta: &'a Meta,
    /// Its template now.
    pub template: &'a Value,
    /// Its labels of pods.
    pub labels: &'a Value,
    /// Names that were taken.
    pub collisions: Option<i32>,
}

/// The revision of the owner's template, made or moved to the end if need be. `known`: the owner's revisions, by number.
///
/// # Errors
/// What the server answers; `AlreadyExists` if the name is taken by another revision.
pub async fn current(
    client: &dyn Client,
    owner: Owner<'_>,
    known: &[Arc<Revision>],
) -> Result<Revision, ApiError> {
    let mut template = owner.template.clone();
    template["$patch"] = json!("replace");
    let data = json!({"spec": {"template": template}});
    let next = known.last().map_or(1, |r| r.revision.saturating_add(1));
    if let Some(same) = known.iter().rev().find(|r| r.data == data) {
        if same.revision.saturating_add(1) == next {
            return Ok(Revision::clone(same));
        }
        // Back to an earlier template: it becomes the newest. Revisions can't be changed here, so it is made anew under
        // its name.
        let meta = &same.metadata;
        let target = Target::object(&resources::REVISIONS, &meta.namespace, &meta.name);
        client.delete(target, Deletion::of_uid(&meta.uid)).await?;
        let hash = meta.labels.get(HASH).cloned().unwrap_or_default();
        return make(client, owner, &data, (&meta.name, &hash), next).await;
    }
    let hash = template_hash(&data, owner.collisions);
    make(client, owner, &data, (&format!("{}-{hash}", owner.meta.name), &hash), next).await
}

/// As [`current`]. Where the name is taken, the owner's status counts it, so that the next attempt has another name:
/// `counted` is that status, of the number of names that were taken.
///
/// # Errors
/// As [`current`], and what the server answers to the status.
pub async fn current_or_counted(
    client: &dyn Client,
    owner: Owner<'_>,
    known: &[Arc<Revision>],
    (resource, counted): (&Resource, impl FnOnce(i32) -> Value),
) -> Result<Revision, ApiError> {
    let revision = current(client, owner, known).await;
    if revision.as_ref().is_err_and(|e| e.reason == "AlreadyExists") {
        let status = counted(owner.collisions.unwrap_or(0).saturating_add(1));
        write_status(client, resource, owner.meta, status).await?;
    }
    revision
}

async fn make(
    client: &dyn Client,
    owner: Owner<'_>,
    data: &Value,
    (name, hash): (&str, &str),
    number: i64,
) -> Result<Revision, ApiError> {
    let mut labels = if owner.labels.is_object() { owner.labels.clone() } else { json!({}) };
    labels[HASH] = json!(hash);
    let namespace = &owner.meta.namespace;
    let object = json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision",
        "metadata": {
            "name": name, "namespace": namespace, "labels": labels,
            "ownerReferences": [controller_reference("apps/v1", owner.kind, owner.meta)],
        },
        "data": data, "revision": number,
    });
    let made = client.create(Target::create(&resources::REVISIONS, namespace), object).await?;
    Revision::deserialize(&made).map_err(ApiError::internal)
}

/// Deletes the oldest revisions beyond the limit that nothing uses.
///
/// # Errors
/// What the server answers.
pub async fn truncate(
    client: &dyn Client,
    known: &[Arc<Revision>],
    in_use: impl Fn(&str) -> bool,
    limit: Option<i32>,
) -> Result<(), ApiError> {
    let limit = usize::try_from(limit.unwrap_or(10)).unwrap_or(0);
    let unused: Vec<_> = known.iter().filter(|r| !in_use(&r.metadata.name)).collect();
    for revision in unused.iter().take(unused.len().saturating_sub(limit)) {
        let meta = &revision.metadata;
        let target = Target::object(&resources::REVISIONS, &meta.namespace, &meta.name);
        match client.delete(target, Deletion::of_uid(&meta.uid)).await {
            Err(error) if error.code != 404 => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

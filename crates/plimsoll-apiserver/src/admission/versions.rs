//! Objects under admission in the versions that webhooks asked for: with `matchPolicy: Equivalent` a webhook gets the
//! object in the version its rule names, whichever version it came in (apiserver `admission/plugin/webhook/generic`).

use std::sync::Arc;

use plimsoll_apimachinery::admission::{Attributes, Target};
use plimsoll_apimachinery::{ApiError, Gvk, Kind};
use serde_json::Value;

use crate::convert;
use crate::machine;
use crate::write::Write;

/// A request whose object changes as mutating webhooks see and patch it, one version after another.
pub struct View {
    attributes: Attributes,
    /// The version that the objects are in.
    kind: Arc<Kind>,
    /// The old object as it came: never made of what was converted already.
    old: Value,
}

impl View {
    /// A request in its own version.
    pub fn new(w: &Write, attributes: Attributes) -> Self {
        let old = attributes.old.clone();
        let gvk = &attributes.target.gvk;
        let part = || machine::subresource_kind(&w.table, gvk).unwrap_or_else(|| Arc::clone(&w.kind));
        let kind = if *gvk == w.kind.gvk { Arc::clone(&w.kind) } else { part() };
        Self { attributes, kind, old }
    }

    /// The request in the version it is in now.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// That version.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// A new state of the object, in the version it is in now.
    pub fn set_object(&mut self, object: Value) {
        self.attributes.object = object;
    }

    /// Converts the objects to the version of a target.
    ///
    /// # Errors
    /// 500 when the conversion fails.
    pub async fn become_version_of(&mut self, w: &Write, target: &Target) -> Result<(), ApiError> {
        if target.gvk == self.kind.gvk {
            return Ok(());
        }
        let kind = kind_of(w, &target.gvk)?;
        let objects = vec![std::mem::take(&mut self.attributes.object), self.old.clone()];
        (self.attributes.object, self.attributes.old) = converted(w, &kind, objects).await?;
        self.kind = kind;
        Ok(())
    }

    /// The object in the version of the request.
    ///
    /// # Errors
    /// As [`View::become_version_of`].
    pub async fn into_object(self, w: &Write) -> Result<Value, ApiError> {
        if self.kind.gvk == w.kind.gvk || self.attributes.target.gvk != w.kind.gvk {
            return Ok(self.attributes.object);
        }
        let (object, _) = converted(w, &w.kind, vec![self.attributes.object]).await?;
        Ok(object)
    }
}

/// A request after the last mutation, in all requested versions.
pub struct Views<'a> {
    own: (Gvk, &'a Attributes),
    others: Vec<(Gvk, Attributes)>,
}

impl<'a> Views<'a> {
    /// A request in its own version.
    pub fn new(attributes: &'a Attributes) -> Self {
        Self { own: (attributes.target.gvk.clone(), attributes), others: Vec::new() }
    }

    /// Converts the request for a target, unless that has been done.
    ///
    /// # Errors
    /// 500 when the conversion fails.
    pub async fn add(&mut self, w: &Write, target: &Target) -> Result<(), ApiError> {
        if target.gvk == self.own.0 || self.others.iter().any(|(gvk, _)| *gvk == target.gvk) {
            return Ok(());
        }
        let mut attributes = self.own.1.clone();
        let kind = kind_of(w, &target.gvk)?;
        let objects = vec![std::mem::take(&mut attributes.object), std::mem::take(&mut attributes.old)];
        (attributes.object, attributes.old) = converted(w, &kind, objects).await?;
        self.others.push((target.gvk.clone(), attributes));
        Ok(())
    }

    /// The request in the version of a target that was added.
    pub fn of(&self, target: &Target) -> &Attributes {
        self.others.iter().find(|(gvk, _)| *gvk == target.gvk).map_or(self.own.1, |(_, a)| a)
    }
}

fn kind_of(w: &Write, gvk: &Gvk) -> Result<Arc<Kind>, ApiError> {
    if *gvk == w.kind.gvk {
        return Ok(Arc::clone(&w.kind));
    }
    let missing =
        || ApiError::internal(format_args!("no kind {:?} is served in {}", gvk.kind, gvk.api_version()));
    w.table.kind(gvk).cloned().ok_or_else(missing)
}

/// The object and the old one, if it is there.
async fn converted(w: &Write, kind: &Kind, objects: Vec<Value>) -> Result<(Value, Value), ApiError> {
    let objects = convert::webhook::objects(&w.server, kind, objects).await;
    let mut objects = objects.map_err(|e| ApiError::internal(e.message))?.into_iter();
    Ok((objects.next().unwrap_or_default(), objects.next().unwrap_or_default()))
}

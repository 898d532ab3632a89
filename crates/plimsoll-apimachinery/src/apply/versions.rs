//! Entries in other versions than that of a request: what their managers own is told in the version that they wrote in
//! (`merge.Updater` and its `Converter` in structured-merge-diff).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::difference::{Differences, difference};
use super::managed::{self, Entry};
use super::reconcile::reconcile;
use super::types::Type;
use crate::error::ApiError;
use crate::kinds::Kind;

/// The versions of a kind.
pub trait Versions {
    /// The kind in a version, such as `autoscaling/v2`; `None`: unknown.
    fn kind(&self, api_version: &str) -> Option<Arc<Kind>>;

    /// An object of the kind in another of its versions.
    ///
    /// # Errors
    /// The conversion fails.
    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, ApiError>;
}

/// A kind in the version of a request.
#[derive(Clone, Copy)]
pub struct Served<'a> {
    /// The kind.
    pub kind: &'a Kind,
    /// Its versions; `None`: entries in another version are read as entries in this one.
    pub versions: Option<&'a dyn Versions>,
}

impl<'a> From<&'a Kind> for Served<'a> {
    fn from(kind: &'a Kind) -> Self {
        Self { kind, versions: None }
    }
}

impl<'a> From<&'a Arc<Kind>> for Served<'a> {
    fn from(kind: &'a Arc<Kind>) -> Self {
        Self { kind, versions: None }
    }
}

impl Served<'_> {
    /// The kind in another version; `None`: this is the version of the request, or read as that.
    pub(super) fn other(self, api_version: &str) -> Option<Arc<Kind>> {
        if api_version == self.kind.gvk.api_version() {
            return None;
        }
        self.versions?.kind(api_version)
    }

    /// An object in a version.
    pub(super) fn convert(self, object: &Value, api_version: &str) -> Result<Value, ApiError> {
        match self.versions {
            Some(versions) if object["apiVersion"] != api_version => versions.convert(object, api_version),
            _ => Ok(object.clone()),
        }
    }

    /// Brings entries in line with the present schemas (`reconcileManagedFieldsWithSchemaChanges`).
    pub(super) fn reconcile(self, entries: &mut [Value]) {
        for entry in entries {
            let other = self.other(Entry::of(entry).api_version);
            let kind = other.as_deref().unwrap_or(self.kind);
            if let Some(set) = managed::fields_mut(entry) {
                reconcile(Type::of(kind), set);
            }
        }
    }

    /// What differs between two objects in each version that entries are in.
    pub(super) fn differences(
        self,
        subresource: &str,
        old: Option<&Value>,
        new: &Value,
        entries: &[Value],
    ) -> Result<Differences, ApiError> {
        let own = difference(self.kind, subresource, old, new);
        let mut others = BTreeMap::new();
        for entry in entries {
            let version = Entry::of(entry).api_version;
            if others.contains_key(version) {
                continue;
            }
            let Some(kind) = self.other(version) else { continue };
            // Both before either fails, so that one answer tells of both.
            let old = old.map(|old| self.convert(old, version)).transpose();
            let new = self.convert(new, version);
            let (old, new) = (old?, new?);
            others.insert(version.to_owned(), difference(&kind, subresource, old.as_ref(), &new));
        }
        Ok(Differences { own, others })
    }
}

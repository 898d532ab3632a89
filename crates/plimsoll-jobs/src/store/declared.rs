//! Kinds of jobs that are not built in: those that JobKinds declare, and those that `integrations.externalFrameworks` names.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_api::json;
use plimsoll_api::resource::Resource;
use serde_json::Value;

use super::{Kind, ObjectStore};
use crate::custom_kind::CustomKind;
use crate::declaration::{Declaration, Declared};

/// A JobKind, as far as it could be read.
#[derive(Clone, Debug)]
pub struct KnownKind {
    /// Name of the JobKind.
    pub name: String,
    /// The kind of job that it declares; `None`: that is wrong with it.
    pub custom: Option<CustomKind>,
    /// What it says, or everything that is wrong with it.
    pub declaration: Result<Arc<Declaration>, Vec<String>>,
}

/// All kinds that are not built in.
#[derive(Debug, Default)]
pub(super) struct DeclaredKinds {
    /// By name of the JobKind, with the spec that was read.
    kinds: BTreeMap<String, (Value, KnownKind)>,
    external: Vec<CustomKind>,
    /// Names that are in memory for good.
    leaked: BTreeMap<Declared, CustomKind>,
}

impl DeclaredKinds {
    fn intern(&mut self, declared: &Declared) -> CustomKind {
        if let Some(known) = self.leaked.get(declared) {
            return *known;
        }
        let custom = CustomKind::leak(declared.framework(), declared.leak());
        self.leaked.insert(declared.clone(), custom);
        custom
    }

    pub fn declare(&mut self, object: &Value) {
        let (name, spec) = (json::name(object).to_owned(), &object["spec"]);
        if self.kinds.get(&name).is_some_and(|(read, _)| read == spec) {
            return;
        }
        let declaration = Declaration::read(object).and_then(|d| match built_in(&d.declared) {
            Some(why) => Err(vec![why]),
            None => Ok(Arc::new(d)),
        });
        let custom = declaration.as_ref().ok().map(|d| self.intern(&d.declared));
        let known = KnownKind { name: name.clone(), custom, declaration };
        self.kinds.insert(name, (spec.clone(), known));
    }

    pub fn withdraw(&mut self, name: &str) {
        self.kinds.remove(name);
    }

    fn all(&self) -> impl Iterator<Item = &KnownKind> {
        self.kinds.values().map(|(_, known)| known)
    }
}

/// Why a kind can't be declared; `None`: it can.
fn built_in(declared: &Declared) -> Option<String> {
    let (group, plural) = (declared.group.as_str(), declared.plural.as_str());
    let reserved = ["kueue.x-k8s.io", "plimsoll.dev", "apiextensions.k8s.io", "admissionregistration.k8s.io"];
    let ours = reserved.contains(&group);
    if ours {
        return Some(format!("spec.group: Invalid value: {group:?}: has no jobs"));
    }
    let known = CustomKind::of_resource(group, plural)?;
    Some(format!(
        "spec.plural: Invalid value: {plural:?}: queued by the integration {}, which is built in",
        known.framework()
    ))
}

impl ObjectStore {
    /// The kind of a resource, if it is kept: built in, or declared.
    pub fn kind_of(&self, resource: Resource) -> Option<Kind> {
        Kind::of(resource).or_else(|| {
            let declared = self.declared_kinds().chain(self.external_kinds());
            declared.into_iter().find(|c| c.has_resource(resource.group(), resource.plural)).map(Kind::Custom)
        })
    }

    /// The declared kind that an owner reference names.
    pub fn declared_of_kind(&self, api_version: &str, kind: &str) -> Option<CustomKind> {
        self.declared_kinds().find(|custom| custom.has_kind(api_version, kind))
    }

    /// The external kind that an owner reference names.
    pub fn external_of_kind(&self, api_version: &str, kind: &str) -> Option<CustomKind> {
        self.external_kinds().find(|custom| custom.has_kind(api_version, kind))
    }

    /// The declared kind of a resource and what is declared of it.
    pub fn declaration_of(&self, group: &str, plural: &str) -> Option<(CustomKind, Arc<Declaration>)> {
        self.declarations().find(|(custom, _)| custom.has_resource(group, plural))
    }

    /// The declared kind of this framework and what is declared of it.
    pub fn declaration_of_framework(&self, framework: &str) -> Option<(CustomKind, Arc<Declaration>)> {
        self.declarations().find(|(custom, _)| custom.framework() == framework)
    }

    fn declarations(&self) -> impl Iterator<Item = (CustomKind, Arc<Declaration>)> {
        let known = self.declared.all();
        known.filter_map(|known| Some((known.custom?, Arc::clone(known.declaration.as_ref().ok()?))))
    }

    /// All kinds that JobKinds declare.
    pub fn declared_kinds(&self) -> impl Iterator<Item = CustomKind> {
        self.declared.all().filter_map(|known| known.custom)
    }

    /// All kinds that `integrations.externalFrameworks` names.
    pub fn external_kinds(&self) -> impl Iterator<Item = CustomKind> {
        self.declared.external.iter().copied()
    }

    /// What is known of a JobKind.
    pub fn job_kind(&self, name: &str) -> Option<&KnownKind> {
        self.declared.kinds.get(name).map(|(_, known)| known)
    }

    /// Name of the JobKind that declares a kind.
    pub fn declared_by(&self, custom: CustomKind) -> Option<String> {
        self.declared.all().find(|known| known.custom == Some(custom)).map(|known| known.name.clone())
    }

    /// Knows a kind of which other controllers queue the jobs (`integrations.externalFrameworks`).
    pub fn add_external(&mut self, declared: &Declared) -> CustomKind {
        let custom = self.declared.intern(declared);
        if !self.declared.external.contains(&custom) {
            self.declared.external.push(custom);
        }
        custom
    }

    /// The version in which a resource is served that a CustomResourceDefinition adds; `None`: the cluster has no such
    /// resource.
    pub fn served(&self, kind: Kind) -> Option<Resource> {
        self.tables.get(&kind)?.served
    }

    /// Records in which version a resource is served; returns whether that changed.
    pub fn serve(&mut self, kind: Kind, resource: Option<Resource>) -> bool {
        std::mem::replace(&mut self.table_mut(kind).served, resource) != resource
    }

    /// Whether a kind has been listed, or is known not to be served: an object that is not known then does not exist.
    pub fn is_listed(&self, kind: Kind) -> bool {
        self.tables.get(&kind).is_some_and(|table| table.is_listed)
    }

    /// Forgets everything of a kind that is not followed any more.
    pub fn forget(&mut self, kind: Kind) {
        self.tables.remove(&kind);
    }
}

//! Objects other than nodes and pods.

use super::cluster::OwnerKind;
use super::cluster::labels::{Labels, Selector};
use crate::intern::{Map, Sym};
use std::collections::BTreeMap;

/// A Service, for default spreading.
#[derive(Clone, Debug)]
pub struct Service {
    /// `spec.selector` as exact pairs; `None`: no selector.
    pub selector: Option<Vec<(Sym, Sym)>>,
}

/// A PodDisruptionBudget.
#[derive(Clone, Debug)]
pub struct Budget {
    /// Pods it protects; a selector without conditions protects none.
    pub selector: Selector,
    /// `status.disruptionsAllowed`.
    pub allowed: i64,
    /// Names in `status.disruptedPods`.
    pub disrupted: Vec<Box<str>>,
}

/// Objects by kind, over interned strings.
#[derive(Debug, Default)]
pub struct Objects {
    /// Services by namespace, then name.
    pub services: Map<Sym, BTreeMap<Sym, Service>>,
    /// Disruption budgets by namespace, then name.
    pub budgets: Map<Sym, BTreeMap<Sym, Budget>>,
    /// Selectors of owners by namespace, kind and name.
    pub owners: Map<(Sym, OwnerKind, Sym), OwnerSelector>,
}

/// Selector of an owner of pods.
#[derive(Clone, Debug)]
pub enum OwnerSelector {
    /// Exact pairs (ReplicationController).
    Pairs(Vec<(Sym, Sym)>),
    /// A label selector (ReplicaSet, StatefulSet).
    Selector(Selector),
}

impl Objects {
    /// Services of a namespace that select pods with these labels.
    pub fn services_of<'a>(
        &'a self,
        namespace: Sym,
        labels: &'a Labels,
    ) -> impl Iterator<Item = &'a [(Sym, Sym)]> + 'a {
        let all = self.services.get(&namespace).into_iter().flat_map(BTreeMap::values);
        all.filter_map(|s| s.selector.as_deref()).filter(|pairs| labels.has_all(pairs))
    }
}

/// What changed about an object.
#[derive(Clone, Debug)]
pub enum ObjectChange {
    /// Nothing that a hint looks at.
    Other,
}

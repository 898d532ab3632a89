//! Another node for a failed one, with the rest of the placement kept (Kueue KEP-2724, replacement of failed nodes).

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::request::{TasRequest, TasView};
use super::tree::{DomainId, FlavorTree};
use super::{Amounts, domain_id};
use crate::ids::Map;
use crate::model::{PodSet, TopologyAssignment, TopologyRequest};

/// The placement with the failed node replaced, and what is new in it; or why there is none.
pub(super) type Replaced = Result<(TopologyAssignment, TopologyAssignment), String>;

pub(super) type Domains = Vec<(Vec<String>, i32)>;

/// Ancestor of a leaf on a level.
fn ancestor<'a>(tree: &'a FlavorTree, values: &[String], level: usize) -> Option<&'a [String]> {
    let leaf = tree.leaf(&domain_id(values))?;
    tree.domains.get(leaf.domain as usize)?.values.get(..=level)
}

/// The level on which the podset's pods have to be together, or would like to.
fn level_of(tree: &FlavorTree, request: &TopologyRequest, implied: bool) -> Option<usize> {
    match (&request.required, &request.preferred) {
        (Some(key), _) | (None, Some(key)) => tree.level(key),
        _ if request.slices_only() => Some(0),
        _ if request.unconstrained || implied => tree.levels.len().checked_sub(1),
        _ => None,
    }
}

/// The domain of a slice that lacks `missing` pods: the first that they complete to whole slices of `size`.
fn broken_slice(
    tree: &FlavorTree,
    rest: &Domains,
    missing: i32,
    size: i32,
    level: usize,
) -> Option<Vec<String>> {
    let mut pods: BTreeMap<&[String], i64> = BTreeMap::new();
    for (values, count) in rest {
        if let Some(domain) = ancestor(tree, values, level) {
            *pods.entry(domain).or_insert(0) += i64::from(*count);
        }
    }
    let whole = |n: i64| (n + i64::from(missing)) % i64::from(size.max(1)) == 0;
    pods.into_iter().find(|(_, n)| whole(*n)).map(|(domain, _)| domain.to_vec())
}

/// The domain in which the replacement has to be, if any: that of the broken slice, of the innermost broken layer, or
/// the required one of the pods that stay.
fn region(
    tree: &FlavorTree,
    request: &TopologyRequest,
    implied: bool,
    rest: &Domains,
    missing: i32,
) -> Option<Vec<String>> {
    let level = level_of(tree, request, implied)?;
    let (first, _) = rest.first()?;
    let (outer, size) = match request.slices.first() {
        Some((key, size)) if *size > 0 => (Some(key.as_str()), *size),
        Some(_) => return None,
        None => (None, 1),
    };
    if let Some(outer) = outer.filter(|_| missing % size != 0) {
        let inner = request.slices.iter().rev().find(|(_, n)| *n > 0 && missing % n != 0);
        let (key, size) = inner.map_or((outer, size), |(key, n)| (key.as_str(), *n));
        return broken_slice(tree, rest, missing, size, tree.level(key)?);
    }
    request.required.as_ref()?;
    ancestor(tree, first, level).map(<[String]>::to_vec)
}

/// The request for pods that complete a broken slice: only layers that they fill remain. A request for slices alone
/// asks for nothing then; Kueue finds no place for it ("topology level not specified").
fn completing(request: &TopologyRequest, missing: i32) -> TopologyRequest {
    let whole = request.slices.iter().rev().find(|(_, n)| *n > 0 && missing % n == 0);
    let slices: Vec<_> = whole.cloned().into_iter().collect();
    let unconstrained = request.unconstrained || (request.slices_only() && slices.is_empty());
    TopologyRequest { slices, unconstrained, ..request.clone() }
}

/// Both placements in the order of the tree, places in the same domain together.
pub(super) fn merge(tree: &FlavorTree, new: &TopologyAssignment, rest: Domains) -> TopologyAssignment {
    let mut all: Domains = new.domains.iter().cloned().chain(rest).collect();
    let lowest = tree.levels.len().saturating_sub(1);
    all.sort_by(|a, b| ancestor(tree, &a.0, lowest).cmp(&ancestor(tree, &b.0, lowest)));
    let mut domains: Domains = Vec::with_capacity(all.len());
    for (values, count) in all {
        match domains.last_mut() {
            Some((last, n)) if *last == values => *n = n.saturating_add(count),
            _ => domains.push((values, count)),
        }
    }
    TopologyAssignment { levels: new.levels.clone(), domains }
}

impl TasView<'_> {
    /// A placement in which other nodes stand for the node `failed`.
    pub(super) fn replace_node(
        &self,
        tree: &FlavorTree,
        ps: &PodSet,
        wanted: &TasRequest,
        old: &TopologyAssignment,
        failed: &str,
        taken: &Map<String, Amounts>,
    ) -> Replaced {
        let (gone, rest): (Domains, Domains) =
            old.domains.iter().cloned().partition(|(values, _)| values.last().is_some_and(|v| v == failed));
        let count = gone.last().map_or(0, |(_, n)| *n);
        if let Some((values, _)) = rest.iter().find(|(values, _)| tree.leaf(&domain_id(values)).is_none()) {
            let stale = values.first().map_or("", String::as_str);
            return Err(format!(
                "Cannot replace the node, because the existing topologyAssignment is invalid, as it contains \
                 the stale domain {stale}"
            ));
        }
        let none = TopologyRequest::default();
        let request = ps.topology.as_ref().unwrap_or(&none);
        let within = region(tree, request, wanted.implied, &rest, count);
        let size = request.slices.first().map_or(1, |(_, n)| *n);
        if size <= 0 {
            return Err("slice topology requested, but slice size not provided".into());
        }
        let broken = within.is_some() && count % size != 0;
        let request = if broken { Cow::Owned(completing(request, count)) } else { Cow::Borrowed(request) };
        let one = TasRequest { count, ..wanted.clone() };
        let new = self.place_alone(tree, ps, &request, &one, taken, (within.as_deref(), failed))?;
        if new.domains.is_empty() {
            return Err(format!("cannot find replacement assignment for unhealthy node: {failed}"));
        }
        let whole = merge(tree, &new, rest);
        Ok((whole, new))
    }
}

/// Whether a domain is this node.
pub(super) fn is_on(tree: &FlavorTree, d: DomainId, node: &str) -> bool {
    tree.domains.get(d as usize).is_some_and(|d| d.values.last().is_some_and(|v| v == node))
}

/// Whether a domain lies in a region.
pub(super) fn lies_in(tree: &FlavorTree, d: DomainId, region: &[String]) -> bool {
    tree.domains.get(d as usize).is_some_and(|d| d.values.starts_with(region))
}

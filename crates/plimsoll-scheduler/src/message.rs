//! Texts of verdicts, in upstream's words (upstream `FitError` in
//! `staging/src/k8s.io/kube-scheduler/framework/types.go`).

use super::cluster::NodeId;
use super::framework::{Code, PluginIds, Status};
use plimsoll_state::intern::Interner;
use std::collections::BTreeMap;

/// Longest note of an event, in bytes.
const MAX_NOTE: usize = 1024;

/// Why no node was found.
#[derive(Clone, Debug, Default)]
pub struct Fit {
    /// How many nodes there are.
    pub nodes: usize,
    /// Rejection by PreFilter; then there are no node verdicts.
    pub pre_filter: Option<String>,
    /// How many nodes have a reason.
    pub reasons: BTreeMap<String, usize>,
    /// The message of PostFilter.
    pub post_filter: String,
}

impl Fit {
    /// Counts the reasons of `nodes` nodes.
    pub fn count(&mut self, status: &Status, nodes: usize, strings: &Interner) {
        for reason in &status.reasons {
            *self.reasons.entry(reason.render(strings)).or_default() += nodes;
        }
    }

    /// The text without the message of PostFilter (framework `FitError.Error`).
    pub fn short(&self) -> String {
        let mut out = format!("0/{} nodes are available:", self.nodes);
        if let Some(text) = self.pre_filter.as_ref().filter(|t| !t.is_empty()) {
            out.push_str(&format!(" {text}."));
            return out;
        }
        let mut parts: Vec<String> = self.reasons.iter().map(|(r, n)| format!("{n} {r}")).collect();
        parts.sort_unstable();
        if !parts.is_empty() {
            out.push_str(&format!(" {}.", parts.join(", ")));
        }
        out
    }

    /// The whole text.
    pub fn full(&self) -> String {
        let short = self.short();
        if self.post_filter.is_empty() { short } else { format!("{short} {}", self.post_filter) }
    }
}

/// What a failed search for a node knows.
#[derive(Debug)]
pub(crate) struct Failure {
    pub fit: Fit,
    pub plugins: PluginIds,
    pub pending: PluginIds,
    /// Nodes on which preemption might help.
    pub potential: Vec<NodeId>,
    /// Verdict on the pod's nominated node.
    pub nominated: Option<Code>,
    /// Claims of the pod that PostFilter deallocates.
    pub deallocate: Vec<crate::DeviceGrant>,
}

/// A note short enough for an event.
pub fn truncate_note(text: &str) -> String {
    if text.len() <= MAX_NOTE {
        return text.to_owned();
    }
    let mut end = MAX_NOTE - " ...".len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{} ...", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_and_sorted_as_strings() {
        let mut fit = Fit { nodes: 12, ..Fit::default() };
        fit.reasons.insert("Insufficient cpu".to_owned(), 10);
        fit.reasons.insert("node(s) were unschedulable".to_owned(), 2);
        assert_eq!(
            fit.short(),
            "0/12 nodes are available: 10 Insufficient cpu, 2 node(s) were unschedulable."
        );
        fit.post_filter = "preemption: x".to_owned();
        assert!(fit.full().ends_with("unschedulable. preemption: x"));
    }

    #[test]
    fn notes_are_cut_at_a_character() {
        let long = "ä".repeat(600);
        let note = truncate_note(&long);
        assert!(note.len() <= 1024 && note.ends_with("ä ..."));
    }
}

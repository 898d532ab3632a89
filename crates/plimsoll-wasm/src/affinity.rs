//! Affinity and spread constraints of pods in protobuf.

use plimsoll_state::model::{
    Affinity, LabelSelector, NodeAffinity, NodeSelectorTerm, PodAffinity, PodAffinityTerm, Requirement,
    SpreadConstraint, UnsatisfiableAction,
};

use crate::message::Message;

/// `v1.Affinity`.
pub fn affinity(m: &mut Message, affinity: &Affinity) {
    if let Some(node) = &affinity.node {
        m.message(1, |m| node_affinity(m, node));
    }
    for (field, pods) in [(2, &affinity.pod), (3, &affinity.anti)] {
        if let Some(pods) = pods {
            m.message(field, |m| pod_affinity(m, pods));
        }
    }
}

fn node_affinity(m: &mut Message, affinity: &NodeAffinity) {
    if let Some(required) = &affinity.required {
        m.message(1, |m| required.terms.iter().for_each(|term| m.message(1, |m| node_term(m, term))));
    }
    for preferred in &affinity.preferred {
        m.message(2, |m| {
            m.int(1, preferred.weight.into());
            m.message(2, |m| node_term(m, &preferred.term));
        });
    }
}

fn node_term(m: &mut Message, term: &NodeSelectorTerm) {
    term.expressions.iter().for_each(|r| m.message(1, |m| requirement(m, r)));
    term.fields.iter().for_each(|r| m.message(2, |m| requirement(m, r)));
}

fn requirement(m: &mut Message, of: &Requirement) {
    m.text(1, &of.key);
    m.text(2, of.operator.name());
    of.values.iter().for_each(|value| m.bytes(3, value.as_bytes()));
}

/// `meta.v1.LabelSelector`; `matchLabels` are expressions.
fn selector(m: &mut Message, field: u32, selector: Option<&LabelSelector>) {
    if let Some(selector) = selector {
        m.message(field, |m| selector.requirements.iter().for_each(|r| m.message(2, |m| requirement(m, r))));
    }
}

fn pod_affinity(m: &mut Message, affinity: &PodAffinity) {
    affinity.required.iter().for_each(|term| m.message(1, |m| pod_term(m, term)));
    for preferred in &affinity.preferred {
        m.message(2, |m| {
            m.int(1, preferred.weight.into());
            m.message(2, |m| pod_term(m, &preferred.term));
        });
    }
}

fn pod_term(m: &mut Message, term: &PodAffinityTerm) {
    selector(m, 1, term.selector.as_ref());
    term.namespaces.iter().for_each(|namespace| m.text(2, namespace));
    m.text(3, &term.topology_key);
    selector(m, 4, term.namespace_selector.as_ref());
}

/// `v1.TopologySpreadConstraint`.
pub fn spread(m: &mut Message, of: &SpreadConstraint) {
    let policy = |honor: bool| if honor { "Honor" } else { "Ignore" };
    m.int(1, of.max_skew.into());
    m.text(2, &of.topology_key);
    m.text(
        3,
        match of.when_unsatisfiable {
            UnsatisfiableAction::DoNotSchedule => "DoNotSchedule",
            UnsatisfiableAction::ScheduleAnyway => "ScheduleAnyway",
        },
    );
    selector(m, 4, of.selector.as_ref());
    if let Some(domains) = of.min_domains {
        m.int(5, domains.into());
    }
    m.text(6, policy(of.honor_node_affinity));
    m.text(7, policy(of.honor_node_taints));
    of.match_label_keys.iter().for_each(|key| m.text(8, key));
}

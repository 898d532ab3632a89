//! Extenders' say about victims of preemption.

use super::{Extending, Step};
use crate::cluster::PodId;
use crate::decide::{self, Outcome};
use crate::extender::{ExtenderAnswer, ExtenderCall, ExtenderVictims};
use crate::framework::ExtensionPoint;
use crate::plugins::preemption;
use crate::{Action, PodRef, Scheduler};

impl Scheduler {
    pub(super) fn take_preempt(
        &mut self,
        extender: usize,
        ignorable: bool,
        answer: Result<ExtenderAnswer, String>,
    ) {
        let answer = match answer {
            Ok(ExtenderAnswer::Preempt(kept)) => self.victims_of(extender, kept),
            Ok(_) => Err("the extender answered another question".to_owned()),
            Err(text) => Err(text),
        };
        let Some(ext) = &mut self.extending else { return };
        let Step::Preempt { failure, plans, .. } = &mut ext.step else { return };
        let mut error = None;
        match answer {
            Ok(kept) => {
                let bare = kept.iter().find(|plan| plan.pods.is_empty()).filter(|_| !ignorable);
                error = bare.map(|plan| format!("expected at least one victim pod on node {:?}", plan.node));
                *plans = kept.into_iter().filter(|plan| !plan.pods.is_empty()).collect();
            }
            Err(_) if ignorable => {}
            Err(text) => error = Some(text),
        }
        let id = ext.id;
        if let Some(text) = error {
            failure.fit.post_filter = format!("preemption: {text}");
            plans.clear();
            return self.conclude_preempt();
        }
        let plans = plans.clone();
        let next = self.remote(id, ExtensionPoint::PostFilter).find(|(_, call)| call.extender > extender);
        match next.filter(|_| !plans.is_empty()) {
            None => self.conclude_preempt(),
            Some((_, next)) => {
                let extender = next.extender;
                if let Some(Extending { step: Step::Preempt { call, .. }, .. }) = &mut self.extending {
                    *call = next;
                }
                let call = self.extending.as_ref().map_or(0, |e| e.call);
                let (pod, what) = (self.pod_ref(id), ExtenderCall::Preempt(plans));
                self.outbox.push(Action::Extend { pod, extender, call, what });
            }
        }
    }

    /// The victims that an extender names, which may be other ones than it was asked about (upstream `convertToVictims`).
    ///
    /// # Errors
    /// When a node does not exist, or a pod is not on it.
    fn victims_of(
        &self,
        extender: usize,
        named: Vec<(String, Vec<String>, i64)>,
    ) -> Result<Vec<ExtenderVictims>, String> {
        let mut out = Vec::with_capacity(named.len());
        for (node, uids, violations) in named {
            let row = self.cluster.strings.get(&node).and_then(|name| self.cluster.node_by_name(name));
            let Some(row) = row else { return Err(format!("nodeinfo not found for node name {node:?}")) };
            let mut pods = Vec::with_capacity(uids.len());
            for uid in uids {
                let there =
                    self.cluster.pod_by_uid(&uid).filter(|id| self.cluster.pods[*id].node == Some(row));
                let Some(id) = there else {
                    let url = self.config.extenders.get(extender).map_or("", |e| e.url_prefix.as_str());
                    return Err(format!(
                        "extender: {url} claims to preempt pod (UID: {uid}) on node: {node}, but the pod is not found on that node"
                    ));
                };
                pods.push(self.pod_ref(id));
            }
            out.push(ExtenderVictims { node, pods, violations });
        }
        Ok(out)
    }

    /// All extenders have answered about victims.
    fn conclude_preempt(&mut self) {
        let Some(Extending { id, step: Step::Preempt { mut failure, plans, .. }, .. }) =
            self.extending.take()
        else {
            return;
        };
        let cluster = &self.cluster;
        let candidates: Vec<_> = plans
            .iter()
            .filter_map(|plan| {
                let node = cluster.node_by_name(cluster.strings.get(&plan.node)?)?;
                let on_node =
                    |p: &PodRef| cluster.pod_by_uid(&p.uid).filter(|v| cluster.pods[*v].node == Some(node));
                let victims: Vec<PodId> = plan.pods.iter().filter_map(on_node).collect();
                (!victims.is_empty()).then(|| preemption::candidate(cluster, node, victims, plan.violations))
            })
            .collect();
        if candidates.is_empty() && failure.fit.post_filter.is_empty() {
            "preemption: no candidate node for preemption".clone_into(&mut failure.fit.post_filter);
        }
        let candidate = decide::choose(candidates, &mut self.rng);
        self.conclude(id, Outcome::Rejected { failure: *failure, candidate, clear_nomination: false });
    }
}

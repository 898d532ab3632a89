//! A scheduler extender: questions and answers go over the network and get lost there like requests; an extender that binds
//! writes the binding itself.

use plimsoll_api::execution;
use plimsoll_scheduler::{Extender, ExtenderAnswer, ExtenderCall, PodRef};
use plimsoll_state::Duration;

use super::Process;
use super::calls::{For, Question, Write};
use crate::api::{Kind, Request};
use crate::network::{Answer, Network};
use crate::scenario::ExtenderSpec;
use crate::scenario::extensions::refuses;

/// The configuration of an extender.
pub fn extender(spec: &ExtenderSpec) -> Extender {
    let verb = |used: bool, verb: &str| if used { verb.to_owned() } else { String::new() };
    Extender {
        url_prefix: "http://extender.example.com".to_owned(),
        filter_verb: "filter".to_owned(),
        prioritize_verb: verb(spec.scores, "prioritize"),
        preempt_verb: verb(spec.preempts, "preempt"),
        bind_verb: verb(spec.binds, "bind"),
        weight: 1,
        timeout: Duration::from_seconds(5),
        node_cache_capable: true,
        ignorable: spec.ignorable,
        ..Extender::default()
    }
}

/// What the extender answers.
fn reply(pod: &PodRef, what: &ExtenderCall) -> ExtenderAnswer {
    let refused = |node: &str| refuses(&pod.name, node);
    match what {
        ExtenderCall::Filter(nodes) => {
            let (failed, nodes): (Vec<_>, Vec<_>) = nodes.iter().cloned().partition(|n| refused(n));
            let failed = failed.into_iter().map(|n| (n, "not for this pod".to_owned())).collect();
            ExtenderAnswer::Filter { nodes, failed, unresolvable: Vec::new() }
        }
        ExtenderCall::Prioritize(nodes) => {
            let score = |n: &String| (n.clone(), i64::from(n.bytes().last().unwrap_or(0)) % 11);
            ExtenderAnswer::Prioritize(nodes.iter().map(score).collect())
        }
        ExtenderCall::Preempt(plans) => {
            let plans = plans.iter().filter(|p| !refused(&p.node));
            let uids = |pods: &[PodRef]| pods.iter().map(|p| p.uid.clone()).collect();
            ExtenderAnswer::Preempt(plans.map(|p| (p.node.clone(), uids(&p.pods), p.violations)).collect())
        }
        ExtenderCall::Bind(_) => ExtenderAnswer::Bound,
    }
}

impl Process {
    /// Asks the extender.
    pub(super) fn ask(
        &mut self,
        write: Write,
        (pod, extender, call, what): (PodRef, usize, u64, ExtenderCall),
        network: &mut Network,
    ) {
        let name = (pod.namespace.clone(), pod.name.clone());
        let request = match &what {
            ExtenderCall::Bind(node) => Request::Bind { name, uid: pod.uid.clone(), node: node.clone() },
            ExtenderCall::Filter(_) | ExtenderCall::Prioritize(_) | ExtenderCall::Preempt(_) => {
                Request::Get(Kind::Pod, name)
            }
        };
        let decided = write.decided;
        let question = Question { write, pod, extender, call, what };
        self.send(For::Extender(Box::new(question)), request, decided, network);
    }

    /// The extender has answered, or could not be reached.
    pub(super) fn extended(&mut self, question: Question, answer: Answer, network: &mut Network) {
        let Question { write, pod, extender, call, what } = question;
        let answer = match answer {
            // Only one that binds asks the API server for itself.
            Err(e) if e.code != 404 || matches!(what, ExtenderCall::Bind(_)) => Err(e.message),
            Ok(_) | Err(_) => Ok(reply(&pod, &what)),
        };
        self.carry_on(write, execution::extended(pod, (extender, call), &what, answer), network);
        self.pump(network);
    }
}

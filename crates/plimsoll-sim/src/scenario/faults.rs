//! What goes wrong in a run, and how often.

use serde::{Deserialize, Serialize};

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde wants it")]
const fn is_never(rate: &u32) -> bool {
    *rate == 0
}

/// How often something goes wrong, in thousandths of the cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Faults {
    /// A watch event comes seconds late, and all behind it.
    pub stall: u32,
    /// A watch event comes twice.
    pub repeat: u32,
    /// A watch breaks and loses events; the client lists again.
    pub lose: u32,
    /// A list fails and is made again.
    pub list: u32,
    /// A request takes seconds, whatever becomes of it.
    pub slow: u32,
    /// A request is answered with 503 and does nothing.
    pub unavailable: u32,
    /// A request is answered with 403 and does nothing: no retry helps.
    pub refused: u32,
    /// A request is answered with 409 and does nothing.
    pub conflict: u32,
    /// A request is answered with 404 by a proxy and does nothing.
    pub not_found: u32,
    /// A request is carried out and its answer is lost.
    pub lost_answer: u32,
    /// A write of why a pod is unschedulable is answered with 503.
    #[serde(skip_serializing_if = "is_never")]
    pub explanations: u32,
    /// A write that takes the nomination of a pod back is answered with 503.
    #[serde(skip_serializing_if = "is_never")]
    pub nominations: u32,
    /// A write that preempts a pod is answered with 503.
    #[serde(skip_serializing_if = "is_never")]
    pub preemptions: u32,
    /// A write to a loan, a node, a workload's status or an object of a tree is given up, and carried out seconds later.
    #[serde(skip_serializing_if = "is_never")]
    pub late: u32,
    /// A write about a pod or the status of a workload takes seconds: nodes and trees move meanwhile.
    #[serde(skip_serializing_if = "is_never")]
    pub decisions: u32,
}

/// How many kinds of faults hit every request alike.
pub const GENERAL_FAULTS: usize = 10;

impl Faults {
    /// All kinds of faults, for shrinking: first the [`GENERAL_FAULTS`], which hit every request alike.
    pub fn each(&mut self) -> [&mut u32; 15] {
        [
            &mut self.stall,
            &mut self.repeat,
            &mut self.lose,
            &mut self.list,
            &mut self.slow,
            &mut self.unavailable,
            &mut self.refused,
            &mut self.conflict,
            &mut self.not_found,
            &mut self.lost_answer,
            &mut self.explanations,
            &mut self.nominations,
            &mut self.preemptions,
            &mut self.late,
            &mut self.decisions,
        ]
    }
}

//! Requests under way, and what each is made for.

use std::collections::BTreeMap;
use std::fmt;

use plimsoll_api::execution::status::{Status, StatusKey};
use plimsoll_api::execution::{Response, Step};
use plimsoll_api::lanes::Lane;
use plimsoll_jobs::Key;
use plimsoll_jobs::shards::Division;
use plimsoll_scheduler::{ExtenderCall, PodRef};

use super::Process;
use crate::api::Request;
use crate::network::{Caller, Network};

/// A write of the engine under way.
#[derive(Debug)]
pub struct Write {
    /// The lane that it keeps busy.
    pub lane: Lane,
    /// Where it gives something away: the serial number of the quotas that were known when that was decided.
    pub decided: Option<u64>,
    /// What it keeps with the shard, in a cluster of shards.
    pub holds: Holds,
}

/// What a write keeps with a shard until its end.
#[derive(Debug, Default)]
pub struct Holds {
    /// The node that it binds a pod to.
    pub node: Option<String>,
    /// The ClusterQueue that it admits in.
    pub cluster_queue: Option<String>,
}

/// A question to the extender, and what it is about.
#[derive(Debug)]
pub struct Question {
    /// The lane that it keeps busy.
    pub write: Write,
    /// The pod.
    pub pod: PodRef,
    /// Number of the extender.
    pub extender: usize,
    /// Number of the question.
    pub call: u64,
    /// What is asked.
    pub what: ExtenderCall,
}

/// What a request is made for.
pub enum For {
    /// A write of the engine, and how it continues.
    Write(Write, Box<dyn FnOnce(Response) -> Step + Send>),
    /// The status of a queue.
    Status(StatusKey, Status),
    /// A request of the job controllers.
    Job(Key),
    /// A question to the extender.
    Extender(Box<Question>),
    /// A node or an object of a tree is given to another shard.
    Move,
}

impl For {
    /// Whether it carries out an action of the engine, or gives away what that decides with.
    const fn decides(&self) -> bool {
        matches!(self, Self::Write(..) | Self::Extender(_) | Self::Move)
    }
}

impl fmt::Debug for For {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(write, _) => f.debug_tuple("Write").field(write).finish_non_exhaustive(),
            Self::Status(key, _) => f.debug_tuple("Status").field(key).finish_non_exhaustive(),
            Self::Extender(question) => f.debug_tuple("Extender").field(question).finish(),
            Self::Job(key) => f.debug_tuple("Job").field(key).finish(),
            Self::Move => f.write_str("Move"),
        }
    }
}

/// Requests under way.
#[derive(Debug, Default)]
pub struct Calls {
    made: BTreeMap<u64, For>,
    number: u64,
}

impl Calls {
    /// What a request was made for that has its answer.
    pub fn take(&mut self, call: u64) -> Option<For> {
        self.made.remove(&call)
    }

    /// Whether a write of the engine is under way.
    pub fn decides(&self) -> bool {
        self.made.values().any(For::decides)
    }

    /// Forgets all but the writes of the engine, and returns their numbers.
    fn cut(&mut self) -> Vec<u64> {
        let cut = self.made.extract_if(.., |_, what| !what.decides());
        cut.map(|(call, _)| call).collect()
    }

    /// Whether none is under way.
    pub fn is_idle(&self) -> bool {
        self.made.is_empty()
    }
}

impl Process {
    /// Begins nothing any more. Writes of the engine under way are waited for; job controllers and statuses are cut off
    /// (the runtime's `Runtime::stop`).
    pub fn stop(&mut self, network: &mut Network) {
        self.stopping = true;
        let cut = self.calls.cut();
        network.cut(|caller| caller.life == self.life && cut.contains(&caller.call));
    }

    /// Whether a write of the engine is under way, or may still be carried out although its answer was lost.
    pub fn writes(&self) -> bool {
        let unsettled = self.division().is_some_and(Division::is_unsettled);
        self.calls.decides() || self.executor.pauses() || unsettled
    }

    /// Sends a request.
    pub(super) fn send(&mut self, what: For, request: Request, decided: Option<u64>, network: &mut Network) {
        self.calls.number += 1;
        let call = self.calls.number;
        self.calls.made.insert(call, what);
        network.send(Caller { life: self.life, call }, request, decided);
    }
}

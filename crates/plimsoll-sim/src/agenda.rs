//! Virtual time: what happens when. Two things of the same time happen in the order in which they were put down.

use std::collections::BTreeMap;

use plimsoll_api::execution::status::StatusKey;
use plimsoll_jobs::Key;
use plimsoll_state::{Duration, Time};

use crate::api::Kind;
use crate::scenario::Ending;

/// Something that happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The operation of this number.
    Operation(usize),
    /// The faults end.
    Calm,
    /// The process starts, if this is still its next life.
    Start(u32),
    /// The Lease is the process's.
    Hold(u32),
    /// The process that is to lead looks what was written to workloads until now.
    TakeOver(u32),
    /// The process ends that could not renew its Lease, or that was asked to stop.
    End(u32, Ending),
    /// The process makes the list of a kind.
    List(u32, Kind),
    /// The process gets the next change of a kind.
    Watch(u32, Kind),
    /// A request reaches the API server.
    Arrive(u64),
    /// An answer reaches its client.
    Answer(u64),
    /// The pause of a write is over.
    Resume(u32, u64),
    /// The engine is due.
    Engine(u32),
    /// The job controllers of the process may begin with a key.
    Reconcile(u32),
    /// The pause of a key is over.
    Requeue(u32, Key),
    /// The status of a queue may be written.
    Status(u32, StatusKey),
    /// A job controller of the process looks at a workload whose job is no part of the cluster.
    Stopped(u32, String),
    /// The process looks for nodes and trees that it is to give to another shard.
    Moves(u32),
    /// The process of a shard looks what was written to trees until now that came to it.
    Seek(u32),
    /// The Job controller looks at a Job.
    Job(String),
    /// The garbage collector looks at workloads of pods.
    Collect,
    /// The resource claim controller looks at claims and pods.
    Claims,
    /// A kubelet looks at a pod.
    Kubelet(String),
    /// A node has changed.
    Node(String),
    /// The kubelets are due.
    Kubelets,
    /// The admission check's controller looks at a workload.
    Check(String),
    /// A job that was asked to shrink has.
    Shrink(String),
    /// The cluster autoscaler looks at a request.
    Provide(String),
    /// A workload without a job in the cluster ends: its name and the number of its run.
    Finish(String, u32),
    /// Users look at what they have.
    Users,
}

impl Event {
    /// Which life of the process it is about, if any.
    pub const fn life(&self) -> Option<u32> {
        match self {
            Self::Start(life)
            | Self::End(life, _)
            | Self::Hold(life)
            | Self::TakeOver(life)
            | Self::List(life, _)
            | Self::Watch(life, _)
            | Self::Resume(life, _)
            | Self::Engine(life)
            | Self::Reconcile(life)
            | Self::Requeue(life, _)
            | Self::Status(life, _)
            | Self::Moves(life)
            | Self::Seek(life)
            | Self::Stopped(life, _) => Some(*life),
            Self::Operation(_)
            | Self::Calm
            | Self::Arrive(_)
            | Self::Answer(_)
            | Self::Job(_)
            | Self::Collect
            | Self::Claims
            | Self::Kubelet(_)
            | Self::Node(_)
            | Self::Kubelets
            | Self::Check(_)
            | Self::Shrink(_)
            | Self::Provide(_)
            | Self::Finish(..)
            | Self::Users => None,
        }
    }
}

/// What is to happen.
#[derive(Debug, Default)]
pub struct Agenda {
    /// Now.
    pub now: Time,
    count: u64,
    events: BTreeMap<(Time, u64), Event>,
}

impl Agenda {
    /// An agenda without entries, at this time.
    pub fn new(now: Time) -> Self {
        Self { now, ..Self::default() }
    }

    /// Puts something down for a time, or for now if that is past.
    pub fn at(&mut self, time: Time, event: Event) {
        self.count += 1;
        self.events.insert((time.max(self.now), self.count), event);
    }

    /// Puts something down for so long from now.
    pub fn after(&mut self, span: Duration, event: Event) {
        self.at(self.now.plus(span), event);
    }

    /// The next thing that happens; it is that time now.
    pub fn pop(&mut self) -> Option<Event> {
        let ((time, _), event) = self.events.pop_first()?;
        self.now = time;
        Some(event)
    }
}

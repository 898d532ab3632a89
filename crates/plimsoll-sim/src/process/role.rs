//! Which of two replicas decides: one follows, and takes over when the Lease is its own (the runtime's `take_over`).

use plimsoll_jobs::Kind as Stored;
use plimsoll_state::Time;

use super::{Process, STOPS, ingest};
use crate::agenda::Event as Happens;
use crate::api::{Kind, name_of, version};
use crate::network::Network;

/// Kinds of which a leader gives something away in writes: quota, devices.
const GIVES: [Kind; 2] = [Kind::Workload, Kind::ResourceClaim];

/// What a process may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Another one leads: nothing but what the watches show is taken in.
    Follows,
    /// The Lease is its own; it decides when the watches have reached these versions of a workload and of a claim, once those are
    /// known.
    TakesOver(Option<[u64; 2]>),
    /// It decides.
    Leads,
}

impl Process {
    /// Whether the engine may decide.
    pub(super) fn may_decide(&self) -> bool {
        self.role == Role::Leads && self.unlisted.is_empty()
    }

    /// The Lease is the process's: it begins when it knows what was decided before.
    pub fn hold(&mut self, network: &mut Network) {
        if self.role != Role::Follows {
            return;
        }
        self.role = Role::TakesOver(None);
        self.look_again(network);
    }

    fn look_again(&self, network: &mut Network) {
        let (latency, _) = network.list_latency(self.replica, Kind::Workload);
        network.agenda.after(latency, Happens::TakeOver(self.life));
    }

    /// The versions of all workloads and claims for devices are there, or the list failed.
    pub fn take_over(&mut self, network: &mut Network) {
        let (_, fails) = network.list_latency(self.replica, Kind::Workload);
        if fails {
            return self.look_again(network);
        }
        let newest = |kind| network.api.all(kind).map(|w| version(w)).max().unwrap_or(0);
        self.role = Role::TakesOver(Some(GIVES.map(newest)));
        self.lead_if_caught_up(network);
    }

    /// Whether everything up to these versions of [`GIVES`] was handed on.
    fn has_reached(&self, newest: [u64; 2]) -> bool {
        let reached = |kind| self.watches.iter().find(|w| w.kind == kind).map_or(0, |w| w.reached);
        GIVES.into_iter().zip(newest).all(|(kind, newest)| newest <= reached(kind))
    }

    pub(super) fn lead_if_caught_up(&mut self, network: &mut Network) {
        if matches!(self.role, Role::TakesOver(Some(newest)) if self.has_reached(newest)) {
            self.role = Role::Leads;
            self.led_since = Some(network.now());
            self.wake_workers(network);
            let evicted: Vec<String> = self
                .objects
                .all(Stored::Workload)
                .filter(|w| ingest::waits_for_stop(w))
                .map(|w| name_of(&w).1)
                .collect();
            for name in evicted {
                network.agenda.after(STOPS, Happens::Stopped(self.life, name));
            }
            self.step_at(network.now(), network);
        }
    }

    /// Since when it has led, if it followed before.
    pub const fn led_since(&self) -> Option<Time> {
        self.led_since
    }

    /// Whether it follows and has seen everything there is.
    pub fn has_caught_up(&self, network: &Network) -> bool {
        self.role == Role::Follows
            && self.unlisted.is_empty()
            && self.inbox.is_empty()
            && self.watches.iter().all(|w| w.listed && !w.behind(&network.api))
    }

    /// Whether a workload's job is looked at: the controllers of one that does not lead yet do nothing.
    pub(super) fn controls(&self) -> bool {
        self.role == Role::Leads
    }
}

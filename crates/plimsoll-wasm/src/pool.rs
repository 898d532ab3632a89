//! Instances of a guest (`scheduler/plugin/pool.go`): one for scheduling cycles, and one for each pod that is being bound, since
//! a guest keeps its cycle state in its memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_scheduler::framework::Cluster;

use crate::events::Events;
use crate::failures::Failures;
use crate::guest::{Answer, Guest, Instance};
use crate::host::Params;
use crate::nodes::Nodes;

/// Most pods that are being bound at the same time with an instance of their own.
const MAX_BINDING: usize = 64;
/// Most instances that are kept for later.
const MAX_FREE: usize = 4;

/// How long a guest is not called after a call that executed all instructions it may, in nanoseconds: the scheduler does
/// other work meanwhile, and within one step there is one such call.
const PAUSE: i64 = 10_000_000_000;

/// A cycle of a pod; `None`: not known, PreFilter is called again.
pub(crate) type Token = Option<u64>;

#[derive(Debug)]
struct Slot {
    instance: Instance,
    /// The cycle whose state it has.
    token: Token,
}

#[derive(Debug, Default)]
struct Slots {
    scheduling: Option<Slot>,
    binding: BTreeMap<String, Slot>,
    free: Vec<Instance>,
    tokens: u64,
    nodes: Arc<Nodes>,
    nodes_version: u64,
    /// Until when the guest is not called, and why.
    paused: Option<(i64, String)>,
}

impl Slots {
    /// Fails while the guest is not called.
    fn check_pause(&mut self, now: i64) -> Result<(), String> {
        match self.paused.take() {
            Some((until, why)) if now < until => {
                self.paused = Some((until, why.clone()));
                Err(why)
            }
            _ => Ok(()),
        }
    }
}

/// The instances of one plugin.
#[derive(Debug)]
pub(crate) struct Pool {
    pub guest: Guest,
    reads_nodes: bool,
    failures: Failures,
    events: Events,
    slots: Mutex<Slots>,
}

impl Pool {
    pub(crate) fn new(guest: Guest, (failures, events): (Failures, Events)) -> Self {
        let reads_nodes = ["node", "nodeList", "nodeImageStates"].iter().any(|name| guest.imports(name));
        Self { guest, reads_nodes, failures, events, slots: Mutex::default() }
    }

    /// The parameters of a call for a pod: time and nodes.
    pub(crate) fn params(&self, cluster: &Cluster, current_pod: &Arc<[u8]>) -> Params {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let version = cluster.node_objects_version();
        if self.reads_nodes && slots.nodes_version != version {
            slots.nodes_version = version;
            slots.nodes = Arc::new(Nodes::of(cluster));
        }
        Params {
            current_pod: Arc::clone(current_pod),
            nodes: Arc::clone(&slots.nodes),
            now: cluster.now().0,
            ..Params::default()
        }
    }

    /// A number for a new cycle.
    pub(crate) fn token(&self) -> Token {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.tokens += 1;
        Some(slots.tokens)
    }

    /// Calls the instance for scheduling cycles.
    pub(crate) fn call(&self, token: Token, function: &str, params: Params) -> Result<Answer, String> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.check_pause(params.now)?;
        let mut slot = match slots.scheduling.take() {
            Some(slot) => slot,
            None => self.make(&mut slots, params.now)?,
        };
        let answer = self.call_in(&mut slots.paused, &mut slot, token, (function, params))?;
        slots.scheduling = Some(slot);
        Ok(answer)
    }

    /// Calls the instance of a pod that is being bound; without one, that for scheduling cycles.
    pub(crate) fn call_binding(
        &self,
        (uid, token): (&str, Token),
        function: &str,
        params: Params,
    ) -> Result<Answer, String> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.check_pause(params.now)?;
        let Some(mut slot) = slots.binding.remove(uid) else {
            drop(slots);
            return self.call(token, function, params);
        };
        let answer = self.call_in(&mut slots.paused, &mut slot, token, (function, params))?;
        slots.binding.insert(uid.to_owned(), slot);
        Ok(answer)
    }

    fn make(&self, slots: &mut Slots, now: i64) -> Result<Slot, String> {
        let instance = match slots.free.pop() {
            Some(instance) => instance,
            None => self.guest.instantiate(now)?,
        };
        Ok(Slot { instance, token: None })
    }

    /// After an error the slot is to be dropped.
    fn call_in(
        &self,
        paused: &mut Option<(i64, String)>,
        slot: &mut Slot,
        token: Token,
        (function, params): (&str, Params),
    ) -> Result<Answer, String> {
        let now = params.now;
        let answer = self.call_with_state(slot, token, function, params);
        if answer.is_err() {
            self.failures.count(&self.guest.settings().name, slot.instance.is_exhausted());
        }
        if let Err(why) = &answer
            && slot.instance.is_exhausted()
        {
            *paused = Some((now.saturating_add(PAUSE), why.clone()));
        }
        answer
    }

    fn call_with_state(
        &self,
        slot: &mut Slot,
        token: Token,
        function: &str,
        params: Params,
    ) -> Result<Answer, String> {
        let is_known = token.is_some() && slot.token == token;
        if function != "prefilter" && !is_known && self.guest.has("prefilter") {
            // PreFilter begins a cycle: the guest forgets the pod and the state of the one before.
            let begin = Params {
                current_pod: Arc::clone(&params.current_pod),
                nodes: Arc::clone(&params.nodes),
                now: params.now,
                ..Params::default()
            };
            slot.instance.call("prefilter", begin)?;
        }
        slot.token = token;
        let answer = slot.instance.call(function, params)?;
        self.events.add(&answer.results.recorded);
        Ok(answer)
    }

    /// The instance of the cycle goes with the pod until that is bound or not. False: too many pods are being bound.
    pub(crate) fn begin_binding(&self, uid: &str, token: Token) -> bool {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.binding.len() >= MAX_BINDING {
            return false;
        }
        if slots.scheduling.as_ref().is_some_and(|slot| token.is_some() && slot.token == token)
            && let Some(slot) = slots.scheduling.take()
        {
            slots.binding.insert(uid.to_owned(), slot);
        }
        true
    }

    /// The pod is bound, or isn't going to be.
    pub(crate) fn end_binding(&self, uid: &str) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slots.binding.remove(uid)
            && slots.free.len() < MAX_FREE
        {
            slots.free.push(slot.instance);
        }
    }
}

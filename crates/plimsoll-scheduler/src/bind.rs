//! Bind and PostBind of assumed pods (upstream `bind` in `schedule_one.go`).

use super::cluster::PodId;
use super::events::{ActionType, EventResource};
use super::framework::{AssumedPod, BindResult, CycleState, PluginId, RemoteCall};
use super::metrics::{Metered, Unmetered};
use super::record::RecordCause;
use super::runner::Runner;
use super::{Action, DeviceGrant, ExtenderAnswer, ExtenderCall, Scheduler};
use plimsoll_state::cast::index32;

/// An assumed pod: counted on its node, not bound yet.
#[derive(Debug)]
pub(crate) struct Assumed {
    /// Index of the profile whose plugins assumed it.
    profile: u32,
    /// Whether its attempt is measured.
    measured: bool,
    /// What the plugins of its cycle wrote.
    state: CycleState,
    /// The plugin that binds it, and its place in the order of Bind.
    binder: Option<(PluginId, u32)>,
    /// The call to be answered outside of the process, and whether its failure is ignored. In a box: few pods have one,
    /// and every assumed pod has a record.
    call: Option<Box<(u64, bool)>>,
    /// Claims that PreBind reserves for it.
    claims: Box<[DeviceGrant]>,
}

impl Assumed {
    pub fn new(profile: u32, state: CycleState, measured: bool) -> Self {
        Self { profile, measured, state, binder: None, call: None, claims: Box::default() }
    }

    /// The plugin that binds it.
    pub fn binder(&self) -> Option<PluginId> {
        self.binder.map(|(plugin, _)| plugin)
    }

    /// Notes the claims that PreBind reserves for it.
    pub fn reserves(&mut self, claims: &[DeviceGrant]) {
        self.claims = claims.into();
    }

    /// The claims that PreBind has reserved for it, or tried to.
    pub fn take_claims(&mut self) -> Vec<DeviceGrant> {
        std::mem::take(&mut self.claims).into()
    }

    pub fn state(&self) -> &CycleState {
        &self.state
    }

    pub fn is_measured(&self) -> bool {
        self.measured
    }

    pub fn profile(&self) -> usize {
        self.profile as usize
    }

    /// Its profile is elsewhere now.
    pub fn set_profile(&mut self, profile: u32) {
        self.profile = profile;
    }
}

impl Scheduler {
    /// The profile of an assumed pod, and the pod as its plugins see it.
    pub(super) fn assumed(&self, id: PodId) -> Option<(&Runner, AssumedPod<'_>)> {
        let Assumed { profile, state, measured, .. } = self.reservations.assumed(id)?;
        let runner = self.runners.get(*profile as usize)?;
        let node = self.cluster.pods[id].node?;
        Some((runner, AssumedPod { cluster: &self.cluster, state, pod: id, node, measured: *measured }))
    }

    /// What measures the attempt of an assumed pod, if it is measured.
    #[inline]
    pub(super) fn meter_of(&self, pod: &AssumedPod<'_>) -> Option<Metered> {
        if !pod.measured {
            return None;
        }
        self.meter(true, self.reservations.assumed(pod.pod)?.profile())
    }

    /// Bind: the first plugin that does not skip the pod.
    pub(super) fn bind(&mut self, id: PodId) {
        self.bind_from(id, 0);
    }

    fn bind_from(&mut self, id: PodId, from: usize) {
        let Some((runner, assumed)) = self.assumed(id) else { return };
        let row = &self.cluster.nodes[assumed.node];
        if !row.exists {
            // The API server binds a pod to any name. It may have gone while Permit, PreBind or an extender took their time.
            let text = format!("node {:?} not found", self.cluster.strings.text(row.name));
            let uid = self.cluster.pods[id].uid.clone();
            return self.unbind(&uid, &text, false);
        }
        let found = runner.bind.iter().enumerate().skip(from).find_map(|(at, i)| {
            let made = runner.at(*i);
            match made.plugin.bind(&assumed) {
                BindResult::Skip => None,
                result @ (BindResult::CreateBinding | BindResult::Remote(_) | BindResult::Reject(_)) => {
                    Some((at, made.id, result))
                }
            }
        });
        let node = || self.cluster.strings.text(self.cluster.nodes[assumed.node].name).to_owned();
        let (binder, action, call) = match found {
            Some((at, plugin, BindResult::CreateBinding)) => {
                (Some((plugin, index32(at))), Action::Bind { pod: self.pod_ref(id), node: node() }, None)
            }
            Some((at, plugin, BindResult::Remote(RemoteCall { extender, ignorable, .. }))) => {
                let (pod, call, what) = (self.pod_ref(id), self.calls.number(), ExtenderCall::Bind(node()));
                (
                    Some((plugin, index32(at))),
                    Action::Extend { pod, extender, call, what },
                    Some(Box::new((call, ignorable))),
                )
            }
            Some((_, plugin, BindResult::Reject(status))) => {
                let text = runner.error_text(&self.cluster, &status.by(plugin), "Bind");
                let uid = self.cluster.pods[id].uid.clone();
                return self.unbind(&uid, &text, false);
            }
            None | Some((_, _, BindResult::Skip)) => {
                let uid = self.cluster.pods[id].uid.clone();
                return self.unbind(&uid, "no Bind plugin binds the pod", false);
            }
        };
        if let Some(row) = self.reservations.assumed_mut(id) {
            (row.binder, row.call) = (binder, call);
        }
        self.outbox.push(action);
    }

    /// Whether this is the answer to the pending Bind call of a pod.
    pub(super) fn is_bind_call(&self, id: PodId, call: u64) -> bool {
        self.reservations.assumed(id).is_some_and(|row| row.call.as_ref().is_some_and(|c| c.0 == call))
    }

    /// The pending Bind call is answered. When its failure is ignored, the plugins after it are asked.
    pub(super) fn bind_answered(&mut self, id: PodId, answer: Result<ExtenderAnswer, String>) {
        let Some(row) = self.reservations.assumed_mut(id) else { return };
        let ignorable = row.call.take().is_some_and(|c| c.1);
        let next = row.binder.map_or(0, |(_, at)| at as usize + 1);
        let uid = self.cluster.pods[id].uid.clone();
        match answer {
            Ok(_) => self.bound(&uid),
            Err(_) if ignorable => self.bind_from(id, next),
            Err(text) => self.unbind(&uid, &text, false),
        }
    }

    /// The pod is bound: PostBind, and the end of its attempt.
    pub(super) fn bound(&mut self, uid: &str) {
        let Some(id) = self.cluster.pod_by_uid(uid) else { return };
        if self.waiting.contains(id) || !self.reservations.is_assumed(id) {
            return;
        }
        if let Some((runner, assumed)) = self.assumed(id) {
            match self.meter_of(&assumed) {
                None => runner.run_post_bind_plugins(&Unmetered, &assumed),
                Some(meter) => runner.run_post_bind_plugins(&meter, &assumed),
            }
        }
        self.reservations.end_assumed(id);
        if let Some(row) = self.queue.remove(id) {
            self.counters.bound(row.flushed);
            // The watch has not shown the binding yet; it will be an update of a pod on a node.
            self.pods_came = true;
            self.pod_changed(id, EventResource::AssignedPod, ActionType::ADD, None);
        }
        let Some(node) = self.cluster.pods[id].node else { return };
        let pod = self.pod_ref(id);
        let node = self.cluster.strings.text(self.cluster.nodes[node].name);
        let message = format!("Successfully assigned {}/{} to {node}", pod.namespace, pod.name);
        let cause = RecordCause::Scheduled;
        self.outbox.push(Action::Record { pod, cause, event: cause.event(message) });
    }
}

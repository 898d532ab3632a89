//! A guest as a plugin of the scheduling framework (`scheduler/plugin/plugin.go`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_scheduler::PreBindWork;
use plimsoll_scheduler::framework::{
    ActionType, AssumedPod, BindResult, Cluster, ClusterEventWithHint, Code, CycleState, EventResource,
    ExtensionPoint, FilterState, Incoming, NodeId, PermitResult, Plugin, PluginId, PodId, PostFilterHandle,
    PostFilterResult, PreBindResult, PreFilterResult, ScoreState, Status, WaitingPods,
};
use plimsoll_state::time::Duration;

use crate::events::Events;
use crate::failures::Failures;
use crate::guest::{Answer, Guest};
use crate::host::Params;
use crate::pods::{assumed, encoded, waiting_params};
use crate::pool::{Pool, Token};

/// Range of scores after NormalizeScore (upstream `MinNodeScore`, `MaxNodeScore`).
const SCORES: std::ops::RangeInclusive<i64> = 0..=100;

/// The extension points and the functions of a guest that run there.
const POINTS: [(ExtensionPoint, &[&str]); 10] = [
    (ExtensionPoint::PreFilter, &["prefilter", "filter", "addpod", "removepod"]),
    (ExtensionPoint::Filter, &["filter"]),
    (ExtensionPoint::PostFilter, &["postfilter"]),
    (ExtensionPoint::PreScore, &["prescore", "score"]),
    (ExtensionPoint::Score, &["score"]),
    (ExtensionPoint::Reserve, &["reserve", "unreserve"]),
    // The instance goes with the pod from Permit on.
    (ExtensionPoint::Permit, &["permit", "prebind", "bind", "postbind"]),
    (ExtensionPoint::PreBind, &["prebind"]),
    (ExtensionPoint::Bind, &["bind"]),
    (ExtensionPoint::PostBind, &["postbind", "prebind", "bind"]),
];

/// The extension points of a guest; `None`: all that a guest can have.
pub fn points(guest: Option<&Guest>) -> Vec<ExtensionPoint> {
    let has = |functions: &[&str]| guest.is_none_or(|guest| functions.iter().any(|f| guest.has(f)));
    POINTS.iter().filter(|(_, functions)| has(functions)).map(|(point, _)| *point).collect()
}

/// Resources of events by their number in the interface (`scheduler/plugin/clusterevent.go`).
const RESOURCES: [&str; 11] = [
    "Pod",
    "Node",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "PodSchedulingContext",
    "ResourceClaim",
    "storage.k8s.io/StorageClass",
    "storage.k8s.io/CSINode",
    "storage.k8s.io/CSIDriver",
    "storage.k8s.io/CSIStorageCapacity",
    "*",
];

/// Actions by their bit in the interface (`guest/api/clusterevent.go`).
const ACTIONS: [ActionType; 6] = [
    ActionType::ADD,
    ActionType::DELETE,
    ActionType::NODE_ALLOCATABLE,
    ActionType::NODE_LABEL,
    ActionType::NODE_TAINT,
    ActionType::NODE_CONDITION,
];

/// `Update` of the interface.
const UPDATE: u32 = 0b11_1100;

/// The tokens of cycles of plugins with guests.
type Tokens = BTreeMap<PluginId, u64>;

/// A plugin whose guest answers.
#[derive(Debug)]
pub(crate) struct GuestPlugin {
    /// `None`: its arguments were not checked.
    pool: Option<Arc<Pool>>,
    id: PluginId,
    events: Vec<ClusterEventWithHint>,
}

impl GuestPlugin {
    pub(crate) fn new(guest: Option<(Guest, (Failures, Events))>, id: PluginId) -> Self {
        let pool = guest.map(|(guest, told)| Arc::new(Pool::new(guest, told)));
        let events = pool.as_deref().map_or_else(Vec::new, events);
        Self { pool, id, events }
    }

    fn token(&self, state: &CycleState) -> Token {
        state.read::<Tokens>().and_then(|tokens| tokens.get(&self.id)).copied()
    }

    fn has(&self, function: &str) -> Option<&Arc<Pool>> {
        self.pool.as_ref().filter(|pool| pool.guest.has(function))
    }

    /// Calls a function for a pod on its way to a node.
    fn call(&self, function: &str, pod: &AssumedPod<'_>, waiting: Params) -> Result<Answer, String> {
        let Some(pool) = self.has(function) else { return Ok(Answer::default()) };
        let cluster = pod.cluster();
        let uid = cluster.pod(pod.pod()).map_or("", |view| view.uid());
        let node = cluster.node(pod.node()).map_or_else(String::new, |node| node.name().to_owned());
        let params = Params {
            node_name: node,
            waiting: waiting.waiting,
            ..pool.params(cluster, &assumed(cluster, pod.pod()))
        };
        pool.call_binding((uid, self.token(pod.state())), function, params)
    }

    fn status_of(&self, function: &str, pod: &AssumedPod<'_>) -> Status {
        match self.call(function, pod, Params::default()) {
            Ok(answer) => status(answer.low(), &answer.results.reason),
            Err(text) => Status::error(text),
        }
    }

    /// Rejects the pods that the guest named.
    fn reject(&self, cluster: &Cluster, answer: &Answer, waiting: &mut WaitingPods) {
        for pod in waiting.pods() {
            let uid = cluster.pod(pod).map_or("", |view| view.uid());
            if answer.results.rejected.iter().any(|rejected| rejected == uid) {
                waiting.reject(pod, self.id, "removed".to_owned());
            }
        }
    }
}

fn events(pool: &Pool) -> Vec<ClusterEventWithHint> {
    let all = || vec![ClusterEventWithHint::always(EventResource::Any, ActionType::ALL)];
    let answer = match pool.guest.has("enqueue") {
        true => pool.call(None, "enqueue", Params::default()),
        false => return all(),
    };
    let one = |(resource, actions): &(u32, u32)| {
        let resource = EventResource::by_name(RESOURCES.get(*resource as usize)?)?;
        let known = ACTIONS.iter().enumerate().filter(|(bit, _)| actions & (1 << bit) != 0).map(|(_, a)| *a);
        // The interface's Update has all bits of updates that it knows.
        let others =
            (actions & UPDATE == UPDATE || actions >> ACTIONS.len() != 0).then_some(ActionType::UPDATE);
        let actions = known.chain(others).reduce(ActionType::or)?;
        Some(ClusterEventWithHint::always(resource, actions))
    };
    match answer {
        // Events that the scheduler doesn't have can't be what a pod waits for.
        Ok(answer) if !answer.results.events.is_empty() => {
            answer.results.events.iter().filter_map(one).collect()
        }
        Ok(_) => all(),
        Err(error) => {
            tracing::error!(plugin = &*pool.guest.settings().name, "{error}");
            all()
        }
    }
}

/// A status of the interface (`framework.Code`).
fn status(code: i32, reason: &str) -> Status {
    let code = match code {
        0 => return Status::success(),
        1 => Code::Error,
        2 => Code::Unschedulable,
        3 => Code::Unresolvable,
        4 => Code::Wait,
        5 => Code::Skip,
        other => {
            return Status::error(format!("the guest returned the unknown status code {other}: {reason}"));
        }
    };
    Status::new(code, reason.to_owned())
}

impl Plugin for GuestPlugin {
    fn reads_objects(&self) -> bool {
        true
    }

    fn pre_filter(&self, cluster: &Cluster, pod: &Incoming, state: &mut CycleState) -> PreFilterResult {
        let Some(pool) = &self.pool else { return PreFilterResult::Skip };
        let token = pool.token();
        let mut tokens = state.read::<Tokens>().cloned().unwrap_or_default();
        tokens.extend(token.map(|token| (self.id, token)));
        state.write(tokens);
        let current = encoded(cluster, pod.id);
        let mut nodes = None;
        if pool.guest.has("prefilter") {
            match pool.call(token, "prefilter", pool.params(cluster, &current)) {
                Err(text) => return PreFilterResult::Reject(Status::error(text)),
                Ok(answer) => {
                    let status = status(answer.low(), &answer.results.reason);
                    match status.code {
                        Code::Success => {}
                        Code::Skip => return PreFilterResult::Skip,
                        _ => return PreFilterResult::Reject(status),
                    }
                    let known = |names: Vec<String>| names.iter().filter_map(|n| cluster.symbol(n)).collect();
                    nodes = answer.results.node_names.map(known);
                }
            }
        }
        let failed = RefCell::new(None);
        PreFilterResult::Go {
            nodes,
            state: Box::new(Filtering { pool: Arc::clone(pool), token, pod: current, failed }),
        }
    }

    fn post_filter(&self, handle: &mut dyn PostFilterHandle) -> PostFilterResult {
        let nothing =
            |text: String, clear_nomination| PostFilterResult::Unschedulable { text, clear_nomination };
        let Some(pool) = self.has("postfilter") else { return nothing(String::new(), false) };
        let cluster = handle.cluster();
        let code = |node: NodeId| if handle.nodes().contains(&node) { 2 } else { 3 };
        let statuses = cluster.node_views().map(|node| (node.name().to_owned(), code(node.id()))).collect();
        let params = Params { statuses, ..pool.params(cluster, &encoded(cluster, handle.pod().id)) };
        let answer = match pool.call(self.token(handle.state()), "postfilter", params) {
            Ok(answer) => answer,
            Err(text) => return PostFilterResult::Error(text),
        };
        let (overrides, name) = (answer.high() == 1, &answer.results.nominated_node);
        let clear = overrides && name.is_empty();
        match answer.low() {
            0 => match cluster.node_named(name).filter(|_| overrides) {
                Some(node) => {
                    let node = node.id();
                    PostFilterResult::Candidates(vec![handle.candidate(node, Vec::new(), 0)])
                }
                None => nothing(String::new(), clear),
            },
            2 | 3 => nothing(answer.results.reason, clear),
            other => {
                let status = status(other, &answer.results.reason);
                let texts = status.reasons.iter().map(|reason| match reason {
                    plimsoll_scheduler::framework::Reason::Owned(text) => text.to_string(),
                    _ => String::new(),
                });
                PostFilterResult::Error(texts.collect())
            }
        }
    }

    fn pre_score(
        &self,
        cluster: &Cluster,
        pod: &Incoming,
        feasible: &[NodeId],
        state: &CycleState,
    ) -> Option<Box<dyn ScoreState>> {
        let pool = self.has("score")?;
        let (token, pod) = (self.token(state), encoded(cluster, pod.id));
        let mut failure = None;
        if pool.guest.has("prescore") {
            let name = |node: &NodeId| Some(cluster.node(*node)?.name().to_owned());
            let filtered_nodes = feasible.iter().filter_map(name).collect();
            let params = Params { filtered_nodes, ..pool.params(cluster, &pod) };
            let status = match pool.call(token, "prescore", params) {
                Ok(answer) => status(answer.low(), &answer.results.reason),
                Err(text) => Status::error(text),
            };
            match status.code {
                Code::Success => {}
                Code::Skip => return None,
                _ => failure = Some(status),
            }
        }
        Some(Box::new(Scoring { pool: Arc::clone(pool), token, pod, failure: RefCell::new(failure) }))
    }

    fn reserve(&self, pod: &AssumedPod<'_>, _work: &mut PreBindWork) -> Status {
        self.status_of("reserve", pod)
    }

    fn unreserve(&self, pod: &AssumedPod<'_>, waiting: &mut WaitingPods) {
        let Some(pool) = &self.pool else { return };
        let cluster = pod.cluster();
        match self.call("unreserve", pod, waiting_params(cluster, waiting)) {
            Ok(answer) => self.reject(cluster, &answer, waiting),
            Err(error) => tracing::error!(plugin = &*pool.guest.settings().name, "failed unreserve: {error}"),
        }
        pool.end_binding(cluster.pod(pod.pod()).map_or("", |view| view.uid()));
    }

    fn permit(&self, pod: &AssumedPod<'_>, waiting: &mut WaitingPods) -> PermitResult {
        let Some(pool) = &self.pool else { return PermitResult::Allow };
        let cluster = pod.cluster();
        let answer = match self.call("permit", pod, waiting_params(cluster, waiting)) {
            Ok(answer) => answer,
            Err(text) => return PermitResult::Reject(Status::error(text)),
        };
        self.reject(cluster, &answer, waiting);
        let result = match answer.high() {
            0 => PermitResult::Allow,
            4 => {
                let millis = i64::from(answer.low().cast_unsigned());
                PermitResult::Wait(Duration(millis.saturating_mul(1_000_000)))
            }
            other => return PermitResult::Reject(status(other, &answer.results.reason)),
        };
        let binds = ["prebind", "bind", "postbind"].iter().any(|function| pool.guest.has(function));
        let uid = cluster.pod(pod.pod()).map_or("", |view| view.uid());
        if binds && !pool.begin_binding(uid, self.token(pod.state())) {
            return PermitResult::Reject(Status::error(
                "wasm: too many pods are being bound with this guest",
            ));
        }
        result
    }

    fn pre_bind(&self, pod: &AssumedPod<'_>, _work: &PreBindWork) -> PreBindResult {
        match self.status_of("prebind", pod) {
            status if status.is_success() => PreBindResult::Success,
            status => PreBindResult::Reject(status),
        }
    }

    fn bind(&self, pod: &AssumedPod<'_>) -> BindResult {
        match self.status_of("bind", pod) {
            // The interface has no function that creates a binding: a guest that agrees leaves it to the host.
            status if status.is_success() => BindResult::CreateBinding,
            status if status.code == Code::Skip => BindResult::Skip,
            status => BindResult::Reject(status),
        }
    }

    fn post_bind(&self, pod: &AssumedPod<'_>) {
        let Some(pool) = &self.pool else { return };
        if let Err(error) = self.call("postbind", pod, Params::default()) {
            tracing::error!(plugin = &*pool.guest.settings().name, "failed postbind: {error}");
        }
        pool.end_binding(pod.cluster().pod(pod.pod()).map_or("", |view| view.uid()));
    }

    fn events_to_register(&self) -> &[ClusterEventWithHint] {
        &self.events
    }
}

/// The filter of one cycle.
#[derive(Debug)]
struct Filtering {
    pool: Arc<Pool>,
    token: Token,
    pod: Arc<[u8]>,
    /// What AddPod or RemovePod returned, if no success, or why a call failed: it is the verdict on all nodes from then on, so
    /// that a guest that loops does so once in a cycle.
    failed: RefCell<Option<Status>>,
}

impl Filtering {
    fn change(&mut self, function: &str, cluster: &Cluster, (other, node): (PodId, NodeId)) {
        if !self.pool.guest.has(function) || self.failed.borrow().is_some() {
            return;
        }
        let params = Params { target_pod: encoded(cluster, other), ..self.params(cluster, node) };
        let status = match self.pool.call(self.token, function, params) {
            Ok(answer) => status(answer.low(), &answer.results.reason),
            Err(text) => Status::error(text),
        };
        if !status.is_success() {
            self.failed = RefCell::new(Some(status));
        }
    }

    fn params(&self, cluster: &Cluster, node: NodeId) -> Params {
        let node_name = cluster.node(node).map_or_else(String::new, |node| node.name().to_owned());
        Params { node_name, ..self.pool.params(cluster, &self.pod) }
    }
}

impl FilterState for Filtering {
    fn filter(&self, cluster: &Cluster, node: NodeId) -> Status {
        if let Some(status) = &*self.failed.borrow() {
            return status.clone();
        }
        if !self.pool.guest.has("filter") {
            return Status::success();
        }
        match self.pool.call(self.token, "filter", self.params(cluster, node)) {
            Ok(answer) => status(answer.low(), &answer.results.reason),
            Err(text) => self.failed.borrow_mut().insert(Status::error(text)).clone(),
        }
    }

    fn add_pod(&mut self, cluster: &Cluster, other: PodId, node: NodeId) {
        self.change("addpod", cluster, (other, node));
    }

    fn remove_pod(&mut self, cluster: &Cluster, other: PodId, node: NodeId) {
        self.change("removepod", cluster, (other, node));
    }
}

/// The score of one cycle.
#[derive(Debug)]
struct Scoring {
    pool: Arc<Pool>,
    token: Token,
    pod: Arc<[u8]>,
    failure: RefCell<Option<Status>>,
}

impl Scoring {
    fn fail(&self, status: Status) {
        self.failure.borrow_mut().get_or_insert(status);
    }

    fn normalized(&self, cluster: &Cluster, names: &[&str], scores: &[i64]) -> Result<Vec<i64>, Status> {
        if !self.pool.guest.has("normalizescore") {
            return Ok(scores.to_vec());
        }
        let by_name = names.iter().zip(scores).map(|(name, score)| ((*name).to_owned(), *score)).collect();
        let params = Params { scores: by_name, ..self.pool.params(cluster, &self.pod) };
        let answer = self.pool.call(self.token, "normalizescore", params).map_err(Status::error)?;
        let status = status(answer.low(), &answer.results.reason);
        if !status.is_success() {
            return Err(status);
        }
        let Some(updated) = answer.results.scores.filter(|updated| !updated.is_empty()) else {
            return Ok(scores.to_vec());
        };
        let found: Option<Vec<i64>> = names.iter().map(|name| updated.get(*name).copied()).collect();
        found.filter(|_| updated.len() == names.len()).ok_or_else(|| {
            let (old, new) = (names.len(), updated.len());
            Status::error(format!(
                "size mismatch: scores has {old} elements, but updatedScores has {new} elements"
            ))
        })
    }
}

impl ScoreState for Scoring {
    fn score(&self, cluster: &Cluster, node: NodeId) -> i64 {
        if self.failure.borrow().is_some() {
            return 0;
        }
        let node_name = cluster.node(node).map_or_else(String::new, |node| node.name().to_owned());
        let params = Params { node_name, ..self.pool.params(cluster, &self.pod) };
        match self.pool.call(self.token, "score", params) {
            Ok(answer) if answer.low() == 0 => answer.high().into(),
            Ok(answer) => {
                self.fail(status(answer.low(), &answer.results.reason));
                0
            }
            Err(text) => {
                self.fail(Status::error(text));
                0
            }
        }
    }

    fn normalize_score(&self, cluster: &Cluster, nodes: &[NodeId], scores: &mut [i64]) {
        if self.failure.borrow().is_some() {
            return;
        }
        let names: Vec<&str> =
            nodes.iter().map(|n| cluster.node(*n).map_or("", |node| node.name())).collect();
        match self.normalized(cluster, &names, scores) {
            Ok(updated) => scores.copy_from_slice(&updated),
            Err(status) => return self.fail(status),
        }
        if let Some(score) = scores.iter().find(|score| !SCORES.contains(score)) {
            let name = &self.pool.guest.settings().name;
            self.fail(Status::error(format!(
                "plugin {name:?} returns an invalid score {score}, it should in the range of [0, 100] after normalizing"
            )));
        }
    }

    fn failure(&self) -> Option<Status> {
        self.failure.borrow().clone()
    }
}

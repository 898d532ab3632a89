//! DynamicResources: device claims (upstream `plugins/dynamicresources/dynamicresources.go`).

mod args;
mod claims;

use self::args::DynamicResourcesArgs;
use self::claims::{claims_of, held, invalid_request};
use super::extended_resources::{Extended, extended_of};
use super::scoring::normalize_by_max;
use crate::allocate::{Failure, Given, Pools, Wanted, allocate};
use crate::cluster::devices::Claim;
use crate::cluster::objects::ObjectChange;
use crate::cluster::to_come::is_to_come;
use crate::cluster::{Cluster, NodeId, PodId};
use crate::events::{ActionType, ClusterEvent, ClusterEventWithHint, EventResource, Payload};
use crate::framework::{
    AssumedPod, CycleState, ExtensionPoint, FilterState, Incoming, Normalization, Plugin, PostFilterHandle,
    PostFilterResult, PreFilterResult, Registration, ScoreState, Status,
};
use crate::{AllocationTerms, DeviceGrant, ExtendedClaim, PreBindWork};
use plimsoll_state::cast::signed;
use plimsoll_state::collect::InsertEach as _;
use plimsoll_state::model::{DeviceAlternative, DeviceClass, DeviceCount, DeviceRequest};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

const NOT_AVAILABLE: &str = "resourceclaim not available on the node";
const CANNOT_ALLOCATE: &str = "cannot allocate all claims";
const INVALID_POOLS: &str = "invalid resource pools were encountered";
/// Most pods that may share a claim (API limit `ResourceClaimReservedForMaxSize`).
const MAX_RESERVED: usize = 256;
/// Score of the first alternative; each further one is worth one less.
const BEST_ALTERNATIVE: i64 = 8;

/// The plugin.
#[derive(Debug)]
pub(crate) struct DynamicResources;

/// The pod's claims and the devices there are.
#[derive(Debug)]
struct State {
    allocated: Vec<Arc<Claim>>,
    /// Claims to allocate.
    open: Vec<Arc<Claim>>,
    /// What each of them wants.
    wanted: Vec<Wanted>,
    /// Extended resources that devices may stand for.
    extended: Vec<Extended>,
    /// Claims that an earlier attempt made for them.
    stale: Vec<Arc<Claim>>,
    pools: Pools,
    /// Namespace and UID.
    pod: (String, String),
    /// Indices of allocated claims that kept the pod from a node.
    unavailable: RefCell<BTreeSet<usize>>,
}

#[derive(Debug)]
struct Score(Vec<(NodeId, i64)>);

/// Written by PreFilter before anything else; PostFilter looks for it.
struct Begun;

/// Name of the claim that stands for a pod's extended resources, in messages.
const EXTENDED_CLAIM: &str = "<extended-resources>";

impl State {
    /// What has to be allocated on a node: open claims, and extended resources that no device plugin of the
    /// node offers.
    fn wanted(&self, cluster: &Cluster, node: NodeId) -> Cow<'_, [Wanted]> {
        let mut out = Cow::Borrowed(&*self.wanted);
        let requests = self.extended_requests(cluster, node);
        if !requests.is_empty() {
            let claim = format!("{}/{EXTENDED_CLAIM}", self.pod.0);
            out.to_mut().push(Wanted { claim, requests, constraints: Vec::new() });
        }
        out
    }

    /// The requests for devices that stand for extended resources on a node, by name.
    fn extended_requests(&self, cluster: &Cluster, node: NodeId) -> Vec<DeviceRequest> {
        let here = self.extended_on(cluster, node);
        let mut requests: Vec<DeviceRequest> = here.flat_map(|e| e.requests.iter().cloned()).collect();
        requests.sort_by(|a, b| a.name.cmp(&b.name));
        requests
    }

    /// Extended resources that devices stand for on a node.
    fn extended_on<'a>(&'a self, cluster: &'a Cluster, node: NodeId) -> impl Iterator<Item = &'a Extended> {
        self.extended.iter().filter(move |e| cluster.nodes[node].scalar(e.resource).0 == 0)
    }

    /// Devices for all open claims on a node.
    fn allocate(&self, cluster: &Cluster, node: NodeId) -> Result<Vec<Given>, Failure> {
        let wanted = self.wanted(cluster, node);
        if wanted.is_empty() { Ok(Vec::new()) } else { allocate(cluster, &self.pools, &wanted, node) }
    }

    /// What Reserve gives on a node: devices for open claims, reservations of the others, and a claim for extended
    /// resources.
    ///
    /// # Errors
    /// When the devices are not there after all.
    fn grants(
        &self,
        cluster: &Cluster,
        node: NodeId,
    ) -> Result<(Vec<DeviceGrant>, Option<Box<ExtendedClaim>>), String> {
        let given = self.allocate(cluster, node).map_err(|_| CANNOT_ALLOCATE.to_owned())?;
        // Those that are reserved for the pod, too: as far as is known, and an earlier attempt may have released them.
        let mut out: Vec<DeviceGrant> = self.allocated.iter().map(|c| held(&c.raw)).collect();
        let mut given = given.into_iter();
        out.extend(self.open.iter().zip(&self.wanted).zip(given.by_ref()).map(|((c, wanted), g)| {
            let terms = self.terms(cluster, node, &wanted.requests, &g);
            DeviceGrant { devices: g.devices, terms, ..held(&c.raw) }
        }));
        let claim = given.next().map(|g| {
            let here = || self.extended_on(cluster, node);
            let ask = |r: &DeviceRequest| {
                let DeviceAlternative { class, count, .. } = r.alternatives.first()?;
                match count {
                    DeviceCount::Exactly(n) => Some((r.name.clone(), class.clone(), *n)),
                    DeviceCount::All => None,
                }
            };
            let mut requests: Vec<_> = here().flat_map(|e| e.requests.iter().filter_map(ask)).collect();
            requests.sort();
            let mappings = here().flat_map(|e| e.mappings.iter().cloned()).collect();
            Box::new(ExtendedClaim {
                requests,
                mappings,
                terms: self.terms(cluster, node, &self.extended_requests(cluster, node), &g),
                devices: g.devices,
                stale: self.stale.iter().map(|c| c.raw.name.clone()).collect(),
            })
        });
        Ok((out, claim))
    }

    /// What the allocation of a claim says beside its devices (upstream `allocator_incubating.go`, end of `Allocate`).
    fn terms(
        &self,
        cluster: &Cluster,
        node: NodeId,
        requests: &[DeviceRequest],
        given: &Given,
    ) -> AllocationTerms {
        let mut by_class: Vec<(&Arc<DeviceClass>, Vec<String>)> = Vec::new();
        for (request, way) in requests.iter().zip(&given.alternatives) {
            let Some(chosen) = request.alternatives.get(*way) else { continue };
            let Some(class) = cluster.objects.devices.classes.get(&chosen.class) else { continue };
            let name = request.full_name(chosen);
            match by_class.iter_mut().find(|(known, _)| known.name == class.name) {
                Some((_, names)) => names.push(name),
                None => by_class.push((class, vec![name])),
            }
        }
        let config = by_class.into_iter().flat_map(|(class, names)| {
            class.config.iter().map(move |config| (names.clone(), config.clone()))
        });
        AllocationTerms {
            nodes: self.pools.reach_of(cluster, node, &given.devices),
            config: config.collect(),
        }
    }

    /// Whether alternatives were or will be chosen, and this pod chooses any devices.
    fn has_alternatives(&self) -> bool {
        let prioritized = |c: &Arc<Claim>| c.raw.requests.iter().any(|r| r.prioritized);
        (!self.open.is_empty() || !self.extended.is_empty())
            && self.allocated.iter().chain(&self.open).any(prioritized)
    }

    /// The raw score of a node: the better the alternatives, the more (upstream `computeScore`).
    fn score(&self, cluster: &Cluster, node: NodeId) -> i64 {
        let Ok(given) = self.allocate(cluster, node) else { return 0 };
        if given.is_empty() {
            return 0;
        }
        let worth = |i: usize| BEST_ALTERNATIVE - signed(i);
        let now = self.wanted.iter().zip(&given).flat_map(|(wanted, given)| {
            let chosen = wanted.requests.iter().zip(&given.alternatives);
            chosen.filter(|(r, _)| r.prioritized).map(|(_, i)| worth(*i))
        });
        let before = self.allocated.iter().flat_map(|c| {
            let devices = c.raw.allocation.iter().flat_map(|a| &a.devices);
            let taken: BTreeSet<&str> = devices.map(|d| d.request.as_str()).insert_each();
            let prioritized = c.raw.requests.iter().filter(|r| r.prioritized);
            let all =
                prioritized.flat_map(|r| r.alternatives.iter().enumerate().map(move |(i, a)| (r, i, a)));
            let picked = all.filter(|(r, _, a)| taken.contains(format!("{}/{}", r.name, a.name).as_str()));
            picked.map(|(_, i, _)| worth(i)).collect::<Vec<_>>()
        });
        now.sum::<i64>() + before.sum::<i64>()
    }

    /// The claim that PostFilter deallocates: one that kept the pod from a node, and that no other pod uses.
    fn deallocation(&self) -> Option<&Arc<Claim>> {
        let unused = |c: &Claim| match c.raw.reserved_for.as_slice() {
            [] => true,
            [one] => *one == self.pod.1,
            _ => false,
        };
        let unavailable = self.unavailable.borrow();
        unavailable.iter().filter_map(|i| self.allocated.get(*i)).find(|c| unused(c))
    }

    /// A claim for the pod's extended resources that an earlier attempt left with its devices: other pods may need them while this
    /// one fits nowhere. Upstream deletes it; here the next attempt does.
    fn left_over(&self) -> Option<&Arc<Claim>> {
        let own = |c: &Claim| c.raw.reserved_for.iter().all(|uid| *uid == self.pod.1);
        self.stale.iter().find(|c| c.raw.allocation.is_some() && own(c))
    }

    fn usable(&self, cluster: &Cluster, claim: &Claim, node: NodeId) -> bool {
        let row = &cluster.nodes[node];
        claim.nodes.as_ref().is_none_or(|n| n.matches(row.name, &row.info.labels, &cluster.strings))
    }
}

/// How the plugin is registered.
pub(super) fn registration() -> Registration {
    Registration::with_args_of(
        "DynamicResources",
        &[
            ExtensionPoint::PreEnqueue,
            ExtensionPoint::PreFilter,
            ExtensionPoint::Filter,
            ExtensionPoint::PostFilter,
            ExtensionPoint::Score,
            ExtensionPoint::Reserve,
            ExtensionPoint::PreBind,
        ],
        |_: &DynamicResourcesArgs, _| Box::new(DynamicResources),
    )
    .by_default(2)
}

impl Plugin for DynamicResources {
    fn is_local(&self, cluster: &Cluster, pod: &Incoming) -> bool {
        let spec = &pod.shape.spec;
        spec.source.resource_claims.is_empty()
            && !spec.requests.scalars.iter().any(|(name, _)| cluster.is_backed_by_devices(*name))
    }

    fn pre_enqueue(&self, cluster: &Cluster, pod: PodId) -> Option<Status> {
        if cluster.shape(pod).spec.source.resource_claims.is_empty() {
            return None;
        }
        claims_of(cluster, pod).err().map(Status::unresolvable)
    }

    fn pre_filter(&self, cluster: &Cluster, pod: &Incoming, cycle: &mut CycleState) -> PreFilterResult {
        cycle.write(Begun);
        let spec = &pod.shape.spec;
        let extended = if spec.requests.scalars.is_empty() { Vec::new() } else { extended_of(cluster, pod) };
        let claims = match claims_of(cluster, pod.id) {
            Ok(claims) => claims,
            Err(text) => return PreFilterResult::Reject(Status::unresolvable(text)),
        };
        if claims.is_empty() && extended.is_empty() {
            // None of the pod's claims needs to be made.
            return PreFilterResult::Skip;
        }
        let uid = &*cluster.pods[pod.id].uid;
        let (mut allocated, mut open, mut wanted) = (Vec::new(), Vec::new(), Vec::new());
        for claim in claims {
            let c = &claim.raw;
            if c.allocation.is_some() {
                if c.reserved_for.len() >= MAX_RESERVED && !c.reserved_for.iter().any(|r| r == uid) {
                    return PreFilterResult::Reject(Status::unresolvable("resourceclaim in use"));
                }
                allocated.push(claim);
                continue;
            }
            let key = (pod.shape.namespace, c.name.clone());
            if cluster.objects.devices.given(&key).is_some() {
                let text =
                    format!("resource claim {}/{} is in the process of being allocated", c.namespace, c.name);
                return PreFilterResult::Reject(Status::unresolvable(text));
            }
            if let Some(text) = invalid_request(cluster, c) {
                return PreFilterResult::Reject(Status::unresolvable(text));
            }
            wanted.push(Wanted {
                claim: format!("{}/{}", c.namespace, c.name),
                requests: c.requests.clone(),
                constraints: c.constraints.clone(),
            });
            open.push(claim);
        }
        let mut pools = Pools::new(&cluster.objects.devices);
        let stale = match extended.is_empty() {
            true => Vec::new(),
            false => cluster.objects.devices.made_for(pod.shape.namespace, uid),
        };
        stale.iter().for_each(|claim| pools.free(claim));
        let name = (cluster.strings.text(pod.shape.namespace).to_owned(), uid.to_owned());
        let unavailable = RefCell::default();
        let state =
            Rc::new(State { allocated, open, wanted, extended, stale, pools, pod: name, unavailable });
        cycle.write(Rc::clone(&state));
        PreFilterResult::go(state)
    }

    /// Never ends the search for other ways. A claim that kept the pod from a node and that no other pod uses is deallocated.
    fn post_filter(&self, handle: &mut dyn PostFilterHandle) -> PostFilterResult {
        if handle.state().read::<Begun>().is_none() {
            // Upstream's PostFilter misses the state that its PreFilter did not get to write.
            return PostFilterResult::Error("not found".to_owned());
        }
        let text = match handle.state().read::<Rc<State>>().cloned() {
            None => "no new claims to deallocate",
            Some(state) => match (state.deallocation(), state.left_over()) {
                (Some(claim), _) => {
                    handle.deallocate(held(&claim.raw));
                    "deallocation of ResourceClaim completed"
                }
                (None, Some(claim)) => {
                    handle.deallocate(held(&claim.raw));
                    "deletion of ResourceClaim completed"
                }
                (None, None) => "still not schedulable",
            },
        };
        PostFilterResult::Unschedulable { text: text.to_owned(), clear_nomination: false }
    }

    fn reserve(&self, pod: &AssumedPod<'_>, work: &mut PreBindWork) -> Status {
        let Some(state) = pod.state.read::<Rc<State>>() else { return Status::success() };
        match state.grants(pod.cluster, pod.node) {
            Ok((devices, extended)) => {
                work.devices.extend(devices);
                work.extended = extended;
                Status::success()
            }
            Err(text) => Status::error(text),
        }
    }

    fn hold(&self, pod: &AssumedPod<'_>, work: &mut PreBindWork) {
        let state = pod.state.read::<Rc<State>>();
        let granted = state.and_then(|s| s.grants(pod.cluster, pod.node).ok());
        let devices = granted.into_iter().flat_map(|(devices, _)| devices);
        work.devices.extend(devices.filter(|grant| is_to_come(&grant.name)));
    }

    fn pre_score(
        &self,
        cluster: &Cluster,
        _pod: &Incoming,
        feasible: &[NodeId],
        state: &CycleState,
    ) -> Option<Box<dyn ScoreState>> {
        let mut scores = Vec::new();
        if let Some(state) = state.read::<Rc<State>>()
            && state.has_alternatives()
        {
            scores.extend(feasible.iter().map(|node| (*node, state.score(cluster, *node))));
        }
        Some(Box::new(Score(scores)))
    }

    fn events_to_register(&self) -> &[ClusterEventWithHint] {
        const {
            &[
                ClusterEventWithHint::always(
                    EventResource::Node,
                    ActionType::ADD.or(ActionType::NODE_LABEL).or(ActionType::NODE_ALLOCATABLE),
                ),
                ClusterEventWithHint::hinted(
                    EventResource::ResourceClaim,
                    ActionType::ADD.or(ActionType::UPDATE),
                ),
                ClusterEventWithHint::hinted(
                    EventResource::UnschedulablePod,
                    ActionType::POD_GENERATED_CLAIM,
                ),
                ClusterEventWithHint::always(
                    EventResource::DeviceClass,
                    ActionType::ADD.or(ActionType::UPDATE),
                ),
                ClusterEventWithHint::always(
                    EventResource::ResourceSlice,
                    ActionType::ADD.or(ActionType::UPDATE),
                ),
            ]
        }
    }

    fn queueing_hint(&self, cluster: &Cluster, pod: PodId, change: &ClusterEvent) -> bool {
        let Ok(claims) = claims_of(cluster, pod) else { return false };
        match &change.payload {
            Payload::Pod { id, .. } => *id == pod,
            Payload::Object(ObjectChange::DeviceClaim((old, Some(new)))) => {
                let freed =
                    old.as_ref().is_some_and(|o| o.raw.allocation.is_some()) && new.raw.allocation.is_none();
                let own = || claims.iter().any(|c| c.raw.uid == new.raw.uid);
                let status_changed = || {
                    old.as_ref().is_none_or(|o| {
                        o.raw.allocation != new.raw.allocation || o.raw.reserved_for != new.raw.reserved_for
                    })
                };
                freed || (own() && status_changed())
            }
            Payload::Node { .. } | Payload::Object(_) => false,
        }
    }
}

impl FilterState for Rc<State> {
    fn filter(&self, cluster: &Cluster, node: NodeId) -> Status {
        let away = self.allocated.iter().enumerate().filter(|(_, c)| !self.usable(cluster, c, node));
        let away: Vec<usize> = away.map(|(i, _)| i).collect();
        // Devices are looked for even when a claim keeps the pod away: that verdict comes first upstream.
        match self.allocate(cluster, node) {
            Ok(_) if away.is_empty() => Status::success(),
            Ok(_) => {
                self.unavailable.borrow_mut().extend(away);
                Status::unresolvable(NOT_AVAILABLE)
            }
            Err(Failure::Impossible) => Status::unresolvable(CANNOT_ALLOCATE),
            Err(Failure::InvalidPools) => Status::unresolvable(INVALID_POOLS),
            Err(Failure::TooLong) => {
                let name = cluster.strings.text(cluster.nodes[node].name);
                let text = format!("node {name}: timed out trying to allocate devices");
                Status::error(text)
            }
            Err(Failure::Broken(text)) => Status::error(text),
        }
    }
}

impl ScoreState for Score {
    fn score(&self, _cluster: &Cluster, node: NodeId) -> i64 {
        self.0.iter().find(|(n, _)| *n == node).map_or(0, |(_, s)| *s)
    }

    fn normalization(&self) -> Normalization {
        if self.0.is_empty() { Normalization::None } else { Normalization::Other }
    }

    fn normalize_score(&self, _cluster: &Cluster, _nodes: &[NodeId], scores: &mut [i64]) {
        normalize_by_max(scores, false);
    }
}

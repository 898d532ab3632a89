//! What pods ask for and occupy (spec section 5.0).

use plimsoll_state::intern::{Interner, Marks, Sym};
use plimsoll_state::model::{Container, PodSpec, PodStatus, Resources, RestartPolicy};

/// Assumed cpu of a container without a request, when scoring: 0.1 core, in millicores.
pub const DEFAULT_MILLI_CPU: i64 = 100;
/// Assumed memory of a container without a request, when scoring: 200 MiB, in bytes.
pub const DEFAULT_MEMORY: i64 = 200 * 1024 * 1024;

/// Amounts of the resources that count for placement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Amounts {
    /// Millicores.
    pub cpu: i64,
    /// Bytes.
    pub memory: i64,
    /// Bytes of local storage.
    pub ephemeral: i64,
    /// Extended resources, huge pages and the like, sorted by name.
    pub scalars: Box<[(Sym, i64)]>,
}

impl Amounts {
    /// Interns amounts by name; names that don't count are dropped.
    pub fn new(resources: &Resources, strings: &mut Interner) -> Self {
        let get = |name: &str| resources.get(name).copied().unwrap_or(0);
        let scalars = resources
            .iter()
            .filter(|(name, _)| is_scalar(name))
            .map(|(name, amount)| (strings.intern(name), *amount))
            .collect();
        Self { cpu: get("cpu"), memory: get("memory"), ephemeral: get("ephemeral-storage"), scalars }
    }

    /// Bounded so that sums over the pods of a node can't overflow.
    fn bounded(mut self) -> Self {
        for amount in [&mut self.cpu, &mut self.memory, &mut self.ephemeral] {
            *amount = bound(*amount);
        }
        for (_, amount) in &mut self.scalars {
            *amount = bound(*amount);
        }
        self
    }

    /// Interns what a pod asks for.
    pub fn of_pod(resources: &Resources, strings: &mut Interner) -> Self {
        Self::new(resources, strings).bounded()
    }

    /// Marks what it holds.
    pub fn mark(&self, marks: &mut Marks) {
        self.scalars.iter().for_each(|(name, _)| marks.mark(*name));
    }

    /// The amount of a scalar resource.
    pub fn scalar(&self, name: Sym) -> i64 {
        self.scalars.iter().find(|(n, _)| *n == name).map_or(0, |(_, a)| *a)
    }

    /// Whether nothing at all is asked for.
    pub fn is_nothing(&self) -> bool {
        self.cpu == 0 && self.memory == 0 && self.ephemeral == 0 && self.scalars.is_empty()
    }
}

/// Largest amount that one pod can ask for; no node has as much.
const MAX_AMOUNT: i64 = 1 << 50;

fn bound(amount: i64) -> i64 {
    amount.clamp(0, MAX_AMOUNT)
}

/// What a placed pod occupies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Usage {
    /// Its requests.
    pub requests: Amounts,
    /// Its cpu with defaults for containers that ask for nothing, in millicores.
    pub nonzero_cpu: i64,
    /// The same for memory, in bytes.
    pub nonzero_memory: i64,
}

impl Usage {
    /// Marks what it holds.
    pub fn mark(&self, marks: &mut Marks) {
        self.requests.mark(marks);
    }
}

/// Whether a resource is one that nodes count besides cpu, memory, ephemeral storage and pods
/// (scheduler util `IsScalarResourceName`).
pub fn is_scalar(name: &str) -> bool {
    plimsoll_state::model::is_extended_resource(name)
        || name.starts_with("hugepages-")
        || name.contains("kubernetes.io/")
        || name.starts_with("attachable-volumes-")
}

/// How [`pod_requests`] counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counting<'a> {
    /// Take running resizes into account.
    pub status: Option<&'a PodStatus>,
    /// Leave out pod-level requests.
    pub skip_pod_level: bool,
    /// Cpu of containers that don't ask for any.
    pub missing_cpu: Option<i64>,
    /// Memory of containers that don't ask for any.
    pub missing_memory: Option<i64>,
}

fn add(to: &mut Resources, more: &Resources) {
    for (name, amount) in more {
        let slot = to.entry(name.clone()).or_default();
        *slot = slot.saturating_add(*amount);
    }
}

fn raise(to: &mut Resources, other: &Resources) {
    for (name, amount) in other {
        let slot = to.entry(name.clone()).or_insert(*amount);
        *slot = (*slot).max(*amount);
    }
}

fn is_sidecar(c: &Container) -> bool {
    c.restart_policy == Some(RestartPolicy::Always)
}

fn is_pod_level(name: &str) -> bool {
    name == "cpu" || name == "memory" || name.starts_with("hugepages-")
}

/// Whether requests are set for the whole pod.
pub fn has_pod_level_requests(spec: &PodSpec) -> bool {
    spec.pod_requests.as_ref().is_some_and(|r| r.keys().any(|k| is_pod_level(k)))
}

fn container_requests(c: &Container, counting: &Counting<'_>) -> Resources {
    let mut out = c.requests.clone();
    if let Some(status) = counting.status
        && let Some(cs) = status.containers.iter().find(|s| s.name == c.name)
        && let Some(actuated) = &cs.actuated
    {
        if is_infeasible(status) {
            out = Resources::new();
        }
        raise(&mut out, actuated);
        if let Some(allocated) = &cs.allocated {
            raise(&mut out, allocated);
        }
    }
    if let Some(cpu) = counting.missing_cpu {
        out.entry("cpu".to_owned()).or_insert(cpu);
    }
    if let Some(memory) = counting.missing_memory {
        out.entry("memory".to_owned()).or_insert(memory);
    }
    out
}

/// Whether the kubelet said that a resize can never be done.
fn is_infeasible(status: &PodStatus) -> bool {
    status.conditions.iter().any(|c| c.kind == "PodResizePending" && c.reason == "Infeasible")
}

/// The request of a whole pod (component-helpers `PodRequests`).
pub fn pod_requests(spec: &PodSpec, counting: &Counting<'_>) -> Resources {
    let mut total = Resources::new();
    for c in &spec.containers {
        add(&mut total, &container_requests(c, counting));
    }
    let mut sidecars = Resources::new();
    let mut peak = Resources::new();
    for c in &spec.init_containers {
        if is_sidecar(c) {
            let requests = container_requests(c, counting);
            add(&mut total, &requests);
            add(&mut sidecars, &requests);
            raise(&mut peak, &sidecars);
        } else {
            let without_status = Counting { status: None, ..*counting };
            let mut with = container_requests(c, &without_status);
            add(&mut with, &sidecars);
            raise(&mut peak, &with);
        }
    }
    raise(&mut total, &peak);
    if !counting.skip_pod_level && has_pod_level_requests(spec) {
        pod_level(&mut total, spec, counting.status);
    }
    add(&mut total, &spec.overhead);
    total
}

/// Pod-level requests replace the sums; the status counts for the resources that the spec names.
fn pod_level(total: &mut Resources, spec: &PodSpec, status: Option<&PodStatus>) {
    let own = spec.pod_requests.as_ref();
    let reported = status.and_then(|s| Some((s, s.actuated.as_ref()?)));
    for (name, wanted) in own.into_iter().flatten().filter(|(name, _)| is_pod_level(name)) {
        let amount = reported.map_or(*wanted, |(status, actuated)| {
            let of = |r: Option<&Resources>| r.and_then(|r| r.get(name)).copied();
            let wanted = (!is_infeasible(status)).then_some(*wanted);
            let all = [wanted, of(Some(actuated)), of(status.allocated.as_ref())];
            all.into_iter().flatten().max().unwrap_or(0)
        });
        total.insert(name.clone(), amount);
    }
}

/// What the pod occupies once it is on a node.
pub fn usage(spec: &PodSpec, status: Option<&PodStatus>, strings: &mut Interner) -> Usage {
    let plain = Counting { status, ..Counting::default() };
    let requests = pod_requests(spec, &plain);
    let set = has_pod_level_requests(spec);
    let missing = |name: &str, default| (!set || !requests.contains_key(name)).then_some(default);
    let counting = Counting {
        missing_cpu: missing("cpu", DEFAULT_MILLI_CPU),
        missing_memory: missing("memory", DEFAULT_MEMORY),
        ..plain
    };
    let nonzero = pod_requests(spec, &counting);
    Usage {
        requests: Amounts::of_pod(&requests, strings),
        nonzero_cpu: bound(nonzero.get("cpu").copied().unwrap_or(0)),
        nonzero_memory: bound(nonzero.get("memory").copied().unwrap_or(0)),
    }
}

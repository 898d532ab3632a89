//! What pods ask for and occupy (upstream `PodRequests` in `component-helpers/resource/helpers.go`).

use plimsoll_state::intern::{Interner, Marks, Sym};
use plimsoll_state::model::requests::{PodResourcesOptions, has_pod_level_requests, pod_requests};
use plimsoll_state::model::{PodSpec, PodStatus, Resources};

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
    /// Its cpu with defaults for containers without a request, in millicores.
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

/// What the pod occupies once it is on a node.
pub fn usage(spec: &PodSpec, status: Option<&PodStatus>, strings: &mut Interner) -> Usage {
    let plain = PodResourcesOptions { status, ..PodResourcesOptions::default() };
    let requests = pod_requests(spec, &plain);
    let set = has_pod_level_requests(spec);
    let missing = |name: &str, default| (!set || !requests.contains_key(name)).then_some(default);
    let options = PodResourcesOptions {
        missing_cpu: missing("cpu", DEFAULT_MILLI_CPU),
        missing_memory: missing("memory", DEFAULT_MEMORY),
        ..plain
    };
    let nonzero = pod_requests(spec, &options);
    Usage {
        requests: Amounts::of_pod(&requests, strings),
        nonzero_cpu: bound(nonzero.get("cpu").copied().unwrap_or(0)),
        nonzero_memory: bound(nonzero.get("memory").copied().unwrap_or(0)),
    }
}

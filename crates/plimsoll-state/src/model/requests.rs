//! Resource requests of a pod, as Kubernetes and Kueue both compute them
//! (`k8s.io/component-helpers/resource/helpers.go`).

use super::{Container, PodSpec, PodStatus, Resources, RestartPolicy};

/// Options of [`pod_requests`] (`PodResourcesOptions`). The default sums the spec alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct PodResourcesOptions<'a> {
    /// The status whose allocated and actuated resources count as well, while a resize is in progress (KEP-1287).
    pub status: Option<&'a PodStatus>,
    /// Ignore pod-level requests (KEP-2837).
    pub skip_pod_level: bool,
    /// Millicores assumed for a container that requests no cpu.
    pub missing_cpu: Option<i64>,
    /// Bytes assumed for a container that requests no memory.
    pub missing_memory: Option<i64>,
}

/// Adds amounts by name; sums saturate (`addResourceList`).
pub fn add(to: &mut Resources, more: &Resources) {
    for (name, amount) in more {
        let slot = to.entry(name.clone()).or_default();
        *slot = slot.saturating_add(*amount);
    }
}

/// Raises amounts to those of `other` where these are larger (`maxResourceList`).
pub fn raise(to: &mut Resources, other: &Resources) {
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

fn container_requests(c: &Container, options: &PodResourcesOptions<'_>) -> Resources {
    let mut out = c.requests.clone();
    if let Some(status) = options.status
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
    if let Some(cpu) = options.missing_cpu {
        out.entry("cpu".to_owned()).or_insert(cpu);
    }
    if let Some(memory) = options.missing_memory {
        out.entry("memory".to_owned()).or_insert(memory);
    }
    out
}

/// Whether the kubelet reported that it can never carry out the resize.
fn is_infeasible(status: &PodStatus) -> bool {
    status.conditions.iter().any(|c| c.kind == "PodResizePending" && c.reason == "Infeasible")
}

/// Requests of one pod (`PodRequests`): the sum of containers and sidecars, or more where an init container needs more,
/// overridden by pod-level requests, plus overhead. In the units of [`Resources`].
pub fn pod_requests(spec: &PodSpec, options: &PodResourcesOptions<'_>) -> Resources {
    let mut total = Resources::new();
    for c in &spec.containers {
        add(&mut total, &container_requests(c, options));
    }
    let mut sidecars = Resources::new();
    let mut peak = Resources::new();
    for c in &spec.init_containers {
        if is_sidecar(c) {
            let requests = container_requests(c, options);
            add(&mut total, &requests);
            add(&mut sidecars, &requests);
            raise(&mut peak, &sidecars);
        } else {
            let without_status = PodResourcesOptions { status: None, ..*options };
            let mut with = container_requests(c, &without_status);
            add(&mut with, &sidecars);
            raise(&mut peak, &with);
        }
    }
    raise(&mut total, &peak);
    if !options.skip_pod_level && has_pod_level_requests(spec) {
        pod_level(&mut total, spec, options.status);
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

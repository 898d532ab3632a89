//! Extended resources that devices stand for (KEP-5004, upstream
//! `plugins/dynamicresources/extendeddynamicresources.go`).

use crate::cluster::Cluster;
use crate::framework::Incoming;
use plimsoll_state::intern::Sym;
use plimsoll_state::model::{DeviceAlternative, DeviceCount, DeviceRequest, PodSpec, RestartPolicy};

/// An extended resource that devices may stand for, and the requests for them.
#[derive(Debug)]
pub(super) struct Extended {
    pub resource: Sym,
    pub requests: Vec<DeviceRequest>,
    pub mappings: Vec<Mapping>,
}

/// Container, resource, request.
pub(super) type Mapping = (String, String, String);

/// What the pod asks for as extended resources that a class of devices stands for, by name.
pub(super) fn extended_of(cluster: &Cluster, pod: &Incoming) -> Vec<Extended> {
    let scalars = pod.shape.spec.requests.scalars.iter().filter(|(_, n)| *n > 0);
    let backed = scalars.filter(|(name, _)| cluster.is_backed_by_devices(*name));
    let mut out: Vec<(&str, Extended)> = backed
        .filter_map(|(name, _)| {
            let text = cluster.strings.text(*name);
            let class = cluster.objects.devices.class_of_resource(text)?;
            let (requests, mappings) = extended_requests(&pod.shape.spec.source, text, &class.name);
            Some((text, Extended { resource: *name, requests, mappings }))
        })
        .collect();
    out.sort_by_key(|(name, _)| *name);
    out.into_iter().map(|(_, e)| e).collect()
}

/// The requests for devices that stand for a resource, and which containers use them: one for each container that runs
/// on, and one for the most that a plain init container needs beyond what the containers after it get (upstream
/// `createRequestsAndMappings`).
fn extended_requests(spec: &PodSpec, resource: &str, class: &str) -> (Vec<DeviceRequest>, Vec<Mapping>) {
    let first = spec.init_containers.len();
    let containers: Vec<_> = spec.init_containers.iter().chain(&spec.containers).collect();
    let asked = |i: usize| containers[i].requests.get(resource).copied().filter(|n| *n > 0);
    // The number in the name is the place of the resource among all that the container requests.
    let name = |i: usize| {
        let place = containers[i].requests.keys().position(|k| k == resource).unwrap_or(0);
        format!("container-{i}-request-{place}")
    };
    let plain_init = |i: usize| i < first && containers[i].restart_policy != Some(RestartPolicy::Always);
    let stay: Vec<Option<i64>> = (0..containers.len()).map(|i| asked(i).filter(|_| !plain_init(i))).collect();
    let mapping = |i: usize, request: String| (containers[i].name.clone(), resource.to_owned(), request);
    let mut mappings: Vec<Mapping> =
        (0..containers.len()).filter(|i| stay[*i].is_some()).map(|i| mapping(i, name(i))).collect();
    let mut most: Option<(String, i64)> = None;
    let (mut shared, mut own): (Vec<Mapping>, Vec<usize>) = (Vec::new(), Vec::new());
    for i in (0..first).filter(|i| plain_init(*i)) {
        let Some(n) = asked(i) else { continue };
        let mut later = 0_i64;
        for (j, amount) in stay.iter().enumerate().skip(i).filter_map(|(j, n)| Some((j, (*n)?))) {
            if later >= n {
                break;
            }
            later = later.saturating_add(amount);
            shared.push(mapping(i, name(j)));
        }
        if later < n {
            own.push(i);
            if most.as_ref().is_none_or(|(_, m)| *m < n - later) {
                most = Some((name(i), n - later));
            }
        }
    }
    mappings.extend(shared);
    // Init containers run one after the other: all use the largest of their requests.
    if let Some((name, _)) = &most {
        mappings.extend(own.into_iter().map(|i| mapping(i, name.clone())));
    }
    let stay = stay.iter().enumerate().filter_map(|(i, n)| Some((name(i), (*n)?)));
    let request = |(name, n): (String, i64)| DeviceRequest {
        name,
        prioritized: false,
        alternatives: vec![DeviceAlternative {
            name: String::new(),
            class: class.to_owned(),
            selectors: Vec::new(),
            count: DeviceCount::Exactly(n),
            tolerations: Vec::new(),
            admin: false,
            shares_capacity: false,
        }],
    };
    (most.into_iter().chain(stay).map(request).collect(), mappings)
}

use std::sync::Arc;

use super::super::{
    Action, DeviceMapping, DeviceSource, Event, LocalQueue, ResourceFlavor, ResourceGroup, ResourceQuota,
};
use super::*;
use crate::config::Gates;
use crate::testing::outside::{cluster_queue, workload};
use plimsoll_state::DeviceSelector;
use plimsoll_state::model::{
    CapacityRequestPolicy, CapacityRequestRange, Counters, Device, DeviceCapacity, PodResourceClaim,
    StringMap,
};

const NOW: Time = Time::from_seconds(1_000_000);

/// A language of three words: a device's name, `any`, and `broken` that fails for every device; `((` is no expression.
#[derive(Debug)]
struct Words;

impl DeviceSelector for Words {
    fn matches(&self, expression: &str, _driver: &str, device: &Device) -> Result<bool, String> {
        match expression {
            "any" => Ok(true),
            "broken" => Err("no such key: model".to_owned()),
            name => Ok(device.name.starts_with(name)),
        }
    }

    fn check(&self, expression: &str) -> Result<(), String> {
        if expression == "((" { Err("syntax error".to_owned()) } else { Ok(()) }
    }
}

fn config() -> Config {
    let map = |resource: &str, classes: &[&str]| DeviceMapping {
        resource: resource.into(),
        classes: classes.iter().map(|c| (*c).to_owned()).collect(),
        ..DeviceMapping::default()
    };
    let counter = DeviceSource { name: "memory".into(), driver: "gpu.d".into(), selector: "big".into() };
    let parts = DeviceMapping { counters: vec![counter], ..map("gpu-memory", &["part"]) };
    let capacity = DeviceSource { name: "memory".into(), driver: "gpu.d".into(), selector: "big".into() };
    let shared = DeviceMapping { capacities: vec![capacity], ..map("shared-memory", &["shared"]) };
    Config {
        device_mappings: vec![map("gpus", &["gpu", "gpu-old"]), map("nics", &["nic"]), parts, shared],
        device_selector: Some(Arc::new(Words)),
        gates: Gates { device_capacities: true, ..Gates::default() },
        ..Config::default()
    }
}

fn exactly(class: &str, count: i64, selectors: &[&str]) -> ClaimRequest {
    ClaimRequest::Exactly {
        class: class.into(),
        selectors: selectors.iter().map(|s| (*s).to_owned()).collect(),
        count: ClaimCount::Exactly(count),
        capacity: BTreeMap::new(),
        admin: false,
    }
}

/// A request for shares of the memory of some devices; 0: it names no amount.
fn share(count: i64, memory: i128) -> ClaimRequest {
    let mut request = exactly("shared", count, &[]);
    if let (ClaimRequest::Exactly { capacity, .. }, true) = (&mut request, memory > 0) {
        capacity.insert("memory".into(), memory * 1_000_000_000);
    }
    request
}

/// A slice that is a pool of its own: devices with their memory in units, and the shares there are of it.
fn shared_slice(devices: &[(&str, i128, Option<CapacityRequestPolicy>)]) -> Event {
    let device = |(name, memory, policy): &(&str, i128, Option<CapacityRequestPolicy>)| {
        let amount = memory * 1_000_000_000;
        let memory =
            DeviceCapacity { text: memory.to_string(), amount, policy: policy.clone().map(Box::new) };
        let capacity =
            if amount > 0 { BTreeMap::from([("memory".to_owned(), memory)]) } else { BTreeMap::new() };
        Device { name: (*name).to_owned(), capacity, ..Device::default() }
    };
    Event::ResourceSliceUpsert(Box::new(ResourceSlice {
        name: "shared".into(),
        driver: "gpu.d".into(),
        pool: "p".into(),
        slice_count: 1,
        devices: devices.iter().map(device).collect(),
        ..ResourceSlice::default()
    }))
}

fn odd(count: ClaimCount, admin: bool) -> ClaimRequest {
    ClaimRequest::Exactly {
        class: "gpu".into(),
        selectors: Vec::new(),
        count,
        capacity: BTreeMap::new(),
        admin,
    }
}

fn template(name: &str, requests: Vec<ClaimRequest>) -> Event {
    let template = ClaimTemplate { namespace: "n".into(), name: name.into(), requests };
    Event::ClaimTemplateUpsert(Box::new(template))
}

fn class(name: &str, selectors: &[&str], resource: Option<&str>, created: i64) -> Event {
    Event::DeviceClassUpsert(Box::new(QuotaDeviceClass {
        name: name.into(),
        selectors: selectors.iter().map(|s| (*s).to_owned()).collect(),
        extended_resource: resource.map(str::to_owned),
        created: Time::from_seconds(created),
    }))
}

/// A slice of the pool `p`; devices with what they take of the counter `memory`, in units.
fn slice(name: &str, generation: i64, slices: i64, devices: &[(&str, i128)]) -> Event {
    let device = |(name, memory): &(&str, i128)| {
        let counters = Counters::from([("memory".to_owned(), memory * 1_000_000_000)]);
        let consumes = if *memory > 0 { vec![("set".to_owned(), counters)] } else { Vec::new() };
        Device { name: (*name).to_owned(), consumes, ..Device::default() }
    };
    Event::ResourceSliceUpsert(Box::new(ResourceSlice {
        name: name.into(),
        driver: "gpu.d".into(),
        pool: "p".into(),
        generation,
        slice_count: slices,
        devices: devices.iter().map(device).collect(),
        ..ResourceSlice::default()
    }))
}

fn claim(source: PodClaimSource) -> PodResourceClaim {
    PodResourceClaim { name: "c".into(), source }
}

/// A workload of two pods whose pods have claims from these templates and ask for these resources.
fn wants(n: usize, templates: &[&str], requests: &[(&str, i64)]) -> Workload {
    let mut w = workload(n, 0, 0, 1);
    for podset in w.pod_sets.iter_mut() {
        podset.name = "main".into();
        podset.count = 2;
        podset.spec.resource_claims =
            templates.iter().map(|t| claim(PodClaimSource::Template((*t).to_owned()))).collect();
        for container in &mut podset.spec.containers {
            container.requests.extend(requests.iter().map(|(n, v)| ((*n).to_owned(), *v)));
        }
    }
    w
}

/// Queueing and one workload; each write is confirmed at once. Scripted cases with exact amounts and messages: what a
/// cluster around the engine does wrong is for the simulator (`plimsoll-sim`).
struct Harness {
    q: Queueing,
    wl: Workload,
    version: u64,
    writes: usize,
}

impl Harness {
    fn new(config: Config, wl: Workload, events: Vec<Event>) -> Self {
        let mut cq = cluster_queue("c", "", 1_000_000, None, false);
        let resources = ["gpus", "nics", "gpu-memory", "shared-memory", "example.com/gpu"];
        cq.resource_groups.push(ResourceGroup {
            covered: resources.iter().map(|r| (*r).to_owned()).collect(),
            flavors: vec![super::super::FlavorQuotas {
                flavor: "g".into(),
                resources: resources
                    .iter()
                    .map(|r| ResourceQuota {
                        resource: (*r).to_owned(),
                        nominal: 1000,
                        ..ResourceQuota::default()
                    })
                    .collect(),
            }],
        });
        let lq = LocalQueue {
            namespace: "n".into(),
            name: "l0".into(),
            cluster_queue: "c".into(),
            ..LocalQueue::default()
        };
        let flavor = |name: &str| {
            Event::ResourceFlavorUpsert(Box::new(ResourceFlavor { name: name.into(), ..Default::default() }))
        };
        let mut harness = Self { q: Queueing::new(config), wl: wl.clone(), version: 1, writes: 0 };
        let mut all = vec![
            Event::NamespaceUpsert("n".into(), StringMap::default()),
            flavor("f"),
            flavor("g"),
            Event::ClusterQueueUpsert(Box::new(cq)),
            Event::LocalQueueUpsert(Box::new(lq)),
            Event::WorkloadUpsert(Box::new(wl)),
        ];
        all.extend(events);
        harness.tell(all);
        harness
    }

    fn tell(&mut self, mut events: Vec<Event>) {
        while !events.is_empty() {
            let mut out = Vec::new();
            for event in std::mem::take(&mut events) {
                self.q.handle(NOW, event);
            }
            self.q.decide(NOW, &mut |a| out.push(a));
            self.q.check();
            for action in out {
                let Action::UpdateWorkload(u) = action else { continue };
                u.apply(&mut self.wl.status);
                self.version += 1;
                self.writes += 1;
                assert!(self.writes < 100, "it goes on for ever: {:?}", self.wl.status.conditions);
                self.wl.version = self.version;
                events.push(Event::WorkloadUpsert(Box::new(self.wl.clone())));
            }
        }
    }

    /// What it holds of devices; empty while it waits.
    fn held(&self) -> Vec<(String, i64)> {
        let usage = self.wl.status.admission.as_ref().map(|a| a.assignments[0].resource_usage.clone());
        let usage = usage.unwrap_or_default();
        usage.iter().filter(|(n, _)| *n != "cpu").map(|(n, amount)| (n.to_owned(), amount)).collect()
    }

    /// Why it waits; empty when it does not.
    fn says(&self) -> (&str, &str) {
        let s = &self.wl.status;
        s.condition(cond::QUOTA_RESERVED).filter(|c| !c.status).map_or(("", ""), |c| (&c.reason, &c.message))
    }
}

/// Requests of the template `t` and classes, slices; what the workload holds, or why it waits.
type Row = (Vec<ClaimRequest>, Vec<Event>, Result<&'static [(&'static str, i64)], &'static str>);

#[test]
#[allow(clippy::too_many_lines, reason = "one case after the other")]
fn templates_become_amounts_or_reasons() {
    let gpu = || class("gpu", &[], None, 0);
    let table: Vec<Row> = vec![
        (vec![exactly("gpu", 2, &[])], vec![], Ok(&[("gpus", 4)])),
        (
            vec![exactly("gpu", 1, &[]), exactly("gpu-old", 2, &[]), exactly("nic", 1, &[])],
            vec![],
            Ok(&[("gpus", 6), ("nics", 2)]),
        ),
        (vec![exactly("gpu", i64::MAX, &[])], vec![], Err("")),
        (vec![odd(ClaimCount::Exactly(5), true)], vec![], Ok(&[])),
        (vec![exactly("", 5, &[])], vec![], Ok(&[])),
        (
            vec![exactly("tpu", 1, &[])],
            vec![],
            Err(
                "spec.podSets[0].template.spec.resourceClaims[0].resourceClaimTemplateName: Not found: \"DeviceClass tpu is not mapped in DRA configuration for podset main\"",
            ),
        ),
        (
            vec![ClaimRequest::FirstAvailable],
            vec![],
            Err(
                "spec.podSets[0].template.spec.resourceClaims[0].devices.requests[0]: Invalid value: \"null\": ResourceClaimTemplate t: FirstAvailable device selection is not supported",
            ),
        ),
        (
            vec![exactly("gpu", 1, &[]), ClaimRequest::Empty],
            vec![],
            Err(
                "spec.podSets[0].template.spec.resourceClaims[0].devices.requests[1]: Invalid value: \"null\": ResourceClaimTemplate t: Exactly must be set if FirstAvailable is nil",
            ),
        ),
        (
            vec![odd(ClaimCount::All, false)],
            vec![],
            Err(
                "spec.podSets[0].template.spec.resourceClaims[0].devices.requests[0].exactly.allocationMode: Invalid value: \"All\": ResourceClaimTemplate t: AllocationMode 'All' is not supported",
            ),
        ),
        (
            vec![odd(ClaimCount::Other("Some".into()), false)],
            vec![],
            Err(
                "spec.podSets[0].template.spec.resourceClaims[0].devices.requests[0].exactly.allocationMode: Invalid value: \"Some\": ResourceClaimTemplate t: unsupported allocation mode: Some",
            ),
        ),
        (
            vec![exactly("gpu", 1, &["(("])],
            vec![gpu()],
            Err(
                "spec.podSets[0].template.spec.resourceClaims[0].devices.requests[0].exactly.selectors: Invalid value: \"null\": ResourceClaimTemplate t: devices.requests[0].exactly.selectors[0].cel.expression: Invalid value: \"((\": CEL compilation failed: syntax error",
            ),
        ),
        (
            vec![exactly("gpu", 1, &["big"])],
            vec![],
            Err(
                "spec.podSets[0].template.spec.resourceClaims[0].devices.requests[0]: Internal error: ResourceClaimTemplate t: failed to get DeviceClass gpu: DeviceClass.resource.k8s.io \"gpu\" not found",
            ),
        ),
        (
            vec![exactly("gpu", 2, &["big"])],
            vec![gpu(), slice("s", 1, 1, &[("big1", 0), ("small", 0)])],
            Err(
                "spec.podSets[0].template.spec.resourceClaims[0].devices.requests[0].exactly.selectors: Internal error: ResourceClaimTemplate t: insufficient matching devices for CEL selector in DeviceClass gpu: 1 device(s) match in the cluster but 2 requested",
            ),
        ),
        (
            vec![exactly("gpu", 1, &["broken"])],
            vec![gpu(), slice("s", 1, 1, &[("big1", 0)])],
            Err(
                "spec.podSets[0].template.spec.resourceClaims[0].devices.requests[0].exactly.selectors: Invalid value: \"null\": ResourceClaimTemplate t: CEL evaluation failed for DeviceClass gpu: no such key: model",
            ),
        ),
        (
            vec![exactly("gpu", 2, &["big"])],
            vec![gpu(), slice("s", 1, 1, &[("big1", 0), ("big2", 0)])],
            Ok(&[("gpus", 4)]),
        ),
        // A device counts for one request of a claim only, and the class has its say.
        (
            vec![exactly("gpu", 1, &["big"]), exactly("gpu", 1, &["any"])],
            vec![gpu(), slice("s", 1, 1, &[("big1", 0)])],
            Err(
                "spec.podSets[0].template.spec.resourceClaims[0].devices.requests[1].exactly.selectors: Internal error: ResourceClaimTemplate t: insufficient matching devices for CEL selector in DeviceClass gpu: 0 device(s) match in the cluster but 1 requested",
            ),
        ),
        (
            vec![exactly("gpu", 1, &["any"])],
            vec![class("gpu", &["small"], None, 0), slice("s", 1, 1, &[("big1", 0)])],
            Err(
                "spec.podSets[0].template.spec.resourceClaims[0].devices.requests[0].exactly.selectors: Internal error: ResourceClaimTemplate t: insufficient matching devices for CEL selector in DeviceClass gpu: 0 device(s) match in the cluster but 1 requested",
            ),
        ),
        // Counters.
        (
            vec![exactly("part", 2, &[])],
            vec![class("part", &[], None, 0), slice("s", 1, 1, &[("big1", 10), ("big2", 30), ("small", 99)])],
            Ok(&[("gpu-memory", 120)]),
        ),
        (
            vec![exactly("part", 1, &["big1"])],
            vec![class("part", &[], None, 0), slice("s", 1, 1, &[("big1", 10), ("big2", 30)])],
            Ok(&[("gpu-memory", 20)]),
        ),
        (
            vec![exactly("part", 1, &[])],
            vec![class("part", &[], None, 0), slice("s", 1, 2, &[("big1", 10)])],
            Err(
                "spec.podSets[0].template.spec.resourceClaims[0].devices.requests[0]: Internal error: insufficient matching devices for counter driver: 0 device(s) match but 1 requested",
            ),
        ),
        (
            vec![exactly("part", 1, &[])],
            vec![
                class("part", &[], None, 0),
                slice("s", 1, 1, &[("big1", 10)]),
                slice("s2", 2, 1, &[("small", 10)]),
            ],
            Err(
                "spec.podSets[0].template.spec.resourceClaims[0].devices.requests[0]: Internal error: insufficient matching devices for counter driver: 0 device(s) match but 1 requested",
            ),
        ),
        (
            vec![exactly("part", 1, &[])],
            vec![class("part", &[], None, 0), slice("s", 1, 1, &[("big1", 0)])],
            Err(
                "spec.podSets[0].template.spec.resourceClaims[0].devices.requests[0]: Internal error: matched devices have no consumesCounters entry for counter \"memory\"",
            ),
        ),
        (
            vec![exactly("part", 1, &[])],
            vec![],
            Err(
                "spec.podSets[0].template.spec.resourceClaims[0].devices.requests[0]: Internal error: failed to get DeviceClass part: DeviceClass.resource.k8s.io \"part\" not found",
            ),
        ),
    ];
    for (requests, mut events, want) in table {
        let context = format!("{requests:?}");
        events.push(template("t", requests));
        let harness = Harness::new(config(), wants(1, &["t"], &[]), events);
        match want {
            Ok(amounts) => {
                let amounts: Vec<(String, i64)> =
                    amounts.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect();
                assert!(harness.wl.status.is_true(cond::QUOTA_RESERVED), "{context}: {:?}", harness.says());
                assert_eq!(harness.held(), amounts, "{context}");
            }
            Err("") => assert_eq!(harness.says().0, "ExceedsMaxQuota", "{context}: {:?}", harness.says()),
            Err(message) => {
                assert_eq!(harness.says(), ("Misconfigured", message), "{context}");
                let requeued = harness
                    .wl
                    .status
                    .condition(cond::REQUEUED)
                    .map(|c| (c.status, c.reason.as_str(), c.message.as_str()));
                assert_eq!(requeued, Some((false, "Inadmissible", message)));
            }
        }
    }
}

#[test]
fn what_appears_wakes_who_waits_for_it() {
    let mut harness = Harness::new(config(), wants(1, &["t", "u"], &[]), vec![]);
    let (reason, message) = harness.says();
    assert_eq!(reason, "Misconfigured");
    assert!(message.ends_with("failed to get claim spec for ResourceClaimTemplate t in podset main: ResourceClaimTemplate.resource.k8s.io \"t\" not found"), "{message}");
    harness.tell(vec![template("t", vec![exactly("gpu", 1, &[])])]);
    assert!(harness.says().1.contains("resourceClaims[1]"), "{:?}", harness.says());
    harness.tell(vec![template("u", vec![exactly("gpu", 1, &["big"])])]);
    assert!(harness.says().1.contains("failed to get DeviceClass gpu"), "{:?}", harness.says());
    harness.tell(vec![class("gpu", &[], None, 0)]);
    assert!(harness.says().1.contains("0 device(s) match"), "{:?}", harness.says());
    let writes = harness.writes;
    harness.tell(vec![slice("other", 1, 1, &[("small", 0)]), class("unrelated", &[], None, 0)]);
    assert_eq!(harness.writes, writes, "nothing new to say");
    harness.tell(vec![slice("s", 1, 1, &[("big1", 0)])]);
    assert_eq!(harness.held(), [("gpus".to_owned(), 4)]);
    assert!(harness.wl.status.condition(cond::REQUEUED).is_none());
    // What is held stays held.
    harness.tell(vec![
        Event::ResourceSliceDelete("s".into()),
        Event::ClaimTemplateDelete("n".into(), "t".into()),
    ]);
    assert_eq!(harness.held(), [("gpus".to_owned(), 4)]);
}

#[test]
fn gates_decide_whether_claims_count() {
    let template = || vec![template("t", vec![exactly("gpu", 1, &[])])];
    let with = |quota: bool, refusal: bool| {
        let mut c = config();
        (c.gates.device_quota, c.gates.device_refusal) = (quota, refusal);
        c
    };
    let off = "Workload uses DRA resources but the KueueDRAIntegration feature gate is not enabled";
    let harness = Harness::new(with(false, true), wants(1, &["t"], &[]), template());
    assert_eq!(harness.says(), ("Misconfigured", off));
    // Switched on again.
    let harness = Harness::new(with(true, true), harness.wl, template());
    assert_eq!(harness.held(), [("gpus".to_owned(), 2)]);
    let harness = Harness::new(with(false, false), wants(1, &["t"], &[]), template());
    assert!(harness.wl.status.is_true(cond::QUOTA_RESERVED) && harness.held().is_empty());
    let mut named = wants(1, &["t"], &[]);
    named.pod_sets[0].spec.resource_claims.push(claim(PodClaimSource::Claim("mine".into())));
    let harness = Harness::new(with(true, true), named, template());
    assert_eq!(harness.says().1, "KueueDRAIntegration feature does not support use of resource claims");
    let requeued = harness.wl.status.condition(cond::REQUEUED).map(|c| c.message.as_str());
    assert_eq!(requeued, Some("DRA resource claims not supported"));
}

#[test]
fn extended_resources_count_as_devices_of_their_class() {
    const NAME: &str = "example.com/gpu";
    let asks = || wants(1, &[], &[(NAME, 3)]);
    let gpus = |n: i64| vec![("gpus".to_owned(), n)];
    let plain = || vec![(NAME.to_owned(), 6)];
    let table = [
        (vec![], plain()),
        (vec![class("gpu", &[], Some(NAME), 5)], gpus(6)),
        (vec![class("unmapped", &[], Some(NAME), 5)], plain()),
        (vec![class("gpu", &[], Some(NAME), 5), class("unmapped", &[], Some(NAME), 6)], plain()),
        (vec![class("gpu", &[], Some(NAME), 6), class("unmapped", &[], Some(NAME), 6)], gpus(6)),
    ];
    for (events, want) in table {
        let context = format!("{events:?}");
        let harness = Harness::new(config(), asks(), events);
        assert_eq!(harness.held(), want, "{context}: {:?}", harness.says());
    }
    let mut both = wants(1, &["t"], &[(NAME, 3)]);
    let mut first = both.pod_sets[0].spec.containers[0].clone();
    first.requests.insert(NAME.into(), 5);
    both.pod_sets[0].spec.init_containers.push(first);
    let events = vec![class("gpu", &[], Some(NAME), 5), template("t", vec![exactly("gpu", 1, &[])])];
    assert_eq!(Harness::new(config(), both, events).held(), gpus(12));
    let harness = Harness::new(config(), asks(), vec![class("part", &[], Some(NAME), 5)]);
    assert_eq!(
        harness.says().1,
        "spec.podSets[0].template.spec.containers[0]: Invalid value: \"example.com/gpu\": extended resource example.com/gpu resolves to DeviceClass part with counters configured; use ResourceClaimTemplates with CEL selectors for counter-based quota"
    );
    let harness = Harness::new(config(), asks(), vec![class("shared", &[], Some(NAME), 5)]);
    assert_eq!(
        harness.says().1,
        "spec.podSets[0].template.spec.containers[0]: Invalid value: \"example.com/gpu\": extended resource example.com/gpu resolves to DeviceClass shared with capacity sources configured; use ResourceClaimTemplates with capacity.requests for capacity-based quota"
    );
    // A class that appears changes what those that wait count as.
    let mut big = wants(1, &[], &[(NAME, 600)]);
    big.pod_sets[0].count = 1;
    let mut harness = Harness::new(config(), big, vec![class("part", &[], Some(NAME), 5)]);
    assert_eq!(harness.says().0, "Misconfigured");
    harness.tell(vec![class("gpu", &[], Some(NAME), 9)]);
    assert_eq!(harness.held(), gpus(600));
}

#[test]
fn shares_of_a_capacity_count_as_the_greatest_that_a_device_gives() {
    const PATH: &str = "spec.podSets[0].template.spec.resourceClaims[0].devices.requests[0]";
    let nanos = |units: i128| units * 1_000_000_000;
    let default = |units| Some(CapacityRequestPolicy { default: Some(nanos(units)), ..Default::default() });
    let values = |units: &[i128]| {
        let valid_values = units.iter().copied().map(nanos).collect();
        Some(CapacityRequestPolicy { default: Some(nanos(10)), valid_values, valid_range: None })
    };
    let range = |min: i128, max: i128, step: i128| {
        let limit = |units: i128| (units > 0).then(|| nanos(units));
        let range = CapacityRequestRange { min: limit(min), max: limit(max), step: limit(step) };
        Some(CapacityRequestPolicy { valid_range: Some(range), ..Default::default() })
    };
    let one = |policy| vec![("big", 80, policy)];
    // Devices, the request, and what two pods hold; or why the workload waits.
    let table = [
        (one(None), share(1, 20), Ok(40)),
        (one(None), share(1, 0), Ok(160)),
        (one(default(10)), share(1, 0), Ok(20)),
        (one(default(10)), share(1, 30), Ok(60)),
        (one(values(&[10, 20, 40])), share(1, 15), Ok(40)),
        (one(values(&[10, 20, 40])), share(1, 0), Ok(20)),
        (one(range(5, 80, 5)), share(1, 3), Ok(10)),
        (one(range(5, 80, 5)), share(1, 11), Ok(30)),
        (one(range(5, 80, 5)), share(1, 15), Ok(30)),
        (one(range(0, 80, 5)), share(1, 11), Ok(22)),
        // Devices that the selector doesn't want have no say.
        (vec![("big1", 40, None), ("big2", 80, None), ("small", 99, None)], share(2, 0), Ok(320)),
        (vec![("big1", 80, default(40)), ("big2", 100, default(10))], share(1, 0), Ok(80)),
        // A device that has no such share has no say either, nor one without the capacity.
        (vec![("big1", 80, values(&[10, 20])), ("big2", 80, values(&[10, 60]))], share(1, 50), Ok(120)),
        (vec![("big1", 0, None), ("big2", 80, None)], share(1, 7), Ok(14)),
        (
            one(values(&[10, 20])),
            share(1, 50),
            Err(
                ": Invalid value: \"null\": capacity request cannot be satisfied by any matched device's RequestPolicy for dimension \"memory\"",
            ),
        ),
        (
            one(range(5, 13, 5)),
            share(1, 11),
            Err(
                ": Invalid value: \"null\": capacity request cannot be satisfied by any matched device's RequestPolicy for dimension \"memory\"",
            ),
        ),
        (
            vec![("big", 0, None)],
            share(1, 10),
            Err(": Internal error: matched devices have no capacity dimension \"memory\""),
        ),
        (
            one(None),
            share(2, 10),
            Err(
                ": Internal error: insufficient matching devices for capacity driver: 1 device(s) match but 2 requested",
            ),
        ),
    ];
    let class = || class("shared", &[], None, 0);
    for (devices, request, want) in table {
        let context = format!("{devices:?} {request:?}");
        let events = vec![class(), shared_slice(&devices), template("t", vec![request])];
        let harness = Harness::new(config(), wants(1, &["t"], &[]), events);
        match want {
            Ok(amount) => {
                let held = [("shared-memory".to_owned(), amount)];
                assert_eq!(harness.held(), held, "{context}: {:?}", harness.says());
            }
            Err(message) => {
                let message = format!("{PATH}{message}");
                assert_eq!(harness.says(), ("Misconfigured", message.as_str()), "{context}");
            }
        }
    }
    // With the gate off devices count one by one.
    let mut off = config();
    off.gates.device_capacities = false;
    let events = vec![class(), shared_slice(&one(None)), template("t", vec![share(1, 20)])];
    assert_eq!(Harness::new(off, wants(1, &["t"], &[]), events).held(), [("shared-memory".to_owned(), 2)]);
    // A slice that appears requeues the workload.
    let events = vec![class(), template("t", vec![share(1, 20)])];
    let mut harness = Harness::new(config(), wants(1, &["t"], &[]), events);
    assert_eq!(harness.says().0, "Misconfigured");
    harness.tell(vec![shared_slice(&one(None))]);
    assert_eq!(harness.held(), [("shared-memory".to_owned(), 40)]);
}

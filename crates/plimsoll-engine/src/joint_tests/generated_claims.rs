//! Claims that are made after the pods: devices and volumes count for pods that do not exist yet.

use super::quota_alone::nodes;
use crate::Event;
use crate::testing::{Fixture, pod_set};
use plimsoll_queueing::PodSet;
use plimsoll_state::model::{
    BindingMode, Device, DeviceAlternative, DeviceClass, DeviceCount, DeviceRequest, NodeSelector,
    NodeSelectorTerm, Operator, PersistentVolume, PodClaimSource, PodResourceClaim, Reach, Requirement,
    ResourceClaim, ResourceSlice, StorageClass, Volume, VolumeClaimTemplate, VolumeSource,
};
use plimsoll_state::{ClusterObject, ClusterObjectKey, ClusterObjectKind, ObjectEvent};

fn put(w: &mut Fixture, object: ClusterObject) {
    w.events.push(Event::Object(ObjectEvent::ObjectUpsert(Box::new(object))));
}

/// A node with so many CPUs and devices.
fn node_with_devices(w: &mut Fixture, name: &str, cpu: i64, devices: usize) {
    let device = |i: usize| Device { name: format!("d{i}"), ..Device::default() };
    let slice = ResourceSlice {
        name: format!("slice-{name}"),
        driver: "d".into(),
        pool: name.into(),
        slice_count: 1,
        reach: Some(Reach::Node(name.into())),
        devices: (0..devices).map(device).collect(),
        ..ResourceSlice::default()
    };
    put(w, ClusterObject::DeviceSlice(slice));
    w.node(name, cpu);
}

fn requests(devices: i64) -> Vec<DeviceRequest> {
    let alternative = DeviceAlternative {
        class: "chips".into(),
        count: DeviceCount::Exactly(devices),
        name: String::new(),
        selectors: Vec::new(),
        tolerations: Vec::new(),
        admin: false,
        shares_capacity: false,
    };
    vec![DeviceRequest { name: "r".into(), prioritized: false, alternatives: vec![alternative] }]
}

fn template(w: &mut Fixture, name: &str, devices: i64) {
    let claim = ResourceClaim {
        namespace: "n".into(),
        name: name.into(),
        requests: requests(devices),
        ..ResourceClaim::default()
    };
    put(w, ClusterObject::DeviceClaimTemplate(claim));
}

/// A world with the class of all devices, which no quota counts.
fn devices() -> Fixture {
    let mut config = plimsoll_queueing::Config::default();
    (config.gates.device_quota, config.gates.device_refusal) = (false, false);
    let mut w = Fixture::with(true, config);
    put(&mut w, ClusterObject::DeviceClass(DeviceClass { name: "chips".into(), ..DeviceClass::default() }));
    w
}

/// Pods with a claim from a template.
fn claiming(count: i32, template: &str) -> Vec<PodSet> {
    let mut set = pod_set("main", count, 1);
    let source = PodClaimSource::Template(template.into());
    set.spec.resource_claims.push(PodResourceClaim { name: "dev".into(), source });
    vec![set]
}

#[test]
fn devices_count_for_pods_to_come() {
    let mut w = devices();
    node_with_devices(&mut w, "a", 8, 2);
    node_with_devices(&mut w, "b", 8, 1);
    template(&mut w, "one", 1);
    w.submit_to("c", "four", 0, claiming(4, "one"));
    let (reason, message) = w.reason("four");
    assert_eq!(reason, "WaitingForNodes", "{message}");
    assert!(message.contains("0/2 nodes are available: 2 cannot allocate all claims"), "{message}");
    w.submit_to("c", "three", 0, claiming(3, "one"));
    assert_eq!(w.admitted(), ["three"]);
    let (reserved, _, message) = nodes(&w, "three");
    assert!(reserved && message == "main: b a*2", "{message}");
    // Their claims are not there yet, and the devices are not free any more.
    w.submit_to("c", "late", 0, claiming(1, "one"));
    assert_eq!(w.reason("late").0, "WaitingForNodes");
    // What is reserved is free again.
    w.finish("three");
    assert_eq!(w.admitted(), ["late"]);
}

#[test]
fn a_claim_takes_over_the_devices_kept_for_it() {
    let mut w = devices();
    node_with_devices(&mut w, "a", 8, 2);
    template(&mut w, "two", 2);
    w.submit_to("c", "gang", 0, claiming(1, "two"));
    assert_eq!(w.admitted(), ["gang"]);
    assert!(w.bound.is_empty(), "its claim is not made");
    // The claim is made, and the pod says its name.
    let mut pod = w.pods["gang"][0].clone();
    pod.status.claim_statuses.push(("dev".into(), Some("made".into())));
    let claim = ResourceClaim {
        namespace: "n".into(),
        name: "made".into(),
        uid: "made".into(),
        owners: vec![plimsoll_state::model::OwnerRef {
            controller: true,
            uid: pod.uid.clone(),
            ..plimsoll_state::model::OwnerRef::default()
        }],
        requests: requests(2),
        ..ResourceClaim::default()
    };
    put(&mut w, ClusterObject::DeviceClaim(claim));
    w.events.push(Event::Object(ObjectEvent::PodUpsert(Box::new(pod))));
    w.run();
    assert_eq!(w.prepared, ["gang-0"]);
}

#[test]
fn a_template_that_is_missing_is_waited_for() {
    let mut w = devices();
    node_with_devices(&mut w, "a", 8, 2);
    w.submit_to("c", "job", 0, claiming(1, "one"));
    let (reason, message) = w.reason("job");
    assert_eq!(reason, "WaitingForNodes", "{message}");
    assert!(message.contains("resourceclaimtemplate.resource.k8s.io \"one\" not found"), "{message}");
    template(&mut w, "one", 1);
    w.run();
    assert_eq!(w.admitted(), ["job"]);
}

#[test]
fn devices_of_a_claim_that_is_gone_are_free() {
    let mut w = devices();
    node_with_devices(&mut w, "a", 8, 1);
    template(&mut w, "one", 1);
    let device = plimsoll_state::model::AllocatedDevice {
        request: "r".into(),
        driver: "d".into(),
        pool: "a".into(),
        device: "d0".into(),
        admin: false,
    };
    let allocation = plimsoll_state::model::DeviceAllocation { devices: vec![device], ..Default::default() };
    let held = ResourceClaim {
        namespace: "n".into(),
        name: "held".into(),
        uid: "held".into(),
        allocation: Some(allocation),
        ..ResourceClaim::default()
    };
    put(&mut w, ClusterObject::DeviceClaim(held));
    w.submit_to("c", "job", 0, claiming(1, "one"));
    assert_eq!(w.reason("job").0, "WaitingForNodes");
    let key =
        ClusterObjectKey { kind: ClusterObjectKind::DeviceClaim, namespace: "n".into(), name: "held".into() };
    w.events.push(Event::Object(ObjectEvent::ObjectDelete(key)));
    w.run();
    assert_eq!(w.admitted(), ["job"]);
}

#[test]
fn quota_alone_decides_where_pods_share_a_claim() {
    let mut w = devices();
    node_with_devices(&mut w, "a", 8, 1);
    let mut sets = claiming(2, "one");
    sets[0].spec.resource_claims[0].source = PodClaimSource::Claim("shared".into());
    w.submit_to("c", "job", 0, sets);
    assert_eq!(w.admitted(), ["job"]);
    assert_eq!(nodes(&w, "job").1, "SharedClaims");
}

/// Pods with a generic ephemeral volume of this class.
fn with_volume(count: i32, class: Option<&str>) -> Vec<PodSet> {
    let mut set = pod_set("main", count, 1);
    let template = VolumeClaimTemplate {
        request: Some(5),
        storage_class: class.map(str::to_owned),
        ..VolumeClaimTemplate::default()
    };
    let source = VolumeSource::Ephemeral(Some(Box::new(template)));
    set.spec.volumes.push(Volume { name: "scratch".into(), source });
    vec![set]
}

fn class(w: &mut Fixture, name: &str, provisioner: &str, flavors: &[&str], default: bool) {
    let values = flavors.iter().map(|f| (*f).to_owned()).collect();
    let class = StorageClass {
        name: name.into(),
        provisioner: provisioner.into(),
        binding_mode: Some(BindingMode::WaitForFirstConsumer),
        allowed_topologies: vec![vec![("flavor".to_owned(), values)]],
        default,
    };
    put(w, ClusterObject::StorageClass(class));
}

#[test]
fn ephemeral_volumes_are_made_where_their_class_allows() {
    for named in [true, false] {
        let mut w = Fixture::new(true);
        class(&mut w, "fast", "csi.example.com", &["f"], true);
        w.node_of("far", 8, "g");
        w.node_of("near", 2, "f");
        let sets = |count| with_volume(count, named.then_some("fast"));
        w.submit_to("c", "three", 0, sets(3));
        let (reason, message) = w.reason("three");
        assert_eq!(reason, "WaitingForNodes", "{message}");
        assert!(message.contains("didn't find available persistent volumes to bind"), "{message}");
        w.submit_to("c", "two", 0, sets(2));
        let (reserved, _, message) = nodes(&w, "two");
        assert!(reserved && message == "main: near*2", "{message}");
    }
}

#[test]
fn a_volume_that_is_there_is_taken_once() {
    let mut w = Fixture::new(true);
    class(&mut w, "local", "kubernetes.io/no-provisioner", &["f"], false);
    w.node_of("a", 8, "f");
    let on_a = Requirement { key: "flavor".into(), operator: Operator::In, values: vec!["f".into()] };
    let term = NodeSelectorTerm { expressions: vec![on_a], ..NodeSelectorTerm::default() };
    for name in ["one", "two"] {
        let volume = PersistentVolume {
            name: name.into(),
            capacity: 10,
            storage_class: "local".into(),
            available: true,
            node_affinity: Some(NodeSelector { terms: vec![term.clone()] }),
            ..PersistentVolume::default()
        };
        put(&mut w, ClusterObject::Volume(volume));
    }
    w.submit_to("c", "three", 0, with_volume(3, Some("local")));
    assert_eq!(w.reason("three").0, "WaitingForNodes");
    w.submit_to("c", "two", 0, with_volume(2, Some("local")));
    assert_eq!(w.admitted(), ["two"]);
    w.submit_to("c", "late", 0, with_volume(1, Some("local")));
    assert_eq!(w.reason("late").0, "WaitingForNodes");
}

/// Where the claim is bound when it is made is not known: the other filters decide.
#[test]
fn a_volume_of_an_unknown_class_decides_nothing() {
    let mut w = Fixture::new(true);
    w.node("a", 1);
    w.submit_to("c", "two", 0, with_volume(2, None));
    assert_eq!(w.reason("two").0, "WaitingForNodes");
    w.submit_to("c", "one", 0, with_volume(1, None));
    assert!(nodes(&w, "one").0);
}

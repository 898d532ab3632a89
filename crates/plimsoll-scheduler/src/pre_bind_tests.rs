//! Writes before a binding that fail, are late, or concern objects that change meanwhile.

use plimsoll_state::model;
use plimsoll_state::{ClusterObject, ClusterObjectKey, ClusterObjectKind, ObjectEvent};

use crate::Action;
use crate::testing::Event;
use crate::tests::{
    binds, device_world, engine, message, node, object, pod, prepared, step, upsert, volume_world,
    waiting_claim, with_device,
};

fn answer(event: crate::Event) -> Vec<Event> {
    vec![Event::Answer(event)]
}

fn ready(pod: &str) -> Vec<Event> {
    answer(crate::Event::Prepared(format!("uid-{pod}")))
}

fn failed(pod: &str) -> Vec<Event> {
    answer(crate::Event::BindFailed { uid: format!("uid-{pod}"), message: "no".into() })
}

fn deleted(kind: ClusterObjectKind, name: &str) -> Event {
    let namespace = if kind == ClusterObjectKind::Volume { String::new() } else { "ns".to_owned() };
    Event::Object(ObjectEvent::ObjectDelete(ClusterObjectKey { kind, namespace, name: name.into() }))
}

fn claim(change: impl FnOnce(&mut model::PersistentVolumeClaim)) -> Event {
    let mut claim = waiting_claim();
    change(&mut claim);
    object(ClusterObject::Claim(claim))
}

fn volume(change: impl FnOnce(&mut model::PersistentVolume)) -> Event {
    let (name, storage_class) = ("pv".to_owned(), "local".to_owned());
    let mut volume =
        model::PersistentVolume { name, storage_class, capacity: 10, ..model::PersistentVolume::default() };
    change(&mut volume);
    object(ClusterObject::Volume(volume))
}

/// As upstream's `checkBindings`: what can't be bound any more is not waited for.
#[test]
fn waiting_for_volumes_ends_when_they_can_not_be_bound() {
    let own = || model::ClaimRef { namespace: "ns".into(), name: "data".into(), uid: "c".into() };
    let taken = move || volume(|v| v.claim = Some(own()));
    let elsewhere = |v: &mut model::PersistentVolume| {
        v.claim = Some(own());
        v.node_affinity = Some(model::NodeSelector::default());
    };
    let bound =
        |c: &mut model::PersistentVolumeClaim| (c.volume_name, c.bind_completed) = ("pv".into(), true);
    let cases: [(Vec<Event>, Event, &str); 6] = [
        (
            vec![],
            Event::Object(ObjectEvent::NodeDelete("a".into())),
            "failed to get node \"a\": node \"a\" not found",
        ),
        (
            vec![],
            deleted(ClusterObjectKind::Claim, "data"),
            "failed to check binding: could not find v1.PersistentVolumeClaim \"ns/data\"",
        ),
        (
            vec![],
            deleted(ClusterObjectKind::Volume, "pv"),
            "failed to check binding: could not find v1.PersistentVolume \"pv\"",
        ),
        (vec![taken()], volume(|v| v.available = true), "ClaimRef got reset for pv \"pv\""),
        (
            vec![volume(elsewhere)],
            claim(bound),
            "pv \"pv\" node affinity doesn't match node \"a\": no matching NodeSelectorTerms",
        ),
        (
            vec![claim(|c| c.selected_node = Some("a".into()))],
            claim(|_| {}),
            "provisioning failed for PVC \"data\"",
        ),
    ];
    for (before, change, text) in cases {
        let mut e = engine();
        step(&mut e, 0, volume_world());
        assert!(step(&mut e, 1, ready("p")).is_empty());
        assert!(step(&mut e, 2, before).is_empty(), "{text}");
        let out = step(&mut e, 3, vec![change]);
        let want = format!("running PreBind plugin \"VolumeBinding\": binding volumes: {text}");
        assert_eq!(message(&out), Some(("SchedulerError", want)));
    }
}

/// The provisioner refuses a claim while another one is still being written.
#[test]
fn what_fails_while_the_rest_is_written_fails_the_attempt() {
    let selected = |node: &str| claim(|c| c.selected_node = Some(node.to_owned()));
    let refused = "provisioning failed for PVC \"data\"";
    let lost = "failed to check binding: could not find v1.PersistentVolumeClaim \"ns/data\"";
    let cases = [
        (vec![selected("a"), claim(|_| {})], Some(refused)),
        (vec![selected("b"), claim(|_| {})], None),
        (vec![selected("a"), claim(|_| {}), selected("a")], None),
        (vec![selected("a"), selected("b")], Some(refused)),
        (vec![deleted(ClusterObjectKind::Claim, "data")], Some(lost)),
    ];
    for (events, text) in cases {
        let mut e = engine();
        step(&mut e, 0, volume_world());
        for (at, event) in (1..).zip(events) {
            assert!(step(&mut e, at, vec![event]).is_empty(), "it is being written: {text:?}");
        }
        let want = text
            .map(|text| format!("running PreBind plugin \"VolumeBinding\": binding volumes: {text}"))
            .map(|text| ("SchedulerError", text));
        assert_eq!(message(&step(&mut e, 9, ready("p"))), want);
    }
}

/// A finalizer keeps it, and others need its node.
#[test]
fn a_pod_that_is_deleted_while_it_waits_gives_its_node_back() {
    let mut e = engine();
    let mut first = volume_world();
    step(&mut e, 0, std::mem::take(&mut first));
    assert!(step(&mut e, 1, ready("p")).is_empty());
    let mut leaving = volume_world()
        .into_iter()
        .find_map(|event| match event {
            Event::Object(ObjectEvent::PodUpsert(pod)) => Some(*pod),
            _ => None,
        })
        .expect("a pod");
    let waiting = step(&mut e, 2, vec![upsert(pod("q", 1000))]);
    assert!(binds(&waiting).is_empty(), "{waiting:?}");
    leaving.deleting = true;
    let out = step(&mut e, 3, vec![upsert(leaving)]);
    assert_eq!(binds(&out).len(), 1, "{out:?}");
}

/// Another scheduler binds the pod while its volumes are being written, or while it waits for them.
#[test]
fn a_pod_that_another_scheduler_binds_is_assumed_no_more() {
    for (to, waits) in [("a", false), ("a", true), ("b", false), ("b", true)] {
        let mut e = engine();
        step(&mut e, 0, volume_world());
        if waits {
            assert!(step(&mut e, 1, ready("p")).is_empty());
        }
        assert_eq!(e.reservations.assumed_count(), 1);
        let mut bound = pod("p", 100);
        bound.spec.node_name = to.into();
        step(&mut e, 2, vec![upsert(bound)]);
        assert_eq!(e.reservations.assumed_count(), 0, "{to}, {waits}");
        for late in [ready("p"), failed("p")] {
            let out = step(&mut e, 3, late);
            assert!(out.is_empty(), "{out:?}");
        }
    }
}

/// A claim is made again under its name while the write for the one before it is on its way.
#[test]
fn a_late_answer_frees_no_devices_of_another_claim() {
    let mut e = engine();
    let mut events = device_world();
    events.extend(with_device("p"));
    assert_eq!(prepared(&step(&mut e, 0, events)), ["0"]);
    step(
        &mut e,
        1,
        vec![
            Event::Object(ObjectEvent::PodDelete("uid-p".into())),
            deleted(ClusterObjectKind::DeviceClaim, "p"),
        ],
    );
    let [mut again, _] = with_device("p");
    if let Event::Object(ObjectEvent::ObjectUpsert(o)) = &mut again
        && let ClusterObject::DeviceClaim(claim) = &mut **o
    {
        claim.uid = "p2".into();
    }
    let mut other = pod("p2", 100);
    let source = model::PodClaimSource::Claim("p".into());
    other.spec.resource_claims.push(model::PodResourceClaim { name: "r".into(), source });
    assert_eq!(prepared(&step(&mut e, 2, vec![again, upsert(other)])), ["0"]);
    step(&mut e, 3, failed("p"));
    assert_eq!(prepared(&step(&mut e, 4, with_device("q").into())), [""; 0]);
    step(&mut e, 5, failed("p2"));
    assert_eq!(prepared(&step(&mut e, 6, with_device("r").into())).len(), 1);
}

/// A pod that wants a device as an extended resource.
fn with_extended(name: &str) -> Event {
    let mut p = pod(name, 100);
    p.spec.containers[0].requests.insert("example.com/chip".into(), 1);
    upsert(p)
}

/// A claim that an attempt has made for the extended resource of a pod, with the only device.
fn made_for(pod: &str, name: &str) -> Event {
    let device = model::AllocatedDevice {
        request: "container-0-request-0".into(),
        driver: "d".into(),
        pool: "a".into(),
        device: "0".into(),
        ..model::AllocatedDevice::default()
    };
    object(ClusterObject::DeviceClaim(model::ResourceClaim {
        namespace: "ns".into(),
        name: name.into(),
        uid: name.into(),
        extended: true,
        owners: vec![model::OwnerRef {
            uid: format!("uid-{pod}"),
            controller: true,
            ..model::OwnerRef::default()
        }],
        allocation: Some(model::DeviceAllocation {
            devices: vec![device],
            ..model::DeviceAllocation::default()
        }),
        reserved_for: vec![format!("uid-{pod}")],
        ..model::ResourceClaim::default()
    }))
}

fn extended_world() -> Vec<Event> {
    let class = model::DeviceClass {
        name: "chips".into(),
        extended_resource: Some("example.com/chip".into()),
        ..model::DeviceClass::default()
    };
    let mut events = device_world();
    events.push(object(ClusterObject::DeviceClass(class)));
    events
}

/// The devices for extended resources that are to be written, and the claims that are deleted before.
fn extended(out: &[Action]) -> Vec<(usize, Vec<String>)> {
    let work = out.iter().filter_map(|action| match action {
        Action::Prepare { what, .. } => what.extended.as_deref(),
        _ => None,
    });
    work.map(|claim| (claim.devices.len(), claim.stale.clone())).collect()
}

#[test]
fn the_claim_of_an_earlier_attempt_frees_no_devices_of_the_present_one() {
    let mut e = engine();
    let mut events = extended_world();
    events.extend([made_for("p", "c1"), with_extended("p")]);
    assert_eq!(extended(&step(&mut e, 0, events)), [(1, vec!["c1".to_owned()])]);
    // The executor takes its finalizer away, then deletes it.
    step(&mut e, 1, vec![made_for("p", "c1")]);
    let out = step(&mut e, 2, vec![deleted(ClusterObjectKind::DeviceClaim, "c1"), with_extended("q")]);
    assert_eq!(extended(&out), []);
    // The new one is seen with its device, and goes with its pod.
    step(&mut e, 3, vec![made_for("p", "c2")]);
    step(&mut e, 4, failed("p"));
    let gone = [
        deleted(ClusterObjectKind::DeviceClaim, "c2"),
        Event::Object(ObjectEvent::PodDelete("uid-p".into())),
    ];
    step(&mut e, 5, gone.into());
    assert_eq!(extended(&step(&mut e, 6, vec![with_extended("r")])).len(), 1);
}

/// As upstream's PostFilter.
#[test]
fn a_pod_that_fits_nowhere_releases_the_devices_that_an_earlier_attempt_left() {
    let mut e = engine();
    let mut events = extended_world();
    let mut large = pod("p", 5000);
    large.spec.containers[0].requests.insert("example.com/chip".into(), 1);
    events.extend([made_for("p", "c1"), upsert(large)]);
    let out = step(&mut e, 0, events);
    let release = out.iter().find_map(|action| match action {
        Action::ReleaseClaims { claims, deallocate: true, .. } => Some(claims),
        _ => None,
    });
    assert_eq!(release.map(|claims| claims[0].name.as_str()), Some("c1"), "{out:?}");
    assert!(binds(&out).is_empty());
}

/// A slice of pool `pool` with the device `0`, which these nodes reach.
fn reached_by(pool: &str, reach: model::Reach) -> Event {
    object(ClusterObject::DeviceSlice(model::ResourceSlice {
        name: "s".into(),
        driver: "d".into(),
        pool: pool.into(),
        slice_count: 1,
        reach: Some(reach),
        devices: vec![model::Device { name: "0".into(), ..model::Device::default() }],
        ..model::ResourceSlice::default()
    }))
}

/// The grants of the first pod that is prepared.
fn granted(out: &[Action]) -> Vec<crate::DeviceGrant> {
    let work = out.iter().find_map(|action| match action {
        Action::Prepare { what, .. } => Some(what.devices.clone()),
        _ => None,
    });
    work.unwrap_or_default()
}

#[test]
fn an_allocation_says_which_nodes_reach_its_devices() {
    let requirement = |key: &str, value: &str| model::Requirement {
        key: key.into(),
        operator: model::Operator::In,
        values: vec![value.into()],
    };
    let selector = |fields, expressions| model::NodeSelector {
        terms: vec![model::NodeSelectorTerm { expressions, fields }],
    };
    let here = selector(vec![requirement("metadata.name", "a")], Vec::new());
    let zone = selector(Vec::new(), vec![requirement("zone", "z")]);
    for (reach, want) in [
        (model::Reach::Node("a".into()), Some(here)),
        (model::Reach::Selected(zone.clone()), Some(zone)),
        (model::Reach::All, None),
    ] {
        let mut e = engine();
        let mut events = device_world();
        let mut there = node("a", 1000);
        if let Event::Object(ObjectEvent::NodeUpsert(n)) = &mut there {
            n.labels.insert("zone".into(), "z".into());
        }
        events.extend([there, reached_by("a", reach)]);
        events.extend(with_device("p"));
        let grants = granted(&step(&mut e, 0, events));
        assert_eq!(grants.iter().map(|g| g.terms.nodes.clone()).collect::<Vec<_>>(), [want]);
    }
}

#[test]
fn an_allocation_has_the_configurations_of_its_classes() {
    let mut e = engine();
    let mut events = device_world();
    let config = vec!["{}".to_owned()];
    let class = model::DeviceClass { name: "chips".into(), config, ..model::DeviceClass::default() };
    events.push(object(ClusterObject::DeviceClass(class)));
    events.extend(with_device("p"));
    let grants = granted(&step(&mut e, 0, events));
    assert_eq!(grants[0].terms.config, [(vec!["x".to_owned()], "{}".to_owned())]);
}

/// Its devices are in use all the same.
#[test]
fn a_claim_for_shares_of_capacity_keeps_what_it_holds() {
    let mut e = engine();
    let mut events = device_world();
    let [claim, waits] = with_device("shares");
    let Event::Object(ObjectEvent::ObjectUpsert(mut object)) = claim else { panic!("no claim") };
    if let ClusterObject::DeviceClaim(claim) = &mut *object {
        claim.requests[0].alternatives[0].shares_capacity = true;
    }
    let mut held = object.clone();
    if let ClusterObject::DeviceClaim(claim) = &mut *held {
        claim.name = "held".into();
        let device = model::AllocatedDevice {
            request: "x".into(),
            driver: "d".into(),
            pool: "a".into(),
            device: "0".into(),
            admin: false,
        };
        let devices = vec![device];
        claim.allocation = Some(model::DeviceAllocation { devices, nodes: None });
    }
    events.extend([object, held].map(|o| Event::Object(ObjectEvent::ObjectUpsert(o))));
    events.push(waits);
    let out = step(&mut e, 0, events);
    let (_, text) = message(&out).expect("it waits");
    assert!(text.contains("requests for a share of a device's capacity are not supported"), "{text}");
    assert_eq!(prepared(&step(&mut e, 1, with_device("q").into())), [""; 0]);
}

#[test]
fn the_newest_of_several_classes_stands_for_an_extended_resource() {
    let mut e = engine();
    let mut events = extended_world();
    let selectors = Vec::new();
    for (name, created) in [("a-newer", 2), ("b-older", 1)] {
        events.push(object(ClusterObject::DeviceClass(model::DeviceClass {
            name: name.into(),
            selectors: selectors.clone(),
            extended_resource: Some("example.com/chip".into()),
            created: plimsoll_state::Time::from_seconds(created),
            ..model::DeviceClass::default()
        })));
    }
    events.push(with_extended("p"));
    let out = step(&mut e, 0, events);
    let class = out.iter().find_map(|action| match action {
        Action::Prepare { what, .. } => Some(what.extended.as_ref()?.requests[0].1.clone()),
        _ => None,
    });
    assert_eq!(class.as_deref(), Some("a-newer"));
}

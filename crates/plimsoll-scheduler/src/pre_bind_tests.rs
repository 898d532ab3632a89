//! Writes before a binding that fail, are late, or concern objects that change meanwhile.

use plimsoll_state::model;
use plimsoll_state::{ClusterObject, ClusterObjectKey, ClusterObjectKind, ObjectEvent};

use crate::Action;
use crate::testing::Event;
use crate::tests::{
    binds, device_world, engine, message, object, pod, prepared, step, upsert, volume_world, waiting_claim,
    with_device,
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

//! What conditions of requests become: states of checks, changes of pods.

use super::*;

/// Conditions of the request; whether the workload is admitted; the check before; what it becomes.
type Row = (&'static [(&'static str, &'static str, &'static str)], bool, Value, Value);

#[test]
fn conditions_become_states() {
    let pending = || json!({"state": "Pending"});
    let table: Vec<Row> = vec![
        (
            &[],
            false,
            json!({"state": "Pending", "message": "old"}),
            json!({"state": "Pending", "message": ""}),
        ),
        (
            &[("Accepted", "True", "a")],
            false,
            json!({"state": "Pending", "message": "kept"}),
            json!({"state": "Pending", "message": "kept"}),
        ),
        (
            &[("Accepted", "True", "a"), ("Provisioned", "False", "ETA: 5 min")],
            false,
            pending(),
            json!({"state": "Pending", "message": "ETA: 5 min"}),
        ),
        (
            &[("Accepted", "True", "a"), ("Provisioned", "True", "done")],
            false,
            pending(),
            json!({"state": "Ready", "message": "done"}),
        ),
        (
            &[("Provisioned", "True", "changed")],
            true,
            json!({"state": "Ready", "message": "done"}),
            json!({"state": "Ready", "message": "done"}),
        ),
        (
            &[("Failed", "True", "no stock")],
            false,
            pending(),
            json!({"state": "Retry", "message": "Retrying after failure: no stock", "requeueAfterSeconds": 60}),
        ),
        (&[("Failed", "False", "no stock")], false, pending(), json!({"state": "Pending", "message": ""})),
        (
            &[("Provisioned", "True", "d"), ("Failed", "True", "no stock")],
            false,
            pending(),
            json!({"state": "Retry", "message": "Retrying after failure: no stock"}),
        ),
        (
            &[("Provisioned", "True", "d"), ("BookingExpired", "True", "late")],
            false,
            pending(),
            json!({"state": "Retry", "message": "Retrying after booking expired: late", "requeueAfterSeconds": 60}),
        ),
        (
            &[("Provisioned", "True", "d"), ("BookingExpired", "True", "late")],
            true,
            json!({"state": "Ready", "message": "d"}),
            json!({"state": "Ready", "message": "d"}),
        ),
        (
            &[("Provisioned", "True", "d"), ("CapacityRevoked", "True", "gone")],
            true,
            json!({"state": "Ready", "message": "d"}),
            json!({"state": "Rejected", "message": "gone"}),
        ),
    ];
    for (conditions, admitted, before, want) in table {
        let mut harness = Harness::new(one(), &config());
        harness.settle();
        let mut row = harness.check().clone();
        merge(&mut row, &before);
        let mut set = vec![json!({"type": "QuotaReserved", "status": "True"})];
        if admitted {
            set.push(json!({"type": "Admitted", "status": "True"}));
        }
        harness.change(
            Kind::Workload,
            "wl",
            &json!({"status": {"admissionChecks": [row], "conditions": set}}),
        );
        harness.conditions("wl-ac-1", conditions);
        harness.settle();
        let found = harness.check();
        for (key, value) in want.as_object().unwrap() {
            assert_eq!(&found[key.as_str()], value, "{conditions:?} {before}: {found}");
        }
        let moved = found["state"] != before["state"];
        assert_eq!(found["lastTransitionTime"] != "2020-01-01T00:00:00Z", moved, "{conditions:?}");
        assert_eq!(harness.requests(), ["wl-ac-1"]);
    }
}

#[test]
fn what_was_provided_reaches_the_pods() {
    let mut config = config();
    config["podSetUpdates"] = json!({"nodeSelector": [
        {"key": "group", "valueFromProvisioningClassDetail": "Group"},
        {"key": "other", "valueFromProvisioningClassDetail": "Missing"}]});
    let mut harness = Harness::new(one(), &config);
    harness.settle();
    let details = json!({"status": {"provisioningClassDetails": {"Group": "g-7"}}});
    harness.change(Kind::ProvisioningRequest, "wl-ac-1", &details);
    harness.conditions("wl-ac-1", &[("Provisioned", "True", "done")]);
    let log = harness.settle();
    assert_eq!(
        log,
        [
            "?wl-ac-1",
            "wl/status",
            "AdmissionCheckUpdated: Admission check ac updated state from Pending to Ready with message: done"
        ]
    );
    assert_eq!(
        harness.check()["podSetUpdates"],
        json!([{"name": "main", "nodeSelector": {"group": "g-7"}, "annotations": {
            "autoscaling.x-k8s.io/consume-provisioning-request": "wl-ac-1",
            "autoscaling.x-k8s.io/provisioning-class-name": "check-capacity.autoscaling.x-k8s.io"}}])
    );
    // A workload that runs goes on without its request.
    harness.objects.remove(&(Kind::ProvisioningRequest, "ns".into(), "wl-ac-1".into()));
    harness.restart();
    assert!(harness.settle().is_empty());
    assert_eq!(harness.check()["state"], "Ready");
}

#[test]
fn a_request_that_is_gone_changes_no_state() {
    for condition in ["Provisioned", "Failed", "CapacityRevoked"] {
        let mut harness = Harness::new(one(), &config());
        harness.settle();
        harness.conditions("wl-ac-1", &[(condition, "True", "of the last reservation")]);
        // The informer is behind.
        harness.objects.remove(&(Kind::ProvisioningRequest, "ns".into(), "wl-ac-1".into()));
        let writes = harness.plan();
        assert!(!harness.write(&writes[0]), "{writes:?}");
        harness.cache.remove(Kind::ProvisioningRequest, "ns", "wl-ac-1", "");
        harness.settle();
        assert_eq!(harness.check()["state"], "Pending");
        assert_eq!(harness.requests(), ["wl-ac-1"], "it is made again");
    }
}

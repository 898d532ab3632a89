//! Checks themselves, and who has to look again.

use super::*;

#[test]
fn checks_say_whether_they_work() {
    let good = json!({"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "prc"});
    let with = |key: &str, value: &str| {
        let mut p = good.clone();
        p[key] = json!(value);
        p
    };
    let table = [
        (Some(good.clone()), true, "Active", "The admission check is active"),
        (None, true, "BadParametersRef", "missing parameters reference"),
        (Some(with("name", "")), true, "BadParametersRef", "empty name: bad parameters reference"),
        (
            Some(with("apiGroup", "x")),
            true,
            "BadParametersRef",
            "wrong group \"x\", expecting \"kueue.x-k8s.io\": bad parameters reference",
        ),
        (
            Some(with("kind", "X")),
            true,
            "BadParametersRef",
            "wrong kind \"X\", expecting \"ProvisioningRequestConfig\": bad parameters reference",
        ),
        (
            Some(with("name", "no")),
            true,
            "BadParametersRef",
            "ProvisioningRequestConfig.kueue.x-k8s.io \"no\" not found",
        ),
        (
            Some(good.clone()),
            false,
            "ProvisioningRequestNotSupported",
            "Provisioning Requests not supported (Possible cause: missing or unsupported cluster-autoscaler)",
        ),
    ];
    for (parameters, served, reason, message) in table {
        let mut harness = Harness::new(one(), &config());
        let marked = json!({"metadata": {"finalizers": ["kueue.x-k8s.io/resource-in-use"]}, "spec": {"parameters": null}});
        harness.change(Kind::AdmissionCheck, "ac", &marked);
        if let Some(p) = &parameters {
            harness.change(Kind::AdmissionCheck, "ac", &json!({"spec": {"parameters": p}}));
        }
        harness.cache.serve(Kind::ProvisioningRequest, served.then_some(PROVISIONING_REQUESTS));
        let env = harness.cache.env(NOW);
        let writes = reconcile(&Key::AdmissionCheck("ac".into()), env);
        let [Write::Patch { body, .. }] = writes.as_slice() else { panic!("{writes:?}") };
        let active = &body["status"]["conditions"][0];
        let status = if reason == "Active" { "True" } else { "False" };
        assert_eq!(
            (&active["status"], &active["reason"], &active["message"]),
            (&json!(status), &json!(reason), &json!(message))
        );
        assert!(harness.write(&writes[0]));
        let env = harness.cache.env(NOW);
        assert!(reconcile(&Key::AdmissionCheck("ac".into()), env).is_empty(), "said once");
    }
}

#[test]
fn a_check_that_a_queue_holds_says_whether_it_works() {
    let mut harness = Harness::new(one(), &config());
    let queue = json!({"metadata": {"name": "cq"}, "spec": {
        "admissionChecksStrategy": {"admissionChecks": [{"name": "ac"}]}}});
    harness.put(Kind::ClusterQueue, queue);
    let terminating = json!({"metadata": {"finalizers": ["kueue.x-k8s.io/resource-in-use"],
        "deletionTimestamp": "2023-11-14T22:13:20Z"}});
    harness.change(Kind::AdmissionCheck, "ac", &terminating);
    let writes = reconcile(&Key::AdmissionCheck("ac".into()), harness.cache.env(NOW));
    let [Write::Patch { body, .. }] = writes.as_slice() else { panic!("{writes:?}") };
    assert_eq!(body["status"]["conditions"][0]["status"], "True");
}

#[test]
fn changes_affect_workloads_and_checks() {
    let mut harness = Harness::new(one(), &config());
    harness.settle();
    let wl = || Key::Provisioning("ns".into(), "wl".into());
    let all = |kind: Kind, ns: &str, name: &str| {
        let object = harness.cache.get(kind, ns, name).unwrap();
        affected(&harness.cache, kind, &object)
    };
    assert_eq!(all(Kind::Workload, "ns", "wl"), [wl()]);
    assert_eq!(all(Kind::ProvisioningRequest, "ns", "wl-ac-1"), [wl()]);
    assert_eq!(all(Kind::PodTemplate, "ns", "ppt-wl-ac-1-main"), [wl()]);
    assert_eq!(all(Kind::AdmissionCheck, "", "ac"), [Key::AdmissionCheck("ac".into()), wl()]);
    assert_eq!(all(Kind::ProvisioningConfig, "", "prc"), [Key::AdmissionCheck("ac".into()), wl()]);
}

#[test]
fn a_refused_creation_is_reported() {
    let mut harness = Harness::new(one(), &config());
    let writes = harness.plan();
    let Some(Write::CreateForCheck(order)) =
        writes.iter().find(|w| matches!(w, Write::CreateForCheck(o) if o.resource == PROVISIONING_REQUESTS))
    else {
        panic!("{writes:?}")
    };
    let env = harness.cache.env(NOW);
    let said = creation_failed(order, "quota exceeded", env);
    let message = "Error creating ProvisioningRequest \"wl-ac-1\": quota exceeded";
    assert_eq!(
        said.iter().filter_map(text).collect::<Vec<_>>(),
        [format!("FailedCreate: {message}"), "wl/status".into()]
    );
    for write in &said {
        harness.write(write);
    }
    assert_eq!(harness.check()["message"], message);
    let env = harness.cache.env(NOW);
    assert_eq!(creation_failed(order, "quota exceeded", env).len(), 1, "the status says it already");
    harness.settle();
    assert_eq!(harness.check()["message"], "", "what no longer holds is not said");

    let mut harness = Harness::new(one(), &config());
    harness.cache.remove(Kind::Flavor, "", "f", "");
    let log = harness.settle();
    assert_eq!(
        log[0],
        "FailedCreate: Error creating PodTemplate \"ppt-wl-ac-1-main\": ResourceFlavor.kueue.x-k8s.io \"f\" not found"
    );
}

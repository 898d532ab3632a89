//! What is asked for, and until when.

use super::*;

#[test]
fn a_request_is_made_once_with_its_templates() {
    let mut harness = Harness::new(one(), &config());
    let log = harness.settle();
    assert_eq!(
        log,
        [
            "+ppt-wl-ac-1-main",
            "+wl-ac-1",
            "ProvisioningRequestCreated: Created ProvisioningRequest: \"wl-ac-1\"",
            "ppt-wl-ac-1-main"
        ]
    );
    let request = harness.request("wl-ac-1").unwrap();
    assert_eq!(
        request["spec"],
        json!({"provisioningClassName": "check-capacity.autoscaling.x-k8s.io",
               "parameters": {"p1": "v1", "ValidUntilSeconds": "0"},
               "podSets": [{"podTemplateRef": {"name": "ppt-wl-ac-1-main"}, "count": 2}]})
    );
    assert_eq!(request["apiVersion"], "autoscaling.x-k8s.io/v1");
    assert_eq!(json::controller(request).unwrap()["uid"], "wl-uid");
    let template = &harness.objects[&(Kind::PodTemplate, "ns".into(), "ppt-wl-ac-1-main".into())];
    let owners = json::list(template, &["metadata", "ownerReferences"]);
    assert_eq!((owners.len(), &owners[0]["kind"]), (1, &json!("ProvisioningRequest")));
    let spec = &template["template"]["spec"];
    assert_eq!(spec["nodeSelector"], json!({"pool": "gpu"}));
    assert_eq!(spec["tolerations"][0]["key"], "spot");
    assert_eq!(spec["containers"][0]["resources"]["requests"], json!({"cpu": "1", "memory": "1Gi"}));
    harness.restart();
    assert!(harness.settle().is_empty());
}

#[test]
fn an_older_autoscaler_is_asked_in_its_version() {
    let mut harness = Harness::new(one(), &config());
    harness.cache.serve(Kind::ProvisioningRequest, Some(PROVISIONING_REQUESTS_BETA));
    harness.settle();
    assert_eq!(harness.request("wl-ac-1").unwrap()["apiVersion"], "autoscaling.x-k8s.io/v1beta1");
    harness.cache.serve(Kind::ProvisioningRequest, None);
    harness.conditions("wl-ac-1", &[("Failed", "True", "m")]);
    assert!(harness.plan().is_empty(), "nobody to ask");
}

/// Podsets as in [`reserved`], changes of the configuration, podsets of the request with their counts.
type Ask = (Vec<(&'static str, i64, i64, Value)>, Value, Vec<(&'static str, i64)>);

#[test]
fn only_what_needs_managed_resources_is_asked_for() {
    let gpu = json!({"limits": {"gpu": "1"}});
    let cpu = json!({"requests": {"cpu": "1"}});
    let same = json!({"requests": {"cpu": "1000m"}});
    let table: Vec<Ask> = vec![
        (
            vec![("a", 1, 1, gpu.clone()), ("b", 2, 2, cpu.clone())],
            json!({"managedResources": ["gpu"]}),
            vec![("a", 1)],
        ),
        (vec![("a", 1, 1, cpu.clone())], json!({"managedResources": ["gpu"]}), vec![]),
        (vec![("a", 2, 0, cpu.clone())], json!({}), vec![]),
        (vec![("a", 2, 0, cpu.clone()), ("b", 1, 1, cpu.clone())], json!({}), vec![("b", 1)]),
        (vec![("a", 1, 1, cpu.clone()), ("b", 2, 2, cpu.clone())], json!({}), vec![("a", 1), ("b", 2)]),
        (
            vec![("a", 1, 1, cpu.clone()), ("b", 2, 2, same.clone()), ("c", 4, 4, gpu.clone())],
            json!({"podSetMergePolicy": "IdenticalPodTemplates"}),
            vec![("a", 3), ("c", 4)],
        ),
        (
            vec![
                ("a", 1, 1, cpu.clone()),
                ("b", 2, 2, json!({"requests": {"cpu": "1"}, "limits": {"cpu": "3"}})),
            ],
            json!({"podSetMergePolicy": "IdenticalPodTemplates"}),
            vec![("a", 1), ("b", 2)],
        ),
        (
            vec![
                ("a", 1, 1, cpu.clone()),
                ("b", 2, 2, json!({"requests": {"cpu": "1"}, "limits": {"cpu": "3"}})),
            ],
            json!({"podSetMergePolicy": "IdenticalWorkloadSchedulingRequirements"}),
            vec![("a", 3)],
        ),
    ];
    for (podsets, more, want) in table {
        let mut config = config();
        merge(&mut config, &more);
        let mut harness = Harness::new(reserved(&podsets), &config);
        harness.settle();
        let parts: Vec<(String, i64)> = harness.request("wl-ac-1").map_or(Vec::new(), |r| {
            let rows = json::list(r, &["spec", "podSets"]).iter();
            rows.map(|p| {
                (json::text(p, &["podTemplateRef", "name"]).to_owned(), p["count"].as_i64().unwrap())
            })
            .collect()
        });
        let expected: Vec<(String, i64)> =
            want.iter().map(|(n, c)| (format!("ppt-wl-ac-1-{n}"), *c)).collect();
        assert_eq!(parts, expected, "{more}");
        if want.is_empty() {
            let check = harness.check();
            assert_eq!(
                (&check["state"], &check["message"]),
                (&json!("Ready"), &json!("the provisioning request is not needed"))
            );
        }
    }
}

#[test]
fn requests_go_when_they_are_no_longer_wanted() {
    let evicted = json!([{"type": "Evicted", "status": "True"}, {"type": "QuotaReserved", "status": "True"}]);
    let finished = json!([{"type": "Finished", "status": "True"}]);
    let lost = json!([{"type": "QuotaReserved", "status": "False"}]);
    for (conditions, clean_up, left) in
        [(&evicted, true, 0), (&evicted, false, 1), (&finished, false, 0), (&lost, true, 1)]
    {
        let mut harness = Harness::new(one(), &config());
        harness.cache =
            Fixture::with_config(Config { clean_up_provisioning_requests: clean_up, ..Config::default() });
        harness.cache.serve(Kind::ProvisioningRequest, Some(PROVISIONING_REQUESTS));
        harness.restart();
        harness.settle();
        harness.change(Kind::Workload, "wl", &json!({"status": {"conditions": conditions}}));
        harness.settle();
        assert_eq!(harness.requests().len(), left, "{conditions} {clean_up}");
    }
    // The check was made ready in the moment of an eviction: that was for the nodes of before.
    let mut harness = Harness::new(one(), &config());
    harness.settle();
    let row = json!([{"name": "ac", "state": "Ready", "message": "m", "lastTransitionTime": "2020-01-01T00:00:00Z", "podSetUpdates": []}]);
    harness.change(Kind::Workload, "wl", &json!({"status": {"conditions": evicted, "admissionChecks": row}}));
    harness.settle();
    assert_eq!(harness.check()["message"], "Reset to Pending after eviction. Previously: Ready");
    assert!(harness.check().get("podSetUpdates").is_none() && harness.requests().is_empty());
}

#[test]
fn requests_follow_their_configuration() {
    let mut harness = Harness::new(one(), &config());
    harness.settle();
    harness.change(Kind::ProvisioningConfig, "prc", &json!({"spec": {"parameters": {"p1": "v2"}}}));
    harness.settle();
    assert_eq!(harness.request("wl-ac-1").unwrap()["spec"]["parameters"]["p1"], "v2");
    assert_eq!(harness.made.iter().filter(|n| *n == "wl-ac-1").count(), 2);
    harness.change(Kind::AdmissionCheck, "ac", &json!({"spec": {"parameters": {"name": "none"}}}));
    harness.settle();
    assert!(harness.requests().is_empty());
    assert_eq!(
        (&harness.check()["state"], &harness.check()["message"]),
        (&json!("Pending"), &json!("the check is not active"))
    );
}

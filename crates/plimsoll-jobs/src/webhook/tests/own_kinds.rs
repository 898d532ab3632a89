//! Refusals of Kueue's own kinds, in the words of `pkg/webhooks`.

use super::*;

fn go(plural: &'static str, old: Option<&Value>, new: &Value) -> Option<String> {
    let r = review("kueue.x-k8s.io", plural, "ns", old);
    validate(&r, new, Fixture::default().env(NOW)).err().map(|d| d.message)
}

#[test]
fn queues_cohorts_and_flavors_have_valid_names_and_weights() {
    let object = |spec: Value| json!({"metadata": {"name": "x"}, "spec": spec});
    let group = |resource: &str| {
        json!({"resourceGroups": [{"coveredResources": [resource], "flavors": [
            {"name": "f", "resources": [{"name": resource, "nominalQuota": "5"}]}]}]})
    };
    let weight = |weight: &str| json!({"fairSharing": {"weight": weight}});
    let small = "When not 0, weight must be > 10e-9";
    for plural in ["clusterqueues", "cohorts"] {
        for (spec, want) in [
            (
                group("@cpu"),
                Some("spec.resourceGroups[0].coveredResources[0]: Invalid value: \"@cpu\": name part must"),
            ),
            (group("example.com/gpu"), None),
            (
                weight("-1"),
                Some("spec.fairSharing: Invalid value: \"-1\": must be greater than or equal to 0"),
            ),
            (weight("1n"), Some(small)),
            (weight("0.0000000001"), Some(small)),
            (weight("2n"), None),
            (weight("0"), None),
        ] {
            let got = go(plural, None, &object(spec.clone()));
            assert_eq!(got.is_some(), want.is_some(), "{plural} {spec}: {got:?}");
            assert!(got.unwrap_or_default().contains(want.unwrap_or_default()), "{plural} {spec}");
        }
    }
    let selector = |selector: Value| object(json!({"namespaceSelector": selector}));
    for (bad, path) in [
        (json!({"matchLabels": {"nospecialchars^=@": "bar"}}), "spec.namespaceSelector.matchLabels"),
        (json!({"matchLabels": {"a": "@"}}), "spec.namespaceSelector.matchLabels"),
        (
            json!({"matchExpressions": [{"key": "k", "operator": "In"}]}),
            "matchExpressions[0].values: Required value",
        ),
        (
            json!({"matchExpressions": [{"key": "k", "operator": "Exists", "values": ["v"]}]}),
            "values: Forbidden",
        ),
        (
            json!({"matchExpressions": [{"key": "k", "operator": "Near"}]}),
            "operator: Invalid value: \"Near\"",
        ),
        (json!({"matchExpressions": [{"key": "@", "operator": "Exists"}]}), "matchExpressions[0].key"),
    ] {
        let got = go("clusterqueues", None, &selector(bad.clone())).unwrap_or_default();
        assert!(got.contains(path), "{bad}: {got}");
    }
    let good = json!({"matchExpressions": [{"key": "k", "operator": "In", "values": ["a", "b"]}]});
    assert_eq!(go("clusterqueues", None, &selector(good)), None);
    for bad in [
        json!({"nodeLabels": {"@abc": "foo"}}),
        json!({"nodeTaints": [{"key": "@", "effect": "NoSchedule"}]}),
        json!({"tolerations": [{"key": "@"}]}),
    ] {
        assert!(go("resourceflavors", None, &object(bad.clone())).is_some(), "{bad}");
    }
    assert_eq!(go("resourceflavors", None, &object(json!({"tolerations": [{"operator": "Exists"}]}))), None);
    let taint = |value: &str| json!({"effect": "NoSchedule", "key": "k", "value": value});
    let twice = object(json!({"nodeTaints": [taint("v"), taint("w")]}));
    let want = "spec.nodeTaints[1]: Duplicate value: {\"key\":\"k\",\"value\":\"w\",\"effect\":\"NoSchedule\"}: taints must \
                be unique by key and effect pair";
    assert_eq!(go("resourceflavors", None, &twice).as_deref(), Some(want));
    let long = go("resourceflavors", None, &object(json!({"nodeTaints": [taint(&"@".repeat(64))]})));
    assert!(long.is_some_and(|e| e.contains(": must be no more than 63 bytes;a valid label must be")));
}

/// What Kueue's mutating webhook does, as it writes out its Go type.
#[test]
fn quotas_that_are_not_named_are_none() {
    let groups = json!([{"coveredResources": ["cpu", "memory"], "flavors": [
        {"name": "f", "resources": [{"name": "cpu"}, {"name": "memory", "nominalQuota": "1Gi"}]}]}]);
    let mut queue = json!({"metadata": {"name": "q"}, "spec": {"resourceGroups": groups}});
    let fixture = Fixture::default();
    mutate(&review("kueue.x-k8s.io", "clusterqueues", "", None), &mut queue, fixture.env(NOW));
    let wanted = json!([{"name": "cpu", "nominalQuota": "0"}, {"name": "memory", "nominalQuota": "1Gi"}]);
    assert_eq!(queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"], wanted);
}

#[test]
fn checks_name_flavors_of_their_queue() {
    let queue = |on: &str, nominal: &str| {
        json!({"metadata": {"name": "q"}, "spec": {
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
                {"name": "f", "resources": [{"name": "cpu", "nominalQuota": nominal}]}]}],
            "admissionChecksStrategy": {"admissionChecks": [{"name": "c", "onFlavors": [on]}]}}})
    };
    assert_eq!(go("clusterqueues", None, &queue("f", "1")), None);
    let text = "spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]: Unsupported value: \"g\": \
                supported values: \"f\"";
    assert_eq!(go("clusterqueues", None, &queue("g", "1")).as_deref(), Some(text));
    let mut none = queue("g", "1");
    none["spec"]["resourceGroups"] = json!([]);
    let text = "spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]: Unsupported value: \"g\"";
    assert_eq!(go("clusterqueues", None, &none).as_deref(), Some(text));
    // Stored before the rule.
    assert_eq!(go("clusterqueues", Some(&queue("g", "1")), &queue("g", "2")), None);
    assert!(go("clusterqueues", Some(&queue("h", "1")), &queue("g", "1")).is_some());
}

/// A workload with one podset of three pods, changed at these paths.
fn workload(changes: &Value) -> Value {
    let mut wl = json!({"metadata": {"name": "w"}, "spec": {"queueName": "q", "podSets": [
        {"name": "main", "count": 3, "template": {"spec": {}}}]}});
    for (path, value) in changes.as_object().into_iter().flatten() {
        *wl.pointer_mut(path.rsplit_once('/').unwrap().0).unwrap() = {
            let (parent, key) = path.rsplit_once('/').unwrap();
            let mut parent = wl.pointer(parent).unwrap().clone();
            parent[key] = value.clone();
            parent
        };
    }
    wl
}

#[test]
fn pods_of_workloads_ask_for_valid_amounts() {
    for (changes, want) in [
        (
            json!({"/spec/podSets/0/template/spec/containers": [{"resources": {"requests": {"cpu": "-1"}}}]}),
            "spec.podSets[0].template.spec.containers[0].resources.requests[cpu]: Invalid value: \"-1\": must be greater \
             than or equal to 0",
        ),
        (
            json!({"/spec/podSets/0/template/spec/initContainers": [{"resources": {"limits": {"pods": "1"}}}]}),
            "spec.podSets[0].template.spec.initContainers[0].resources.limits[pods]: Invalid value: \"pods\": the key is \
             reserved for internal kueue use",
        ),
        (
            json!({"/spec/podSets/0/template/spec/resources": {"limits": {"memory": "-1Gi"}}}),
            "spec.podSets[0].template.spec.resources.limits[memory]: Invalid value: \"-1Gi\": must be greater than or \
             equal to 0",
        ),
        (
            json!({"/spec/podSets/0/topologyRequest": {"podSetSliceSize": 2}}),
            "spec.podSets[0].topologyRequest.podSetSliceSize: Forbidden: may not be set when podSetSliceRequiredTopology \
             is not specified",
        ),
    ] {
        assert_eq!(go("workloads", None, &workload(&changes)).as_deref(), Some(want));
    }
    let labels = json!({"/spec/podSets/0/template/metadata": {"labels": {"@": "x"}}});
    assert!(go("workloads", None, &workload(&labels)).is_some());
    assert_eq!(go("workloads", None, &workload(&json!({}))), None);
}

fn status(status: &Value) -> Value {
    workload(&json!({ "/status": status }))
}

fn admitted(usage: &str, topology: &Value) -> Value {
    let assigned = json!({"name": "main", "count": 3, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": usage},
                          "topologyAssignment": topology});
    status(&json!({"conditions": [{"type": "QuotaReserved", "status": "True"}],
                  "admission": {"clusterQueue": "cq", "podSetAssignments": [assigned]}}))
}

#[test]
fn admissions_are_complete_and_do_not_change() {
    assert_eq!(go("workloads", None, &admitted("3", &Value::Null)), None);
    let text = "status.admission.podSetAssignments[0].resourceUsage[cpu]: Invalid value: \"1\": is not a multiple of 3";
    assert_eq!(go("workloads", None, &admitted("1", &Value::Null)).as_deref(), Some(text));
    let mut other = admitted("3", &Value::Null);
    other["status"]["admission"]["podSetAssignments"][0]["name"] = json!("other");
    let text = "status.admission.podSetAssignments[0].name: Not found: \"other\"";
    assert_eq!(go("workloads", None, &other).as_deref(), Some(text));
    let hollow = status(&json!({"conditions": [{"type": "QuotaReserved", "status": "True"}]}));
    let text = "status.admission: Required value: must be set while the QuotaReserved condition is true";
    assert_eq!(go("workloads", Some(&status(&json!({}))), &hollow).as_deref(), Some(text));
    assert_eq!(go("workloads", Some(&hollow), &hollow), None, "may converge");
    let before = admitted("3", &Value::Null);
    assert!(
        go("workloads", Some(&before), &admitted("6", &Value::Null)).unwrap().ends_with("field is immutable")
    );
    assert_eq!(go("workloads", Some(&before), &admitted("3", &json!({"levels": ["rack"]}))), None);
    assert_eq!(go("workloads", Some(&before), &admitted("3000m", &Value::Null)), None, "the same amount");
    assert_eq!(go("workloads", Some(&before), &status(&json!({}))), None, "unset");
}

#[test]
fn the_policy_of_concurrent_admission_is_immutable() {
    let queue =
        |policy: Value| json!({"metadata": {"name": "x"}, "spec": {"concurrentAdmissionPolicy": policy}});
    let policy = |mode: &str| queue(json!({"migration": {"mode": mode}}));
    let (moves, stays) = (policy("TryPreferredFlavors"), policy("NoMigration"));
    assert_eq!(go("clusterqueues", None, &moves), None);
    assert_eq!(go("clusterqueues", Some(&moves), &moves), None);
    for (old, new) in [(&moves, &stays), (&moves, &queue(Value::Null)), (&queue(Value::Null), &moves)] {
        let got = go("clusterqueues", Some(old), new).unwrap_or_default();
        assert!(
            got.starts_with("spec.concurrentAdmissionPolicy: ") && got.ends_with("field is immutable"),
            "{got}"
        );
    }
}

/// The rows of Kueue's `clusterqueue_webhook_test.go`.
#[test]
fn the_policy_of_concurrent_admission_has_to_suit_its_queue() {
    let group = |resource: &str, flavors: &[String]| {
        let flavors: Vec<Value> = flavors
            .iter()
            .map(|f| json!({"name": f, "resources": [{"name": resource, "nominalQuota": "1"}]}))
            .collect();
        json!({"coveredResources": [resource], "flavors": flavors})
    };
    let named = |n: usize| (0..n).map(|i| format!("f{i}")).collect::<Vec<_>>();
    let go = |on: bool, groups: Vec<Value>, mode: &str, last: Option<&str>, strategy: &str| {
        let mut migration = json!({"mode": mode});
        if let Some(last) = last {
            migration["constraints"] = json!({"lastAcceptableFlavorName": last});
        }
        let spec = json!({"resourceGroups": groups, "queueingStrategy": strategy,
            "concurrentAdmissionPolicy": {"migration": migration}});
        let mut fixture = Fixture::default();
        fixture.config.concurrent_admission = on;
        let review = review("kueue.x-k8s.io", "clusterqueues", "", None);
        let object = json!({"metadata": {"name": "x"}, "spec": spec});
        validate(&review, &object, fixture.env(NOW)).err().map(|d| d.message).unwrap_or_default()
    };
    let (one, fifo, moves) = (|| vec![group("cpu", &named(1))], "BestEffortFIFO", "TryPreferredFlavors");
    let two = vec![group("cpu", &named(1)), group("memory", &["g".to_owned()])];
    let strict = "spec.queueingStrategy: Invalid value: \"StrictFIFO\": StrictFIFO queueing strategy cannot be used when ConcurrentAdmissionPolicy is defined";
    let groups = "must have exactly one ResourceGroup when ConcurrentAdmissionPolicy is defined";
    let at = "spec.concurrentAdmissionPolicy.migration.constraints";
    let table = [
        (one(), moves, None, fifo, String::new()),
        (one(), moves, None, "StrictFIFO", strict.to_owned()),
        (two, moves, None, fifo, format!("spec.resourceGroups: Invalid value: 2: {groups}")),
        (Vec::new(), moves, None, fifo, format!("spec.resourceGroups: Invalid value: 0: {groups}")),
        (
            vec![group("cpu", &named(17))],
            moves,
            None,
            fifo,
            "spec.resourceGroups[0].flavors: Invalid value: 17: cannot have more than 16 resource flavors in the ResourceGroup when ConcurrentAdmissionPolicy is defined".to_owned(),
        ),
        (vec![group("cpu", &named(16))], moves, None, fifo, String::new()),
        (one(), moves, Some("f0"), fifo, String::new()),
        (one(), "", Some("f0"), fifo, String::new()),
        (
            one(),
            "RetainFirstAdmission",
            Some("f0"),
            fifo,
            format!("{at}: Forbidden: may only be set when migration.mode is \"TryPreferredFlavors\" (got \"RetainFirstAdmission\")"),
        ),
        (
            one(),
            moves,
            Some("none"),
            fifo,
            format!("{at}.lastAcceptableFlavorName: Invalid value: \"none\": must be one of the flavors defined in the ClusterQueue: [f0]"),
        ),
    ];
    for (groups, mode, last, strategy, want) in table {
        assert_eq!(go(false, groups.clone(), mode, last, strategy), "", "off");
        assert_eq!(go(true, groups, mode, last, strategy), want);
    }
}

#[test]
fn admission_gates_of_jobs_and_workloads_are_validated() {
    let gated = |gates: &str| json!({"metadata": {"name": "x", "namespace": "ns", "annotations": {crate::names::GATED_BY: gates}}});
    let resources =
        [("kueue.x-k8s.io", "workloads"), ("batch", "jobs"), ("", "pods"), ("apps", "deployments")];
    for (group, plural) in resources {
        let go = |old: Option<&Value>, new: &Value| {
            let result = validate(&review(group, plural, "ns", old), new, Fixture::default().env(NOW));
            result.err().map(|d| d.message).unwrap_or_default()
        };
        assert!(go(None, &gated("x")).contains("must be a domain-prefixed path"), "{plural}");
        assert!(!go(None, &gated("a.io/x")).contains("gated-by"), "{plural}");
        assert!(go(Some(&gated("")), &gated("a.io/x")).contains("cannot add admission gate"), "{plural}");
    }
}

#[test]
fn checks_of_workloads_add_valid_fields_and_keep_them() {
    let check = |state: &str, update: Value| {
        status(&json!({"admissionChecks": [{"name": "c", "state": state, "podSetUpdates": [update]}]}))
    };
    let with = |key: &str, value: Value| {
        let mut update = json!({"name": "main"});
        update[key] = value;
        check("Ready", update)
    };
    for bad in [
        check("Ready", json!({"name": "other"})),
        with("labels", json!({"@": "x"})),
        with("labels", json!({"a": "@"})),
        with("nodeSelector", json!({"@": "x"})),
        with("annotations", json!({"@": "x"})),
        with("tolerations", json!([{"key": "@"}])),
    ] {
        assert!(go("workloads", None, &bad).is_some(), "{bad}");
    }
    let before = with("labels", json!({"a": "b"}));
    assert_eq!(go("workloads", Some(&before), &before), None);
    let after = with("labels", json!({"a": "c"}));
    assert!(go("workloads", Some(&before), &after).unwrap().ends_with("field is immutable"));
    assert_eq!(go("workloads", Some(&check("Pending", json!({"name": "main"}))), &after), None);
    // What no schema lets through is no reason to panic.
    let odd = |admission: Value| status(&json!({ "admission": admission }));
    assert!(go("workloads", Some(&odd(json!("x"))), &odd(json!(["y"]))).is_some());
    let cluster = |name: Option<&str>| status(&json!({"nominatedClusterNames": ["a"], "clusterName": name}));
    assert_eq!(go("workloads", Some(&cluster(None)), &cluster(Some("a"))), None);
    assert!(go("workloads", Some(&cluster(None)), &cluster(Some("b"))).is_some());
}

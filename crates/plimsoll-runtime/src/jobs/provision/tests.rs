use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::api::{PROVISIONING_REQUESTS, PROVISIONING_REQUESTS_BETA};
use crate::jobs::control::plan as plan_key;
use crate::jobs::rules::Rules;

const NOW: Time = Time::from_seconds(1_700_000_000);

/// What happens to a write.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Done,
    /// Refused, nothing happened.
    Refused,
    /// Done, but nobody was told.
    AnswerLost,
}

/// An API server of a few kinds, and a cache that follows it.
struct World {
    objects: BTreeMap<(Kind, String, String), Value>,
    cache: Cache,
    version: u64,
    made: Vec<String>,
}

fn kind_of(resource: Resource) -> Kind {
    match resource.kind {
        "Workload" => Kind::Workload,
        "AdmissionCheck" => Kind::AdmissionCheck,
        "PodTemplate" => Kind::PodTemplate,
        _ => Kind::ProvisioningRequest,
    }
}

fn merge(into: &mut Value, patch: &Value) {
    let (Some(target), Some(changes)) = (into.as_object_mut(), patch.as_object()) else {
        *into = patch.clone();
        return;
    };
    for (key, value) in changes {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

impl World {
    fn new(workload: Value, config: &Value) -> Self {
        let cache = Cache::default();
        cache.serve_requests(Some(PROVISIONING_REQUESTS));
        let mut world = Self { objects: BTreeMap::new(), cache, version: 1, made: Vec::new() };
        let flavor = json!({"metadata": {"name": "f"}, "spec": {"nodeLabels": {"pool": "gpu"},
            "tolerations": [{"key": "spot", "operator": "Exists"}]}});
        world.put(Kind::Flavor, flavor);
        let parameters =
            json!({"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "prc"});
        world.put(
            Kind::AdmissionCheck,
            json!({"metadata": {"name": "ac"}, "spec": {"controllerName": config::CONTROLLER, "parameters": parameters}}),
        );
        world.put(Kind::ProvisioningConfig, json!({"metadata": {"name": "prc"}, "spec": config}));
        world.put(Kind::Workload, workload);
        world
    }

    fn put(&mut self, kind: Kind, mut object: Value) {
        self.version += 1;
        json::set(&mut object, &["metadata", "resourceVersion"], json!(self.version.to_string()));
        if json::uid(&object).is_empty() {
            json::set(&mut object, &["metadata", "uid"], json!(format!("uid-{}", self.version)));
        }
        let key = (kind, json::namespace(&object).to_owned(), json::name(&object).to_owned());
        self.objects.insert(key, object.clone());
        self.cache.put(kind, object);
    }

    fn change(&mut self, kind: Kind, name: &str, patch: &Value) {
        let ns = if matches!(kind, Kind::AdmissionCheck | Kind::ProvisioningConfig) { "" } else { "ns" };
        let mut object = self.objects[&(kind, ns.to_owned(), name.to_owned())].clone();
        merge(&mut object, patch);
        self.put(kind, object);
    }

    fn request(&self, name: &str) -> Option<&Value> {
        self.objects.get(&(Kind::ProvisioningRequest, "ns".into(), name.into()))
    }

    fn requests(&self) -> Vec<&str> {
        let all = self.objects.keys().filter(|k| k.0 == Kind::ProvisioningRequest);
        all.map(|k| k.2.as_str()).collect()
    }

    fn conditions(&mut self, request: &str, conditions: &[(&str, &str, &str)]) {
        let rows: Vec<Value> = conditions
            .iter()
            .map(|(t, s, m)| json!({"type": t, "status": s, "message": m, "reason": t}))
            .collect();
        self.change(Kind::ProvisioningRequest, request, &json!({"status": {"conditions": rows}}));
    }

    fn check(&self) -> &Value {
        &self.objects[&(Kind::Workload, "ns".into(), "wl".into())]["status"]["admissionChecks"][0]
    }

    /// One write, as far as fate lets it: whether the next one follows.
    fn write(&mut self, write: &Write, fate: Fate) -> bool {
        let cache = self.cache.clone();
        if fate == Fate::AnswerLost {
            // What happens is not seen before the next restart.
            self.cache = Cache::default();
        }
        let done = fate != Fate::Refused && self.carry_out(write);
        self.cache = cache;
        done && fate == Fate::Done
    }

    fn carry_out(&mut self, write: &Write) -> bool {
        match write {
            Write::Provide(order) => {
                let key = (kind_of(order.resource), "ns".to_owned(), json::name(&order.object).to_owned());
                if self.objects.contains_key(&key) {
                    let found = self.objects[&key].clone();
                    self.cache.put(key.0, found);
                    return false;
                }
                self.made.push(key.2.clone());
                self.put(key.0, order.object.clone());
                true
            }
            Write::Patch { resource, namespace, name, body, .. } => {
                let key = (kind_of(*resource), namespace.clone(), name.clone());
                let Some(mut object) = self.objects.get(&key).cloned() else { return true };
                if body["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
                    return false;
                }
                merge(&mut object, body);
                self.put(key.0, object);
                true
            }
            Write::Delete { resource, namespace, name, .. } => {
                self.objects.remove(&(kind_of(*resource), namespace.clone(), name.clone()));
                self.cache.remove(kind_of(*resource), namespace, name);
                true
            }
            _ => true,
        }
    }

    fn plan(&self) -> Vec<Write> {
        let env = Env { cache: &self.cache, now: NOW, supervised: false };
        plan_key(&Key::Provision("ns".into(), "wl".into()), env)
    }

    /// Plans and writes until there is nothing more to do; what was written.
    fn settle(&mut self) -> Vec<String> {
        let mut log = Vec::new();
        for _ in 0..10 {
            let writes = self.plan();
            if writes.is_empty() {
                return log;
            }
            for write in &writes {
                log.extend(text(write));
                if matches!(write, Write::Again(_)) {
                    return log;
                }
                if !self.write(write, Fate::Done) {
                    break;
                }
            }
        }
        panic!("never done: {log:?}");
    }

    /// Everything is read again, as after a restart or a lost watch.
    fn restart(&mut self) {
        let cache = Cache::with_rules(self.cache.rules().clone());
        cache.serve_requests(self.cache.requests_served());
        for ((kind, _, _), object) in &self.objects {
            cache.put(*kind, object.clone());
        }
        self.cache = cache;
    }
}

fn text(write: &Write) -> Option<String> {
    Some(match write {
        Write::Provide(o) => format!("+{}", json::name(&o.object)),
        Write::Patch { name, sub, .. } => format!("{name}{}{sub}", if sub.is_empty() { "" } else { "/" }),
        Write::Delete { name, .. } => format!("-{name}"),
        Write::Note(n) => format!("{}: {}", n.reason, n.message),
        _ => return None,
    })
}

fn container(resources: &Value) -> Value {
    json!([{"name": "c", "image": "i", "resources": resources}])
}

fn podset(name: &str, count: i64, resources: &Value) -> Value {
    json!({"name": name, "count": count, "template": {"spec": {"containers": container(resources)}}})
}

/// A workload with a reservation for podsets of (name, declared count, admitted count, resources).
fn reserved(podsets: &[(&str, i64, i64, Value)]) -> Value {
    let specs: Vec<Value> = podsets.iter().map(|p| podset(p.0, p.1, &p.3)).collect();
    let assigned: Vec<Value> =
        podsets.iter().map(|p| json!({"name": p.0, "count": p.2, "flavors": {"cpu": "f"}})).collect();
    json!({
        "metadata": {"namespace": "ns", "name": "wl", "uid": "wl-uid", "annotations": {
            "provreq.kueue.x-k8s.io/ValidUntilSeconds": "0", "other": "x"}},
        "spec": {"active": true, "podSets": specs},
        "status": {
            "admission": {"clusterQueue": "cq", "podSetAssignments": assigned},
            "conditions": [{"type": "QuotaReserved", "status": "True"}],
            "admissionChecks": [{"name": "ac", "state": "Pending", "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z"}],
        },
    })
}

fn one() -> Value {
    reserved(&[("main", 3, 2, json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}}))])
}

fn config() -> Value {
    json!({"provisioningClassName": "check-capacity.autoscaling.x-k8s.io", "parameters": {"p1": "v1"},
           "retryStrategy": {"backoffLimitCount": 3, "backoffBaseSeconds": 60, "backoffMaxSeconds": 1800}})
}

#[test]
fn a_request_is_made_once_with_its_templates() {
    let mut world = World::new(one(), &config());
    let log = world.settle();
    assert_eq!(
        log,
        [
            "+ppt-wl-ac-1-main",
            "+wl-ac-1",
            "ProvisioningRequestCreated: Created ProvisioningRequest: \"wl-ac-1\"",
            "ppt-wl-ac-1-main"
        ]
    );
    let request = world.request("wl-ac-1").unwrap();
    assert_eq!(
        request["spec"],
        json!({"provisioningClassName": "check-capacity.autoscaling.x-k8s.io",
               "parameters": {"p1": "v1", "ValidUntilSeconds": "0"},
               "podSets": [{"podTemplateRef": {"name": "ppt-wl-ac-1-main"}, "count": 2}]})
    );
    assert_eq!(request["apiVersion"], "autoscaling.x-k8s.io/v1");
    assert_eq!(json::controller(request).unwrap()["uid"], "wl-uid");
    let template = &world.objects[&(Kind::PodTemplate, "ns".into(), "ppt-wl-ac-1-main".into())];
    let owners = json::list(template, &["metadata", "ownerReferences"]);
    assert_eq!((owners.len(), &owners[0]["kind"]), (1, &json!("ProvisioningRequest")));
    let spec = &template["template"]["spec"];
    assert_eq!(spec["nodeSelector"], json!({"pool": "gpu"}));
    assert_eq!(spec["tolerations"][0]["key"], "spot");
    assert_eq!(spec["containers"][0]["resources"]["requests"], json!({"cpu": "1", "memory": "1Gi"}));
    world.restart();
    assert!(world.settle().is_empty());
}

#[test]
fn an_older_autoscaler_is_asked_in_its_version() {
    let mut world = World::new(one(), &config());
    world.cache.serve_requests(Some(PROVISIONING_REQUESTS_BETA));
    world.settle();
    assert_eq!(world.request("wl-ac-1").unwrap()["apiVersion"], "autoscaling.x-k8s.io/v1beta1");
    world.cache.serve_requests(None);
    world.conditions("wl-ac-1", &[("Failed", "True", "m")]);
    assert!(world.plan().is_empty(), "nobody to ask");
}

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
        let mut world = World::new(one(), &config());
        world.settle();
        let mut row = world.check().clone();
        merge(&mut row, &before);
        let mut set = vec![json!({"type": "QuotaReserved", "status": "True"})];
        if admitted {
            set.push(json!({"type": "Admitted", "status": "True"}));
        }
        world.change(Kind::Workload, "wl", &json!({"status": {"admissionChecks": [row], "conditions": set}}));
        world.conditions("wl-ac-1", conditions);
        world.settle();
        let found = world.check();
        for (key, value) in want.as_object().unwrap() {
            assert_eq!(&found[key.as_str()], value, "{conditions:?} {before}: {found}");
        }
        let moved = found["state"] != before["state"];
        assert_eq!(found["lastTransitionTime"] != "2020-01-01T00:00:00Z", moved, "{conditions:?}");
        assert_eq!(world.requests(), ["wl-ac-1"]);
    }
}

#[test]
fn what_was_provided_reaches_the_pods() {
    let mut config = config();
    config["podSetUpdates"] = json!({"nodeSelector": [
        {"key": "group", "valueFromProvisioningClassDetail": "Group"},
        {"key": "other", "valueFromProvisioningClassDetail": "Missing"}]});
    let mut world = World::new(one(), &config);
    world.settle();
    let details = json!({"status": {"provisioningClassDetails": {"Group": "g-7"}}});
    world.change(Kind::ProvisioningRequest, "wl-ac-1", &details);
    world.conditions("wl-ac-1", &[("Provisioned", "True", "done")]);
    let log = world.settle();
    assert_eq!(
        log,
        [
            "wl/status",
            "AdmissionCheckUpdated: Admission check ac updated state from Pending to Ready with message: done"
        ]
    );
    assert_eq!(
        world.check()["podSetUpdates"],
        json!([{"name": "main", "nodeSelector": {"group": "g-7"}, "annotations": {
            "autoscaling.x-k8s.io/consume-provisioning-request": "wl-ac-1",
            "autoscaling.x-k8s.io/provisioning-class-name": "check-capacity.autoscaling.x-k8s.io"}}])
    );
    // A workload that runs goes on without its request.
    world.objects.remove(&(Kind::ProvisioningRequest, "ns".into(), "wl-ac-1".into()));
    world.restart();
    assert!(world.settle().is_empty());
    assert_eq!(world.check()["state"], "Ready");
}

#[test]
fn attempts_follow_each_other_to_the_limit() {
    for clean_up in [true, false] {
        let mut world = World::new(one(), &config());
        world.cache = Cache::with_rules(Rules { clean_up_requests: clean_up, ..Rules::default() });
        world.cache.serve_requests(Some(PROVISIONING_REQUESTS));
        world.restart();
        let waits = [60, 120, 240];
        for (attempt, wait) in (1..).zip(waits) {
            world.settle();
            let name = format!("wl-ac-{attempt}");
            assert_eq!(world.made.last(), Some(&name));
            world.conditions(&name, &[("Failed", "True", "no stock")]);
            world.settle();
            assert_eq!(
                (&world.check()["state"], &world.check()["requeueAfterSeconds"]),
                (&json!("Retry"), &json!(wait))
            );
            assert_eq!(world.made.last(), Some(&name), "no new attempt before the eviction");
            // What the engine does: an eviction that resets the check, and a new reservation.
            let row = states::reset(world.check(), NOW);
            assert_eq!(row["retryCount"], attempt);
            let evicted =
                json!([{"type": "QuotaReserved", "status": "True"}, {"type": "Evicted", "status": "True"}]);
            world.change(
                Kind::Workload,
                "wl",
                &json!({"status": {"conditions": evicted, "admissionChecks": [row]}}),
            );
            world.settle();
            assert_eq!(world.request(&name).is_none(), clean_up);
            world.restart();
            world.change(
                Kind::Workload,
                "wl",
                &json!({"status": {"conditions": [{"type": "QuotaReserved", "status": "True"}]}}),
            );
        }
        world.settle();
        world.conditions("wl-ac-4", &[("Failed", "True", "no stock")]);
        world.settle();
        assert_eq!(
            (&world.check()["state"], &world.check()["message"]),
            (&json!("Rejected"), &json!("no stock"))
        );
        assert_eq!(world.made.iter().filter(|n| !n.starts_with("ppt")).count(), 4);
    }
}

#[test]
fn backoff_doubles_up_to_its_maximum() {
    let table = [
        ((60, 1800), 1, 60),
        ((60, 1800), 5, 960),
        ((60, 1800), 6, 1800),
        ((60, 1800), 99, 1800),
        ((100, 30), 1, 100),
        ((100, 30), 2, 30),
        ((-5, 10), 3, 0),
        ((1_i64 << 40, 0), 1, i64::from(i32::MAX)),
    ];
    for ((base, max), count, want) in table {
        let object = json!({"metadata": {"name": "prc"}, "spec": {"retryStrategy": {"backoffBaseSeconds": base, "backoffMaxSeconds": max}}});
        let world = World::new(one(), &object["spec"]);
        let check = config::check(&world.cache, "ac").unwrap();
        let config = config::of_check(&world.cache, &check).unwrap();
        assert_eq!(config.backoff(count), want, "{base} {max} {count}");
    }
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
        let mut world = World::new(reserved(&podsets), &config);
        world.settle();
        let parts: Vec<(String, i64)> = world.request("wl-ac-1").map_or(Vec::new(), |r| {
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
            let check = world.check();
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
        let mut world = World::new(one(), &config());
        world.cache = Cache::with_rules(Rules { clean_up_requests: clean_up, ..Rules::default() });
        world.cache.serve_requests(Some(PROVISIONING_REQUESTS));
        world.restart();
        world.settle();
        world.change(Kind::Workload, "wl", &json!({"status": {"conditions": conditions}}));
        world.settle();
        assert_eq!(world.requests().len(), left, "{conditions} {clean_up}");
    }
    // The check was made ready in the moment of an eviction: that was for the nodes of before.
    let mut world = World::new(one(), &config());
    world.settle();
    let row = json!([{"name": "ac", "state": "Ready", "message": "m", "lastTransitionTime": "2020-01-01T00:00:00Z", "podSetUpdates": []}]);
    world.change(Kind::Workload, "wl", &json!({"status": {"conditions": evicted, "admissionChecks": row}}));
    world.settle();
    assert_eq!(world.check()["message"], "Reset to Pending after eviction. Previously: Ready");
    assert!(world.check().get("podSetUpdates").is_none() && world.requests().is_empty());
}

#[test]
fn requests_follow_their_configuration() {
    let mut world = World::new(one(), &config());
    world.settle();
    world.change(Kind::ProvisioningConfig, "prc", &json!({"spec": {"parameters": {"p1": "v2"}}}));
    world.settle();
    assert_eq!(world.request("wl-ac-1").unwrap()["spec"]["parameters"]["p1"], "v2");
    assert_eq!(world.made.iter().filter(|n| *n == "wl-ac-1").count(), 2);
    world.change(Kind::AdmissionCheck, "ac", &json!({"spec": {"parameters": {"name": "none"}}}));
    world.settle();
    assert!(world.requests().is_empty());
    assert_eq!(
        (&world.check()["state"], &world.check()["message"]),
        (&json!("Pending"), &json!("the check is not active"))
    );
}

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
        let mut world = World::new(one(), &config());
        let marked = json!({"metadata": {"finalizers": ["kueue.x-k8s.io/resource-in-use"]}, "spec": {"parameters": null}});
        world.change(Kind::AdmissionCheck, "ac", &marked);
        if let Some(p) = &parameters {
            world.change(Kind::AdmissionCheck, "ac", &json!({"spec": {"parameters": p}}));
        }
        world.cache.serve_requests(served.then_some(PROVISIONING_REQUESTS));
        let env = Env { cache: &world.cache, now: NOW, supervised: false };
        let writes = plan_key(&Key::Check("ac".into()), env);
        let [Write::Patch { body, .. }] = writes.as_slice() else { panic!("{writes:?}") };
        let active = &body["status"]["conditions"][0];
        let status = if reason == "Active" { "True" } else { "False" };
        assert_eq!(
            (&active["status"], &active["reason"], &active["message"]),
            (&json!(status), &json!(reason), &json!(message))
        );
        assert!(world.write(&writes[0], Fate::Done));
        let env = Env { cache: &world.cache, now: NOW, supervised: false };
        assert!(plan_key(&Key::Check("ac".into()), env).is_empty(), "said once");
    }
}

#[test]
fn who_has_to_look_again() {
    let mut world = World::new(one(), &config());
    world.settle();
    let wl = || Key::Provision("ns".into(), "wl".into());
    let all = |kind: Kind, ns: &str, name: &str| {
        let object = world.cache.get(kind, ns, name).unwrap();
        concerned(&world.cache, kind, &object)
    };
    assert_eq!(all(Kind::Workload, "ns", "wl"), [wl()]);
    assert_eq!(all(Kind::ProvisioningRequest, "ns", "wl-ac-1"), [wl()]);
    assert_eq!(all(Kind::PodTemplate, "ns", "ppt-wl-ac-1-main"), [wl()]);
    assert_eq!(all(Kind::AdmissionCheck, "", "ac"), [Key::Check("ac".into()), wl()]);
    assert_eq!(all(Kind::ProvisioningConfig, "", "prc"), [Key::Check("ac".into()), wl()]);
}

#[test]
fn what_is_refused_is_said() {
    let mut world = World::new(one(), &config());
    let writes = world.plan();
    let Some(Write::Provide(order)) =
        writes.iter().find(|w| matches!(w, Write::Provide(o) if o.resource == PROVISIONING_REQUESTS))
    else {
        panic!("{writes:?}")
    };
    let env = Env { cache: &world.cache, now: NOW, supervised: false };
    let said = refused(order, "quota exceeded", env);
    let message = "Error creating ProvisioningRequest \"wl-ac-1\": quota exceeded";
    assert_eq!(
        said.iter().filter_map(text).collect::<Vec<_>>(),
        [format!("FailedCreate: {message}"), "wl/status".into()]
    );
    for write in &said {
        world.write(write, Fate::Done);
    }
    assert_eq!(world.check()["message"], message);
    let env = Env { cache: &world.cache, now: NOW, supervised: false };
    assert_eq!(refused(order, "quota exceeded", env).len(), 1, "the status says it already");
    world.settle();
    assert_eq!(world.check()["message"], "", "what no longer holds is not said");

    let mut world = World::new(one(), &config());
    world.cache.remove(Kind::Flavor, "", "f");
    let log = world.settle();
    assert_eq!(
        log[0],
        "FailedCreate: Error creating PodTemplate \"ppt-wl-ac-1-main\": ResourceFlavor.kueue.x-k8s.io \"f\" not found"
    );
}

#[test]
fn long_names_keep_their_attempts() {
    let long = "w".repeat(250);
    for (workload, check) in [("wl", "ac"), (long.as_str(), "ac"), ("wl", long.as_str())] {
        for attempt in [1, 2, 17] {
            let name = request::name(workload, check, attempt);
            assert!(name.len() <= 253);
            assert_eq!(request::attempt(&name, workload, check), Some(attempt));
            assert!(request::template_name(&name, "main").len() <= 253);
        }
        assert_eq!(request::attempt("wl-other-1", workload, check), None);
        assert_eq!(request::attempt("wl-ac-", workload, check), None);
    }
}

/// Writes fail, answers get lost, the process dies: in the end there is one request with its template, and never a
/// second one was made for the same attempt.
#[test]
fn faults_neither_lose_nor_double_a_request() {
    for seed in 1..200_u64 {
        let mut world = World::new(one(), &config());
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut roll = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        for round in 0..60 {
            if roll(8) == 0 {
                world.restart();
            }
            for write in world.plan() {
                let fate = match roll(4) {
                    _ if round > 50 => Fate::Done,
                    0 => Fate::Refused,
                    1 => Fate::AnswerLost,
                    _ => Fate::Done,
                };
                if !world.write(&write, fate) {
                    break;
                }
            }
            if round == 50 {
                world.restart();
            }
        }
        assert!(world.plan().is_empty(), "{seed}");
        assert_eq!(world.requests(), ["wl-ac-1"], "{seed}");
        assert_eq!(world.made.len(), 2, "{seed}: {:?}", world.made);
        let template = &world.objects[&(Kind::PodTemplate, "ns".into(), "ppt-wl-ac-1-main".into())];
        assert_eq!(json::controller(template).unwrap()["kind"], "ProvisioningRequest", "{seed}");
    }
}

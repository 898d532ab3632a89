//! Controllers seen through HTTP: StatefulSets, budgets, nodes that fall silent, claims from templates.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::support::{Harness, condition, names};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const NODES: &str = "/api/v1/nodes";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

/// With the claim that the set gives it.
fn mounted(image: &str) -> Value {
    let mut template = template(image);
    template["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    template
}

fn set(replicas: i32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas, "serviceName": "web", "selector": {"matchLabels": {"app": "web"}},
            "template": mounted("one"),
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}],
        },
    })
}

/// What `kubectl rollout status` waits for.
fn is_rolled_out(set: &Value, replicas: i32) -> bool {
    let (status, generation) = (&set["status"], &set["metadata"]["generation"]);
    status["observedGeneration"] == *generation
        && status["readyReplicas"] == replicas
        && status["updatedReplicas"] == replicas
        && status["updateRevision"] == status["currentRevision"]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stateful_set_has_pods_with_names_that_stay() {
    let harness = Harness::new(20.0).await;
    let one = format!("{SETS}/web");
    harness.create(SETS, &set(3)).await;
    let first = harness.until("a rollout", &one, |s| is_rolled_out(s, 3)).await;
    let pods = harness.get(PODS).await;
    assert_eq!(names(&pods), ["web-0", "web-1", "web-2"]);
    let at = |list: &Value, i: usize| {
        list["items"][i]["metadata"]["creationTimestamp"].as_str().unwrap().to_owned()
    };
    assert!(at(&pods, 0) <= at(&pods, 1) && at(&pods, 1) <= at(&pods, 2));
    let pod = &pods["items"][1];
    assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["subdomain"]), (&json!("web-1"), &json!("web")));
    assert_eq!(pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "data-web-1");
    let labels = &pod["metadata"]["labels"];
    assert_eq!(labels["statefulset.kubernetes.io/pod-name"], "web-1");
    assert_eq!(labels["apps.kubernetes.io/pod-index"], "1");
    assert_eq!(labels["controller-revision-hash"], first["status"]["currentRevision"]);
    let claims = harness.get("/api/v1/namespaces/default/persistentvolumeclaims").await;
    assert_eq!(names(&claims), ["data-web-0", "data-web-1", "data-web-2"]);

    // A deleted pod comes back under its name, with its claim.
    let uid = harness.get(&format!("{PODS}/web-1")).await["metadata"]["uid"].clone();
    harness.delete(&format!("{PODS}/web-1")).await;
    harness
        .until("the pod again", &format!("{PODS}/web-1"), |p| {
            p["metadata"]["uid"].is_string() && p["metadata"]["uid"] != uid
        })
        .await;

    // A new template with a partition: only the last pod gets it, then all of them.
    let rolling =
        json!({"spec": {"template": mounted("two"), "updateStrategy": {"rollingUpdate": {"partition": 2}}}});
    harness.patch(&one, &rolling).await;
    let image = |pod: &Value| pod["spec"]["containers"][0]["image"].clone();
    harness.until("the new template", &format!("{PODS}/web-2"), |p| image(p) == "two").await;
    let now = harness
        .until("the partition", &one, |s| {
            s["status"]["updatedReplicas"] == 1 && s["status"]["readyReplicas"] == 3
        })
        .await;
    assert_eq!(now["status"]["currentReplicas"], 2);
    assert_eq!(image(&harness.get(&format!("{PODS}/web-0")).await), "one");
    harness.patch(&one, &json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}})).await;
    let second = harness.until("the rest", &one, |s| is_rolled_out(s, 3)).await;
    assert_ne!(second["status"]["currentRevision"], first["status"]["currentRevision"]);
    assert_eq!(image(&harness.get(&format!("{PODS}/web-0")).await), "two");

    // Back to the first: its revision becomes the newest.
    harness.patch(&one, &json!({"spec": {"template": mounted("one")}})).await;
    let third = harness
        .until("the way back", &one, |s| {
            is_rolled_out(s, 3) && s["status"]["currentRevision"] == first["status"]["currentRevision"]
        })
        .await;
    let revisions = harness.get(REVISIONS).await;
    assert_eq!(revisions["items"].as_array().unwrap().len(), 2);
    let newest =
        revisions["items"].as_array().unwrap().iter().max_by_key(|r| r["revision"].as_i64()).unwrap();
    assert_eq!(
        (&newest["metadata"]["name"], &newest["revision"]),
        (&third["status"]["updateRevision"], &json!(3))
    );

    // Fewer: from the end; claims stay. None: the set takes its pods with it.
    harness.patch(&one, &json!({"spec": {"replicas": 1}})).await;
    harness.until("one pod", PODS, |l| names(l) == ["web-0"]).await;
    assert_eq!(names(&harness.get("/api/v1/namespaces/default/persistentvolumeclaims").await).len(), 3);
    harness.delete(&one).await;
    harness.until("no pod", PODS, |l| names(l).is_empty()).await;
    harness.stop().await;
}

/// What can't be changed in a StatefulSet is changed so: it goes without its pods, and comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_that_comes_back_takes_its_pods_and_revisions_over() {
    let harness = Harness::new(20.0).await;
    let one = format!("{SETS}/web");
    let first = harness.create(SETS, &set(2)).await;
    harness.until("a rollout", &one, |s| is_rolled_out(s, 2)).await;
    harness.patch(&one, &json!({"spec": {"template": mounted("two")}})).await;
    let before = harness
        .until("another", &one, |s| is_rolled_out(s, 2) && s["status"]["observedGeneration"] == 2)
        .await;
    let uids = |list: &Value| -> Vec<Value> {
        list["items"].as_array().unwrap().iter().map(|p| p["metadata"]["uid"].clone()).collect()
    };
    let pods = uids(&harness.get(PODS).await);
    harness.delete(&format!("{one}?propagationPolicy=Orphan")).await;
    harness.until("its end", &one, |s| s["code"] == 404).await;
    let mut again = set(2);
    again["spec"]["template"] = mounted("two");
    let made = harness.create(SETS, &again).await;
    assert_ne!(made["metadata"]["uid"], first["metadata"]["uid"]);
    let after = harness.until("its pods", &one, |s| is_rolled_out(s, 2)).await;
    assert_eq!(after["status"]["updateRevision"], before["status"]["updateRevision"]);
    assert_eq!(uids(&harness.get(PODS).await), pods);
    let revisions = harness.get(REVISIONS).await;
    let owners =
        revisions["items"].as_array().unwrap().iter().map(|r| &r["metadata"]["ownerReferences"][0]["uid"]);
    assert_eq!(owners.collect::<Vec<_>>(), [&made["metadata"]["uid"]; 2]);
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordered_set_waits_for_its_first_pod() {
    let harness = Harness::new(20.0).await;
    let mut held = set(2);
    held["spec"]["template"]["metadata"]["annotations"] = json!({"hold": "yes"});
    harness.create(SETS, &held).await;
    harness.until("the first", PODS, |l| names(l) == ["web-0"]).await;
    let mut parallel = held.clone();
    parallel["metadata"]["name"] = json!("all");
    parallel["spec"]["podManagementPolicy"] = json!("Parallel");
    parallel["spec"]["selector"]["matchLabels"]["app"] = json!("all");
    parallel["spec"]["template"]["metadata"]["labels"]["app"] = json!("all");
    harness.create(SETS, &parallel).await;
    harness.until("all at once", PODS, |l| names(l) == ["all-0", "all-1", "web-0"]).await;
    harness.stop().await;
}

fn evict(name: &str) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_counts_and_evictions_use_it_up() {
    let harness = Harness::new(20.0).await;
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 4, "selector": {"matchLabels": {"app": "web"}}, "template": template("one")},
    });
    harness.create("/apis/apps/v1/namespaces/default/deployments", &deployment).await;
    let budget = |name: &str, spec: Value| {
        let mut spec = spec;
        spec["selector"] = json!({"matchLabels": {"app": "web"}});
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec})
    };
    harness.create(BUDGETS, &budget("b", json!({"maxUnavailable": "25%"}))).await;
    let full = |b: &Value| b["status"]["currentHealthy"] == 4 && b["status"]["disruptionsAllowed"] == 1;
    let found = harness.until("a count", &format!("{BUDGETS}/b"), full).await;
    let status = &found["status"];
    assert_eq!((&status["expectedPods"], &status["desiredHealthy"]), (&json!(4), &json!(3)));
    assert_eq!(condition(&found, "DisruptionAllowed")["reason"], "SufficientPods");
    // Scaled in proportion.
    let scale = json!({"spec": {"replicas": 8}});
    harness.patch("/apis/apps/v1/namespaces/default/deployments/web", &scale).await;
    let more = |b: &Value| b["status"]["currentHealthy"] == 8 && b["status"]["disruptionsAllowed"] == 2;
    harness.until("a larger budget", &format!("{BUDGETS}/b"), more).await;
    harness.delete(&format!("{BUDGETS}/b")).await;

    // An absolute minimum: nothing may go, says the server, until one more is allowed.
    harness.create(BUDGETS, &budget("strict", json!({"minAvailable": 8}))).await;
    let strict = format!("{BUDGETS}/strict");
    let none = |b: &Value| b["status"]["desiredHealthy"] == 8 && b["status"]["currentHealthy"] == 8;
    let found = harness.until("a strict count", &strict, none).await;
    assert_eq!(found["status"]["disruptionsAllowed"], 0);
    assert_eq!(condition(&found, "DisruptionAllowed")["reason"], "InsufficientPods");
    let pods = harness.get(PODS).await;
    let victim = names(&pods)[0].to_owned();
    let path = format!("{PODS}/{victim}/eviction");
    let (code, answer) = harness.api.send("POST", &path, Some(&evict(&victim))).await;
    assert_eq!(
        (code, &answer["details"]["causes"][0]["message"]),
        (429, &json!("The disruption budget strict needs 8 healthy pods and has 8 currently"))
    );
    harness.patch(&strict, &json!({"spec": {"minAvailable": 7}})).await;
    harness.until("room", &strict, |b| b["status"]["disruptionsAllowed"] == 1).await;
    let (code, answer) = harness.api.send("POST", &path, Some(&evict(&victim))).await;
    assert_eq!(code, 201, "{answer}");
    // The pod goes, another takes its place, and the budget is whole again.
    harness.until("the pod's end", &format!("{PODS}/{victim}"), |p| p["code"] == 404).await;
    let whole = |b: &Value| b["status"]["disruptionsAllowed"] == 1 && b["status"]["disruptedPods"].is_null();
    harness.until("a whole budget", &strict, whole).await;

    // Pods of something without a size can't be counted in percent.
    harness.delete("/apis/apps/v1/namespaces/default/deployments/web").await;
    harness.until("no pods", PODS, |l| names(l).is_empty()).await;
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {"template": {"metadata": {"labels": {"app": "web"}}, "spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
    });
    harness.create("/apis/batch/v1/namespaces/default/jobs", &job).await;
    harness.create(BUDGETS, &budget("share", json!({"minAvailable": "50%"}))).await;
    let failed = |b: &Value| condition(b, "DisruptionAllowed")["reason"] == "SyncFailed";
    let found = harness.until("a failure", &format!("{BUDGETS}/share"), failed).await;
    assert_eq!(
        condition(&found, "DisruptionAllowed")["message"],
        "jobs.batch does not implement the scale subresource"
    );
    harness.stop().await;
}

/// A pod that does not run yet needs no budget, and is marked as well; preconditions are about the pod as it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evictions_of_pending_pods_say_so_and_keep_to_their_preconditions() {
    let harness = Harness::new(20.0).await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": {"hold": "yes"}, "finalizers": ["example.com/keep"]},
        "spec": {"schedulerName": "none", "containers": [{"name": "c", "image": "i"}]},
    });
    harness.create(PODS, &pod).await;
    let (path, eviction) = (format!("{PODS}/p"), format!("{PODS}/p/eviction"));
    let version = harness.get(&path).await["metadata"]["resourceVersion"].clone();
    let with = |preconditions: Value| {
        let mut body = evict("p");
        body["deleteOptions"] = json!({ "preconditions": preconditions });
        body
    };
    let (code, answer) = harness.api.send("POST", &eviction, Some(&with(json!({"uid": "another"})))).await;
    assert_eq!((code, &answer["reason"]), (409, &json!("Conflict")));
    let pod = harness.get(&path).await;
    assert_eq!(
        (condition(&pod, "DisruptionTarget"), &pod["metadata"]["resourceVersion"]),
        (&Value::Null, &version)
    );
    let (code, answer) =
        harness.api.send("POST", &eviction, Some(&with(json!({"resourceVersion": version})))).await;
    assert_eq!(code, 201, "{answer}");
    let pod = harness.get(&path).await;
    assert_eq!(condition(&pod, "DisruptionTarget")["reason"], "EvictionByEvictionAPI");
    assert!(pod["metadata"]["deletionTimestamp"].is_string(), "{pod}");
    harness.stop().await;
}

fn taints(node: &Value) -> Vec<String> {
    let list = node["spec"]["taints"].as_array().into_iter().flatten();
    let mut all: Vec<_> = list
        .map(|t| {
            format!(
                "{}:{}",
                t["key"].as_str().unwrap().rsplit('/').next().unwrap(),
                t["effect"].as_str().unwrap()
            )
        })
        .collect();
    all.sort();
    all
}

async fn node(harness: &Harness, name: &str) {
    let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    harness.create(NODES, &object).await;
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40},
    });
    harness.create(LEASES, &lease).await;
    report(harness, name, "True").await;
}

async fn report(harness: &Harness, name: &str, ready: &str) {
    let now = harness.now();
    let ready =
        json!({"type": "Ready", "status": ready, "lastHeartbeatTime": now, "lastTransitionTime": now});
    harness.patch(&format!("{NODES}/{name}/status"), &json!({"status": {"conditions": [ready]}})).await;
}

async fn renew(harness: &Harness, name: &str) {
    let renewed = json!({"spec": {"renewTime": harness.now().replace('Z', ".000000Z")}});
    harness.patch(&format!("{LEASES}/{name}"), &renewed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_node_loses_its_pods() {
    let harness = Harness::new(20.0).await;
    for name in ["alive", "silent"] {
        node(&harness, name).await;
    }
    let silent = format!("{NODES}/silent");
    harness.until("no taints", &silent, |n| taints(n).is_empty()).await;
    let pod = |name: &str, seconds: Value| {
        let mut toleration =
            json!({"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"});
        if !seconds.is_null() {
            toleration["tolerationSeconds"] = seconds;
        }
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"nodeName": "silent", "containers": [{"name": "c", "image": "i"}], "tolerations": [toleration]},
        })
    };
    for (name, seconds) in [("short", json!(20)), ("long", json!(3000)), ("ever", Value::Null)] {
        harness.create(PODS, &pod(name, seconds)).await;
    }
    // One node renews its lease, the other doesn't.
    let began = harness.clock.now();
    let unknown = loop {
        renew(&harness, "alive").await;
        let node = harness.get(&silent).await;
        if taints(&node) == ["unreachable:NoExecute", "unreachable:NoSchedule"] {
            break node;
        }
        assert!(harness.clock.now().duration_since(began).as_secs() < 200, "{node:#}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    assert!(harness.clock.now().duration_since(began).as_secs() >= 45);
    let ready = condition(&unknown, "Ready");
    assert_eq!(
        (&ready["status"], &ready["reason"], &ready["message"]),
        (&json!("Unknown"), &json!("NodeStatusUnknown"), &json!("Kubelet stopped posting node status."))
    );
    assert!(taints(&harness.get(&format!("{NODES}/alive")).await).is_empty());
    harness
        .until("a pod that isn't ready", &format!("{PODS}/ever"), |p| {
            condition(p, "Ready")["status"] == "False"
        })
        .await;
    loop {
        renew(&harness, "alive").await;
        let left = harness.get(PODS).await;
        if names(&left) == ["ever", "long"] {
            break;
        }
        assert_eq!(names(&left), ["ever", "long", "short"]);
        assert!(harness.clock.now().duration_since(began).as_secs() < 300, "{left:#}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    // It reports again: taints go, and the pod that only had some time stays.
    report(&harness, "silent", "True").await;
    renew(&harness, "silent").await;
    harness.until("a healthy node", &silent, |n| taints(n).is_empty()).await;
    assert_eq!(names(&harness.get(PODS).await), ["ever", "long"]);
    // Cordoned.
    harness.patch(&silent, &json!({"spec": {"unschedulable": true}})).await;
    harness.until("a cordon", &silent, |n| taints(n).contains(&"unschedulable:NoSchedule".to_owned())).await;
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_come_from_templates_and_go_with_their_pods() {
    let harness = Harness::new(20.0).await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": {"hold": "yes"}},
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
        },
    });
    harness.create(PODS, &pod).await;
    // The template comes later than the pod.
    let request = json!({"name": "r", "exactly": {"deviceClassName": "gpu"}});
    let template = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "one-gpu"},
        "spec": {"metadata": {"labels": {"kind": "gpu"}}, "spec": {"devices": {"requests": [request]}}},
    });
    harness.create("/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates", &template).await;
    let named = |p: &Value| p["status"]["resourceClaimStatuses"][0]["resourceClaimName"].is_string();
    let found = harness.until("a name", &format!("{PODS}/p"), named).await;
    let name = found["status"]["resourceClaimStatuses"][0]["resourceClaimName"].as_str().unwrap().to_owned();
    assert!(name.starts_with("p-gpu-"), "{name}");
    let path = format!("{CLAIMS}/{name}");
    let claim = harness.get(&path).await;
    assert_eq!(claim["metadata"]["annotations"]["resource.kubernetes.io/pod-claim-name"], "gpu");
    assert_eq!(claim["metadata"]["labels"]["kind"], "gpu");
    assert_eq!(claim["metadata"]["ownerReferences"][0]["uid"], found["metadata"]["uid"]);
    // As a scheduler leaves it.
    harness
        .patch(&path, &json!({"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}))
        .await;
    let results = json!([{"request": "r", "driver": "d.example.com", "pool": "p", "device": "x"}]);
    let status = json!({"status": {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": found["metadata"]["uid"]}],
    }});
    harness.patch(&format!("{path}/status"), &status).await;
    // The pod is done: the claim is given back and goes.
    harness.patch(&format!("{PODS}/p/status"), &json!({"status": {"phase": "Succeeded"}})).await;
    harness.until("no claim", &path, |c| c["code"] == 404).await;
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_have_the_endpoints_of_their_pods() {
    const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints";
    const SERVICES: &str = "/api/v1/namespaces/default/services";
    let harness = Harness::new(20.0).await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "labels": {"team": "a"}},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
    });
    harness.create(SERVICES, &service).await;
    // Nobody there: an Endpoints object and one slice, both empty.
    let empty = harness.until("a slice", SLICES, |l| l["items"][0].is_object()).await;
    let slice = &empty["items"][0];
    assert_eq!(slice["metadata"]["labels"]["kubernetes.io/service-name"], "web");
    assert_eq!(slice["metadata"]["labels"]["team"], "a");
    assert_eq!(slice["metadata"]["ownerReferences"][0]["kind"], "Service");
    assert_eq!((slice["addressType"].as_str(), slice["endpoints"][0].is_null()), (Some("IPv4"), true));
    let web = format!("{ENDPOINTS}/web");
    harness
        .until("endpoints", &web, |e| e["metadata"]["labels"]["team"] == "a" && e["subsets"].is_null())
        .await;

    for (n, ready) in [(1, "True"), (2, "False")] {
        let mut pod = template("one");
        pod["metadata"]["name"] = json!(format!("p{n}"));
        pod["metadata"]["annotations"] = json!({"hold": ""});
        harness.create(PODS, &pod).await;
        let ip = format!("10.64.0.{n}");
        let status = json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
            "conditions": [{"type": "Ready", "status": ready}]});
        harness.patch(&format!("{PODS}/p{n}/status"), &json!({"status": status})).await;
    }
    let both = harness.until("both pods", SLICES, |l| l["items"][0]["endpoints"][1].is_object()).await;
    assert_eq!(names(&both).len(), 1, "the empty slice is used");
    let ends = both["items"][0]["endpoints"].as_array().unwrap();
    assert_eq!(both["items"][0]["ports"][0]["port"], 8080);
    for (end, ready) in ends.iter().zip([true, false]) {
        assert_eq!(
            (&end["conditions"]["ready"], &end["conditions"]["serving"]),
            (&json!(ready), &json!(ready))
        );
    }
    let old = harness.until("addresses", &web, |e| e["subsets"][0]["notReadyAddresses"].is_array()).await;
    assert_eq!(old["subsets"][0]["addresses"][0]["ip"], "10.64.0.1");
    assert_eq!(old["subsets"][0]["addresses"][0]["targetRef"]["name"], "p1");
    assert_eq!(old["subsets"][0]["notReadyAddresses"][0]["ip"], "10.64.0.2");
    assert_eq!(old["subsets"][0]["ports"], json!([{"port": 8080, "protocol": "TCP"}]));

    // What somebody takes away comes back; what nobody needs goes.
    let name = names(&both)[0].to_owned();
    harness.delete(&format!("{SLICES}/{name}")).await;
    harness.until("the slice again", SLICES, |l| l["items"][0]["endpoints"][1].is_object()).await;
    harness.delete(&format!("{PODS}/p1")).await;
    harness
        .until("one less", SLICES, |l| l["items"][0]["endpoints"].as_array().is_some_and(|e| e.len() == 1))
        .await;
    // Whoever looks after the Endpoints, they go with the Service.
    let mine = json!({"metadata": {"name": "mine"}, "spec": {"ports": [{"port": 80}]}});
    harness.create(SERVICES, &mine).await;
    harness.create(ENDPOINTS, &json!({"metadata": {"name": "mine"}})).await;
    harness.create(ENDPOINTS, &json!({"metadata": {"name": "nobodys"}})).await;
    harness.until("the Service", &format!("{SERVICES}/mine"), |s| s["spec"]["clusterIP"].is_string()).await;
    harness.delete(&format!("{SERVICES}/mine")).await;
    harness.until("its endpoints are gone", ENDPOINTS, |l| names(l) == ["nobodys", "web"]).await;
    harness.delete(&format!("{ENDPOINTS}/nobodys")).await;
    harness.delete(&format!("{SERVICES}/web")).await;
    harness.until("no slices", SLICES, |l| l["items"] == json!([])).await;
    harness.until("no endpoints", ENDPOINTS, |l| l["items"] == json!([])).await;
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_set_has_a_pod_on_each_node() {
    const DAEMONS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
    const TARGET: &str = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/\
                          nodeSelectorTerms/0/matchFields/0/values/0";
    let harness = Harness::new(20.0).await;
    for name in ["a", "b"] {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"disk": "ssd"}}});
        harness.create(NODES, &node).await;
    }
    let mut template = template("one");
    template["spec"]["nodeSelector"] = json!({"disk": "ssd"});
    // Nobody reports for these nodes: they stay tainted.
    template["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    let set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "ds"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template},
    });
    harness.create(DAEMONS, &set).await;
    let one = format!("{DAEMONS}/ds");
    // What `kubectl rollout status` waits for.
    let done = |s: &Value, n: i32| {
        let status = &s["status"];
        status["observedGeneration"] == s["metadata"]["generation"]
            && [
                &status["desiredNumberScheduled"],
                &status["updatedNumberScheduled"],
                &status["numberAvailable"],
            ]
            .iter()
            .all(|v| **v == json!(n))
    };
    let image = |pod: &Value| pod["spec"]["containers"][0]["image"].as_str().unwrap_or_default().to_owned();
    let targets = |list: &Value| -> Vec<(String, String)> {
        let of =
            |p: &Value| (p.pointer(TARGET).and_then(Value::as_str).unwrap_or_default().to_owned(), image(p));
        let mut all: Vec<_> = list["items"].as_array().into_iter().flatten().map(of).collect();
        all.sort();
        all
    };
    let pair = |x: &str, y: &str| (x.to_owned(), y.to_owned());
    harness.until("two pods", &one, |s| done(s, 2)).await;
    assert_eq!(targets(&harness.get(PODS).await), [pair("a", "one"), pair("b", "one")]);

    // A node comes, one is no longer wanted.
    let node =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "c", "labels": {"disk": "ssd"}}});
    harness.create(NODES, &node).await;
    harness.until("three pods", &one, |s| done(s, 3)).await;
    harness.patch(&format!("{NODES}/a"), &json!({"metadata": {"labels": {"disk": "hdd"}}})).await;
    harness.until("two pods again", PODS, |l| targets(l) == [pair("b", "one"), pair("c", "one")]).await;

    // A new template, and the way back.
    for next in ["two", "one"] {
        let change = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": next}]}}}});
        harness.patch(&one, &change).await;
        harness.until("a rollout", PODS, |l| targets(l) == [pair("b", next), pair("c", next)]).await;
        harness.until("its end", &one, |s| done(s, 2)).await;
    }
    let revisions = harness.get(REVISIONS).await;
    let mut numbers: Vec<_> =
        revisions["items"].as_array().unwrap().iter().map(|r| r["revision"].as_i64()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [Some(2), Some(3)]);

    // What is lost comes back; a failed pod is replaced.
    let pods = harness.get(PODS).await;
    harness.delete(&format!("{PODS}/{}", names(&pods)[0])).await;
    harness
        .patch(&format!("{PODS}/{}/status", names(&pods)[1]), &json!({"status": {"phase": "Failed"}}))
        .await;
    let old: Vec<_> = names(&pods).iter().map(ToString::to_string).collect();
    harness
        .until("other pods", PODS, |l| {
            names(l).len() == 2 && !names(l).iter().any(|n| old.contains(&(*n).to_owned()))
        })
        .await;
    harness.delete(&one).await;
    harness.until("no pods", PODS, |l| l["items"] == json!([])).await;
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_of_a_stateful_set_go_as_it_says() {
    const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
    let harness = Harness::new(20.0).await;
    let one = format!("{SETS}/web");
    let mut wanted = set(3);
    wanted["spec"]["persistentVolumeClaimRetentionPolicy"] =
        json!({"whenScaled": "Delete", "whenDeleted": "Retain"});
    harness.create(SETS, &wanted).await;
    harness.until("a rollout", &one, |s| is_rolled_out(s, 3)).await;
    assert_eq!(names(&harness.get(CLAIMS).await).len(), 3);
    // The claim of a pod that is too many goes with it.
    harness.patch(&one, &json!({"spec": {"replicas": 2}})).await;
    harness.until("two claims", CLAIMS, |l| names(l) == ["data-web-0", "data-web-1"]).await;
    // The others go with the set, once it says so.
    let all = json!({"spec": {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}}});
    harness.patch(&one, &all).await;
    let owned = |l: &Value| {
        l["items"]
            .as_array()
            .unwrap()
            .iter()
            .all(|c| c["metadata"]["ownerReferences"][0]["kind"] == "StatefulSet")
    };
    harness.until("claims of the set", CLAIMS, owned).await;
    harness.delete(&one).await;
    harness.until("no claims", CLAIMS, |l| l["items"] == json!([])).await;
    harness.stop().await;
}

/// `createPersistentVolumeClaims`: a set that is applied again while the claims of the one before are still going.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stateful_set_waits_for_claims_that_are_going() {
    const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
    const EVENTS: &str = "/api/v1/namespaces/default/events";
    let harness = Harness::new(20.0).await;
    let one = format!("{SETS}/web");
    let mut wanted = set(1);
    wanted["spec"]["persistentVolumeClaimRetentionPolicy"] = json!({"whenDeleted": "Delete"});
    harness.create(SETS, &wanted).await;
    harness.until("a rollout", &one, |s| is_rolled_out(s, 1)).await;
    let claim = format!("{CLAIMS}/data-web-0");
    let owned = |c: &Value| c["metadata"]["ownerReferences"][0]["kind"] == "StatefulSet";
    let first = harness.until("the set's claim", &claim, owned).await;
    harness.patch(&claim, &json!({"metadata": {"finalizers": ["test.example/held"]}})).await;
    harness.delete(&one).await;
    harness.create(SETS, &wanted).await;
    harness.until("a claim that goes", &claim, |c| c["metadata"]["deletionTimestamp"].is_string()).await;
    let told = |l: &Value| {
        let mut all = l["items"].as_array().into_iter().flatten();
        let wanted = "create Pod web-0 in StatefulSet web failed error: pvc data-web-0 is being deleted";
        all.any(|e| e["reason"] == "FailedCreate" && e["message"] == wanted)
    };
    harness.until("an event", EVENTS, told).await;
    harness.until("no pod", PODS, |l| l["items"] == json!([])).await;
    harness.patch(&claim, &json!({"metadata": {"finalizers": null}})).await;
    harness.until("another rollout", &one, |s| is_rolled_out(s, 1)).await;
    let second = harness.get(&claim).await;
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
    assert!(second["metadata"]["deletionTimestamp"].is_null());
    harness.stop().await;
}

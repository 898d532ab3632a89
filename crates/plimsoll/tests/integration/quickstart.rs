//! The quickstart and its neighbours, end to end: the program, its API server, queueing, placement, controllers and
//! simulated nodes, seen through a client's eyes.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::common::{Up, assert_within_quota, condition, job, pod, queue};
use plimsoll_api::json;
use plimsoll_runtime::api::{CLUSTER_QUEUES, EVENTS, JOBS, LOCAL_QUEUES, PODS, PatchKind, WORKLOADS};
use serde_json::{Value, json};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";

fn quickstart() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/quickstart.yaml");
    std::fs::read_to_string(path).unwrap()
}

fn done(object: &Value) -> bool {
    json::is_true(object, "Complete") || json::text(object, &["status", "phase"]) == "Succeeded"
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_in_the_quickstart_completes_within_its_quota() {
    let up = Up::start(&["--speed", "10"]).await;
    // Unoptimised builds on a machine that runs all tests at once are given more time.
    let limit = if cfg!(debug_assertions) { 60.0 } else { 2.0 };
    assert!(up.ready["seconds"].as_f64().unwrap() < limit, "{}", up.ready);
    up.apply(&quickstart()).await;
    let mut waited = BTreeSet::new();
    let began = Instant::now();
    loop {
        let (jobs, pods) = (up.list(JOBS).await, up.list(PODS).await);
        let workloads = up.list(WORKLOADS).await;
        assert_within_quota(&up.list(CLUSTER_QUEUES).await, &workloads);
        look(&jobs, &pods, &workloads, &mut waited);
        let plain = pods.iter().filter(|p| json::controller(p).is_none());
        if jobs.len() == 6 && jobs.iter().all(done) && plain.clone().count() == 2 && plain.clone().all(done) {
            break;
        }
        assert!(began.elapsed() < crate::common::PATIENCE, "{jobs:#?} {workloads:#?}");
    }
    assert!(!waited.is_empty(), "the manifests ask for more than the quota, so something has to wait");
    finished(&up).await;
    released(&up).await;
    recorded(&up).await;
    kubectl(&up);
}

/// What holds at every moment.
fn look(jobs: &[Value], pods: &[Value], workloads: &[Value], waited: &mut BTreeSet<String>) {
    for wl in workloads {
        let (status, reason, message) = condition(wl, "QuotaReserved");
        if status == "False" && reason == "WaitingForQuota" {
            assert!(message.contains("insufficient unused quota for"), "{message}");
            waited.insert(json::name(wl).to_owned());
        }
    }
    for job in jobs {
        let name =
            plimsoll_api::kueue::WorkloadNames::Long.of("Job", "batch", json::name(job), json::uid(job));
        let wl = workloads.iter().find(|w| json::name(w) == name);
        let ran = json::int(job, &["status", "active"]).unwrap_or(0) > 0;
        // The lists are read one after the other, so what was admitted may be seen to run before it is seen admitted
        // only if the workload was listed first; it is listed last.
        let admitted = wl.is_some_and(|w| json::is_true(w, "Admitted") || json::is_true(w, "Finished"));
        assert!(!ran || admitted, "{} runs without admission", json::name(job));
    }
    for pod in pods.iter().filter(|p| json::controller(p).is_none()) {
        let gated = json::list(pod, &["spec", "schedulingGates"])
            .iter()
            .any(|g| g["name"] == "kueue.x-k8s.io/admission");
        if gated {
            assert_eq!(condition(pod, "PodScheduled").1, "SchedulingGated");
            assert_eq!(json::text(pod, &["spec", "nodeName"]), "");
        }
    }
}

async fn finished(up: &Up) {
    up.until("all workloads finished", async |up| {
        let all = up.list(WORKLOADS).await;
        (all.len() == 8 && all.iter().all(|w| json::is_true(w, "Finished"))).then_some(())
    })
    .await;
    let manifests: Vec<Value> = serde_saphyr::from_multiple(&quickstart()).unwrap();
    for wl in up.list(WORKLOADS).await {
        let name = json::name(&wl);
        let reserved = ("True", "QuotaReserved", "Quota reserved in ClusterQueue shared");
        assert_eq!(condition(&wl, "QuotaReserved"), reserved, "{name}");
        assert_eq!(condition(&wl, "Admitted"), ("True", "Admitted", "The workload is admitted"), "{name}");
        let (_, reason, message) = condition(&wl, "Finished");
        assert_eq!(reason, "Succeeded", "{name}");
        if name.starts_with("job-") {
            assert_eq!(message, "Reached expected number of succeeded pods");
        }
        let owner = json::controller(&wl).unwrap();
        let (kind, group) = if owner["kind"] == "Job" { ("Job", "batch") } else { ("Pod", "") };
        let (owner_name, uid) = (json::text(owner, &["name"]), json::text(owner, &["uid"]));
        assert_eq!(name, plimsoll_api::kueue::WorkloadNames::Long.of(kind, group, owner_name, uid));
        assert_eq!(json::label(&wl, "kueue.x-k8s.io/job-uid"), uid);
        let job = manifests.iter().find(|m| m["kind"] == kind && json::name(m) == owner_name).unwrap();
        let class = json::label(job, "kueue.x-k8s.io/priority-class");
        let class = manifests.iter().find(|m| m["kind"] == "WorkloadPriorityClass" && json::name(m) == class);
        let wanted = class.map_or(0, |c| c["value"].as_i64().unwrap());
        assert_eq!(wl["spec"]["priority"], wanted, "{name}");
    }
    for pod in up.list(PODS).await {
        let zone = json::text(&pod, &["spec", "nodeSelector", "topology.kubernetes.io/zone"]);
        let node = up.get(plimsoll_runtime::api::NODES, "", json::text(&pod, &["spec", "nodeName"])).await;
        assert_eq!(
            json::label(&node, "topology.kubernetes.io/zone"),
            zone,
            "the flavor's labels decide the node"
        );
    }
}

/// Usage is zero and nothing is counted any more.
async fn released(up: &Up) {
    let zero = |object: &Value| {
        let rows = ["flavorsReservation", "flavorsUsage"]
            .into_iter()
            .flat_map(|k| json::list(object, &["status", k]));
        let totals = rows.flat_map(|f| json::list(f, &["resources"])).all(|r| r["total"] == "0");
        let counts = ["pendingWorkloads", "reservingWorkloads", "admittedWorkloads"];
        totals && counts.iter().all(|k| json::int(object, &["status", k]).unwrap_or(0) == 0)
    };
    up.until("usage is zero", async |up| {
        let queues = [up.list(CLUSTER_QUEUES).await, up.list(LOCAL_QUEUES).await].concat();
        (queues.len() == 3 && queues.iter().all(zero)).then_some(())
    })
    .await;
    let shared = up.get(CLUSTER_QUEUES, "", "shared").await;
    assert_eq!(condition(&shared, "Active"), ("True", "Ready", "Can admit new workloads"));
    assert_eq!(json::list(&shared, &["status", "flavorsUsage"]).len(), 2);
    let local = up.get(LOCAL_QUEUES, "team-a", "main").await;
    assert_eq!(condition(&local, "Active"), ("True", "Ready", "Can submit new workloads to localQueue"));
    for pod in up.list(PODS).await {
        let held = json::list(&pod, &["metadata", "finalizers"]);
        assert!(held.is_empty(), "{} is held by {held:?}", json::name(&pod));
    }
}

/// Events of queueing, placement, integration and kubelet, in upstream's words.
async fn recorded(up: &Up) {
    let wanted = [
        ("Workload", "QuotaReserved", "Quota reserved in ClusterQueue shared, wait time since queued was "),
        ("Workload", "Admitted", "Admitted by ClusterQueue shared, wait time since reservation was "),
        ("Job", "CreatedWorkload", "Created Workload: team-"),
        ("Job", "Started", "Admitted by clusterQueue shared"),
        ("Job", "FinishedWorkload", "Workload 'team-"),
        ("Pod", "Started", "Admitted by clusterQueue shared"),
        ("Pod", "Scheduled", "Successfully assigned team-"),
        ("Pod", "Pulled", "Container image \""),
    ];
    for (kind, reason, start) in wanted {
        up.until_shown(&format!("{reason} on a {kind}"), async |up| {
            let all = up.list(EVENTS).await;
            let found = |e: &Value| {
                e["regarding"]["kind"] == kind
                    && e["reason"] == reason
                    && json::text(e, &["note"]).starts_with(start)
            };
            let shown = |e: &Value| format!("{} {} {}", e["regarding"]["name"], e["reason"], e["note"]);
            let lines: Vec<String> = all.iter().map(shown).collect();
            all.iter().any(found).then_some(()).ok_or_else(|| lines.join("\n"))
        })
        .await;
    }
}

/// The same through kubectl, where there is one.
fn kubectl(up: &Up) {
    let run = |args: &[&str]| {
        let done =
            std::process::Command::new("kubectl").arg("--kubeconfig").arg(&up.kubeconfig).args(args).output();
        done.ok().map(|o| {
            assert!(o.status.success(), "kubectl {args:?}: {}", String::from_utf8_lossy(&o.stderr));
            String::from_utf8_lossy(&o.stdout).into_owned()
        })
    };
    let Some(table) = run(&["get", "workloads,jobs,pods", "-A"]) else { return };
    for want in
        ["workload.kueue.x-k8s.io/job-train-", "job.batch/train", "pod/notebook", "RESERVED IN", "shared"]
    {
        assert!(table.contains(want), "{want} is not in\n{table}");
    }
    let logs = run(&["logs", "-n", "team-a", "notebook"]).unwrap();
    assert!(logs.contains("sleep 10") && logs.contains("exit code 0"), "{logs}");
    run(&["describe", "workload", "-n", "team-a"]).unwrap();
    // Applying it once more changes nothing.
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/quickstart.yaml");
    run(&["apply", "-f", path]).unwrap();
    let again = run(&["apply", "-f", path]).unwrap();
    assert!(again.lines().all(|l| l.ends_with("unchanged")), "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn higher_priority_goes_first_and_then_the_older() {
    let up = Up::start(&["--speed", "20"]).await;
    up.apply(&queue(1)).await;
    for (name, value) in [("high", 100), ("low", -5)] {
        let class = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass",
                           "metadata": {"name": name}, "value": value});
        up.create(&class).await.unwrap();
    }
    hold(&up, "Hold").await;
    for (name, class) in [("c", Some("low")), ("b1", None), ("a", Some("high")), ("b2", None)] {
        let mut labels = json!({QUEUE: "main"});
        if let Some(class) = class {
            labels["kueue.x-k8s.io/priority-class"] = json!(class);
        }
        up.create(&job(name, &labels, 1, 6)).await.unwrap();
        // Creation times have whole seconds.
        tokio::time::sleep(Duration::from_millis(1100)).await;
    }
    let pending = up
        .until("all are held", async |up| {
            let all = up.list(WORKLOADS).await;
            (all.len() == 4).then_some(all)
        })
        .await;
    assert!(pending.iter().all(|w| !json::is_true(w, "QuotaReserved")));
    assert!(up.list(PODS).await.is_empty());
    hold(&up, "None").await;
    let mut order = Vec::new();
    up.until("all complete", async |up| {
        let workloads = up.list(WORKLOADS).await;
        assert_within_quota(&up.list(CLUSTER_QUEUES).await, &workloads);
        for wl in workloads.iter().filter(|w| json::is_true(w, "Admitted")) {
            let owner = json::text(json::controller(wl).unwrap(), &["name"]).to_owned();
            if !order.contains(&owner) {
                order.push(owner);
            }
        }
        up.list(JOBS).await.iter().all(done).then_some(())
    })
    .await;
    assert_eq!(order, ["a", "b1", "b2", "c"]);
}

async fn hold(up: &Up, policy: &str) {
    let patch = json!({"spec": {"stopPolicy": policy}});
    up.api.patch(CLUSTER_QUEUES, "", "cq", "", PatchKind::Merge, &patch).await.unwrap();
    let active = if policy == "None" { "True" } else { "False" };
    up.until("the queue follows its policy", async |up| {
        let cq = up.get(CLUSTER_QUEUES, "", "cq").await;
        (condition(&cq, "Active").0 == active).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_pod_is_gated_admitted_run_and_let_go() {
    let up = Up::start(&["--speed", "10"]).await;
    up.apply(&queue(1)).await;
    up.create(&pod("first", &json!({QUEUE: "main"}), 3000)).await.unwrap();
    up.until("the first runs", async |up| {
        let pod = up.get(PODS, "team", "first").await;
        (!json::text(&pod, &["spec", "nodeName"]).is_empty()).then_some(())
    })
    .await;
    let gated = up.create(&pod("second", &json!({QUEUE: "main"}), 1)).await.unwrap();
    let gates = json!([{"name": "kueue.x-k8s.io/admission"}, {"name": "kueue.x-k8s.io/topology"}]);
    assert_eq!(gated["spec"]["schedulingGates"], gates);
    assert_eq!(gated["metadata"]["finalizers"], json!(["kueue.x-k8s.io/managed"]));
    let name = plimsoll_api::kueue::WorkloadNames::Long.of("Pod", "", "second", json::uid(&gated));
    let waiting = up
        .until("the second waits", async |up| {
            let wl = up.api.get(WORKLOADS, "team", &name).await.ok()?;
            (condition(&wl, "QuotaReserved").0 == "False").then_some(wl)
        })
        .await;
    assert_eq!(condition(&waiting, "QuotaReserved").1, "WaitingForQuota");
    assert_eq!(
        condition(&waiting, "QuotaReserved").2,
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor any, 1 more needed"
    );
    assert_eq!(condition(&up.get(PODS, "team", "second").await, "PodScheduled").1, "SchedulingGated");
    up.api.delete(PODS, "team", "first", "", None).await.unwrap();
    let ended = up
        .until("the second has run", async |up| {
            let pod = up.get(PODS, "team", "second").await;
            (done(&pod) && json::list(&pod, &["metadata", "finalizers"]).is_empty()).then_some(pod)
        })
        .await;
    assert!(json::list(&ended, &["spec", "schedulingGates"]).is_empty());
    assert_eq!(json::label(&ended, "kueue.x-k8s.io/cluster-queue-name"), "cq");
    // Whoever is gone takes the workload along.
    up.api.delete(PODS, "team", "second", "", None).await.unwrap();
    up.until("its workload is collected", async |up| {
        up.api.get(WORKLOADS, "team", &name).await.is_err_and(|e| e.is_not_found()).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_group_is_admitted_whole() {
    let up = Up::start(&["--speed", "10"]).await;
    up.apply(&queue(2)).await;
    let member = |name: &str, count: u32| {
        let mut p = pod(name, &json!({QUEUE: "main", "kueue.x-k8s.io/pod-group-name": "group"}), 5);
        p["metadata"]["annotations"] = json!({"kueue.x-k8s.io/pod-group-total-count": count.to_string()});
        p
    };
    let refused =
        up.create(&pod("x", &json!({QUEUE: "main", "kueue.x-k8s.io/pod-group-name": "group"}), 5)).await;
    assert!(
        refused.unwrap_err().to_string().starts_with("admission webhook \"vpod.kb.io\" denied the request: ")
    );
    up.create(&member("a", 2)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(up.list(WORKLOADS).await.is_empty(), "the group is not complete");
    up.create(&member("b", 2)).await.unwrap();
    up.until("both run", async |up| {
        let pods = up.list(PODS).await;
        let bound: Vec<bool> =
            pods.iter().map(|p| !json::text(p, &["spec", "nodeName"]).is_empty()).collect();
        (bound == [true, true]).then_some(())
    })
    .await;
    let wl = up.get(WORKLOADS, "team", "group").await;
    assert_eq!(wl["spec"]["podSets"][0]["count"], 2);
    assert_eq!(json::list(&wl, &["metadata", "ownerReferences"]).len(), 2);
    up.until("the group is finished", async |up| {
        let wl = up.get(WORKLOADS, "team", "group").await;
        (condition(&wl, "Finished") == ("True", "Succeeded", "Pods succeeded: 2/2.")).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_of_somebody_else_holds_a_pod_until_it_is_removed() {
    let up = Up::start(&["--speed", "10"]).await;
    up.apply(&queue(2)).await;
    let mut held = pod("held", &json!({}), 1);
    held["spec"]["schedulingGates"] = json!([{"name": "example.com/wait"}]);
    let mut both = pod("both", &json!({QUEUE: "main"}), 1);
    both["spec"]["schedulingGates"] = json!([{"name": "example.com/wait"}]);
    up.create(&held).await.unwrap();
    up.create(&both).await.unwrap();
    up.until("our gate is gone and the other stays", async |up| {
        let pod = up.get(PODS, "team", "both").await;
        (pod["spec"]["schedulingGates"] == json!([{"name": "example.com/wait"}])).then_some(())
    })
    .await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    for name in ["held", "both"] {
        let pod = up.get(PODS, "team", name).await;
        assert_eq!(json::text(&pod, &["spec", "nodeName"]), "", "{name}");
        assert_eq!(condition(&pod, "PodScheduled").1, "SchedulingGated", "{name}");
        let patch = json!({"spec": {"schedulingGates": []}});
        up.api.patch(PODS, "team", name, "", PatchKind::Merge, &patch).await.unwrap();
    }
    up.until("both have run", async |up| up.list(PODS).await.iter().all(done).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fits_nowhere_says_so() {
    let up = Up::start(&["--speed", "10"]).await;
    up.apply(&queue(2)).await;
    let mut big = pod("big", &json!({}), 1);
    big["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("99");
    big["spec"]["schedulingGates"] = json!([{"name": "example.com/hold"}]);
    let since = |pod: &Value| pod["status"]["conditions"][0]["lastTransitionTime"].clone();
    let born = since(&up.create(&big).await.unwrap());
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let patch = json!({"spec": {"schedulingGates": []}});
    up.api.patch(PODS, "team", "big", "", PatchKind::Merge, &patch).await.unwrap();
    let want = "0/4 nodes are available: 4 Insufficient cpu. no new claims to deallocate, preemption: 0/4 nodes are \
                available: 4 Preemption is not helpful for scheduling.";
    up.until("the condition", async |up| {
        let pod = up.get(PODS, "team", "big").await;
        (condition(&pod, "PodScheduled").1 == "Unschedulable").then_some(())
    })
    .await;
    let pod = up.get(PODS, "team", "big").await;
    let message = condition(&pod, "PodScheduled").2;
    assert_eq!(message, want);
    assert_eq!(since(&pod), born, "it was not scheduled before either");
    up.until("the event", async |up| {
        let all = up.list(EVENTS).await;
        all.iter().any(|e| e["reason"] == "FailedScheduling" && e["note"] == message).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_lose_nothing_and_admit_nothing_twice() {
    let dir = crate::common::directory();
    let data = dir.join("data");
    let args = ["--data", data.to_str().unwrap(), "--speed", "4"];
    let mut up = Up::start_in(dir.clone(), &args).await;
    up.apply(&queue(3)).await;
    let mut acknowledged: BTreeMap<String, String> = BTreeMap::new();
    let mut next = 0;
    for round in 0..6u64 {
        let until = Instant::now() + Duration::from_millis(350 + 170 * round % 500);
        while Instant::now() < until {
            if next < 12 {
                let name = format!("job-{next}");
                let made = up.create(&job(&name, &json!({QUEUE: "main"}), 1 + next % 2, 3)).await.unwrap();
                acknowledged.insert(name, json::uid(&made).to_owned());
                next += 1;
            }
            assert_within_quota(&up.list(CLUSTER_QUEUES).await, &up.list(WORKLOADS).await);
        }
        up.kill();
        // The directory goes with its last user only.
        let old = std::mem::replace(&mut up.dir, std::env::temp_dir().join("plimsoll-test-none"));
        drop(up);
        up = Up::start_in(old, &args).await;
        let jobs = up.list(JOBS).await;
        for (name, uid) in &acknowledged {
            let found = jobs.iter().find(|j| json::name(j) == name);
            assert_eq!(found.map(json::uid), Some(uid.as_str()), "{name} was acknowledged");
        }
    }
    up.until("all complete", async |up| {
        assert_within_quota(&up.list(CLUSTER_QUEUES).await, &up.list(WORKLOADS).await);
        up.list(JOBS).await.iter().all(done).then_some(())
    })
    .await;
    let pods = up.list(PODS).await;
    for job in up.list(JOBS).await {
        let mine =
            pods.iter().filter(|p| json::controller(p).is_some_and(|o| o["uid"] == json::uid(&job))).count();
        assert_eq!(Some(mine as i64), json::int(&job, &["spec", "completions"]), "{}", json::name(&job));
    }
    let workloads = up.list(WORKLOADS).await;
    assert_eq!(workloads.len(), acknowledged.len(), "one workload per job");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_ends_cleanly_and_its_errors_are_clear() {
    let mut up = Up::start(&[]).await;
    let port = json::text(&up.ready, &["url"]).rsplit(':').next().unwrap().to_owned();
    let run = |args: &[&str]| {
        let out = crate::common::binary().arg("up").args(args).output().unwrap();
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let (code, text) = run(&["--port", &port, "--kubeconfig", up.dir.join("other").to_str().unwrap()]);
    assert_eq!(code, Some(1));
    assert!(text.contains(&format!("127.0.0.1:{port} is in use")), "{text}");
    let (code, text) = run(&["--port", "0", "--kubeconfig", "/proc/nowhere/kubeconfig"]);
    assert!(code == Some(1) && text.contains("--kubeconfig /proc/nowhere/kubeconfig"), "{text}");
    let nodes = up.dir.join("nodes.yaml");
    std::fs::write(
        &nodes,
        "apiVersion: v1\nkind: Node\nmetadata: {name: n}\nstatus: {allocatable: {cpu: lots}}",
    )
    .unwrap();
    let (code, text) = run(&["--port", "0", "--nodes-file", nodes.to_str().unwrap()]);
    assert!(code == Some(1) && text.contains("[cpu]") && text.contains("document 1"), "{text}");
    assert_eq!(up.interrupt(), Some(0));
}

//! `plimsoll run` as a cluster's user has it: another process than the API server, a kubeconfig between them.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::common::run::{Run, get};
use crate::common::{Up, assert_within_quota, job, queue, suspended_job};
use plimsoll_api::json;
use plimsoll_api::webhooks::{MUTATING, NAMESPACE, SECRET, TARGETS, VALIDATING};
use plimsoll_runtime::api::{
    CLUSTER_QUEUES, JOBS, LEASES, LOCAL_QUEUES, PODS, PatchKind, Resource, WORKLOADS,
};
use serde_json::{Value, json};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// The API server, controllers and simulated nodes alone.
async fn server(args: &[&str]) -> Up {
    Up::start(&[&["--no-scheduler"], args].concat()).await
}

fn complete(object: &Value) -> bool {
    json::is_true(object, "Complete")
}

/// What holds at every moment: quota is kept, and no workload gets it twice.
#[derive(Default)]
struct Watchdog {
    admitted: BTreeMap<String, String>,
}

impl Watchdog {
    async fn look(&mut self, up: &Up) {
        let workloads = up.list(WORKLOADS).await;
        assert_within_quota(&up.list(CLUSTER_QUEUES).await, &workloads);
        for wl in &workloads {
            let Some(c) = json::condition(wl, "QuotaReserved").filter(|c| c["status"] == "True") else {
                continue;
            };
            let since = json::text(c, &["lastTransitionTime"]).to_owned();
            let first = self.admitted.entry(json::uid(wl).to_owned()).or_insert_with(|| since.clone());
            assert_eq!(*first, since, "{} was admitted twice", json::name(wl));
        }
    }
}

/// Every Job has one workload and as many pods as it asked for, all are done, and no quota is held.
async fn settled(up: &Up, jobs: usize) {
    let mut watchdog = Watchdog::default();
    up.until("all jobs complete", async |up| {
        watchdog.look(up).await;
        let all = up.list(JOBS).await;
        (all.len() == jobs && all.iter().all(complete)).then_some(())
    })
    .await;
    let zero = |object: &Value| {
        let rows = ["flavorsReservation", "flavorsUsage"]
            .into_iter()
            .flat_map(|k| json::list(object, &["status", k]))
            .flat_map(|f| json::list(f, &["resources"]));
        let counts = ["pendingWorkloads", "reservingWorkloads", "admittedWorkloads"];
        rows.count() > 0 && counts.iter().all(|k| json::int(object, &["status", k]).unwrap_or(0) == 0)
    };
    let empty = |object: &Value| {
        ["flavorsReservation", "flavorsUsage"]
            .into_iter()
            .flat_map(|k| json::list(object, &["status", k]))
            .flat_map(|f| json::list(f, &["resources"]))
            .all(|r| r["total"] == "0")
    };
    up.until_shown("usage is zero", async |up| {
        let queues = [up.list(CLUSTER_QUEUES).await, up.list(LOCAL_QUEUES).await].concat();
        if !queues.is_empty() && queues.iter().all(|q| zero(q) && empty(q)) {
            return Ok(());
        }
        Err(format!("{queues:#?}"))
    })
    .await;
    let (pods, workloads) = (up.list(PODS).await, up.list(WORKLOADS).await);
    for job in up.list(JOBS).await {
        let owned = |o: &&Value| json::controller(o).is_some_and(|c| c["uid"] == json::uid(&job));
        let mine = pods.iter().filter(owned).count();
        assert_eq!(
            Some(mine as i64),
            json::int(&job, &["spec", "completions"]),
            "pods of {}",
            json::name(&job)
        );
        assert_eq!(workloads.iter().filter(owned).count(), 1, "workloads of {}", json::name(&job));
    }
}

fn quickstart() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/quickstart.yaml");
    std::fs::read_to_string(path).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quickstart_completes_through_the_front_door() {
    let up = server(&["--speed", "10"]).await;
    let (mut run, first) = Run::start(&up.kubeconfig, &["--leader-elect=false", "--webhook-port", "0"]);
    assert_eq!(first["leader"], true, "{first}");
    up.apply(&quickstart()).await;
    settled(&up, 6).await;
    for pod in up.list(PODS).await {
        assert_eq!(json::text(&pod, &["status", "phase"]), "Succeeded", "{pod}");
    }
    assert_eq!(up.list(WORKLOADS).await.len(), 8, "plain pods have one too");
    assert_eq!(run.terminate(), Some(0), "{}", run.log());
}

/// What Kueue's webhooks do to objects, seen by a client of an API server that calls them.
#[tokio::test(flavor = "multi_thread")]
async fn webhooks_are_served_registered_and_asked() {
    let up = server(&["--speed", "10"]).await;
    up.apply(&queue(1)).await;
    let (mut run, first) = Run::start(&up.kubeconfig, &["--leader-elect=false", "--webhook-port", "0"]);
    let url = first["webhooks"].as_str().unwrap().to_owned();
    let mutating = TARGETS.iter().filter(|t| t.mutates).count();
    for (plural, name, count) in [
        ("mutatingwebhookconfigurations", MUTATING, mutating),
        ("validatingwebhookconfigurations", VALIDATING, TARGETS.len()),
    ] {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}/{name}");
        let configuration = up.until(name, async |up| up.api.get_path(&path).await.ok()).await;
        let webhooks = json::list(&configuration, &["webhooks"]);
        assert_eq!(webhooks.len(), count);
        for webhook in webhooks {
            let client = &webhook["clientConfig"];
            assert!(json::text(client, &["url"]).starts_with(&format!("{url}/")), "{client}");
            assert!(!json::text(client, &["caBundle"]).is_empty(), "{client}");
        }
    }
    // More than the quota, so that it stays as it was born.
    let held = up.create(&job("held", &json!({QUEUE: "main"}), 5, 1)).await.unwrap();
    assert_eq!(held["spec"]["suspend"], true);
    let free = up.create(&job("free", &json!({}), 1, 1)).await.unwrap();
    assert_eq!(free["spec"]["suspend"], false);
    let mut greedy = crate::common::pod("greedy", &json!({QUEUE: "main"}), 1);
    greedy["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("3");
    let gated = up.create(&greedy).await.unwrap();
    let gates = json!([{"name": "kueue.x-k8s.io/admission"}, {"name": "kueue.x-k8s.io/topology"}]);
    assert_eq!(gated["spec"]["schedulingGates"], gates);
    assert_eq!(gated["metadata"]["finalizers"], json!(["kueue.x-k8s.io/managed"]));
    let flavor =
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "f"}});
    let flavor = up.create(&flavor).await.unwrap();
    assert_eq!(flavor["metadata"]["finalizers"], json!(["kueue.x-k8s.io/resource-in-use"]));
    let mut wrong = job("wrong", &json!({QUEUE: "main"}), 2, 1);
    wrong["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "7"});
    let refused = up.create(&wrong).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "admission webhook \"vjob.kb.io\" denied the request: \
         metadata.annotations[kueue.x-k8s.io/job-min-parallelism]: Invalid value: 7: should be between 0 and 1"
    );
    let wl = up.until("a workload", async |up| up.list(WORKLOADS).await.into_iter().next()).await;
    let status = json!({"status": {"reclaimablePods": [{"name": "other", "count": 1}]}});
    let refused = up
        .api
        .patch(WORKLOADS, "team", json::name(&wl), "status", PatchKind::Merge, &status)
        .await
        .unwrap_err();
    let want = "admission webhook \"vworkload.kb.io\" denied the request: status.reclaimablePods[other].name";
    assert!(refused.to_string().contains(want), "{refused}");
    let moved = json!({"metadata": {"labels": {"kueue.x-k8s.io/pod-group-name": "late"}}});
    let refused = up.api.patch(PODS, "team", "greedy", "", PatchKind::Merge, &moved).await.unwrap_err();
    assert!(
        refused.to_string().contains("admission webhook \"vpod.kb.io\" denied the request: "),
        "{refused}"
    );
    // A queue with a check of MultiKueue: its jobs are managed by that.
    for object in [
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": "elsewhere"},
            "spec": {"controllerName": "kueue.x-k8s.io/multikueue"}}),
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "dispatching"},
            "spec": {"namespaceSelector": {}, "admissionChecksStrategy": {"admissionChecks": [{"name": "elsewhere"}]}}}),
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
            "metadata": {"name": "dispatching", "namespace": "team"}, "spec": {"clusterQueue": "dispatching"}}),
    ] {
        up.create(&object).await.unwrap();
    }
    up.until("jobs of the queue are managed by MultiKueue", async |up| {
        let body = job("elsewhere", &json!({QUEUE: "dispatching"}), 1, 1);
        let made = up.create(&body).await.ok()?;
        let managed = made["spec"]["managedBy"] == "kueue.x-k8s.io/multikueue";
        up.api.delete(JOBS, "team", "elsewhere", json::uid(&made), None).await.unwrap();
        managed.then_some(())
    })
    .await;
    assert_eq!(run.terminate(), Some(0), "{}", run.log());
    // Nobody answers any more, and Fail is the policy: jobs and pods are refused rather than let through.
    let refused = up.create(&job("late", &json!({QUEUE: "main"}), 1, 1)).await.unwrap_err();
    assert!(refused.to_string().contains("failed calling webhook \"mjob.kb.io\""), "{refused}");
    // Another process takes the same certificates and tells where it is.
    let (_run, again) = Run::start(&up.kubeconfig, &["--leader-elect=false", "--webhook-port", "0"]);
    assert_ne!(again["webhooks"], first["webhooks"]);
    up.create(&job("late", &json!({QUEUE: "main"}), 1, 1)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_renewed_and_damage_is_mended() {
    let up = server(&[]).await;
    up.apply(&queue(1)).await;
    let (_run, first) = Run::start(&up.kubeconfig, &["--leader-elect=false", "--webhook-port", "0"]);
    let secret = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET}");
    let configuration =
        format!("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{MUTATING}");
    let before = up.api.get_path(&secret).await.unwrap();
    let bundle = async |up: &Up| {
        let now = up.api.get_path(&configuration).await.unwrap();
        now["webhooks"][0]["clientConfig"]["caBundle"].clone()
    };
    assert_eq!(bundle(&up).await, before["data"]["ca.crt"]);
    // As if nine years had passed.
    let old =
        json!({"metadata": {"annotations": {"plimsoll.dev/renew-authority-after": "2020-01-01T00:00:00Z"}}});
    let secrets = Resource { api_version: "v1", plural: "secrets", kind: "Secret" };
    up.api.patch(secrets, NAMESPACE, SECRET, "", PatchKind::Merge, &old).await.unwrap();
    up.until("both know the new authority", async |up| {
        let now = up.api.get_path(&secret).await.unwrap();
        (now["data"]["tls.crt"] != before["data"]["tls.crt"] && bundle(up).await == now["data"]["ca.crt"])
            .then_some(())
    })
    .await;
    assert_ne!(bundle(&up).await, before["data"]["ca.crt"]);
    // The old certificate is served until the API server knows the new authority, then the new one: nobody is refused.
    for second in 0..8 {
        up.create(&job(&format!("held-{second}"), &json!({QUEUE: "main"}), 5, 1)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let whole = json::list(&up.api.get_path(&configuration).await.unwrap(), &["webhooks"]).len();
    let broken = json!({"webhooks": []});
    let mutating = Resource {
        api_version: "admissionregistration.k8s.io/v1",
        plural: "mutatingwebhookconfigurations",
        kind: "MutatingWebhookConfiguration",
    };
    up.api.patch(mutating, "", MUTATING, "", PatchKind::Merge, &broken).await.unwrap();
    up.until("the registration is mended", async |up| {
        let now = up.api.get_path(&configuration).await.unwrap();
        (json::list(&now, &["webhooks"]).len() == whole).then_some(())
    })
    .await;
    assert!(first["webhooks"].is_string());
}

/// Samples by name and labels; checks that every family is described before its samples.
fn scrape(url: &str) -> BTreeMap<String, f64> {
    let (code, text) = get(url, "/metrics");
    assert_eq!(code, 200, "{text}");
    let mut kinds: BTreeMap<String, String> = BTreeMap::new();
    let mut helped = std::collections::BTreeSet::new();
    let mut samples = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(!help.is_empty() && helped.insert(name.to_owned()), "{line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(helped.contains(name) && ["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "twice: {line}");
        } else {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let name = sample.split('{').next().unwrap();
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| {
                let family = name.strip_suffix(end)?;
                kinds.get(family).filter(|k| *k == "histogram").map(|_| family)
            });
            assert!(kinds.contains_key(family.unwrap_or(name)), "{line}");
            let value = if value == "NaN" { f64::NAN } else { value.parse().unwrap() };
            assert!(samples.insert(sample.to_owned(), value).is_none(), "twice: {line}");
        }
    }
    samples
}

fn check_metrics(url: &str, role: &str) {
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(get(url, path), (200, "ok".into()), "{path}");
    }
    assert_eq!(get(url, "/other").0, 404);
    let samples = scrape(url);
    let value = |sample: &str| *samples.get(sample).unwrap_or_else(|| panic!("{sample} not in {samples:#?}"));
    let role = format!("replica_role=\"{role}\"");
    assert_eq!(
        value(&format!("kueue_pending_workloads{{cluster_queue=\"cq\",status=\"inadmissible\",{role}}}")),
        1.0
    );
    assert_eq!(value(&format!("kueue_admitted_active_workloads{{cluster_queue=\"cq\",{role}}}")), 0.0);
    assert_eq!(
        value(&format!("kueue_cluster_queue_status{{cluster_queue=\"cq\",status=\"active\",{role}}}")),
        1.0
    );
    assert_eq!(
        value(&format!("kueue_workload_creation_latency_seconds_count{{job_kind=\"Job\",{role}}}")),
        2.0
    );
    for result in ["success", "inadmissible"] {
        let attempts = value(&format!("kueue_admission_attempts_total{{result=\"{result}\",{role}}}"));
        let timed = format!("kueue_admission_attempt_duration_seconds_count{{result=\"{result}\",{role}}}");
        assert!(attempts >= 1.0 && value(&timed) >= attempts, "{result}");
    }
    let scheduled =
        value("scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"scheduled\"}");
    assert_eq!(scheduled, 2.0);
    assert!(
        value("scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"unschedulable\"}")
            >= 1.0
    );
    assert_eq!(value("scheduler_pending_pods{queue=\"unschedulable\"}"), 1.0);
    assert_eq!(value("scheduler_pod_scheduling_attempts_count"), 2.0);
    assert_eq!(value("scheduler_pod_scheduling_sli_duration_seconds_count{attempts=\"1\"}"), 2.0);
    assert!(value("scheduler_scheduling_algorithm_duration_seconds_count") >= 3.0);
    let bind = "{extension_point=\"Bind\",profile=\"default-scheduler\",status=\"Success\"}";
    let bind = value(&format!("scheduler_framework_extension_point_duration_seconds_count{bind}"));
    assert_eq!(bind, scheduled);
    assert_eq!(value("leader_election_master_status{name=\"plimsoll\"}"), 1.0);
}

/// One job runs, one waits for quota for ever, one pod fits nowhere.
async fn some_load(up: &Up) {
    up.apply(&queue(2)).await;
    up.create(&job("runs", &json!({QUEUE: "main"}), 2, 1)).await.unwrap();
    settled(up, 1).await;
    up.create(&job("waits", &json!({QUEUE: "main"}), 9, 1)).await.unwrap();
    let mut big = crate::common::pod("big", &json!({}), 1);
    big["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("99");
    up.create(&big).await.unwrap();
    up.until("the pod is refused and the job waits", async |up| {
        let pod = up.get(PODS, "team", "big").await;
        let waits = up
            .list(WORKLOADS)
            .await
            .iter()
            .any(|w| crate::common::condition(w, "QuotaReserved").0 == "False");
        (waits && crate::common::condition(&pod, "PodScheduled").1 == "Unschedulable").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_have_upstreams_names_and_true_values() {
    let up = server(&["--speed", "10"]).await;
    let (mut run, mut first) = Run::start(&up.kubeconfig, &["--webhook-port", "0"]);
    if first["leader"] == false {
        first = run.line();
    }
    some_load(&up).await;
    check_metrics(first["metrics"].as_str().unwrap(), "leader");
    let (mut second, line) = Run::start(&up.kubeconfig, &[]);
    assert_eq!(line["leader"], false);
    let url = line["metrics"].as_str().unwrap();
    up.until("the second is ready to take over", async |_| (get(url, "/readyz").0 == 200).then_some(()))
        .await;
    assert_eq!(scrape(url)["leader_election_master_status{name=\"plimsoll\"}"], 0.0);
    assert_eq!(second.terminate(), Some(0), "{}", second.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_of_a_whole_control_plane() {
    let up = Up::start(&["--speed", "10", "--metrics-bind-address", "127.0.0.1:0"]).await;
    some_load(&up).await;
    check_metrics(up.ready["metrics"].as_str().unwrap(), "standalone");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_engine_nothing_is_placed() {
    let up = server(&["--speed", "10"]).await;
    up.apply(&queue(2)).await;
    up.create(&crate::common::pod("alone", &json!({}), 1)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let pod = up.get(PODS, "team", "alone").await;
    assert_eq!(json::text(&pod, &["spec", "nodeName"]), "");
    assert!(pod["status"]["conditions"].as_array().is_none_or(Vec::is_empty), "{pod}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_of_the_engine_lose_nothing_and_admit_nothing_twice() {
    let up = server(&["--speed", "4"]).await;
    up.apply(&queue(3)).await;
    let args = ["--leader-elect=false", "--webhook-port", "0"];
    let mut watchdog = Watchdog::default();
    let mut next = 0;
    for round in 0..6u64 {
        let (mut run, _) = Run::start(&up.kubeconfig, &args);
        let until = Instant::now() + Duration::from_millis(400 + 370 * round % 900);
        while Instant::now() < until {
            if next < 12 {
                up.create(&job(&format!("job-{next}"), &json!({QUEUE: "main"}), 1 + next % 2, 3))
                    .await
                    .unwrap();
                next += 1;
            }
            watchdog.look(&up).await;
        }
        run.kill();
    }
    let (_run, _) = Run::start(&up.kubeconfig, &args);
    up.until("all complete", async |up| {
        watchdog.look(up).await;
        up.list(JOBS).await.iter().all(complete).then_some(())
    })
    .await;
    settled(&up, next as usize).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_survives_a_restart_of_the_server() {
    let dir = crate::common::directory();
    let data = dir.join("data");
    let data = data.to_str().unwrap().to_owned();
    let args = ["--no-scheduler", "--data", &data, "--speed", "4"];
    let mut up = Up::start_in(dir, &args).await;
    // The same address every time, as a cluster has it.
    let port = json::text(&up.ready, &["url"]).rsplit(':').next().unwrap().to_owned();
    let args = [&args[..], &["--port", &port]].concat();
    up.apply(&queue(3)).await;
    // Longer than the server is away.
    let times = ["--leader-elect-lease-duration", "90s", "--leader-elect-renew-deadline", "80s"];
    let (mut run, _) = Run::start(&up.kubeconfig, &[&times[..], &["--webhook-port", "0"]].concat());
    for round in 0..3 {
        for i in 0..3 {
            up.create(&job(&format!("job-{round}-{i}"), &json!({QUEUE: "main"}), 2, 3)).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(700 + 400 * round)).await;
        up.kill();
        let old = std::mem::replace(&mut up.dir, std::env::temp_dir().join("plimsoll-test-none"));
        drop(up);
        tokio::time::sleep(Duration::from_millis(300)).await;
        up = Up::start_in(old, &args).await;
    }
    settled(&up, 9).await;
    assert!(run.child.try_wait().unwrap().is_none(), "it ended: {}", run.log());
    assert_eq!(run.terminate(), Some(0), "{}", run.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_leads_and_another_takes_over() {
    let up = server(&["--speed", "10"]).await;
    up.apply(&queue(4)).await;
    // The lease has its usual length: on processors that all other tests share, a leader may be late by seconds, and then
    // another one takes over rightly.
    let times = ["--leader-elect", "--leader-elect-retry-period", "500ms"];
    let (mut first, line) = Run::start(&up.kubeconfig, &times);
    assert!(line["leader"] == true || first.line()["leader"] == true);
    let holder = async |up: &Up| {
        let lease = up.get(LEASES, "kube-system", "plimsoll").await;
        json::text(&lease, &["spec", "holderIdentity"]).to_owned()
    };
    let before = holder(&up).await;
    assert!(before.contains(&format!("_{}_", first.child.id())), "{before}");
    let (mut second, line) = Run::start(&up.kubeconfig, &times);
    assert_eq!(line["leader"], false, "{line}");
    up.create(&suspended_job("a", &json!({QUEUE: "main"}), 2, 3)).await.unwrap();
    settled(&up, 1).await;
    assert_eq!(holder(&up).await, before, "the second only waits");
    up.create(&suspended_job("b", &json!({QUEUE: "main"}), 2, 30)).await.unwrap();
    first.kill();
    assert_eq!(second.line()["leader"], true);
    assert!(holder(&up).await.contains(&format!("_{}_", second.child.id())));
    up.create(&suspended_job("c", &json!({QUEUE: "main"}), 2, 3)).await.unwrap();
    settled(&up, 3).await;
    // An orderly end gives the Lease back, so the next one need not wait.
    assert_eq!(second.terminate(), Some(0), "{}", second.log());
    assert_eq!(holder(&up).await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_given_back_is_taken_by_a_replica_that_knows_the_cluster() {
    let up = server(&["--speed", "10"]).await;
    up.apply(&queue(4)).await;
    // A replica that only looked from time to time would come too late for this test.
    let times = [
        ["--leader-elect-lease-duration", "1h"],
        ["--leader-elect-renew-deadline", "59m"],
        ["--leader-elect-retry-period", "40m"],
    ]
    .concat();
    let (mut first, line) = Run::start(&up.kubeconfig, &times);
    assert!(line["leader"] == true || first.line()["leader"] == true);
    up.create(&suspended_job("runs", &json!({QUEUE: "main"}), 3, 3600)).await.unwrap();
    let (mut second, line) = Run::start(&up.kubeconfig, &times);
    assert_eq!(line["leader"], false, "{line}");
    let url = line["metrics"].as_str().unwrap();
    let admitted = "kueue_admitted_active_workloads{cluster_queue=\"cq\",replica_role=\"follower\"}";
    up.until("the follower has seen what was admitted", async |_| {
        (scrape(url).get(admitted) == Some(&1.0)).then_some(())
    })
    .await;
    assert_eq!(first.terminate(), Some(0), "{}", first.log());
    assert_eq!(second.line()["leader"], true);
    // It decides, and from what the first one wrote: one of four is left.
    up.create(&suspended_job("too-much", &json!({QUEUE: "main"}), 2, 3)).await.unwrap();
    up.create(&suspended_job("fits", &json!({QUEUE: "main"}), 1, 3)).await.unwrap();
    up.until("what fits runs", async |up| complete(&up.get(JOBS, "team", "fits").await).then_some(())).await;
    assert_eq!(up.get(JOBS, "team", "too-much").await["spec"]["suspend"], true);
    assert_eq!(second.terminate(), Some(0), "{}", second.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_lost_the_lease_ends() {
    let up = server(&[]).await;
    let times = ["--leader-elect-retry-period", "300ms"];
    let (mut run, line) = Run::start(&up.kubeconfig, &times);
    assert!(line["leader"] == true || run.line()["leader"] == true);
    let mut lease = up.get(LEASES, "kube-system", "plimsoll").await;
    loop {
        json::set(&mut lease, &["spec", "holderIdentity"], json!("somebody-else"));
        match up.api.replace(LEASES, &lease).await {
            Ok(_) => break,
            Err(_) => lease = up.get(LEASES, "kube-system", "plimsoll").await,
        }
    }
    assert_eq!(run.ended(), Some(1));
    assert!(run.log().contains("error: leaderelection lost"), "{}", run.log());
}

#[test]
fn its_errors_are_clear() {
    let run = |args: &[&str]| {
        let out = crate::common::binary().arg("run").args(args).output().unwrap();
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let (code, text) = run(&["--kubeconfig", "/nowhere/kubeconfig"]);
    assert!(code == Some(1) && text.contains("/nowhere/kubeconfig"), "{text}");
    let (code, text) = run(&["--leader-elect-lease-duration", "5s"]);
    assert!(code == Some(1) && text.contains("leaseDuration must be greater than renewDeadline"), "{text}");
}

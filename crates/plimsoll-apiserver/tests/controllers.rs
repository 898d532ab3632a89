//! The controllers on a real server, without a network: objects go in, and what becomes of them is checked.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_apiserver::control::client::{
    Client, Deletion, Propagation, Resource, Target, modify, resources,
};
use plimsoll_apiserver::control::clock::Clock;
use plimsoll_apiserver::control::inprocess::ServerClient;
use plimsoll_apiserver::control::{Controllers, Options};
use plimsoll_apiserver::store::Watch;
use plimsoll_apiserver::{Server, ServerConfig};
use serde_json::{Value, json};

/// How much faster than the wall clock the tests run.
const SPEED: f64 = 50.0;
/// Real time after which something that doesn't happen won't.
const PATIENCE: Duration = Duration::from_secs(20);

struct World {
    client: Arc<dyn Client>,
    controllers: Controllers,
    kubelet: tokio::task::JoinHandle<()>,
}

impl World {
    async fn new() -> Self {
        Self::with(Clock::scaled(SPEED), None).await
    }

    async fn with(clock: Clock, data: Option<PathBuf>) -> Self {
        Self::with_events_for(plimsoll_apiserver::control::event_ttl::DEFAULT_TTL, clock, data).await
    }

    async fn with_events_for(event_ttl: Duration, clock: Clock, data: Option<PathBuf>) -> Self {
        let config = ServerConfig { clock: Arc::new(clock.clone()), data, ..ServerConfig::default() };
        let server = Server::new(config).await.unwrap();
        let client: Arc<dyn Client> = Arc::new(ServerClient::new(server));
        let mut options = Options { event_ttl, ..Options::default() };
        options.namespaces.root_ca = Some("PEM".to_owned());
        options.namespaces.service_account = true;
        let controllers = Controllers::start(&client, &clock, options);
        let (_, pods) = client.store().list_and_watch(&"/pods".into(), None);
        let kubelet = tokio::spawn(kubelet(Arc::clone(&client), clock, pods));
        Self { client, controllers, kubelet }
    }

    async fn stop(self) {
        self.controllers.stop().await;
        self.kubelet.abort();
    }

    async fn create(&self, resource: &Resource, namespace: &str, object: Value) -> Value {
        self.client.create(Target::create(resource, namespace), object).await.unwrap()
    }

    fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Value> {
        self.client.store().get(&resource.key(namespace, name)).map(|r| r.value().unwrap())
    }

    fn list(&self, resource: &Resource, namespace: &str) -> Vec<Value> {
        let list = self.client.store().list(&resource.storage, Some(namespace));
        list.iter().map(|r| r.value().unwrap()).collect()
    }

    async fn delete(&self, resource: &Resource, namespace: &str, name: &str, propagation: Propagation) {
        let deletion = Deletion::default().with(propagation);
        self.client.delete(Target::object(resource, namespace, name), deletion).await.unwrap();
    }

    async fn change(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        change: impl FnMut(&mut Value) -> bool + Send,
    ) {
        let object = self.get(resource, namespace, name).unwrap();
        let uid = object["metadata"]["uid"].as_str().unwrap();
        modify(&*self.client, Target::object(resource, namespace, name), uid, change).await.unwrap();
    }

    /// Waits until a condition holds.
    async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !condition(self) {
            if Instant::now() > deadline {
                let dump: Vec<_> = ["/pods", "batch/jobs", "batch/cronjobs", "/namespaces"]
                    .iter()
                    .flat_map(|r| {
                        self.client
                            .store()
                            .list(r, None)
                            .iter()
                            .map(|r| r.value().unwrap())
                            .collect::<Vec<_>>()
                    })
                    .map(|mut o| {
                        o["metadata"]["managedFields"] = Value::Null;
                        o.to_string()
                    })
                    .collect();
                panic!("{what} didn't happen\n{}", dump.join("\n"));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn job(&self, name: &str) -> Value {
        self.get(&resources::JOBS, "default", name).unwrap_or_default()
    }

    fn reasons(&self, name: &str) -> Vec<String> {
        let events = self.list(&resources::EVENTS, "default");
        let mine = events.iter().filter(|e| e["involvedObject"]["name"] == name);
        mine.map(|e| e["reason"].as_str().unwrap().to_owned()).collect()
    }
}

/// Runs pods: those with the annotation `exit` end with that code at once; others run on. Deleted pods go.
async fn kubelet(client: Arc<dyn Client>, clock: Clock, mut watch: Watch) {
    while let Ok(change) = watch.next().await {
        let Some(record) = client.store().get(&change.record.key) else { continue };
        let pod = record.value().unwrap();
        let (meta, phase) = (&pod["metadata"], pod["status"]["phase"].as_str().unwrap_or_default());
        let key = &record.key;
        let target = Target::object(&resources::PODS, &key.namespace, &key.name);
        if !meta["deletionTimestamp"].is_null() {
            if meta["deletionGracePeriodSeconds"] != 0 {
                let deletion = Deletion { grace_seconds: Some(0), ..Deletion::of_uid(&record.uid) };
                let _ = client.delete(target, deletion).await;
            }
            continue;
        }
        if phase != "Pending" {
            continue;
        }
        let now = clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let exit = meta["annotations"]["exit"].as_str().map(str::to_owned);
        let _ = modify(&*client, target.part("status"), &record.uid, |pod| {
            let status = &mut pod["status"];
            match &exit {
                None => {
                    status["phase"] = json!("Running");
                    status["conditions"] = json!([{"type": "Ready", "status": "True", "lastTransitionTime": now}]);
                }
                Some(code) => {
                    status["phase"] = json!(if code == "0" { "Succeeded" } else { "Failed" });
                    let code: i64 = code.parse().unwrap();
                    let ended = json!({"terminated": {"exitCode": code, "startedAt": now, "finishedAt": now}});
                    status["containerStatuses"] = json!([{
                        "name": "c", "image": "x", "imageID": "", "ready": false, "restartCount": 0, "state": ended,
                    }]);
                }
            }
            true
        })
        .await;
    }
}

/// A Job whose pods end with an exit code, or run on.
fn job(name: &str, exit: Option<&str>, spec: &Value) -> Value {
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"template": {
            "metadata": {},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]},
        }},
    });
    if let Some(exit) = exit {
        job["spec"]["template"]["metadata"]["annotations"] = json!({"exit": exit});
    }
    for (key, value) in spec.as_object().unwrap() {
        job["spec"][key] = value.clone();
    }
    job
}

fn is_true(object: &Value, condition: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == condition && c["status"] == "True")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_runs_to_its_end() {
    let world = World::new().await;
    let made = job("plain", Some("0"), &json!({"completions": 5, "parallelism": 2}));
    world.create(&resources::JOBS, "default", made).await;
    world.until("completion", |w| is_true(&w.job("plain"), "Complete")).await;
    let status = world.job("plain")["status"].clone();
    assert_eq!((&status["succeeded"], status.get("active"), &status["ready"]), (&json!(5), None, &json!(0)));
    assert_eq!(status["uncountedTerminatedPods"], json!({}));
    assert!(status["completionTime"].is_string() && status["startTime"].is_string());
    let pods = world.list(&resources::PODS, "default");
    assert_eq!(pods.len(), 5);
    for pod in pods {
        assert!(pod["metadata"].get("finalizers").is_none_or(Value::is_null), "{pod}");
        assert!(pod["metadata"]["name"].as_str().unwrap().starts_with("plain-"));
        assert_eq!(pod["metadata"]["labels"]["batch.kubernetes.io/job-name"], "plain");
    }
    world.until("events", |w| w.reasons("plain").iter().any(|r| r == "Completed")).await;
    let reasons = world.reasons("plain");
    assert_eq!(reasons.iter().filter(|r| *r == "SuccessfulCreate").count(), 5, "{reasons:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_indexed_job_has_each_index_once() {
    let world = World::new().await;
    let spec = json!({"completions": 30, "parallelism": 10, "completionMode": "Indexed"});
    world.create(&resources::JOBS, "default", job("ix", Some("0"), &spec)).await;
    world.until("completion", |w| is_true(&w.job("ix"), "Complete")).await;
    assert_eq!(world.job("ix")["status"]["completedIndexes"], "0-29");
    let pods = world.list(&resources::PODS, "default");
    let mut indexes: Vec<i64> = pods
        .iter()
        .map(|p| {
            p["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]
                .as_str()
                .unwrap()
                .parse()
                .unwrap()
        })
        .collect();
    indexes.sort_unstable();
    assert_eq!(indexes, (0..30).collect::<Vec<_>>());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_job_backs_off_and_fails() {
    let world = World::new().await;
    let begun = Instant::now();
    world.create(&resources::JOBS, "default", job("bad", Some("3"), &json!({"backoffLimit": 2}))).await;
    world.until("failure", |w| is_true(&w.job("bad"), "Failed")).await;
    let status = world.job("bad")["status"].clone();
    assert_eq!((&status["failed"], status.get("succeeded")), (&json!(3), None));
    let last = status["conditions"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["type"], &last["reason"]), (&json!("Failed"), &json!("BackoffLimitExceeded")));
    // 10 s after the first failure and 20 s after the second, in the test's time; timestamps lose up to a second.
    let passed = begun.elapsed().as_secs_f64() * SPEED;
    assert!(passed > 27.0, "{passed}");
    assert_eq!(world.list(&resources::PODS, "default").len(), 3);
    world.until("event", |w| w.reasons("bad").iter().any(|r| r == "BackoffLimitExceeded")).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suspend_resume_and_deadline() {
    let world = World::new().await;
    let spec = json!({"suspend": true, "parallelism": 3, "completions": 3, "activeDeadlineSeconds": 100});
    world.create(&resources::JOBS, "default", job("s", None, &spec)).await;
    world.until("suspension", |w| is_true(&w.job("s"), "Suspended")).await;
    assert!(world.list(&resources::PODS, "default").is_empty());
    assert!(world.job("s")["status"].get("startTime").is_none());
    let suspend = |on: bool| {
        move |job: &mut Value| {
            job["spec"]["suspend"] = json!(on);
            true
        }
    };
    world.change(&resources::JOBS, "default", "s", suspend(false)).await;
    world.until("running pods", |w| w.job("s")["status"]["ready"] == 3).await;
    assert!(!is_true(&world.job("s"), "Suspended"));
    world.change(&resources::JOBS, "default", "s", suspend(true)).await;
    world.until("pods gone", |w| w.list(&resources::PODS, "default").is_empty()).await;
    world.until("counts", |w| w.job("s")["status"]["terminating"] == 0).await;
    assert!(world.job("s")["status"].get("failed").is_none());
    world.change(&resources::JOBS, "default", "s", suspend(false)).await;
    world.until("deadline", |w| is_true(&w.job("s"), "Failed")).await;
    let conditions = world.job("s")["status"]["conditions"].clone();
    let reasons: Vec<_> =
        conditions.as_array().unwrap().iter().map(|c| c["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["JobResumed", "DeadlineExceeded", "DeadlineExceeded"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finished_jobs_go_with_their_pods_after_their_ttl() {
    let world = World::new().await;
    let spec = json!({"ttlSecondsAfterFinished": 30});
    world.create(&resources::JOBS, "default", job("t", Some("0"), &spec)).await;
    world.until("completion", |w| is_true(&w.job("t"), "Complete")).await;
    assert_eq!(world.list(&resources::PODS, "default").len(), 1);
    world.until("the end", |w| w.job("t").is_null()).await;
    world.until("the pods' end", |w| w.list(&resources::PODS, "default").is_empty()).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_ways_to_delete_a_job() {
    let world = World::new().await;
    for name in ["background", "foreground", "orphan"] {
        world.create(&resources::JOBS, "default", job(name, None, &json!({"parallelism": 2}))).await;
    }
    world.until("pods", |w| w.list(&resources::PODS, "default").len() == 6).await;
    let of = |w: &World, job: &str| {
        let pods = w.list(&resources::PODS, "default");
        pods.into_iter().filter(|p| p["metadata"]["labels"]["job-name"] == job).collect::<Vec<_>>()
    };
    world.delete(&resources::JOBS, "default", "background", Propagation::Background).await;
    assert!(world.job("background").is_null());
    world.until("background", |w| of(w, "background").is_empty()).await;
    world.delete(&resources::JOBS, "default", "foreground", Propagation::Foreground).await;
    world.until("foreground", |w| w.job("foreground").is_null()).await;
    assert!(of(&world, "foreground").is_empty());
    world.delete(&resources::JOBS, "default", "orphan", Propagation::Orphan).await;
    world.until("orphan", |w| w.job("orphan").is_null()).await;
    let left = of(&world, "orphan");
    assert_eq!(left.len(), 2);
    for pod in left {
        assert!(pod["metadata"].get("ownerReferences").is_none_or(|o| o == &json!([])), "{pod}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dependents_go_with_their_last_owner() {
    let world = World::new().await;
    let map = |name: &str, owners: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": owners}});
    let owner = |object: &Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": object["metadata"]["name"], "uid": object["metadata"]["uid"]});
    let maps = &resources::CONFIG_MAPS;
    let one = world.create(maps, "default", map("one", json!([]))).await;
    let two = world.create(maps, "default", map("two", json!([]))).await;
    let both = world.create(maps, "default", map("both", json!([owner(&one), owner(&two)]))).await;
    world.create(maps, "default", map("grandchild", json!([owner(&both)]))).await;
    let mut stranger = owner(&one);
    stranger["uid"] = json!("00000000-0000-0000-0000-000000000000");
    // An owner of that name but with another UID is none.
    world.create(maps, "default", map("stranger", json!([stranger]))).await;
    world.until("the stranger's end", |w| w.get(maps, "default", "stranger").is_none()).await;
    world.delete(maps, "default", "one", Propagation::Background).await;
    let owners = |w: &World| {
        let both = w.get(maps, "default", "both").unwrap_or_default();
        both["metadata"]["ownerReferences"].as_array().map(Vec::len)
    };
    world.until("one owner less", |w| owners(w) == Some(1)).await;
    assert!(world.get(maps, "default", "both").is_some());
    world.delete(maps, "default", "two", Propagation::Background).await;
    world.until("the grandchild's end", |w| w.get(maps, "default", "grandchild").is_none()).await;
    assert!(world.get(maps, "default", "both").is_none());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_goes_with_everything_in_it() {
    let world = World::new().await;
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    world.create(&resources::NAMESPACES, "", object).await;
    world
        .until("furniture", |w| {
            w.get(&resources::CONFIG_MAPS, "n", "kube-root-ca.crt").is_some()
                && w.get(&resources::SERVICE_ACCOUNTS, "n", "default").is_some()
        })
        .await;
    // It comes back, whatever is done to it.
    let uid =
        |w: &World| Some(w.get(&resources::SERVICE_ACCOUNTS, "n", "default")?["metadata"]["uid"].clone());
    let first = uid(&world);
    world.delete(&resources::SERVICE_ACCOUNTS, "n", "default", Propagation::Background).await;
    world.until("a new account", |w| uid(w).is_some() && uid(w) != first).await;
    world
        .change(&resources::CONFIG_MAPS, "n", "kube-root-ca.crt", |map| {
            map["data"] = json!({"ca.crt": "other"});
            true
        })
        .await;
    let ca = |w: &World| {
        w.get(&resources::CONFIG_MAPS, "n", "kube-root-ca.crt").unwrap()["data"]["ca.crt"].clone()
    };
    world.until("the certificate again", |w| ca(w) == "PEM").await;
    let mut made = job("j", None, &json!({"parallelism": 3}));
    made["metadata"]["namespace"] = json!("n");
    world.create(&resources::JOBS, "n", made).await;
    let held = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held", "finalizers": ["example.dev/hold"]}});
    world.create(&resources::CONFIG_MAPS, "n", held).await;
    world.until("pods", |w| w.list(&resources::PODS, "n").len() == 3).await;
    world.delete(&resources::NAMESPACES, "", "n", Propagation::Background).await;
    world
        .until("what is held", |w| {
            let namespace = w.get(&resources::NAMESPACES, "", "n").unwrap();
            is_true(&namespace, "NamespaceFinalizersRemaining") && w.list(&resources::PODS, "n").is_empty()
        })
        .await;
    world.until("conditions", |w| {
        let namespace = w.get(&resources::NAMESPACES, "", "n").unwrap();
        let conditions = namespace["status"]["conditions"].as_array().unwrap();
        let message = |kind: &str| conditions.iter().find(|c| c["type"] == kind).map(|c| c["message"].clone());
        message("NamespaceContentRemaining") == Some(json!("Some resources are remaining: configmaps. has 1 resource instances"))
            && message("NamespaceFinalizersRemaining")
                == Some(json!("Some content in the namespace has finalizers remaining: example.dev/hold in 1 resource instances"))
    })
    .await;
    world
        .change(&resources::CONFIG_MAPS, "n", "held", |map| {
            map["metadata"]["finalizers"] = json!([]);
            true
        })
        .await;
    world.until("the end", |w| w.get(&resources::NAMESPACES, "", "n").is_none()).await;
    let store = world.client.store();
    let left: Vec<_> =
        store.resources().into_iter().filter(|r| !store.list(r, Some("n")).is_empty()).collect();
    assert!(left.is_empty(), "{left:?}");
    world.stop().await;
}

/// The wall clock of a laptop that wakes up: its timers have stood still meanwhile.
struct Laptop(std::sync::Mutex<jiff::Timestamp>);

impl plimsoll_apiserver::time::Clock for Laptop {
    fn now(&self) -> jiff::Timestamp {
        *self.0.lock().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cron_jobs_and_deadlines_are_punctual_after_a_sleep() {
    let laptop = Arc::new(Laptop(std::sync::Mutex::new("2026-03-01T02:00:00Z".parse().unwrap())));
    let world = World::with(Clock::wall_from(Arc::clone(&laptop) as _), None).await;
    let cron = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly"},
        "spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": job("x", None, &json!({}))["spec"]}},
    });
    world.create(&resources::CRON_JOBS, "default", cron).await;
    let limited = job("limited", None, &json!({"activeDeadlineSeconds": 1800}));
    world.create(&resources::JOBS, "default", limited).await;
    world.until("the job has begun", |w| w.job("limited")["status"]["startTime"].is_string()).await;
    assert_eq!(world.list(&resources::JOBS, "default").len(), 1);
    *laptop.0.lock().unwrap() = "2026-03-01T03:00:01Z".parse().unwrap();
    let woken = Instant::now();
    world.until("the CronJob has made a Job", |w| w.list(&resources::JOBS, "default").len() == 2).await;
    world.until("the deadline has passed", |w| is_true(&w.job("limited"), "Failed")).await;
    assert!(woken.elapsed() < Duration::from_secs(10), "{:?}", woken.elapsed());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cron_job_makes_jobs() {
    let world = World::new().await;
    let template = job("x", Some("0"), &json!({}))["spec"].clone();
    let cron = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "tick"},
        "spec": {"schedule": "* * * * *", "successfulJobsHistoryLimit": 1, "jobTemplate": {"spec": template}},
    });
    world.create(&resources::CRON_JOBS, "default", cron).await;
    let made = |w: &World| w.reasons("tick").iter().filter(|r| *r == "SuccessfulCreate").count();
    world.until("three jobs", |w| made(w) >= 3).await;
    world.until("history", |w| w.list(&resources::JOBS, "default").len() <= 2).await;
    let cron = world.get(&resources::CRON_JOBS, "default", "tick").unwrap();
    assert!(
        cron["status"]["lastScheduleTime"].is_string() && cron["status"]["lastSuccessfulTime"].is_string()
    );
    world.delete(&resources::CRON_JOBS, "default", "tick", Propagation::Background).await;
    world
        .until("the end", |w| {
            w.list(&resources::JOBS, "default").is_empty() && w.list(&resources::PODS, "default").is_empty()
        })
        .await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_vanished_nodes_go() {
    let world = World::new().await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    world.create(&resources::NODES, "", node).await;
    for (name, node) in [("stays", "n1"), ("goes", "n2")] {
        let spec = json!({"nodeName": node, "containers": [{"name": "c", "image": "x"}]});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
        world.create(&resources::PODS, "default", pod).await;
    }
    world.until("the end of one", |w| w.get(&resources::PODS, "default", "goes").is_none()).await;
    assert!(world.get(&resources::PODS, "default", "stays").is_some());
    world.delete(&resources::NODES, "", "n1", Propagation::Background).await;
    world.until("the end of both", |w| w.list(&resources::PODS, "default").is_empty()).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_rolls_out_scales_and_goes() {
    let world = World::new().await;
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": 4, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "x:1"}]},
            },
        },
    });
    world.create(&resources::DEPLOYMENTS, "default", object).await;
    let settled = |w: &World, replicas: i64, image: &str| {
        let d = w.get(&resources::DEPLOYMENTS, "default", "web").unwrap();
        let pods = w.list(&resources::PODS, "default");
        let images = pods.iter().filter(|p| p["spec"]["containers"][0]["image"] == image).count();
        d["status"]["availableReplicas"] == replicas
            && d["status"]["updatedReplicas"] == replicas
            && d["status"]["replicas"] == replicas
            && d["status"]["observedGeneration"] == d["metadata"]["generation"]
            && i64::try_from(images).unwrap() == replicas
            && pods.len() == images
    };
    world.until("the first rollout", |w| settled(w, 4, "x:1")).await;
    let get = |w: &World| w.get(&resources::DEPLOYMENTS, "default", "web").unwrap();
    world.until("progress", |w| is_true(&get(w), "Available") && is_true(&get(w), "Progressing")).await;
    let image = |image: &'static str| {
        move |d: &mut Value| {
            d["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
            true
        }
    };
    world.change(&resources::DEPLOYMENTS, "default", "web", image("x:2")).await;
    world.until("the second rollout", |w| settled(w, 4, "x:2")).await;
    let sets = world.list(&resources::REPLICA_SETS, "default");
    assert_eq!(sets.len(), 2);
    assert_eq!(get(&world)["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "2");
    world
        .change(&resources::DEPLOYMENTS, "default", "web", |d| {
            d["spec"]["replicas"] = json!(7);
            true
        })
        .await;
    world.until("growth", |w| settled(w, 7, "x:2")).await;
    // Back: the old ReplicaSet is used again, with a new revision.
    world.change(&resources::DEPLOYMENTS, "default", "web", image("x:1")).await;
    world.until("the way back", |w| settled(w, 7, "x:1")).await;
    assert_eq!(world.list(&resources::REPLICA_SETS, "default").len(), 2);
    assert_eq!(get(&world)["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "3");
    // A pod that is deleted comes back.
    let pod = world.list(&resources::PODS, "default")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    world.delete(&resources::PODS, "default", &pod, Propagation::Background).await;
    world
        .until("its replacement", |w| {
            settled(w, 7, "x:1") && w.get(&resources::PODS, "default", &pod).is_none()
        })
        .await;
    world.delete(&resources::DEPLOYMENTS, "default", "web", Propagation::Background).await;
    world
        .until("the end", |w| {
            w.list(&resources::REPLICA_SETS, "default").is_empty()
                && w.list(&resources::PODS, "default").is_empty()
        })
        .await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quotas_are_counted_and_given_back() {
    let world = World::new().await;
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
        "spec": {"hard": {"pods": "3", "requests.cpu": "1", "count/jobs.batch": "2"}},
    });
    world.create(&resources::RESOURCE_QUOTAS, "default", quota).await;
    let used =
        |w: &World| w.get(&resources::RESOURCE_QUOTAS, "default", "q").unwrap()["status"]["used"].clone();
    world
        .until("the first count", |w| {
            used(w) == json!({"pods": "0", "requests.cpu": "0", "count/jobs.batch": "0"})
        })
        .await;
    let pod = |name: &str, exit: Option<&str>| {
        let resources = json!({"requests": {"cpu": "300m"}});
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x", "resources": resources}]},
        });
        if let Some(exit) = exit {
            pod["metadata"]["annotations"] = json!({"exit": exit});
        }
        pod
    };
    for (name, exit) in [("a", None), ("b", None), ("c", Some("0"))] {
        world.create(&resources::PODS, "default", pod(name, exit)).await;
    }
    // The pod that has ended gives back what it used.
    world
        .until("two pods' worth", |w| {
            used(w) == json!({"pods": "2", "requests.cpu": "600m", "count/jobs.batch": "0"})
        })
        .await;
    world.create(&resources::PODS, "default", pod("d", None)).await;
    let target = Target::create(&resources::PODS, "default");
    let refused = world.client.create(target, pod("e", None)).await.unwrap_err();
    assert!(refused.message.contains("exceeded quota: q"), "{refused}");
    world.delete(&resources::PODS, "default", "a", Propagation::Background).await;
    world.delete(&resources::PODS, "default", "d", Propagation::Background).await;
    world.until("one pod's worth", |w| used(w)["pods"] == "1" && used(w)["requests.cpu"] == "300m").await;
    world.stop().await;
}

/// Counting anew never loses what is charged for writes that are still under way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_holds_while_it_is_counted() {
    let world = World::new().await;
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
        "spec": {"hard": {"count/secrets": "10"}},
    });
    world.create(&resources::RESOURCE_QUOTAS, "default", quota).await;
    let used =
        |w: &World| w.get(&resources::RESOURCE_QUOTAS, "default", "q").unwrap()["status"]["used"].clone();
    world.until("the first count", |w| used(w) == json!({"count/secrets": "0"})).await;
    let secrets = Resource::builtin("", "v1", "secrets", "/secrets");
    let writers: Vec<_> = (0..6)
        .map(|n| {
            let (client, secrets) = (world.client.clone(), secrets.clone());
            tokio::spawn(async move {
                let mut made = 0;
                for i in 0..8 {
                    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("s{n}-{i}")}});
                    match client.create(Target::create(&secrets, "default"), secret).await {
                        Ok(_) => made += 1,
                        Err(e) => assert!(e.message.contains("exceeded quota: q"), "{e}"),
                    }
                }
                made
            })
        })
        .collect();
    let mut made = 0;
    for writer in writers {
        made += writer.await.unwrap();
    }
    assert_eq!(made, 10);
    world.until("all counted", |w| used(w) == json!({"count/secrets": "10"})).await;
    world.stop().await;
}

/// The server and its controllers are stopped in the middle of whatever they do, many times, and started again on the same
/// directory: every pod is made once and counted once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_survives_restarts() {
    const COMPLETIONS: i64 = 120;
    let dir = std::env::temp_dir().join(format!("plimsoll-restarts-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let clock = Clock::scaled(SPEED);
    let spec = json!({"completions": COMPLETIONS, "parallelism": 6, "backoffLimit": 0});
    let indexed =
        json!({"completions": COMPLETIONS, "parallelism": 6, "completionMode": "Indexed", "backoffLimit": 0});
    let mut restarts = 0;
    for round in 0.. {
        let world = World::with(clock.clone(), Some(dir.clone())).await;
        if round == 0 {
            world.create(&resources::JOBS, "default", job("plain", Some("0"), &spec)).await;
            world.create(&resources::JOBS, "default", job("indexed", Some("0"), &indexed)).await;
        }
        // Pods that were made while there was no kubelet.
        for pod in
            world.list(&resources::PODS, "default").iter().filter(|p| p["status"]["phase"] == "Pending")
        {
            world
                .change(&resources::PODS, "default", pod["metadata"]["name"].as_str().unwrap(), |pod| {
                    pod["metadata"]["annotations"]["seen"] = json!(round.to_string());
                    true
                })
                .await;
        }
        let done = |w: &World| is_true(&w.job("plain"), "Complete") && is_true(&w.job("indexed"), "Complete");
        if done(&world) || round > 200 {
            let pods = world.list(&resources::PODS, "default");
            let of =
                |job: &str| pods.iter().filter(|p| p["metadata"]["labels"]["job-name"] == job).count() as i64;
            assert_eq!((of("plain"), of("indexed")), (COMPLETIONS, COMPLETIONS));
            for name in ["plain", "indexed"] {
                let status = world.job(name)["status"].clone();
                assert_eq!(
                    (&status["succeeded"], status.get("failed")),
                    (&json!(COMPLETIONS), None),
                    "{name}"
                );
            }
            world.stop().await;
            break;
        }
        restarts += 1;
        tokio::time::sleep(Duration::from_millis(30 + 17 * (round % 7))).await;
        // Requests in flight are cut off where they are.
        let store = world.client.store().clone();
        world.stop().await;
        store.close().await;
    }
    let _ = std::fs::remove_dir_all(&dir);
    assert!(restarts > 5, "{restarts}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_go_some_time_after_they_were_last_written() {
    let world = World::with_events_for(Duration::from_mins(2), Clock::scaled(SPEED), None).await;
    let event = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "default"},
            "involvedObject": {"namespace": "default"}, "reason": "Why", "type": "Normal", "count": 1,
        })
    };
    world.create(&resources::EVENTS, "default", event("once")).await;
    let again = world.create(&resources::EVENTS, "default", event("again")).await;
    let created: jiff::Timestamp = again["metadata"]["creationTimestamp"].as_str().unwrap().parse().unwrap();
    world
        .change(&resources::EVENTS, "default", "again", |e| {
            e["lastTimestamp"] = json!((created + Duration::from_mins(4)).to_string());
            true
        })
        .await;
    world.until("the first goes", |w| w.get(&resources::EVENTS, "default", "once").is_none()).await;
    assert!(world.get(&resources::EVENTS, "default", "again").is_some(), "it was written again");
    world.until("the other goes", |w| w.get(&resources::EVENTS, "default", "again").is_none()).await;
    world.stop().await;
}

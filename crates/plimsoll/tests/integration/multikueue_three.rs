//! MultiKueue: one manager and three worker clusters. The dispatcher that asks them, and what fails on the way: workers killed and
//! hanging, and a manager that is restarted in every state of a workload.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::path::Path;

use plimsoll_api::json;
use plimsoll_runtime::api::{CLUSTER_QUEUES, JOBS, MULTIKUEUE_CLUSTERS, WORKLOADS};
use serde_json::{Value, json};

use crate::common::proxy::{Fault, Proxy};
use crate::common::run::{Run, get};
use crate::common::{Up, directory, job, queue};
use crate::multikueue::{
    Manager, QUEUE, dispatch_to, patch, until_active, until_complete, until_gone, until_runs_on, workload,
};

const EARLIEST: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
                        multiKueue: {dispatcherName: plimsoll.dev/multikueue-dispatcher-earliest, gcInterval: 1s}\n\
                        integrations: {frameworks: [batch/job]}\n";
const PLAIN: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
                     multiKueue: {workerLostTimeout: 5s, gcInterval: 1s}\nintegrations: {frameworks: [batch/job]}\n";
const LIMIT: &str = "kueue.x-k8s.io/max-exec-time-seconds";

/// A worker with a node and this quota of CPUs.
async fn worker(cpus: u32) -> Up {
    let up = Up::start(&["--nodes", "1"]).await;
    up.apply(&queue(cpus)).await;
    up
}

/// Waits until a job of a cluster itself runs there.
async fn until_admitted(up: &Up, name: &str) {
    up.until_shown(&format!("{name} is admitted"), async |up| {
        let wl = workload(up, name).await.ok_or("no workload")?;
        if json::is_true(&wl, "Admitted") { Ok(()) } else { Err(wl["status"].to_string()) }
    })
    .await;
}

async fn delete(up: &Up, name: &str) {
    let job = up.get(JOBS, "team", name).await;
    up.api.delete_with_dependents(JOBS, "team", name, json::uid(&job)).await.unwrap();
}

async fn set_quota(up: &Up, cpus: u32) {
    let quota = json!({"spec": {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "any",
        "resources": [{"name": "cpu", "nominalQuota": cpus}]}]}]}});
    patch(up, CLUSTER_QUEUES, "", "cq", &quota).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_that_can_start_a_job_first_gets_it_alone() {
    let (one, two, three) = (worker(2).await, worker(2).await, worker(2).await);
    // The first one is full for as long as anyone knows, the second one for twenty seconds, and the third one answers no such
    // question, as Kueue does not.
    one.create(&job("own", &json!({QUEUE: "main"}), 2, 3600)).await.unwrap();
    two.create(&job("own", &json!({QUEUE: "main", LIMIT: "20"}), 2, 3600)).await.unwrap();
    until_admitted(&one, "own").await;
    until_admitted(&two, "own").await;
    let proxy = Proxy::start(&three.kubeconfig, &three.dir).await;
    proxy.rule(|asked| if asked.about("admissionforecasts") { Fault::Status(404) } else { Fault::None });
    let manager = Manager::start_with(EARLIEST).await;
    let workers = [("one", &*one.kubeconfig), ("two", &*two.kubeconfig), ("three", &*proxy.kubeconfig)];
    manager.dispatch_to(&workers).await;
    for name in ["one", "two", "three"] {
        until_active(manager.up(), MULTIKUEUE_CLUSTERS, name, "Active").await;
    }
    let submit = async |name: &str, on: &Up, cluster: &str| {
        manager.up().create(&job(name, &json!({QUEUE: "main"}), 2, 3600)).await.unwrap();
        manager
            .up()
            .until_shown(&format!("{name} is nominated for {cluster}"), async |up| {
                let wl = workload(up, name).await.ok_or("no workload")?;
                let status = &wl["status"];
                let nominated = status["nominatedClusterNames"] == json!([cluster]);
                if nominated || status["clusterName"] == cluster { Ok(()) } else { Err(status.to_string()) }
            })
            .await;
        until_runs_on(manager.up(), name, on, cluster, 2).await;
    };
    // Soon is better than perhaps, and perhaps is better than never.
    submit("soon", &two, "two").await;
    delete(&one, "own").await;
    submit("now", &one, "one").await;
    submit("perhaps", &three, "three").await;
    let (_, metrics) = get(manager.up().ready["metrics"].as_str().unwrap(), "/metrics");
    for cluster in ["one", "two", "three"] {
        let want = format!(
            "multikueue_workloads_dispatched_total{{cluster=\"{cluster}\",cluster_queue=\"cq\",replica_role=\"standalone\"}} 1\n"
        );
        assert!(metrics.contains(&want), "{cluster} got more than its job:\n{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_says_when_it_could_start_a_workload() {
    let up = worker(2).await;
    up.create(&job("own", &json!({QUEUE: "main", LIMIT: "600"}), 1, 3600)).await.unwrap();
    until_admitted(&up, "own").await;
    let ask = async |queue: &str, cpus: u32| {
        let path = format!(
            "/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/team/localqueues/{queue}/admissionforecasts"
        );
        let spec = job("x", &json!({}), 1, 1)["spec"]["template"]["spec"].clone();
        let body = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "x"},
            "spec": {"podSets": [{"name": "main", "count": cpus, "template": {"spec": spec}}]}});
        up.api.post_path(&path, &body).await
    };
    let now = ask("main", 1).await.unwrap();
    assert_eq!(
        (&now["kind"], &now["apiVersion"]),
        (&json!("AdmissionForecast"), &json!("visibility.kueue.x-k8s.io/v1beta2"))
    );
    let at = |answer: &Value| {
        let text = json::text(answer, &["status", "startTime"]).to_owned();
        plimsoll_api::timestamp::parse(&text).unwrap_or_else(|| panic!("{answer}")).seconds()
    };
    let later = ask("main", 2).await.unwrap();
    let wait = at(&later) - at(&now);
    assert!((500..=600).contains(&wait), "{wait} s: {now} {later}");
    let never = ask("main", 3).await.unwrap();
    assert_eq!(never["status"], json!({"preemptedWorkloads": 0, "workloadsAhead": 0}), "no time is known");
    let missing = ask("other", 1).await.unwrap_err();
    assert_eq!(
        (missing.code(), missing.to_string().contains("\"other\" not found")),
        (404, true),
        "{missing}"
    );
    assert_eq!(up.list(WORKLOADS).await.len(), 1, "nothing is kept");
}

/// A manager whose controllers run in another process than its API server.
struct Halves {
    server: Up,
    config: std::path::PathBuf,
    run: Option<Run>,
}

impl Halves {
    async fn start() -> Self {
        let config = directory().join("config.yaml");
        std::fs::write(&config, PLAIN).unwrap();
        let server = Up::start(&["--no-scheduler", "--nodes", "0"]).await;
        let mut halves = Self { server, config, run: None };
        halves.resume();
        halves
    }

    /// Ends the controllers as a power failure would.
    fn kill(&mut self) {
        if let Some(mut run) = self.run.take() {
            run.kill();
            if std::thread::panicking() {
                eprintln!("{}", run.log());
            }
        }
    }

    fn resume(&mut self) {
        let config = self.config.display().to_string();
        let args = ["--leader-elect=false", "--webhook-port", "0", "--config", &config];
        self.run = Some(Run::start(&self.server.kubeconfig, &args).0);
    }

    fn restart(&mut self) {
        self.kill();
        self.resume();
    }

    async fn create(&self, name: &str, seconds: u32) {
        self.server.create(&job(name, &json!({QUEUE: "main"}), 2, seconds)).await.unwrap();
    }
}

impl Drop for Halves {
    fn drop(&mut self) {
        self.kill();
        if let Some(dir) = self.config.parent() {
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

/// Waits until a worker has a copy of a job's workload.
async fn until_copied(worker: &Up, name: &str) {
    worker.until(&format!("{name} is copied"), async |worker| workload(worker, name).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_that_is_restarted_in_any_state_goes_on_where_it_was() {
    let (one, mut two, three) = (worker(0).await, worker(0).await, worker(0).await);
    let mut manager = Halves::start().await;
    let proxy = Proxy::start(&three.kubeconfig, &three.dir).await;
    let workers: [(&str, &Path); 3] =
        [("one", &one.kubeconfig), ("two", &two.kubeconfig), ("three", &proxy.kubeconfig)];
    dispatch_to(&manager.server, &workers).await;

    // It waits for quota on the manager.
    patch(&manager.server, CLUSTER_QUEUES, "", "cq", &json!({"spec": {"stopPolicy": "Hold"}})).await;
    until_active(&manager.server, CLUSTER_QUEUES, "cq", "Stopped").await;
    manager.create("long", 3600).await;
    manager.server.until("it has a workload", async |up| workload(up, "long").await).await;
    manager.restart();
    patch(&manager.server, CLUSTER_QUEUES, "", "cq", &json!({"spec": {"stopPolicy": "None"}})).await;
    for worker in [&one, &two, &three] {
        until_copied(worker, "long").await;
    }

    // All workers have a copy. One admits it while nobody looks.
    manager.kill();
    set_quota(&two, 2).await;
    until_admitted(&two, "long").await;
    manager.resume();
    let theirs = until_runs_on(&manager.server, "long", &two, "two", 2).await;
    until_gone(&one, "long").await;
    until_gone(&three, "long").await;

    // It runs, and one of the others hangs when the manager comes.
    manager.kill();
    proxy.rule(|_| Fault::Hang);
    manager.resume();
    until_active(&manager.server, MULTIKUEUE_CLUSTERS, "two", "Active").await;
    let again = until_runs_on(&manager.server, "long", &two, "two", 2).await;
    assert_eq!(json::uid(&again), json::uid(&theirs), "it is the same job");

    // Its worker evicts it while nobody looks, and another one has quota now.
    manager.kill();
    let drain = json!({"spec": {"stopPolicy": "HoldAndDrain"}});
    patch(&two, CLUSTER_QUEUES, "", "cq", &drain).await;
    two.until("the copy is evicted", async |up| {
        workload(up, "long").await.filter(|wl| json::is_true(wl, "Evicted")).map(drop)
    })
    .await;
    set_quota(&one, 2).await;
    manager.resume();
    until_runs_on(&manager.server, "long", &one, "one", 2).await;
    until_gone(&two, "long").await;

    // It is deleted while nobody looks; so is what workers have of it.
    manager.kill();
    delete(&manager.server, "long").await;
    manager.resume();
    until_gone(&one, "long").await;
    manager
        .server
        .until_shown("nothing is left on the manager", async |up| {
            let left = workload(up, "long").await;
            left.map_or(Ok(()), |left| Err(left.to_string()))
        })
        .await;

    // One finishes while nobody looks.
    manager.create("short", 4).await;
    until_runs_on(&manager.server, "short", &one, "one", 2).await;
    manager.kill();
    one.until("it is complete there", async |up| {
        let jobs = up.list(JOBS).await;
        jobs.into_iter().find(|j| json::name(j) == "short" && json::is_true(j, "Complete")).map(drop)
    })
    .await;
    manager.resume();
    until_complete(&manager.server, "short").await;
    until_gone(&one, "short").await;

    // The worker of one is lost while nobody looks. The one that hung is back.
    proxy.heal();
    patch(&two, CLUSTER_QUEUES, "", "cq", &json!({"spec": {"stopPolicy": "None"}})).await;
    set_quota(&one, 0).await;
    manager.create("lost", 3600).await;
    until_runs_on(&manager.server, "lost", &two, "two", 2).await;
    manager.kill();
    two.kill();
    set_quota(&three, 2).await;
    manager.resume();
    until_runs_on(&manager.server, "lost", &three, "three", 2).await;
}

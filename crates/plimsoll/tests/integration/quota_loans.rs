//! Quota that is lent from a shard to another one: two leaders with the rights of `plimsoll install --shards`, one API server.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::run::Run;
use crate::common::{Up, account_kubeconfig, binary, condition, directory, suspended_job};
use plimsoll_api::json;
use plimsoll_api::webhooks::NAMESPACE;
use plimsoll_runtime::api::{Api, JOBS, LEASES, NODES, PODS, PatchKind, QUOTA_LOANS, Resource, WORKLOADS};
use serde_json::{Value, json};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
/// Label of pods: the queue of their job.
const OF: &str = "queue";
/// CPUs of each cohort, and of a loan.
const QUOTA: i64 = 4;
const LENT: i64 = 3;

/// The API server, and for each of the shards `a` and `b` a node with room for all jobs, and a cohort of one queue.
async fn server() -> Up {
    let dir = directory();
    let node = |shard: &str| {
        let resources = json!({"cpu": "16", "memory": "8Gi", "pods": "110"});
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": shard, "labels": {"plimsoll.dev/shard": shard}},
            "status": {"capacity": resources, "allocatable": resources}})
    };
    let file = dir.join("nodes.yaml");
    std::fs::write(&file, ["a", "b"].map(|shard| node(shard).to_string()).join("\n---\n")).unwrap();
    let up =
        Up::start_in(dir, &["--no-scheduler", "--speed", "10", "--nodes-file", file.to_str().unwrap()]).await;
    up.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: any}\n").await;
    for shard in ["a", "b"] {
        let metadata = json!({"name": shard, "labels": {"plimsoll.dev/shard": shard}});
        let quota = json!([{"name": "any", "resources": [{"name": "cpu", "nominalQuota": QUOTA}]}]);
        let spec = json!({"namespaceSelector": {}, "cohortName": shard,
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": quota}]});
        for object in [
            json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": metadata}),
            json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": metadata, "spec": spec}),
            json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
                "metadata": {"name": shard, "namespace": "team"}, "spec": {"clusterQueue": shard}}),
        ] {
            up.create(&object).await.unwrap();
        }
    }
    up
}

/// A kubeconfig of the ServiceAccount that `plimsoll install --shards` makes, with the rights that it has there.
async fn account(up: &Up) -> PathBuf {
    let printed = binary().args(["install", "--output", "json", "--shards", "default,a,b"]).output().unwrap();
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    let list: Value = serde_json::from_slice(&printed.stdout).unwrap();
    let kinds = ["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];
    // The roles of users are there already.
    let ours = |o: &&Value| {
        kinds.contains(&json::text(o, &["kind"]))
            && (o["kind"] != "ClusterRole" || json::name(o).starts_with("plimsoll"))
    };
    for object in json::list(&list, &["items"]).iter().filter(ours) {
        let leak = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
        let [api_version, kind] =
            ["apiVersion", "kind"].map(|key| leak(json::text(object, &[key]).to_owned()));
        let plural = leak(format!("{}s", kind.to_lowercase()));
        let made = up.api.create(Resource { api_version, plural, kind }, object).await;
        made.map(drop).or_else(|e| if e.is_conflict() { Ok(()) } else { Err(e) }).unwrap();
    }
    let file = up.dir.join("account");
    account_kubeconfig(&up.kubeconfig, &file).await;
    file
}

/// A leader of a shard; a killed one is followed within seconds.
fn leader(kubeconfig: &Path, shard: &str) -> Run {
    let times = ["--leader-elect-lease-duration", "8s", "--leader-elect-renew-deadline", "6s"];
    let args =
        ["--shard", shard, "--leader-elect-retry-period", "500ms", "--leader-elect-resource-namespace"];
    let (mut run, line) = Run::start(kubeconfig, &[&args[..], &[NAMESPACE], &times].concat());
    assert!(line["leader"] == true || run.line()["leader"] == true, "{}", run.log());
    run
}

/// CPUs of pods that have a node and have neither ended nor been told to, by queue: what the API server shows at one moment.
async fn running(api: &Api) -> BTreeMap<String, i64> {
    let list = api.get_path(&PODS.collection("team")).await.unwrap();
    let mut used = BTreeMap::new();
    for pod in json::list(&list, &["items"]) {
        let ended = matches!(json::text(pod, &["status", "phase"]), "Succeeded" | "Failed");
        let leaves = !json::text(pod, &["metadata", "deletionTimestamp"]).is_empty();
        if !json::text(pod, &["spec", "nodeName"]).is_empty() && !ended && !leaves {
            *used.entry(json::label(pod, OF).to_owned()).or_insert(0) += 1;
        }
    }
    used
}

/// What of the loans the queue `b` may use: phase and version of each.
async fn loans(api: &Api) -> Vec<(String, String)> {
    let list = api.get_path(&QUOTA_LOANS.collection("")).await.unwrap();
    let shown = |o: &Value| {
        (
            json::text(o, &["status", "phase"]).to_owned(),
            json::text(o, &["metadata", "resourceVersion"]).to_owned(),
        )
    };
    json::list(&list, &["items"]).iter().map(shown).collect()
}

/// Looks at pods and loans until it is stopped: how often, and what was wrong.
async fn watch(api: Api, stop: Arc<AtomicBool>) -> (usize, usize, Vec<String>) {
    let (mut looks, mut lent, mut wrong) = (0, 0, Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let before = loans(&api).await;
        let used = running(&api).await;
        looks += 1;
        if used.values().sum::<i64>() > 2 * QUOTA {
            wrong.push(format!("both shards together: {used:?}"));
        }
        // Between two looks at the loans nothing has changed: so they were the same with these pods.
        if loans(&api).await == before {
            let granted = before.iter().filter(|(phase, _)| phase == "Granted").count() as i64 * LENT;
            let of = |queue: &str| used.get(queue).copied().unwrap_or(0);
            if of("a") > QUOTA - granted || of("b") > QUOTA + granted {
                wrong.push(format!("{granted} CPUs are lent, and run: {used:?}"));
            }
            lent += usize::from(of("b") > QUOTA);
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    (looks, lent, wrong)
}

async fn submit(up: &Up, name: &str, queue: &str, pods: u32) {
    let mut job = suspended_job(name, &json!({QUEUE: queue}), pods, 36_000);
    job["spec"]["template"]["metadata"] = json!({"labels": {OF: queue}});
    up.create(&job).await.unwrap();
}

async fn lend(up: &Up, name: &str) {
    let loan = json!({"apiVersion": "plimsoll.dev/v1alpha1", "kind": "QuotaLoan", "metadata": {"name": name},
        "spec": {"from": {"cohort": "a"}, "to": {"cohort": "b"},
            "resources": [{"flavor": "any", "resource": "cpu", "quantity": LENT}]}});
    up.create(&loan).await.unwrap();
}

async fn phase_is(up: &Up, loan: &str, phase: &str) {
    up.until_shown(&format!("{loan} is {phase}"), async |up| {
        let object = up.get(QUOTA_LOANS, "", loan).await;
        if object["status"]["phase"] == phase { Ok(()) } else { Err(format!("{object:#}")) }
    })
    .await;
}

async fn runs(up: &Up, job: &str, pods: i64) {
    up.until_shown(&format!("{job} runs"), async |up| {
        let object = up.get(JOBS, "team", job).await;
        let runs =
            object["spec"]["suspend"] == false && json::int(&object, &["status", "ready"]) == Some(pods);
        if runs { Ok(()) } else { Err(format!("{object:#}\n{:#?}", up.list(WORKLOADS).await)) }
    })
    .await;
}

/// The condition of a job's workload, once it is there.
async fn shows(up: &Up, job: &str, kind: &str, status: &str) -> String {
    up.until(&format!("{job}: {kind} is {status}"), async |up| {
        let all = up.list(WORKLOADS).await;
        let wl = all.iter().find(|wl| json::controller(wl).is_some_and(|owner| owner["name"] == job))?;
        let (found, _, message) = condition(wl, kind);
        (found == status).then(|| message.to_owned())
    })
    .await
}

async fn still_waits(up: &Up, job: &str) {
    tokio::time::sleep(Duration::from_secs(1)).await;
    shows(up, job, "QuotaReserved", "False").await;
}

async fn gone(up: &Up, loan: &str) {
    up.until_shown(&format!("{loan} is gone"), async |up| match up.api.get(QUOTA_LOANS, "", loan).await {
        Err(e) if e.is_not_found() => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}

async fn ask_back(up: &Up, loan: &str) {
    let body = json!({"spec": {"return": true}});
    up.api.patch(QUOTA_LOANS, "", loan, "", PatchKind::Merge, &body).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loan_between_shards_is_never_used_twice_whichever_leader_ends() {
    let up = server().await;
    let account = account(&up).await;
    let (mut a, mut b) = (leader(&account, "a"), leader(&account, "b"));
    let stop = Arc::new(AtomicBool::new(false));
    let watched = tokio::spawn(watch(up.api.clone(), stop.clone()));

    // A job that needs the loan waits for it, and runs with it.
    submit(&up, "large", "b", 6).await;
    shows(&up, "large", "QuotaReserved", "False").await;
    lend(&up, "first").await;
    phase_is(&up, "first", "Granted").await;
    runs(&up, "large", 6).await;
    // The lender has less.
    submit(&up, "lenders", "a", 3).await;
    shows(&up, "lenders", "QuotaReserved", "False").await;

    // The lender's leader ends: the next one knows what is lent.
    a.kill();
    a = leader(&account, "a");
    still_waits(&up, "lenders").await;
    // The borrower's leader ends, and the loan is asked back from nobody: nothing gives it to the lender by a clock.
    b.kill();
    ask_back(&up, "first").await;
    still_waits(&up, "lenders").await;
    phase_is(&up, "first", "Granted").await;
    runs(&up, "large", 6).await;
    // The next one returns it, after the job that uses it has stopped.
    b = leader(&account, "b");
    gone(&up, "first").await;
    shows(&up, "large", "Preempted", "True").await;
    runs(&up, "lenders", 3).await;
    shows(&up, "large", "QuotaReserved", "False").await;

    // With its quota in use the lender grants nothing, also after its leader has changed.
    lend(&up, "second").await;
    up.until("the loan says why it waits", async |up| {
        let loan = up.get(QUOTA_LOANS, "", "second").await;
        json::text(&loan, &["status", "message"]).contains("can't lend").then_some(())
    })
    .await;
    a.kill();
    a = leader(&account, "a");
    up.api.delete_with_dependents(JOBS, "team", "lenders", "").await.unwrap();
    runs(&up, "large", 6).await;
    // A loan that is deleted is returned first.
    up.api.delete(QUOTA_LOANS, "", "second", "", None).await.unwrap();
    gone(&up, "second").await;
    shows(&up, "large", "QuotaReserved", "False").await;

    // A node is given to the other shard with the same rights.
    let moved = json!({"metadata": {"annotations": {"plimsoll.dev/move-to": "b"}}});
    up.api.patch(NODES, "", "a", "", PatchKind::Merge, &moved).await.unwrap();
    up.until("the node has moved", async |up| {
        (json::label(&up.get(NODES, "", "a").await, "plimsoll.dev/shard") == "b").then_some(())
    })
    .await;
    for shard in ["a", "b"] {
        let lease = up.get(LEASES, NAMESPACE, &format!("plimsoll-{shard}")).await;
        assert!(!json::text(&lease, &["spec", "holderIdentity"]).is_empty());
    }
    stop.store(true, Ordering::Relaxed);
    let (looks, lent, wrong) = watched.await.unwrap();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(looks > 20 && lent > 5, "{looks} looks, {lent} while pods ran on a loan");
    for run in [&mut a, &mut b] {
        assert_eq!(run.terminate(), Some(0), "{}", run.log());
        assert!(!run.log().contains("forbidden"), "{}", run.log());
    }
}

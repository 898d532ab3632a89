//! `plimsoll queue list workload` (upstream's `list_workload.go`, `list_workload_printer.go`).

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{bail, ensure};
use jiff::Timestamp;
use plimsoll_api::json;
use plimsoll_apimachinery::table::age::human_duration;
use plimsoll_client::rest::encode;
use serde_json::Value;

use super::client::{Client, is_not_found, namespaced_path};
use super::kinds::Kinds;
use super::{list, print};
use crate::cli::{ListWorkloads, Listed};

/// Most characters of a job's type.
const TYPE: usize = 20;
const JOB_UID: &str = "kueue.x-k8s.io/job-uid";

/// Lists workloads.
pub async fn list(client: &Client, args: &ListWorkloads) -> anyhow::Result<()> {
    let wanted = statuses(&args.status)?;
    let namespace = if args.all_namespaces { "" } else { client.namespace.as_str() };
    let shown_namespace = (!args.all_namespaces).then_some(namespace);
    let mut kinds = Kinds::new(client);
    let mut workloads = match &args.of {
        None => list::all(client, &namespaced_path(namespace, "workloads", ""), &args.listed).await?,
        Some(of) => {
            let Some(uid) = job(client, &mut kinds, of, namespace).await? else {
                print::nothing(shown_namespace);
                return Ok(());
            };
            of_job(client, namespace, &args.listed, &uid).await?
        }
    };
    list::retain(&mut workloads, |wl| {
        let admitted_by = &wl["status"]["admission"]["clusterQueue"];
        args.localqueue.as_ref().is_none_or(|name| wl["spec"]["queueName"] == name.as_str())
            && args.clusterqueue.as_ref().is_none_or(|name| *admitted_by == name.as_str())
            && (wanted.is_empty() || wanted.contains(status(wl)))
    });
    let items = json::list(&workloads, &["items"]);
    let queues = cluster_queues(client, items).await?;
    let positions = positions(client, items, &queues).await?;
    let types = job_types(&mut kinds, items).await?;
    let mut headers = vec![
        "Name",
        "Job Type",
        "Job Name",
        "LocalQueue",
        "ClusterQueue",
        "Status",
        "Position in Queue",
        "Exec Time",
        "Age",
    ];
    if args.all_namespaces {
        headers.insert(0, "Namespace");
    }
    let cells = |wl: &Value| {
        let owners = json::list(wl, &["metadata", "ownerReferences"]);
        let names: BTreeSet<&str> = owners.iter().map(|o| json::text(o, &["name"])).collect();
        let of_kind = |o: &Value| {
            types.get(&(json::text(o, &["apiVersion"]).to_owned(), json::text(o, &["kind"]).to_owned()))
        };
        let types: BTreeSet<&str> = owners.iter().filter_map(of_kind).map(String::as_str).collect();
        let mut cells = vec![
            json::name(wl).to_owned(),
            types.into_iter().collect::<Vec<_>>().join(", "),
            names.into_iter().collect::<Vec<_>>().join(", "),
            json::text(wl, &["spec", "queueName"]).to_owned(),
            cluster_queue(wl, &queues).unwrap_or_default().to_owned(),
            status(wl).to_uppercase(),
            positions.get(&key(wl)).map(u64::to_string).unwrap_or_default(),
            execution_time(wl),
            print::age(&wl["metadata"]["creationTimestamp"]),
        ];
        if args.all_namespaces {
            cells.insert(0, json::namespace(wl).to_owned());
        }
        cells
    };
    list::show(&workloads, args.listed.output, shown_namespace, (&headers, &cells))
}

fn statuses(texts: &[String]) -> anyhow::Result<BTreeSet<&'static str>> {
    let mut wanted = BTreeSet::new();
    let mut all = false;
    for text in texts {
        match text.to_lowercase().as_str() {
            "all" => all = true,
            "pending" => {
                wanted.insert("pending");
            }
            "quotareserved" => {
                wanted.insert("quotaReserved");
            }
            "admitted" => {
                wanted.insert("admitted");
            }
            "finished" => {
                wanted.insert("finished");
            }
            _ => bail!(
                "invalid status value ({text}). Must be \"all\", \"pending\", \"admitted\" or \"finished\""
            ),
        }
    }
    Ok(if all { BTreeSet::new() } else { wanted })
}

/// State of a workload (upstream's `workload.Status`).
fn status(wl: &Value) -> &'static str {
    match ["Finished", "Admitted", "QuotaReserved"].map(|kind| json::is_true(wl, kind)) {
        [true, _, _] => "finished",
        [_, true, _] => "admitted",
        [_, _, true] => "quotaReserved",
        _ => "pending",
    }
}

/// UID of a job; `None`: it is not there.
async fn job(
    client: &Client,
    kinds: &mut Kinds<'_>,
    of: &str,
    namespace: &str,
) -> anyhow::Result<Option<String>> {
    let Some((kind, name)) = kinds.decode(of).await? else { bail!("--for must be in resource/name form") };
    let path =
        format!("{}?fieldSelector={}", kind.path(namespace, ""), encode(&format!("metadata.name={name}")));
    let found = client.get(&path).await?;
    Ok(json::list(&found, &["items"]).first().map(|o| json::text(o, &["metadata", "uid"]).to_owned()))
}

/// Workloads of a job: those with its UID in their label, or those that it owns.
async fn of_job(client: &Client, namespace: &str, listed: &Listed, uid: &str) -> anyhow::Result<Value> {
    ensure!(!uid.is_empty(), "the job has no UID");
    let path = namespaced_path(namespace, "workloads", "");
    let separator = if listed.selector.is_empty() { "" } else { "," };
    let selector = format!("{}{separator}{JOB_UID}={uid}", listed.selector);
    let labelled = list::all(client, &path, &Listed { selector, ..listed.clone() }).await?;
    if !json::list(&labelled, &["items"]).is_empty() {
        return Ok(labelled);
    }
    let mut all = list::all(client, &path, listed).await?;
    list::retain(&mut all, |wl| {
        json::list(wl, &["metadata", "ownerReferences"]).iter().any(|o| o["uid"] == uid)
    });
    Ok(all)
}

type Key = (String, String);

fn key(wl: &Value) -> Key {
    (json::namespace(wl).to_owned(), json::name(wl).to_owned())
}

fn queue_key(wl: &Value) -> Key {
    (json::namespace(wl).to_owned(), json::text(wl, &["spec", "queueName"]).to_owned())
}

/// ClusterQueues of the LocalQueues of workloads that have no admission.
async fn cluster_queues(client: &Client, items: &[Value]) -> anyhow::Result<BTreeMap<Key, String>> {
    let waiting =
        items.iter().filter(|wl| json::text(wl, &["status", "admission", "clusterQueue"]).is_empty());
    let keys: BTreeSet<Key> = waiting.map(queue_key).filter(|(_, name)| !name.is_empty()).collect();
    let mut queues = BTreeMap::new();
    for key in keys {
        let found = client.find(&namespaced_path(&key.0, "localqueues", &key.1)).await?;
        if let Some(queue) = found {
            queues.insert(key, json::text(&queue, &["spec", "clusterQueue"]).to_owned());
        }
    }
    Ok(queues)
}

fn cluster_queue<'a>(wl: &'a Value, queues: &'a BTreeMap<Key, String>) -> Option<&'a str> {
    match json::text(wl, &["status", "admission", "clusterQueue"]) {
        "" => queues.get(&queue_key(wl)).map(String::as_str),
        name => Some(name),
    }
}

/// Positions in their LocalQueues of workloads that wait; none where no visibility API is served.
async fn positions(
    client: &Client,
    items: &[Value],
    queues: &BTreeMap<Key, String>,
) -> anyhow::Result<BTreeMap<Key, u64>> {
    let waiting = items.iter().filter(|wl| status(wl) == "pending");
    let names: BTreeSet<&str> = waiting.filter_map(|wl| cluster_queue(wl, queues)).collect();
    let mut positions = BTreeMap::new();
    for name in names {
        let path = format!(
            "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/{}/pendingworkloads",
            encode(name)
        );
        match client.get(&path).await {
            Ok(summary) => {
                let items = json::list(&summary, &["items"]).iter();
                positions.extend(items.filter_map(|p| Some((key(p), p["positionInLocalQueue"].as_u64()?))));
            }
            Err(e) if is_not_found(&e) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(positions)
}

/// Types of owners by version and kind: `job`, `pytorchjob`.
async fn job_types(
    kinds: &mut Kinds<'_>,
    items: &[Value],
) -> anyhow::Result<BTreeMap<(String, String), String>> {
    let owners = items.iter().flat_map(|wl| json::list(wl, &["metadata", "ownerReferences"]));
    let wanted: BTreeSet<(String, String)> = owners
        .map(|o| (json::text(o, &["apiVersion"]).to_owned(), json::text(o, &["kind"]).to_owned()))
        .collect();
    let mut types = BTreeMap::new();
    for (version, kind) in wanted {
        let Some(served) = kinds.kind(&version, &kind).await? else { continue };
        let singular = served.singular;
        if !singular.is_empty() {
            let cut = singular.get(..TYPE).filter(|_| singular.len() > TYPE).map(|cut| format!("{cut}..."));
            types.insert((version, kind), cut.unwrap_or(singular));
        }
    }
    Ok(types)
}

/// How long a workload has been admitted, until it finished.
fn execution_time(wl: &Value) -> String {
    let since = |kind: &str| {
        let condition = json::condition(wl, kind).filter(|c| c["status"] == "True")?;
        condition["lastTransitionTime"].as_str()?.parse::<Timestamp>().ok()
    };
    match since("Admitted") {
        None => String::new(),
        Some(admitted) => {
            let end = since("Finished").unwrap_or_else(Timestamp::now);
            human_duration(end.duration_since(admitted).as_secs())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn states_are_kueues() {
        let wl = |kinds: &[&str]| {
            let condition = |kind: &&str| json!({"type": kind, "status": "True"});
            json!({"status": {"conditions": kinds.iter().map(condition).collect::<Vec<_>>()}})
        };
        assert_eq!(status(&wl(&[])), "pending");
        assert_eq!(status(&wl(&["QuotaReserved"])), "quotaReserved");
        assert_eq!(status(&wl(&["QuotaReserved", "Admitted"])), "admitted");
        assert_eq!(status(&wl(&["Admitted", "Finished"])), "finished");
        assert_eq!(statuses(&["Pending".into(), "finished".into()]).unwrap().len(), 2);
        assert_eq!(statuses(&["pending".into(), "all".into()]).unwrap().len(), 0);
        assert!(
            statuses(&["other".into()]).unwrap_err().to_string().starts_with("invalid status value (other)")
        );
    }
}

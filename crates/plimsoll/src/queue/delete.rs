//! `plimsoll queue delete workload` (upstream's `delete_workload.go`): with the jobs that own them.

use std::io::{BufRead, Write};

use anyhow::{bail, ensure};
use plimsoll_api::json;
use serde_json::Value;

use super::client::{Client, namespaced_path};
use super::kinds::{Kinds, Served};
use super::print;
use crate::cli::{DeleteWorkloads, DryRun};
use crate::say;

/// A workload and the jobs that own it.
struct Owned {
    workload: Value,
    jobs: Vec<(Served, String)>,
}

/// Deletes workloads.
pub async fn workloads(client: &Client, args: &DeleteWorkloads) -> anyhow::Result<()> {
    ensure!(args.all || !args.names.is_empty(), "requires at least 1 arg(s), only received 0");
    ensure!(!args.all || args.names.is_empty(), "name cannot be provided when a selector is specified");
    ensure!(
        !args.all_namespaces || args.names.is_empty(),
        "a resource cannot be retrieved by name across all namespaces"
    );
    let found = found(client, args).await?;
    if found.is_empty() {
        return Ok(());
    }
    let all = with_jobs(client, found).await?;
    let any = all.iter().any(|owned| !owned.jobs.is_empty());
    if args.dry_run == DryRun::None && !args.yes && any {
        let message = if args.all {
            "This operation will also delete the jobs associated with these workloads.\n".to_owned()
        } else {
            affected(&all)
        };
        if !confirmed(&message) {
            say::line("Deletion is canceled");
            return Ok(());
        }
    }
    for owned in &all {
        delete(client, owned, args.dry_run).await?;
    }
    Ok(())
}

async fn found(client: &Client, args: &DeleteWorkloads) -> anyhow::Result<Vec<Value>> {
    if args.all {
        let namespace = if args.all_namespaces { "" } else { client.namespace.as_str() };
        let path = namespaced_path(namespace, "workloads", "");
        let list = client.list(&path, ("", ""), "application/json").await?;
        return Ok(json::list(&list, &["items"]).to_vec());
    }
    let mut all = Vec::new();
    for name in &args.names {
        match client.find(&namespaced_path(&client.namespace, "workloads", name)).await? {
            Some(workload) => all.push(workload),
            None => say::error(&format!("workloads.kueue.x-k8s.io {name:?} not found")),
        }
    }
    Ok(all)
}

async fn with_jobs(client: &Client, found: Vec<Value>) -> anyhow::Result<Vec<Owned>> {
    let mut kinds = Kinds::new(client);
    let mut all = Vec::new();
    for workload in found {
        let mut jobs = Vec::new();
        for owner in json::list(&workload, &["metadata", "ownerReferences"]) {
            let (version, kind) = (json::text(owner, &["apiVersion"]), json::text(owner, &["kind"]));
            let Some(served) = kinds.kind(version, kind).await? else {
                bail!("no matches for kind {kind:?} in version {version:?}")
            };
            jobs.push((served, json::text(owner, &["name"]).to_owned()));
        }
        all.push(Owned { workload, jobs });
    }
    Ok(all)
}

fn affected(all: &[Owned]) -> String {
    let line = |owned: &Owned| {
        let names: Vec<String> =
            owned.jobs.iter().map(|(k, name)| format!("{}/{name}", k.resource())).collect();
        let (namespace, name) = (json::namespace(&owned.workload), json::name(&owned.workload));
        format!("  - {} associated with the {namespace}/{name} workload\n", names.join(", "))
    };
    let lines: Vec<String> = all.iter().filter(|owned| !owned.jobs.is_empty()).map(line).collect();
    format!("This operation will also delete:\n{}", lines.join("\n"))
}

fn confirmed(message: &str) -> bool {
    let mut out = std::io::stdout().lock();
    let _ = write!(out, "{message}Do you want to proceed (y/n)? ");
    let _ = out.flush();
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.is_ok() && answer.trim().eq_ignore_ascii_case("y")
}

/// Deletes the jobs of a workload, whose end takes the workload with it; without jobs the workload.
async fn delete(client: &Client, owned: &Owned, dry_run: DryRun) -> anyhow::Result<()> {
    let namespace = json::namespace(&owned.workload);
    for (kind, name) in &owned.jobs {
        if dry_run != DryRun::Client {
            client.delete(&kind.path(namespace, name), dry_run).await?;
        }
        let suffix = match dry_run {
            DryRun::None => "",
            DryRun::Server => " (server dry run)",
            DryRun::Client => " (client dry run)",
        };
        say::line(&format!("{}/{name} deleted{suffix}", kind.resource()));
    }
    if owned.jobs.is_empty() {
        if dry_run != DryRun::Client {
            let path = namespaced_path(namespace, "workloads", json::name(&owned.workload));
            client.delete(&path, dry_run).await?;
        }
        let mut workload = owned.workload.clone();
        workload["kind"] = "Workload".into();
        workload["apiVersion"] = "kueue.x-k8s.io/v1beta2".into();
        print::object(&workload, "deleted", (dry_run, None))?;
    }
    Ok(())
}

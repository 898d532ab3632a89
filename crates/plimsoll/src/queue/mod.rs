//! `plimsoll queue`: kueuectl's commands (`cmd/kueuectl` upstream), with its flags, columns and messages.

pub mod client;
mod create;
mod delete;
mod kinds;
mod list;
mod passthrough;
mod pods;
mod print;
mod quotas;
mod stop;
mod workloads;

use crate::cli::{CreateKind, Delete, List, Queue, QueueCommand, ResumeKind, StopKind};
use client::Client;

/// Runs one of the subcommands.
///
/// # Errors
/// What the API server refuses, and what is wrong with the arguments.
pub async fn run(args: Queue) -> anyhow::Result<()> {
    let cluster = &args.cluster;
    match &args.what {
        QueueCommand::Get(to) => return passthrough::kubectl("get", cluster, &to.arguments),
        QueueCommand::Edit(to) => return passthrough::kubectl("edit", cluster, &to.arguments),
        QueueCommand::Describe(to) => return passthrough::kubectl("describe", cluster, &to.arguments),
        QueueCommand::Patch(to) => return passthrough::kubectl("patch", cluster, &to.arguments),
        QueueCommand::Delete { what: Delete::Other(to) } => {
            return passthrough::kubectl("delete", cluster, to);
        }
        _ => {}
    }
    let client = Client::connect(cluster).await?;
    match args.what {
        QueueCommand::Create(create) => {
            let how = (create.dry_run, create.output);
            match &create.what {
                CreateKind::ClusterQueue(args) => create::cluster_queue(&client, args, how).await,
                CreateKind::LocalQueue(args) => create::local_queue(&client, args, how).await,
                CreateKind::ResourceFlavor(args) => create::resource_flavor(&client, args, how).await,
            }
        }
        QueueCommand::List { what } => match &what {
            List::ClusterQueue { listed, active } => list::cluster_queues(&client, listed, active).await,
            List::LocalQueue { listed, clusterqueue, all_namespaces } => {
                list::local_queues(&client, listed, clusterqueue.as_deref(), *all_namespaces).await
            }
            List::Workload(args) => workloads::list(&client, args).await,
            List::ResourceFlavor { listed } => list::resource_flavors(&client, listed).await,
            List::Pods(args) => pods::list(&client, args).await,
        },
        QueueCommand::Stop(stop) => {
            let how = (stop.dry_run, stop.output);
            let policy = |keep: bool| if keep { "Hold" } else { "HoldAndDrain" };
            match &stop.what {
                StopKind::ClusterQueue(queue) => {
                    let policy = policy(queue.keep_already_running);
                    stop::cluster_queue(&client, &queue.name, policy, how).await
                }
                StopKind::LocalQueue(queue) => {
                    let policy = policy(queue.keep_already_running);
                    stop::local_queue(&client, &queue.name, policy, how).await
                }
                StopKind::Workload(named) => stop::workload(&client, &named.name, false, how).await,
            }
        }
        QueueCommand::Resume(resume) => {
            let how = (resume.dry_run, resume.output);
            match &resume.what {
                ResumeKind::ClusterQueue(named) => {
                    stop::cluster_queue(&client, &named.name, "None", how).await
                }
                ResumeKind::LocalQueue(named) => stop::local_queue(&client, &named.name, "None", how).await,
                ResumeKind::Workload(named) => stop::workload(&client, &named.name, true, how).await,
            }
        }
        QueueCommand::Delete { what: Delete::Workload(args) } => delete::workloads(&client, &args).await,
        // They went to kubectl.
        QueueCommand::Delete { what: Delete::Other(_) }
        | QueueCommand::Get(_)
        | QueueCommand::Edit(_)
        | QueueCommand::Describe(_)
        | QueueCommand::Patch(_) => Ok(()),
    }
}

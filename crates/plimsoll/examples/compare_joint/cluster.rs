//! The processes of one column: `plimsoll up` and who admits and places.

use std::path::Path;

use anyhow::Context as _;
use plimsoll_api::json;
use plimsoll_api::resource::{CLUSTER_QUEUES, NODES};
use plimsoll_client::rest::Api;
use plimsoll_sim::scenario::Scenario;
use serde_json::json;

use super::options::{Column, Options};
use super::process::{Running, Usage};
use super::starting::{REQUESTS_PER_SECOND, Starting, check, create, pods_ready};
use super::{kueue, objects};

/// A running column; its processes end with it.
pub struct Cluster {
    /// Requests to the API server.
    pub api: Api,
    processes: Vec<(&'static str, Running)>,
}

impl Cluster {
    /// Starts the processes of a column and creates its nodes and queues. Logs are in `dir`.
    ///
    /// # Errors
    /// A process ends or is not ready in time.
    pub async fn start(
        options: &Options,
        column: Column,
        scenario: &Scenario,
        dir: &Path,
    ) -> anyhow::Result<Self> {
        let _ = std::fs::remove_dir_all(dir);
        std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        let dir = dir.canonicalize()?;
        let kubeconfig = dir.join("kubeconfig");
        let mut starting = Starting { options, dir: &dir, kubeconfig, processes: Vec::new() };
        let api = starting.start_server(column, scenario).await?;
        if column.is_kueue() {
            kueue::start(&mut starting, &api).await?;
        } else {
            starting.start_plimsoll(column).await?;
        }
        for (resource, object) in objects::queues(scenario, column == Column::KueueTopology) {
            create(&api, resource, &object).await?;
        }
        for queue in 0..scenario.plan.queues.len() {
            let name = format!("c{queue}");
            let active = async |_: &Starting<'_>| {
                let queue = api.get(CLUSTER_QUEUES, "", &name).await;
                queue.is_ok_and(|q| json::is_true(&q, "Active"))
            };
            starting.until(&format!("active ClusterQueue {name}"), active).await?;
        }
        Ok(Self { api, processes: starting.processes })
    }

    /// An error when a process has ended.
    pub fn check(&mut self) -> anyhow::Result<()> {
        check(&mut self.processes)
    }

    /// What the processes have used so far.
    pub fn usages(&self) -> Vec<(&'static str, Usage)> {
        self.processes.iter().map(|(name, p)| (*name, p.usage())).collect()
    }

    /// Ends the processes, the server last.
    pub async fn stop(mut self) {
        while let Some((name, process)) = self.processes.pop() {
            if let Err(e) = process.stop().await {
                eprintln!("{name}: {e:#}");
            }
        }
    }
}

impl Starting<'_> {
    async fn start_server(&mut self, column: Column, scenario: &Scenario) -> anyhow::Result<Api> {
        let nodes = scenario.plan.nodes.iter().enumerate();
        let nodes: Vec<String> = nodes.map(|(i, spec)| objects::node(i, spec).to_string()).collect();
        let file = self.dir.join("nodes.yaml");
        std::fs::write(&file, nodes.join("\n---\n"))?;
        let speed = self.options.speed.to_string();
        let (file, kubeconfig) = (file.display().to_string(), self.kubeconfig.display().to_string());
        let mut args = vec!["up", "--port", "0", "--kubeconfig", &kubeconfig, "--nodes-file", &file];
        args.extend(["--speed", &speed, "--durability", "relaxed", "--output", "json"]);
        args.extend(match column.is_kueue() {
            true => &["--no-queueing", "--no-placement"][..],
            false => &["--no-scheduler"],
        });
        let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
        let binary = self.options.binary.clone();
        self.spawn("plimsoll up", &binary, &args)?;
        // Its first line says that it serves.
        self.until("API server", async |s: &Self| s.said("plimsoll up").contains('\n')).await?;
        let file = kube::config::Kubeconfig::read_from(&self.kubeconfig)?;
        let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await?;
        let api = plimsoll_runtime::connect::api(config, "compare-joint")?;
        let last = format!("node-{}", scenario.plan.nodes.len() - 1);
        self.until("nodes", async |_: &Self| api.get(NODES, "", &last).await.is_ok()).await?;
        Ok(api)
    }

    async fn start_plimsoll(&mut self, column: Column) -> anyhow::Result<()> {
        let configuration = json!({
            "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration",
            "clientConnection": {"qps": REQUESTS_PER_SECOND, "burst": 2 * REQUESTS_PER_SECOND},
            "waitForPodsReady": pods_ready(self.options.speed),
        });
        let file = self.dir.join("config.yaml");
        std::fs::write(&file, configuration.to_string())?;
        let (file, kubeconfig) = (file.display().to_string(), self.kubeconfig.display().to_string());
        let mut args = vec!["run", "--kubeconfig", &kubeconfig, "--config", &file, "--webhook-port", "0"];
        args.extend(["--metrics-bind-address", "0", "--output", "json"]);
        args.extend((column == Column::Quota).then_some("--no-joint-admission"));
        let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
        let binary = self.options.binary.clone();
        self.spawn("plimsoll run", &binary, &args)?;
        self.until("plimsoll run", async |s: &Self| s.said("plimsoll run").contains('\n')).await
    }
}

//! Settings of a runtime, and what follows from them.

use std::sync::Arc;

use plimsoll_api::lanes::Group;
use plimsoll_client::limit::Limit;
use plimsoll_config::ClientConnection;
use plimsoll_engine::EngineConfig;

use crate::api::Resource;
use crate::coalesce::Coalescing;
use crate::roles::Roles;
use crate::shard::Shard;
use crate::{ingest, reload};

/// The limit of a client.
pub(crate) fn limit(client: Option<ClientConnection>) -> Limit {
    client.map_or_else(Limit::default, |c| Limit::new(c.qps, c.burst))
}

/// Settings of a runtime.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What it does.
    pub roles: Roles,
    /// Configuration of placement.
    pub place: plimsoll_scheduler::Config,
    /// Where the configurations of plugins come from, to follow their changes.
    pub plugins: Vec<reload::Source>,
    /// Configuration of queueing.
    pub queueing: plimsoll_queueing::Config,
    /// Joint admission, with both roles.
    pub joint: bool,
    /// Which jobs are queued, and what is kept of them.
    pub jobs: plimsoll_jobs::Config,
    /// `clientConnection` of each client of queueing: that of decisions, that of jobs and statuses; `None`: no limit.
    pub queueing_client: Option<ClientConnection>,
    /// `clientConnection` of placement's client; `None`: no limit.
    pub placement_client: Option<ClientConnection>,
    /// The shard of the cluster that it decides about; `None`: all of it. A shard has its queues, too.
    pub shard: Option<String>,
    /// The Leases of all shards; `None`: their leaders have none.
    pub shard_leases: Option<ShardLeases>,
    /// How long the worker threads sleep before they poll the network, if the process has given them that hook.
    pub coalescing: Coalescing,
}

/// Where leaders of shards have their Leases.
#[derive(Clone, Debug)]
pub struct ShardLeases {
    /// Their namespace.
    pub namespace: String,
    /// Name of the Lease of processes without a shard.
    pub whole: String,
}

impl ShardLeases {
    /// Name of the Lease of a shard.
    pub fn name_of(&self, shard: &str) -> String {
        format!("{}-{shard}", self.whole)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            roles: Roles { queueing: true, placement: true },
            place: plimsoll_scheduler::Config::default(),
            plugins: Vec::new(),
            queueing: plimsoll_queueing::Config::default(),
            joint: true,
            jobs: plimsoll_jobs::Config::default(),
            queueing_client: None,
            placement_client: None,
            shard: None,
            shard_leases: None,
            coalescing: Coalescing::default(),
        }
    }
}

impl Settings {
    /// Limits of decisions.
    pub(crate) fn limits(&self) -> [Limit; Group::ALL.len()] {
        let placement = limit(self.placement_client);
        Group::ALL.map(|group| match group {
            Group::Workloads => limit(self.queueing_client),
            // One client writes both.
            Group::Pods | Group::PreBind => placement.clone(),
            Group::Extenders => Limit::default(),
        })
    }

    /// Limit of events.
    pub(crate) fn events(&self) -> Limit {
        match self.roles {
            Roles { queueing: true, placement: false } => limit(self.queueing_client),
            Roles { queueing: false, .. } => limit(self.placement_client),
            // Both write their events with one client: it may do what both together may.
            _ => match (self.queueing_client, self.placement_client) {
                (Some(a), Some(b)) if a.qps >= 0.0 && b.qps >= 0.0 => {
                    Limit::new(a.qps + b.qps, a.burst.saturating_add(b.burst))
                }
                _ => Limit::default(),
            },
        }
    }

    /// Whether the engine has to know all nodes and the pods on them: to place pods, and for topologies.
    pub(crate) const fn watches_nodes(&self) -> bool {
        self.roles.placement || self.roles.queueing && self.queueing.gates.topology
    }

    /// Whether the plugins of a profile look at PodGroups.
    pub(crate) fn schedules_gangs(&self) -> bool {
        self.place.profiles.iter().any(|p| p.plugins.schedules_pod_groups())
    }

    /// Whether rules of PreemptionConfigs count.
    pub(crate) const fn reads_preemption_configs(&self) -> bool {
        self.roles.queueing && self.queueing.gates.configurable_preemptions
    }

    /// What is watched.
    pub(crate) fn watched(&self) -> Vec<Resource> {
        let mut resources =
            ingest::resources(self.roles, self.schedules_gangs(), self.watches_nodes(), &self.jobs);
        if self.reads_preemption_configs() {
            resources.push(crate::api::PREEMPTION_CONFIGS);
        }
        resources
    }

    /// The shard that it decides about, if it is not the whole cluster, for so many watches.
    pub(crate) fn shard(&self, lists: usize) -> Option<Shard> {
        self.shard.as_deref().map(|name| Shard::new(name, lists))
    }

    pub(crate) fn engine(&self) -> EngineConfig {
        let selector = Arc::new(plimsoll_api::device_cel::CelSelector::default());
        let place = || plimsoll_scheduler::Config {
            device_selector: Some(selector.clone()),
            stopwatch: Some(Arc::new(crate::clock::Monotonic::default())),
            ..self.place.clone()
        };
        let queueing = || plimsoll_queueing::Config {
            device_selector: Some(selector.clone()),
            shard: self.shard.is_some(),
            ..self.queueing.clone()
        };
        EngineConfig {
            scheduler: self.roles.placement.then(place),
            queueing: self.roles.queueing.then(queueing),
            joint: self.joint,
        }
    }
}

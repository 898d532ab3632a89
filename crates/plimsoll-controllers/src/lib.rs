//! The controllers that a laptop's control plane needs (kube-controller-manager's part), as clients of an API server.
//!
//! A [`Controller`] enqueues keys as objects change, and reconciles keys. What it decides is a function of objects and the
//! time where that is possible ([`job::sync`], [`cronjob::sync`]), so that tables test it; the rest carries it out.

pub mod aggregate;
pub mod apps;
pub mod claims;
pub mod cronjob;
pub mod disruption;
pub mod endpoints;
pub mod event_ttl;
pub mod gc;
pub mod job;
pub mod namespace;
pub mod node;
pub mod operators;
pub mod pod;
pub mod pod_control;
pub mod podgc;
pub mod quota;
pub mod ttl;
pub mod volumes;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_client::controller;
use plimsoll_client::{Client, Clock, Controller, Supervisor};
use tokio_util::sync::CancellationToken;

use namespace::NamespaceOptions;

/// Settings of the controllers.
#[derive(Clone, Debug)]
pub struct Options {
    /// What every namespace gets.
    pub namespaces: NamespaceOptions,
    /// Whether nodes that don't report are given up; only where kubelets run.
    pub nodes: bool,
    /// How long events stay after they were last written.
    pub event_ttl: Duration,
    /// Simulated operators.
    pub operators: Vec<&'static operators::Operator>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            namespaces: NamespaceOptions::default(),
            nodes: false,
            event_ttl: event_ttl::DEFAULT_TTL,
            operators: Vec::new(),
        }
    }
}

/// Running controllers. Dropping this leaves them running; see [`Controllers::stop`].
pub struct Controllers {
    stop: CancellationToken,
    supervisor: Supervisor,
}

impl Controllers {
    /// Starts all controllers on the current runtime. One that panics is made and started again.
    pub fn start(client: &Arc<dyn Client>, clock: &Clock, options: Options) -> Self {
        let stop = CancellationToken::new();
        let start = Start {
            client: Arc::clone(client),
            clock: clock.clone(),
            stop: stop.clone(),
            supervisor: Supervisor::new(stop.clone()),
        };
        start.one(job::JobController::new);
        start.one(cronjob::CronJobController::new);
        start.one(ttl::TtlController::new);
        let namespaces = options.namespaces;
        start.one(move |c, t| namespace::NamespaceController::new(c, t, namespaces.clone()));
        start.one(podgc::PodGc::new);
        start.one(apps::replicaset::ReplicaSetController::new);
        start.one(apps::deployment::DeploymentController::new);
        start.one(move |c, t| event_ttl::EventTtl::new(c, t, options.event_ttl));
        start.one(apps::statefulset::StatefulSetController::new);
        start.one(apps::daemonset::DaemonSetController::new);
        start.one(claims::ClaimController::new);
        start.one(volumes::VolumeController::new);
        start.one(disruption::DisruptionController::new);
        for operator in options.operators {
            start.one(move |c, t| operators::OperatorController::new(c, t, operator));
        }
        if options.nodes {
            start.one(node::NodeLifecycle::new);
            start.one(node::eviction::TaintEviction::new);
        }
        start.one(|c, _| endpoints::EndpointsController::new(c));
        start.one(|c, _| aggregate::RoleAggregation::new(c));
        start.one(|c, _| quota::QuotaController::new(c));
        start.one(|c, _| gc::GarbageCollector::new(c));
        Self { stop, supervisor: start.supervisor }
    }

    /// Their tasks.
    pub const fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// Stops all controllers and waits until they have.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.supervisor.wait().await;
    }
}

/// What every controller is started with.
struct Start {
    client: Arc<dyn Client>,
    clock: Clock,
    stop: CancellationToken,
    supervisor: Supervisor,
}

impl Start {
    fn one<C: Controller>(&self, make: impl Fn(Arc<dyn Client>, Clock) -> C + Send + 'static) {
        let (client, clock, stop) = (Arc::clone(&self.client), self.clock.clone(), self.stop.clone());
        let make = move || Arc::new(make(Arc::clone(&client), clock.clone()));
        let first = make();
        let (name, clock, mut next) = (first.name(), self.clock.clone(), Some(first));
        self.supervisor.spawn(name, move || {
            let controller: Arc<dyn Controller> = next.take().unwrap_or_else(&make);
            controller::run(controller, clock.clone(), stop.clone())
        });
    }
}

//! The controllers that a laptop's control plane needs. They read the store and write through the server's pipeline
//! like everybody else.
//!
//! A controller is a [`runner::Controller`]: it takes in changes, which gives keys, and works on keys. What it decides
//! is a function of objects and the time where it can be ([`job::sync`], [`cronjob::sync`]), so that it can be tested with
//! tables; the rest carries it out.

pub mod aggregate;
pub mod apps;
pub mod claims;
pub mod client;
pub mod clock;
pub mod cronjob;
pub mod disruption;
pub mod endpoints;
pub mod event_ttl;
pub mod events;
pub mod gc;
pub mod informer;
pub mod inprocess;
pub mod job;
pub mod meta;
pub mod namespace;
pub mod node;
pub mod pod;
pub mod pod_control;
pub mod podgc;
pub mod queue;
pub mod quota;
mod reflector;
pub mod runner;
pub mod ttl;
pub mod volumes;

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use client::Client;
use clock::Clock;
use namespace::NamespaceOptions;
use runner::Controller;

/// Settings of the controllers.
#[derive(Clone, Debug)]
pub struct Options {
    /// What every namespace gets.
    pub namespaces: NamespaceOptions,
    /// Whether nodes that don't report are given up; only where kubelets run.
    pub nodes: bool,
    /// How long events stay after they were last written.
    pub event_ttl: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { namespaces: NamespaceOptions::default(), nodes: false, event_ttl: event_ttl::DEFAULT_TTL }
    }
}

/// Running controllers. Dropping this leaves them running; see [`Controllers::stop`].
pub struct Controllers {
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Controllers {
    /// Starts all controllers on the current runtime.
    pub fn start(client: &Arc<dyn Client>, clock: &Clock, options: Options) -> Self {
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let with = || (Arc::clone(client), clock.clone());
        let (c, t) = with();
        let mut all: Vec<Arc<dyn Controller>> = vec![Arc::new(job::JobController::new(c, t))];
        let (c, t) = with();
        all.push(Arc::new(cronjob::CronJobController::new(c, t)));
        let (c, t) = with();
        all.push(Arc::new(ttl::TtlController::new(c, t)));
        let (c, t) = with();
        all.push(Arc::new(namespace::NamespaceController::new(c, t, options.namespaces)));
        let (c, t) = with();
        all.push(Arc::new(podgc::PodGc::new(c, t)));
        let (c, t) = with();
        all.push(Arc::new(apps::replicaset::ReplicaSetController::new(c, t)));
        let (c, t) = with();
        all.push(Arc::new(apps::deployment::DeploymentController::new(c, t)));
        let (c, t) = with();
        all.push(Arc::new(event_ttl::EventTtl::new(c, t, options.event_ttl)));
        let (c, t) = with();
        all.push(Arc::new(apps::statefulset::StatefulSetController::new(c, t)));
        let (c, t) = with();
        all.push(Arc::new(apps::daemonset::DaemonSetController::new(c, t)));
        let (c, t) = with();
        all.push(Arc::new(claims::ClaimController::new(c, t)));
        let (c, t) = with();
        all.push(Arc::new(volumes::VolumeController::new(c, t)));
        let (c, t) = with();
        all.push(Arc::new(disruption::DisruptionController::new(c, t)));
        if options.nodes {
            let (c, t) = with();
            all.push(Arc::new(node::NodeLifecycle::new(c, t)));
            let (c, t) = with();
            all.push(Arc::new(node::eviction::TaintEviction::new(c, t)));
        }
        all.push(Arc::new(endpoints::EndpointsController::new(Arc::clone(client))));
        all.push(Arc::new(aggregate::RoleAggregation::new(Arc::clone(client))));
        all.push(Arc::new(quota::QuotaController::new(Arc::clone(client))));
        all.push(Arc::new(gc::GarbageCollector::new(Arc::clone(client))));
        for controller in all {
            tasks.spawn(runner::run(controller, clock.clone(), stop.clone()));
        }
        tasks.close();
        Self { stop, tasks }
    }

    /// Stops all controllers and waits until they have.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

//! The parts of a control plane in one process, put together.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use plimsoll_apiserver::audit::Audit;
use plimsoll_apiserver::auth::{AuthConfig, User};
use plimsoll_apiserver::inprocess::ServerClient;
use plimsoll_apiserver::store::Store;
use plimsoll_apiserver::{Plugins, ProxyClient, Server, ServerConfig};
use plimsoll_client::Client;
use plimsoll_client::Clock;
use plimsoll_client::Supervisor;
use plimsoll_client::leader_election::Claim;
use plimsoll_controllers::Controllers;
use plimsoll_controllers::namespace::NamespaceOptions;
use plimsoll_controllers::operators::Operator;
use plimsoll_runtime::api::Api;
use plimsoll_runtime::cache::Cache;
use plimsoll_runtime::visibility::Visibility;
use plimsoll_runtime::{Runtime, simulated};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::direct::Embedded;
use super::logs::Logs;
use super::stop::waiting;

/// What the control plane is like.
#[derive(Clone)]
pub struct Settings {
    /// Where objects live. The function that opened it closes it.
    pub store: Store,
    /// Its directory, for the key that signs tokens.
    pub data: Option<PathBuf>,
    /// The administrator's bearer token.
    pub token: Option<String>,
    /// Certificate of the authority, PEM: goes into every namespace as `kube-root-ca.crt`.
    pub root_ca: Option<String>,
    /// What the server shows to the servers that APIServices name.
    pub proxy_client: Option<ProxyClient>,
    /// Admission plugins that are on.
    pub plugins: Plugins,
    /// Where requests are recorded.
    pub audit: Option<Arc<Audit>>,
    /// Address that clients are told in discovery.
    pub address: String,
    /// Whether Kueue's kinds are installed.
    pub kueue: bool,
    /// What the engine does; `None`: there is none here, and one may come from outside.
    pub engine: Option<plimsoll_runtime::Settings>,
    /// How long events stay.
    pub event_ttl: Duration,
    /// Requests that are served at one time.
    pub requests_in_flight: usize,
    /// Factor of simulated time; `None`: nodes without kubelets.
    pub speed: Option<f64>,
    /// Simulated operators, whose kinds are served.
    pub operators: Vec<&'static Operator>,
}

/// A running control plane.
pub struct Plane {
    /// The API server.
    pub server: Arc<Server>,
    api: Api,
    controllers: Controllers,
    runtime: Option<Runtime>,
    stop: CancellationToken,
    /// Kubelets.
    supervisor: Supervisor,
}

impl Plane {
    /// Starts everything but the listener.
    pub async fn start(settings: &Settings) -> anyhow::Result<Self> {
        let config = ServerConfig {
            data: settings.data.clone(),
            auth: AuthConfig {
                tokens: settings.token.iter().map(|t| (t.clone(), User::admin())).collect(),
                ..AuthConfig::default()
            },
            plugins: settings.plugins,
            proxy_client: settings.proxy_client.clone(),
            audit: settings.audit.clone(),
            address: settings.address.clone(),
            requests_in_flight: settings.requests_in_flight,
            ..ServerConfig::default()
        };
        let server =
            Server::over(config, settings.store.clone()).await.with_context(|| match &settings.data {
                Some(dir) => format!("--data {}", dir.display()),
                None => "starting the API server".into(),
            })?;
        let jobs = settings.engine.as_ref().map(|e| e.jobs.clone()).unwrap_or_default();
        let cache = Cache::new(jobs);
        if settings.engine.as_ref().is_some_and(|e| e.roles.queueing) {
            super::hook::register(&server, cache.clone());
        }
        let writer: Arc<dyn Client> = Arc::new(ServerClient::new(Arc::clone(&server)));
        // Pods alone run faster: timestamps stay those of the wall clock, which kubectl compares with.
        let namespaces = NamespaceOptions { root_ca: settings.root_ca.clone(), service_account: true };
        let controllers = Controllers::start(
            &writer,
            &Clock::wall(),
            plimsoll_controllers::Options {
                namespaces,
                // Without kubelets no node would ever report.
                nodes: settings.speed.is_some(),
                event_ttl: settings.event_ttl,
                operators: settings.operators.clone(),
            },
        );
        let api = Api::direct(Arc::new(Embedded(server.service())), "plimsoll");
        if settings.kueue {
            super::definitions::install(&api).await?;
        }
        for operator in &settings.operators {
            for definition in operator.definitions() {
                super::definitions::install_kind(&api, &definition).await?;
            }
        }
        let runtime = match &settings.engine {
            Some(engine) => {
                let runtime = Runtime::start(&api, engine, cache, &Claim::always());
                let runtime = runtime.context("starting the engine")?;
                runtime.synced().await;
                if engine.roles.queueing {
                    let visibility = Visibility::of(runtime.monitor().inbox(), runtime.cache.clone());
                    server.add_api(Arc::new(super::visibility::Served(visibility))).await;
                }
                Some(runtime)
            }
            None => None,
        };
        let stop = CancellationToken::new();
        let supervisor = Supervisor::new(stop.clone());
        if let Some(speed) = settings.speed {
            server.set_log_source(Arc::new(Logs { server: Arc::downgrade(&server), speed }));
            let options = plimsoll_kubelet::Options { speed, ..plimsoll_kubelet::Options::default() };
            let (api, stop) = (api.writing_as("kubelet"), stop.clone());
            supervisor.spawn("kubelets", move || simulated::run(api.clone(), options, stop.clone()));
        }
        Ok(Self { server, api, controllers, runtime, stop, supervisor })
    }

    /// A client of the server, as the administrator.
    pub const fn api(&self) -> &Api {
        &self.api
    }

    /// Creates nodes that are not there yet.
    pub async fn create_nodes(&self, nodes: Vec<Value>) -> anyhow::Result<()> {
        simulated::create_nodes(&self.api.writing_as("kubelet"), nodes).await.context("creating the nodes")
    }

    /// For metrics and health, where there is an engine.
    pub fn monitor(&self) -> Option<plimsoll_runtime::Monitor> {
        self.runtime.as_ref().map(Runtime::monitor)
    }

    /// The tasks beside the engine's.
    pub fn supervisors(&self) -> [Supervisor; 2] {
        [self.supervisor.clone(), self.controllers.supervisor().clone()]
    }

    /// Waits until a part has failed that can't be started again, and says why.
    pub async fn failed(&self) -> String {
        let engine = async {
            match &self.runtime {
                Some(runtime) => runtime.failed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            why = engine => why,
            why = self.server.fatal().wait() => why,
        }
    }

    /// Stops everything but the listener and waits for it.
    pub async fn stop(self) {
        self.stop.cancel();
        if let Some(runtime) = self.runtime {
            waiting("the engine", runtime.stop()).await;
        }
        waiting("the controllers", self.controllers.stop()).await;
        waiting("the simulated kubelets", self.supervisor.wait()).await;
    }
}

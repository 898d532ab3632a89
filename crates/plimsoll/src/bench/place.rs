//! The server under load: one of our own in this process, or one that a kubeconfig names.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::Method;
use kube::config::Kubeconfig;
use plimsoll_api::json;
use plimsoll_apiserver::DEFAULT_SEATS;
use plimsoll_apiserver::auth::{AuthConfig, User};
use plimsoll_apiserver::http::listener;
use plimsoll_apiserver::http::tls::Credentials;
use plimsoll_apiserver::store::Store;
use plimsoll_apiserver::{Plugin, Plugins, Server, ServerConfig};
use plimsoll_controllers::event_ttl::DEFAULT_TTL;
use plimsoll_runtime::Roles;
use plimsoll_runtime::api::{Api, NODES, PatchKind};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::client::{JSON, Target};
use crate::cli;
use crate::up::plane::{Plane, Settings};

/// Where the store of a server of our own is.
#[derive(Clone, Debug)]
pub struct Storage {
    /// Directory; `None`: in memory.
    pub data: Option<PathBuf>,
    /// When a write is acknowledged: after fsync, or at once.
    pub durability: cli::Durability,
}

/// What a server of our own has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// The API.
    Api,
    /// The API, controllers, and the engine that places pods on nodes without kubelets.
    Placement,
    /// Everything that `plimsoll up` has.
    Everything {
        /// How many times faster than real time pods run.
        speed: f64,
        /// How long events stay.
        event_ttl: Duration,
    },
}

/// A server to measure.
pub struct Place {
    /// The way in.
    pub target: Target,
    /// Namespace for the load.
    pub namespace: String,
    own: Option<Own>,
}

struct Own {
    server: Arc<Server>,
    plane: Option<Plane>,
    stop: CancellationToken,
    serving: tokio::task::JoinHandle<()>,
}

impl Place {
    /// A server of our own.
    pub async fn own(storage: &Storage, what: What) -> anyhow::Result<Self> {
        let credentials = Credentials::generate(&[])?;
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listening")?;
        let address = listener.local_addr()?.to_string();
        let (speed, event_ttl) = match what {
            What::Everything { speed, event_ttl } => (Some(speed), event_ttl),
            _ => (None, DEFAULT_TTL),
        };
        let store = match &storage.data {
            Some(dir) => Store::open(dir, storage.durability.into())?,
            None => Store::in_memory(),
        };
        let (server, plane) = if what != What::Api {
            let settings = Settings {
                store,
                data: storage.data.clone(),
                token: Some(credentials.token.clone()),
                root_ca: None,
                proxy_client: None,
                plugins: Plugins::default(),
                audit: None,
                address: address.clone(),
                kueue: true,
                engine: Some(plimsoll_runtime::Settings {
                    roles: Roles { queueing: what != What::Placement, placement: true },
                    ..plimsoll_runtime::Settings::default()
                }),
                speed,
                event_ttl,
                requests_in_flight: DEFAULT_SEATS,
                operators: Vec::new(),
            };
            let plane = Plane::start(&settings).await?;
            (Arc::clone(&plane.server), Some(plane))
        } else {
            let config = ServerConfig {
                data: storage.data.clone(),
                auth: AuthConfig {
                    tokens: vec![(credentials.token.clone(), User::admin())],
                    ..AuthConfig::default()
                },
                address: address.clone(),
                // As upstream.rs starts kube-apiserver: there is no controller to make accounts.
                plugins: Plugins::default().without(Plugin::ServiceAccount),
                ..ServerConfig::default()
            };
            (Server::over(config, store).await?, None)
        };
        let stop = CancellationToken::new();
        let tls = credentials.tls()?;
        let serving = tokio::spawn(listener::serve(Arc::clone(&server), listener, tls, stop.clone()));
        let kubeconfig = Kubeconfig::from_yaml(&credentials.kubeconfig(&format!("https://{address}")))?;
        let target = Target::new(kubeconfig).await?;
        let own = Own { server, plane, stop, serving };
        let place = Self { target, namespace: "bench".into(), own: Some(own) };
        place.prepare().await?;
        Ok(place)
    }

    /// A server that a kubeconfig names.
    pub async fn other(kubeconfig: &Path) -> anyhow::Result<Self> {
        let read = Kubeconfig::read_from(kubeconfig)
            .with_context(|| format!("--server {}", kubeconfig.display()))?;
        let target = Target::new(read).await?;
        let namespace = format!("plimsoll-bench-{}", std::process::id());
        let place = Self { target, namespace, own: None };
        place.prepare().await?;
        Ok(place)
    }

    /// The namespace, and the service account that upstream wants in it.
    async fn prepare(&self) -> anyhow::Result<()> {
        let mut connection = self.target.connect().await?;
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}});
        let made =
            connection.send(Method::POST, "/api/v1/namespaces", JSON, namespace.to_string().into()).await;
        if let Err(e) = made
            && !e.to_string().contains("AlreadyExists")
        {
            return Err(e).context("creating the namespace");
        }
        if self.own.is_none() {
            let account =
                json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
            let path = format!("/api/v1/namespaces/{}/serviceaccounts", self.namespace);
            // Its controller may have been faster.
            let _ = connection.send(Method::POST, &path, JSON, account.to_string().into()).await;
        }
        Ok(())
    }

    /// The store of a server of our own.
    pub fn server(&self) -> Option<&Arc<Server>> {
        self.own.as_ref().map(|o| &o.server)
    }

    /// A client such as the runtime uses.
    pub fn api(&self) -> anyhow::Result<Api> {
        Ok(match self.own.as_ref().and_then(|o| o.plane.as_ref()) {
            Some(plane) => plane.api().clone(),
            None => plimsoll_runtime::connect::api(self.target.config.clone(), "plimsoll-bench")?,
        })
    }

    /// Makes nodes.
    pub async fn create_nodes(&self, nodes: Vec<serde_json::Value>) -> anyhow::Result<()> {
        let api = self.api()?.writing_as("kubelet");
        let names: Vec<String> = nodes.iter().map(|n| json::name(n).to_owned()).collect();
        plimsoll_runtime::simulated::create_nodes(&api, nodes).await.context("creating nodes")?;
        if self.own.is_none() {
            // Admission taints new nodes, and without a node controller nothing removes the taint.
            let free = json!({"spec": {"taints": null}});
            for name in names {
                api.patch(NODES, "", &name, "", PatchKind::Merge, &free).await.context("untainting nodes")?;
            }
        }
        Ok(())
    }

    /// Path of the pods.
    pub fn pods(&self) -> String {
        format!("/api/v1/namespaces/{}/pods", self.namespace)
    }

    /// Path of the events about them.
    pub fn events(&self) -> String {
        format!("/api/v1/namespaces/{}/events", self.namespace)
    }

    /// Takes away what is left and, with a server of our own, the server.
    pub async fn end(self) -> anyhow::Result<()> {
        match self.own {
            Some(own) => {
                own.stop.cancel();
                if let Some(plane) = own.plane {
                    plane.stop().await;
                }
                let _ = own.serving.await;
                own.server.store().close().await;
            }
            None => {
                let mut connection = self.target.connect().await?;
                let path = format!("/api/v1/namespaces/{}", self.namespace);
                connection
                    .send(Method::DELETE, &path, JSON, Bytes::new())
                    .await
                    .context("removing the namespace")?;
            }
        }
        Ok(())
    }
}

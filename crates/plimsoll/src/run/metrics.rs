//! Metrics and health of this process.

use std::net::SocketAddr;

use plimsoll_client::Supervisor;
use plimsoll_runtime::api::Api;
use plimsoll_runtime::metrics::{self, HealthState};
use plimsoll_runtime::visibility::serve::{self, Settings};
use plimsoll_runtime::webhook::serve::Reach;
use tokio_util::sync::CancellationToken;

use super::webhooks::hosts;
use crate::{cli, listen};

/// Serves them, if that was asked for; gives the URL.
pub async fn start(
    address: cli::Bind,
    health_state: &HealthState,
    supervisor: &Supervisor,
    stop: &CancellationToken,
) -> anyhow::Result<Option<String>> {
    let Some(address) = address else { return Ok(None) };
    let listener = listen::listen(address, "--metrics-bind-address").await?;
    let url = format!("http://{}", listen::reachable(listener.local_addr()?));
    supervisor
        .spawn_vital("the metrics server", metrics::serve(listener, health_state.clone(), stop.clone()));
    Ok(Some(url))
}

/// Serves them over HTTPS to clients that the API server knows and allows it, as Kueue does, if that was asked for; gives the URL.
pub async fn start_secure(
    args: &cli::Run,
    (api, health_state): (&Api, &HealthState),
    supervisor: &Supervisor,
    stop: &CancellationToken,
) -> anyhow::Result<Option<String>> {
    let Some(port) = args.metrics.metrics_secure_port else { return Ok(None) };
    let address = SocketAddr::new(args.metrics.metrics_secure_host, port);
    let listener = listen::listen(address, "--metrics-secure-port").await?;
    let address = listener.local_addr()?;
    let url = format!("https://{}", listen::reachable(address));
    let namespace = args.webhooks.namespace.clone();
    let reach = match args.metrics.metrics_service.clone() {
        Some(name) => Reach::Service { namespace: namespace.clone(), name },
        None => Reach::Url(url.clone()),
    };
    let settings = Settings {
        what: "metrics",
        service: None,
        secret: plimsoll_api::webhooks::SECRET.into(),
        hosts: hosts(&reach, address.ip()),
        namespace,
    };
    let ready = CancellationToken::new();
    let endpoints = metrics::handler(health_state.clone());
    let serving = serve::run(api.clone(), listener, (settings, endpoints), ready, stop.clone());
    supervisor.spawn_vital("the secure metrics server", serving);
    Ok(Some(url))
}

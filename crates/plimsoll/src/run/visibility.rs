//! The visibility API of `plimsoll run`.

use std::net::SocketAddr;

use anyhow::{Context, bail};
use plimsoll_client::Supervisor;
use plimsoll_runtime::Roles;
use plimsoll_runtime::api::Api;
use plimsoll_runtime::metrics::HealthState;
use plimsoll_runtime::visibility::Visibility;
use plimsoll_runtime::visibility::serve::{self, Settings};
use tokio_util::sync::CancellationToken;

use super::webhooks::hosts;
use crate::{cli, listen};
use plimsoll_runtime::webhook::serve::Reach;

/// Serves the visibility API, if that was asked for. Gives its URL.
pub async fn start(
    args: &cli::Run,
    (roles, visibility): (Roles, &Visibility),
    (api, health_state): (&Api, &HealthState),
    supervisor: &Supervisor,
    stop: &CancellationToken,
) -> anyhow::Result<Option<String>> {
    let wanted = &args.visibility;
    let Some(port) = wanted.visibility_port else { return Ok(None) };
    if !roles.queueing {
        bail!(
            "--visibility-port: the visibility API belongs to queueing; leave it out with --placement alone"
        );
    }
    let listener = listen::listen(SocketAddr::new(wanted.visibility_host, port), "--visibility-port").await?;
    let address = listener.local_addr().context("the listener's address")?;
    let url = format!("https://{}", listen::reachable(address));
    let namespace = args.webhooks.namespace.clone();
    let service = wanted.visibility_service.clone().map(|name| (namespace.clone(), name));
    let reach = match service.clone() {
        Some((namespace, name)) => Reach::Service { namespace, name },
        None => Reach::Url(url.clone()),
    };
    let settings = Settings {
        hosts: hosts(&reach, address.ip()),
        service,
        namespace,
        what: "visibility",
        secret: plimsoll_api::webhooks::SECRET.into(),
    };
    let ready = CancellationToken::new();
    health_state.add_check("visibility", ready.clone());
    let endpoints = serve::endpoints(visibility.clone());
    let serving = serve::run(api.clone(), listener, (settings, endpoints), ready, stop.clone());
    supervisor.spawn_vital("the visibility server", serving);
    Ok(Some(url))
}

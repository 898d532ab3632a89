//! The webhooks of `plimsoll run`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, bail};
use plimsoll_client::Supervisor;
use plimsoll_client::health::Health;
use plimsoll_runtime::api::Api;
use plimsoll_runtime::metrics::HealthState;
use plimsoll_runtime::webhook::serve::{self, Reach, Settings};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::thread;
use crate::{cli, listen};

/// How long the start waits for the API server to know the webhooks. They are tried on after that.
const PATIENCE: Duration = Duration::from_secs(20);

/// Serves the webhooks, if that was asked for, on a thread of their own, and waits a while until the API server knows them: what is created
/// before that is not seen by them. Gives the URL at which the API server finds them.
pub async fn start(
    args: &cli::Run,
    engine: &plimsoll_runtime::Settings,
    connect: impl FnOnce() -> anyhow::Result<Api>,
    health_state: &HealthState,
    supervisor: &Supervisor,
    stop: &CancellationToken,
) -> anyhow::Result<Option<String>> {
    let wanted = &args.webhooks;
    let Some(port) = wanted.webhook_port else { return Ok(None) };
    if !engine.roles.queueing {
        bail!("--webhook-port: the webhooks belong to queueing; leave it out with --placement alone");
    }
    let listener = listen::listen(SocketAddr::new(wanted.webhook_host, port), "--webhook-port").await?;
    let address = listener.local_addr().context("the listener's address")?;
    let (reach, url) = match (&wanted.webhook_service, &wanted.webhook_url) {
        (Some(name), _) => {
            let namespace = wanted.namespace.clone();
            let url = format!("https://{name}.{namespace}.svc:443");
            (Reach::Service { namespace, name: name.clone() }, url)
        }
        (None, Some(url)) => (Reach::Url(url.clone()), url.clone()),
        (None, None) => {
            let url = format!("https://{}", listen::reachable(address));
            (Reach::Url(url.clone()), url)
        }
    };
    let conversion = match &wanted.conversion_service {
        Some(name) => Reach::Service { namespace: wanted.namespace.clone(), name: name.clone() },
        None => reach.clone(),
    };
    let mut names = hosts(&reach, address.ip());
    if conversion != reach {
        names.extend(hosts(&conversion, address.ip()));
    }
    let settings = Settings {
        hosts: names,
        reach,
        conversion,
        namespace: wanted.namespace.clone(),
        secret: plimsoll_api::webhooks::SECRET.into(),
        jobs: engine.jobs.clone(),
    };
    let ready = CancellationToken::new();
    health_state.add_check("webhooks", ready.clone());
    let health = Health::with_effect("webhooks answer by it");
    health_state.add_watches("webhook-watches", health.clone());
    // The API server waits for the webhooks with each write of a user, also when the worker threads are busy or sleep.
    let (api, listener) = (connect()?, listener.into_std().context("the listener")?);
    let (served, stopping) = (ready.clone(), stop.clone());
    let serving = async move {
        match TcpListener::from_std(listener) {
            Ok(listener) => serve::run(api, listener, settings, (served, health), stopping).await,
            Err(e) => tracing::error!(err = %e, "the webhooks can't be served"),
        }
    };
    thread::run("webhook server", serving, supervisor)?;
    if tokio::time::timeout(PATIENCE, ready.cancelled()).await.is_err() {
        tracing::warn!("the webhooks are not registered yet");
    }
    Ok(Some(url))
}

/// Names and addresses of the certificate.
pub fn hosts(reach: &Reach, address: IpAddr) -> Vec<String> {
    match reach {
        Reach::Service { namespace, name } => {
            ["", ".cluster.local"].iter().map(|end| format!("{name}.{namespace}.svc{end}")).collect()
        }
        Reach::Url(url) => {
            let host = url.parse::<http::Uri>().ok().and_then(|u| u.host().map(str::to_owned));
            let host = host.map(|h| h.trim_matches(['[', ']']).to_owned());
            let mut all: Vec<String> = host.into_iter().collect();
            let own = address.to_string();
            if !address.is_unspecified() && !all.contains(&own) {
                all.push(own);
            }
            all
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_certificate_is_for_who_is_called() {
        let service = Reach::Service { namespace: "n".into(), name: "s".into() };
        assert_eq!(hosts(&service, [0, 0, 0, 0].into()), ["s.n.svc", "s.n.svc.cluster.local"]);
        let url = |url: &str, ip: [u8; 4]| hosts(&Reach::Url(url.into()), ip.into());
        assert_eq!(url("https://127.0.0.1:9", [127, 0, 0, 1]), ["127.0.0.1"]);
        assert_eq!(url("https://h:9/x", [10, 0, 0, 1]), ["h", "10.0.0.1"]);
        assert_eq!(url("https://[::1]:9", [0, 0, 0, 0]), ["::1"]);
    }
}

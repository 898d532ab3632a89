//! `plimsoll up`: a whole control plane in this process.

mod definitions;
mod direct;
mod hook;
mod logs;
mod nodes;
pub mod plane;
pub mod stop;
mod visibility;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use plimsoll_apiserver::Plugins;
use plimsoll_apiserver::audit::Audit;
use plimsoll_apiserver::http::listener;
use plimsoll_apiserver::http::tls::Credentials;
use plimsoll_apiserver::private;
use plimsoll_apiserver::store::{Directory, Store};
use plimsoll_controllers::operators::{OPERATORS, Operator};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::listen::{listen, reachable};
use crate::{cli, configure, say};
use plane::{Plane, Settings};
use plimsoll_runtime::Roles;
use plimsoll_runtime::metrics::{HealthState, Role};
use stop::Signals;

/// A server in the same process needs no protection from its clients.
fn without_limits(mut settings: plimsoll_runtime::Settings) -> plimsoll_runtime::Settings {
    let limits = [settings.queueing_client.take(), settings.placement_client.take()];
    if limits.iter().any(Option::is_some) {
        tracing::warn!("clientConnection is without effect here: the API server is in this process");
    }
    settings
}

/// Runs until stopped by a signal.
pub async fn run(args: cli::Up) -> anyhow::Result<()> {
    let began = Instant::now();
    crate::logging::started("up");
    let mut signals = Signals::catch().context("catching signals")?;
    let nodes = nodes::objects(&args)?;
    let roles = Roles { queueing: !args.no_queueing, placement: !args.no_placement };
    let engine = match args.no_scheduler || (args.no_queueing && args.no_placement) {
        true => None,
        false => Some(without_limits(configure::settings(&args.files, roles)?)),
    };
    let plugins = Plugins::choose(&args.enable_admission_plugins, &args.disable_admission_plugins);
    let plugins = plugins.map_err(anyhow::Error::msg)?;
    // Another process may have the directory: nothing is written before it is ours.
    let data = lock(&args)?;
    let audit = match (&args.audit_log_path, &args.audit_policy_file) {
        (Some(log), Some(policy)) => Some(Audit::open(log, policy).map_err(anyhow::Error::msg)?),
        _ => None,
    };
    let listener = listen(SocketAddr::new(args.bind, args.port), "--port").await?;
    let address = listener.local_addr().context("the listener's address")?;
    if !address.ip().is_loopback() {
        say::error(&format!(
            "warning: {address} can be reached from the network; the kubeconfig is the key to it"
        ));
    }
    let named =
        || args.data.as_ref().map_or("credentials".to_owned(), |dir| format!("--data {}", dir.display()));
    let hosts = hosts(address);
    let credentials = match &data {
        Some(directory) => Credentials::load_or_create(&directory.pki(), &hosts),
        None => Credentials::generate(&hosts),
    };
    let credentials = credentials.with_context(named)?;
    let store = match data {
        Some(directory) => Store::open_in(directory, args.durability.into()).with_context(named)?,
        None => Store::in_memory(),
    };
    let settings = Settings {
        store: store.clone(),
        data: args.data.clone(),
        token: Some(credentials.token.clone()),
        root_ca: Some(credentials.ca.clone()),
        proxy_client: credentials.proxy_client.clone(),
        plugins,
        audit: audit.clone(),
        address: reachable(address),
        kueue: !args.no_queueing,
        event_ttl: args.event_ttl,
        requests_in_flight: (args.max_requests_inflight + args.max_mutating_requests_inflight) as usize,
        engine,
        speed: Some(args.speed),
        operators: operators(&args.with),
    };
    let start = serve(&args, &settings, &credentials, listener, nodes, began);
    let ended = tokio::select! {
        () = signals.next() => {
            signals.end_at_once();
            Ok(())
        }
        started = start => match started {
            Ok(serving) => serving.until(signals, audit.as_deref()).await,
            Err(e) => Err(e),
        },
    };
    if let Some(audit) = audit {
        stop::waiting("the audit log", audit.flush()).await;
    }
    // Writes that are acknowledged and not yet on disk.
    stop::waiting("the journal", store.close()).await;
    ended
}

/// The simulated operators of these names; `all` are all.
fn operators(names: &[String]) -> Vec<&'static Operator> {
    let chosen = |operator: &&Operator| names.iter().any(|name| name == "all" || name == operator.choice);
    OPERATORS.iter().filter(chosen).collect()
}

/// Locks the data directory.
fn lock(args: &cli::Up) -> anyhow::Result<Option<Directory>> {
    let Some(dir) = &args.data else { return Ok(None) };
    let also = [&args.audit_log_path, &args.audit_policy_file, &args.kubeconfig];
    let also: Vec<&Path> = also.into_iter().flatten().map(PathBuf::as_path).collect();
    Directory::lock(dir, &also).with_context(|| format!("--data {}", dir.display())).map(Some)
}

/// What the serving certificate must name besides the usual local names. A wildcard is no address that a client connects to.
fn hosts(address: SocketAddr) -> Vec<String> {
    if address.ip().is_unspecified() { Vec::new() } else { vec![address.ip().to_string()] }
}

/// A control plane that serves.
struct Serving {
    plane: Plane,
    stop: CancellationToken,
    listener: tokio::task::JoinHandle<()>,
}

/// Starts everything and says so.
async fn serve(
    args: &cli::Up,
    settings: &Settings,
    credentials: &Credentials,
    listener: TcpListener,
    nodes: Vec<Value>,
    began: Instant,
) -> anyhow::Result<Serving> {
    let url = format!("https://{}", settings.address);
    let count = nodes.len();
    let plane = Plane::start(settings).await?;
    let kubeconfig = kubeconfig_path(args);
    write_kubeconfig(&kubeconfig, &credentials.kubeconfig(&url))?;
    let stop = CancellationToken::new();
    let tls = credentials.tls().context("certificates")?;
    let listener = tokio::spawn(listener::serve(Arc::clone(&plane.server), listener, tls, stop.clone()));
    plane.create_nodes(nodes).await?;
    let health_state = HealthState::default();
    health_state.set_role(if plane.monitor().is_some() { Role::Standalone } else { Role::Follower });
    if let Some(engine) = plane.monitor() {
        health_state.set_engine(engine);
    }
    let supervisors = plane.supervisors();
    supervisors.iter().for_each(|s| health_state.add_supervisor(s.clone()));
    let [supervisor, _] = &supervisors;
    let metrics =
        crate::run::metrics::start(args.metrics_bind_address, &health_state, supervisor, &stop).await?;
    announce(args, &kubeconfig, &url, metrics.as_deref(), count, began);
    Ok(Serving { plane, stop, listener })
}

impl Serving {
    /// Serves until a signal comes, or the engine, the listener or the audit log fails, then releases everything but the
    /// store.
    async fn until(self, mut signals: Signals, audit: Option<&Audit>) -> anyhow::Result<()> {
        let Self { plane, stop, mut listener } = self;
        let mut listens = true;
        let unrecorded = async {
            match audit {
                Some(audit) => audit.ended().await,
                None => std::future::pending().await,
            }
        };
        let ended = tokio::select! {
            () = signals.next() => {
                tracing::info!("Stopping: asked to by a signal");
                Ok(())
            }
            why = plane.failed() => Err(anyhow::anyhow!(why)),
            over = &mut listener => {
                listens = false;
                let why = over.err().map_or_else(String::new, |e| format!(": {e}"));
                Err(anyhow::anyhow!("the listener of the API server has ended{why}"))
            }
            () = unrecorded => Err(anyhow::anyhow!("the audit log's thread has ended; requests would not be recorded")),
        };
        signals.end_at_once();
        stop.cancel();
        let requests = stop::waiting("requests under way", async {
            if listens {
                let _ = listener.await;
            }
        });
        tokio::join!(plane.stop(), requests);
        ended
    }
}

fn kubeconfig_path(args: &cli::Up) -> PathBuf {
    match (&args.kubeconfig, &args.data) {
        (Some(path), _) => path.clone(),
        (None, Some(dir)) => dir.join("kubeconfig"),
        (None, None) => PathBuf::from("plimsoll.kubeconfig"),
    }
}

fn write_kubeconfig(path: &Path, text: &str) -> anyhow::Result<()> {
    let at = || format!("--kubeconfig {}", path.display());
    if let Some(dir) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
        private::create_dir_all(dir).with_context(at)?;
    }
    private::write_through(path, text).with_context(at)
}

fn announce(
    args: &cli::Up,
    kubeconfig: &Path,
    url: &str,
    metrics: Option<&str>,
    nodes: usize,
    began: Instant,
) {
    let seconds = began.elapsed().as_secs_f64();
    tracing::info!(url, nodes, seconds, "Ready");
    let path = std::path::absolute(kubeconfig).unwrap_or_else(|_| kubeconfig.to_owned());
    if args.output == cli::Output::Json {
        let line = json!({"ready": true, "seconds": seconds, "url": url, "kubeconfig": path, "nodes": nodes,
                          "metrics": metrics, "pid": std::process::id()});
        say::line(&line.to_string());
        return;
    }
    let kept = match &args.data {
        Some(dir) => format!("everything is kept in {}", dir.display()),
        None => "nothing outlives this process (--data DIR keeps it)".into(),
    };
    let speed = if (args.speed - 1.0).abs() > f64::EPSILON {
        format!(" at speed {}", args.speed)
    } else {
        String::new()
    };
    say::line(&format!("plimsoll is ready in {seconds:.2} s: {url}, {nodes} simulated nodes{speed}, {kept}"));
    say::line(&format!("kubeconfig: {}", path.display()));
    if let Some(url) = metrics {
        say::line(&format!("metrics: {url}/metrics"));
    }
    let shown = kubeconfig.display();
    say::line(&format!(
        "\n  kubectl --kubeconfig {shown} apply -f examples/quickstart.yaml\n  kubectl --kubeconfig {shown} get \
         workloads,jobs -A\n  kubectl --kubeconfig {shown} get pods -A -w\n\nCtrl-C stops it."
    ));
}

/// Waits for Ctrl-C or SIGTERM.
pub async fn signal() {
    match Signals::catch() {
        Ok(mut signals) => signals.next().await,
        Err(_) => drop(tokio::signal::ctrl_c().await),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_are_reached_through_loopback() {
        let text = |a: &str| reachable(a.parse().unwrap());
        assert_eq!(text("0.0.0.0:6443"), "127.0.0.1:6443");
        assert_eq!(text("[::]:6443"), "[::1]:6443");
        assert_eq!(text("10.1.2.3:1"), "10.1.2.3:1");
    }

    #[tokio::test]
    async fn a_port_in_use_is_named() {
        let first = listen("127.0.0.1:0".parse().unwrap(), "--port").await.unwrap();
        let address = first.local_addr().unwrap();
        let error = listen(address, "--port").await.unwrap_err().to_string();
        assert_eq!(error, format!("{address} is in use by another program; choose another port with --port"));
    }
}

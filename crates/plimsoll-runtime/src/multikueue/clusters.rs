//! The connections to all worker clusters (Kueue `multikueuecluster.go`, `clustersReconciler`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plimsoll_api::json;
use plimsoll_api::request::Error;
use plimsoll_client::workers::Gate as _;
use plimsoll_jobs::Kind;
use plimsoll_jobs::multikueue::{self, ClusterSource, ClusterState, Copy, Lacks, Quotas, Sight, WorkloadKey};
use plimsoll_state::Time;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::connection::Connection;
use super::profiles::{Loaded, Profiles};
use super::secrets::Secrets;
use super::{Context, kubeconfig};
use crate::clock;

/// Pause between two looks at connections, and at kubeconfigs that are files.
const LOOK: Duration = Duration::from_millis(500);

/// One worker cluster.
#[derive(Debug)]
struct Cluster {
    /// The kubeconfig that the connection was made with.
    kubeconfig: Vec<u8>,
    connection: Option<Arc<Connection>>,
    /// Since when it has not been connected; `None`: it is.
    lost: Option<Time>,
    /// The kinds of jobs that it can't run.
    lacks: Arc<Lacks>,
    /// Whether an Event warned of its kubeconfig.
    warned: bool,
}

/// All worker clusters; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Clusters {
    by_name: Arc<Mutex<BTreeMap<String, Cluster>>>,
    secrets: Secrets,
    profiles: Profiles,
}

impl Clusters {
    fn with<T>(&self, f: impl FnOnce(&mut BTreeMap<String, Cluster>) -> T) -> T {
        f(&mut self.by_name.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What all clusters have of a workload, and of the slices before it.
    pub fn sights(&self, key: &WorkloadKey, before: &[WorkloadKey]) -> BTreeMap<String, Sight> {
        let sight = |cluster: &Cluster| match (cluster.lost, &cluster.connection) {
            (None, Some(connection)) => {
                let copy = connection.copy(key, before);
                Sight::Connected(Copy { lacks: Arc::clone(&cluster.lacks), ..copy })
            }
            (lost, _) => Sight::Lost { since: lost.unwrap_or_else(clock::now) },
        };
        self.with(|all| all.iter().map(|(name, cluster)| (name.clone(), sight(cluster))).collect())
    }

    /// The connection to a cluster, if there is one.
    pub fn connection(&self, name: &str) -> Option<Arc<Connection>> {
        self.with(|all| all.get(name).and_then(|c| c.connection.clone()))
    }

    /// Nothing is to be written for a workload in clusters of which this holds.
    pub fn rest(&self, key: &WorkloadKey, rests: impl Fn(&str) -> bool) {
        self.with(|all| {
            let resting = all.iter().filter(|(name, _)| rests(name));
            resting.filter_map(|(_, cluster)| cluster.connection.as_ref()).for_each(|c| c.rests(key));
        });
    }

    /// The connections that stand.
    fn connected(&self) -> Vec<Arc<Connection>> {
        self.with(|all| {
            let standing = all.values().filter(|cluster| cluster.lost.is_none());
            standing.filter_map(|cluster| cluster.connection.clone()).collect()
        })
    }

    /// What connected clusters offer to these LocalQueues.
    pub fn quotas(&self, local_queues: &BTreeSet<(String, String)>) -> BTreeMap<String, Quotas> {
        self.with(|all| {
            let standing = all.iter().filter(|(_, cluster)| cluster.lost.is_none());
            let offered = standing.filter_map(|(name, cluster)| {
                let connection = cluster.connection.as_ref()?;
                Some((name.clone(), connection.store(|store| store.quotas(local_queues))))
            });
            offered.collect()
        })
    }

    /// Looks at what connected clusters have of workloads that are gone.
    pub fn collect(&self, context: &Context) {
        for connection in self.connected() {
            let orphans = context.cache.objects(|objects| connection.store(|store| store.orphans(objects)));
            orphans.iter().for_each(|key| context.inbox.workloads.add(key));
        }
    }

    /// Takes in the state of a connection; returns whether it has changed.
    fn update(&self, name: &str, state: &ClusterState) -> bool {
        self.with(|all| {
            let Some(cluster) = all.get_mut(name) else { return false };
            let ClusterState::Connected { lacks } = state else {
                let lost = cluster.lost.is_some();
                cluster.lost.get_or_insert_with(clock::now);
                return !lost;
            };
            let changed = cluster.lost.take().is_some() || !lacks.keys().eq(cluster.lacks.keys());
            if *cluster.lacks != *lacks {
                cluster.lacks = Arc::new(lacks.clone());
            }
            changed
        })
    }

    /// Whether it is the first time that a cluster's kubeconfig is warned of.
    fn warns(&self, name: &str) -> bool {
        self.with(|all| {
            all.get_mut(name).is_some_and(|cluster| !std::mem::replace(&mut cluster.warned, true))
        })
    }

    /// Ends the connection to a cluster, which stays known.
    fn disconnect(&self, name: &str) {
        let ended = self.with(|all| {
            let cluster = all.entry(name.to_owned()).or_insert_with(|| Cluster {
                kubeconfig: Vec::new(),
                connection: None,
                lost: Some(clock::now()),
                lacks: Arc::default(),
                warned: false,
            });
            cluster.kubeconfig.clear();
            cluster.connection.take()
        });
        drop(ended);
    }
}

/// Connects to the worker clusters that there are, and writes their conditions, until stopped.
pub async fn run(context: Context, clusters: Clusters, stop: CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => return,
        () = context.synced.wait() => {}
    }
    let (mut follows_secrets, mut follows_profiles) = (false, false);
    while !stop.is_cancelled() {
        if !context.leading.is_open() {
            tokio::select! {
                () = stop.cancelled() => return,
                () = context.leading.opened() => {}
            }
            continue;
        }
        let all: Vec<Arc<Value>> = context
            .cache
            .objects(|objects| objects.all(Kind::MultiKueueCluster).filter(|c| !json::deleting(c)).collect());
        let gone = clusters.with(|known| {
            let named = |name: &String| all.iter().any(|c| json::name(c) == name);
            known.extract_if(.., |name, _| !named(name)).collect::<Vec<_>>()
        });
        if !gone.is_empty() {
            drop(gone);
            context.look_again();
        }
        let of_secret = |c: &Arc<Value>| matches!(multikueue::source(c), ClusterSource::Secret(_));
        if !follows_secrets && all.iter().any(of_secret) {
            follows_secrets = true;
            follow_secrets(&context, &clusters, &stop);
        }
        let of_profile = |c: &Arc<Value>| matches!(multikueue::source(c), ClusterSource::Profile(_));
        if !follows_profiles
            && context.cache.config().multikueue.access_providers.is_some()
            && all.iter().any(of_profile)
        {
            follows_profiles = true;
            follow_profiles(&context, &clusters, &stop);
        }
        for cluster in &all {
            if let Err(error) = look(cluster, &context, &clusters, &stop).await {
                tracing::debug!(cluster = json::name(cluster), %error, "status of a worker cluster was not written");
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = context.inbox.clusters.notified() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

fn follow_secrets(context: &Context, clusters: &Clusters, stop: &CancellationToken) {
    let (api, secrets, changed) =
        (context.api.clone(), clusters.secrets.clone(), context.inbox.clusters.clone());
    let (namespace, stop) = (context.cache.config().multikueue.namespace.clone(), stop.clone());
    context.supervisor.spawn("watch of Secrets of worker clusters", move || {
        secrets.clone().follow(api.clone(), namespace.clone(), changed.clone(), stop.clone())
    });
}

fn follow_profiles(context: &Context, clusters: &Clusters, stop: &CancellationToken) {
    let (api, profiles, changed) =
        (context.api.clone(), clusters.profiles.clone(), context.inbox.clusters.clone());
    let (namespace, stop) = (context.cache.config().multikueue.namespace.clone(), stop.clone());
    context.supervisor.spawn("watch of ClusterProfiles", move || {
        profiles.clone().follow(api.clone(), namespace.clone(), changed.clone(), stop.clone())
    });
}

/// Looks at one cluster: at its kubeconfig, then at its connection.
async fn look(
    cluster: &Value,
    context: &Context,
    clusters: &Clusters,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let name = json::name(cluster);
    let state = match load(cluster, clusters, context) {
        None => return Ok(()),
        Some(Err((reason, problem))) => {
            clusters.disconnect(name);
            Some(ClusterState::Disconnected {
                reason,
                message: format!("load client config failed: {problem}"),
            })
        }
        Some(Ok(bytes)) => {
            let of_profile = matches!(multikueue::source(cluster), ClusterSource::Profile(_));
            let insecure = if of_profile { "BadRestConfig" } else { "InsecureKubeConfig" };
            connect(name, (bytes, insecure), context, clusters, stop).await
        }
    };
    let warning = context.cache.read(clock::now(), |env| multikueue::path_warning(cluster, env));
    if let Some(warning) = warning.filter(|_| clusters.warns(name)) {
        context.write(warning).await?;
    }
    let Some(state) = state else { return Ok(()) };
    if clusters.update(name, &state) {
        tracing::info!(cluster = name, ?state, "worker cluster");
        context.look_again();
        if matches!(state, ClusterState::Connected { .. }) {
            clusters.collect(context);
        }
    }
    let write = context.cache.read(clock::now(), |env| multikueue::plan_cluster(name, &state, env));
    match write {
        Some(write) => context.write(write).await,
        None => Ok(()),
    }
}

/// The kubeconfig of a cluster; `None`: it is not known yet.
fn load(cluster: &Value, clusters: &Clusters, context: &Context) -> Option<Loaded> {
    let bad = |problem| ("BadKubeConfig", problem);
    let settings = &context.cache.config().multikueue;
    Some(match multikueue::source(cluster) {
        ClusterSource::Secret(name) => clusters.secrets.kubeconfig(&name)?.map_err(bad),
        ClusterSource::Path(path) => kubeconfig::read(&path, settings.validates_paths).map_err(bad),
        ClusterSource::Profile(name) => match &settings.access_providers {
            Some(providers) => clusters.profiles.kubeconfig(&name, providers, &context.inbox.clusters)?,
            None => Err((
                "MultiKueueClusterProfileFeatureDisabled",
                "MultiKueueClusterProfile feature gate is disabled".to_owned(),
            )),
        },
        ClusterSource::None => Err(bad("kubeconfig reference is nil".to_owned())),
    })
}

/// Connects with this kubeconfig unless that is so already; returns the state if it is known. `insecure` is the reason where the
/// kubeconfig must not be used.
async fn connect(
    name: &str,
    (bytes, insecure): (Vec<u8>, &'static str),
    context: &Context,
    clusters: &Clusters,
    stop: &CancellationToken,
) -> Option<ClusterState> {
    let present = clusters.with(|all| all.get(name).filter(|c| c.kubeconfig == bytes)?.connection.clone());
    if let Some(connection) = present {
        connection.follow_all(context);
        return connection.state();
    }
    clusters.disconnect(name);
    let refused = |reason, message| Some(ClusterState::Disconnected { reason, message });
    let settings = match kubeconfig::settings(&bytes).await {
        Ok(settings) => settings,
        Err(problem) => {
            return refused(insecure, format!("load client config failed: {problem}"));
        }
    };
    match Connection::open(name, settings, context, stop) {
        Ok(connection) => {
            clusters.with(|all| {
                if let Some(cluster) = all.get_mut(name) {
                    cluster.kubeconfig = bytes;
                    cluster.connection = Some(Arc::new(connection));
                    cluster.lost.get_or_insert_with(clock::now);
                }
            });
            None
        }
        Err(problem) => refused("ClientConnectionFailed", problem),
    }
}

//! Serves the webhooks over HTTPS, and keeps certificates and registrations as they should be.
//!
//! Every replica serves, also those that do not lead, each from its own view of the cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use plimsoll_client::discovery::Groups;
use plimsoll_client::health::Health;
use plimsoll_client::https::handler::{self as https, Limits};
use plimsoll_client::reflector::{Delta, Reflector};
use plimsoll_client::{Supervisor, optional, supervise};
use plimsoll_jobs::CustomKind;
use tokio::net::TcpListener;
use tokio::sync::watch as latest;
use tokio_util::sync::CancellationToken;

use super::certs::{self, Certs};
pub use super::register::Reach;
use super::{register, review};
use crate::api::{self, Api, Resource};
use crate::cache::{Cache, Kind};
use crate::{declared, ingest};

/// How often certificates and registrations are looked at.
const LOOK: Duration = Duration::from_secs(15);
/// First and longest pause after a failure.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(15));
/// How long the old certificate is served after the API servers were told of the new one: each of them reads the
/// registrations through a watch, which may be late.
const GRACE: Duration = Duration::from_secs(5);
/// What the webhooks look up.
const WATCHED: [(Resource, Kind); 7] = [
    (api::NAMESPACES, Kind::Namespace),
    (api::JOBS, Kind::Job),
    (api::LOCAL_QUEUES, Kind::LocalQueue),
    // Whether a queue dispatches its jobs decides who manages them.
    (api::CLUSTER_QUEUES, Kind::ClusterQueue),
    (api::ADMISSION_CHECKS, Kind::AdmissionCheck),
    (api::WORKLOAD_PRIORITY_CLASSES, Kind::WorkloadPriorityClass),
    (api::JOB_KINDS, Kind::JobKind),
];
/// A review has an object of up to 3 MiB twice; a conversion has a page of a list.
const LIMITS: Limits = Limits { connections: 1024, body: 128 << 20 };

/// Settings of the webhooks.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How they are reached.
    pub reach: Reach,
    /// How the conversion webhook is reached.
    pub conversion: Reach,
    /// Namespace of this process and of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub secret: String,
    /// Names and addresses that the certificate is for.
    pub hosts: Vec<String>,
    /// Which jobs are queued.
    pub jobs: plimsoll_jobs::Config,
}

/// Serves until stopped. `ready` is set when the API server has been told of us, `health` is that of the watches.
pub async fn run(
    api: Api,
    listener: TcpListener,
    settings: Settings,
    (ready, health): (CancellationToken, Health),
    stop: CancellationToken,
) {
    let api = api.writing_as("plimsoll-webhook");
    let cache = Cache::new(settings.jobs.clone());
    let synced = follow(&api, &cache, &settings, &health, &stop);
    let first = tokio::select! {
        () = stop.cancelled() => return,
        certs = first(&api, &settings) => certs,
    };
    let (certs, config) = first;
    let (tls, seen) = latest::channel(config);
    let kinds = cache.clone();
    let handler: https::Handler = Arc::new(move |request| {
        let cache = cache.clone();
        Box::pin(async move { recovered(|| handle(&request, &cache)).await })
    });
    let serving = https::serve(("webhooks", listener), Some(seen), LIMITS, handler, stop.clone());
    let keeping = keep(api, (settings, kinds), certs, tls, synced, ready);
    tokio::select! {
        () = serving => {}
        () = keeping => {}
    }
}

/// What is watched lands in the cache.
fn handle_delta(cache: &Cache, kind: Kind, delta: Delta<'_>) {
    match delta {
        Delta::Upsert { bytes, .. } => {
            if let Ok(object) = plimsoll_api::object::parse(bytes) {
                cache.put(kind, object);
            }
        }
        Delta::Delete { namespace, name, uid } => {
            cache.remove(kind, namespace, name, uid);
        }
        Delta::Synced { version } => drop(cache.listed(kind, version)),
        Delta::Absent => {}
    }
}

/// Jobs of a kind that a CustomResourceDefinition adds.
struct Custom {
    cache: Cache,
    kind: Kind,
}

impl optional::Sink for Custom {
    fn served(&mut self, served: Option<Resource>) {
        self.cache.serve(self.kind, served);
    }

    fn delta(&mut self, _resource: Resource, delta: Delta<'_>) {
        handle_delta(&self.cache, self.kind, delta);
    }
}

/// Follows a resource with a report of its health.
fn reflector(api: &Api, resource: Resource, health: &Health) -> Reflector {
    Reflector { tracker: health.track(resource), ..ingest::reflector(api.clone(), resource) }
}

/// Watches jobs of the kinds that CustomResourceDefinitions add: objects that they own are not queued.
fn follow_custom(
    (api, health): (&Api, &Health),
    cache: &Cache,
    jobs: &plimsoll_jobs::Config,
    supervisor: &Supervisor,
    stop: &CancellationToken,
) {
    let groups = Groups::new(api.clone());
    for custom in CustomKind::all().filter(|kind| jobs.has_framework(kind.framework())) {
        let reflector = reflector(api, custom.preferred(), health);
        follow_one(reflector, custom, (cache, &groups), supervisor, stop.clone());
    }
    let names = jobs.external_frameworks.clone();
    supervisor.spawn("external frameworks for webhooks", {
        let (api, cache, stop) = (api.clone(), cache.clone(), stop.clone());
        move || declared::discover(api.clone(), cache.clone(), names.clone(), stop.clone())
    });
    let (api, cache, stop, within) = (api.clone(), cache.clone(), stop.clone(), supervisor.clone());
    let health = health.clone();
    supervisor.spawn("declared kinds for webhooks", move || {
        let (api, cache, groups, within) = (api.clone(), cache.clone(), groups.clone(), within.clone());
        let (followed, health, watched) = (cache.clone(), health.clone(), health.clone());
        let start = move |custom: CustomKind, token: CancellationToken| {
            let reflector = reflector(&api, custom.preferred(), &watched);
            follow_one(reflector, custom, (&followed, &groups), &within, token);
        };
        let end = move |custom: CustomKind| health.forget(custom.preferred());
        declared::run(cache, stop.clone(), start, end)
    });
}

/// Watches jobs of one kind.
fn follow_one(
    reflector: Reflector,
    custom: CustomKind,
    (cache, groups): (&Cache, &Groups),
    supervisor: &Supervisor,
    stop: CancellationToken,
) {
    let (cache, groups) = (cache.clone(), groups.clone());
    let name = format!("watch of {} for webhooks", custom.framework());
    supervisor.spawn(name, move || {
        let sink = Custom { cache: cache.clone(), kind: Kind::Custom(custom) };
        optional::run(reflector.clone(), custom.versions(), groups.clone(), stop.clone(), sink)
    });
}

/// Watches what the webhooks look up; the token is cancelled when everything has been listed that each cluster serves.
fn follow(
    api: &Api,
    cache: &Cache,
    settings: &Settings,
    health: &Health,
    stop: &CancellationToken,
) -> CancellationToken {
    let synced = CancellationToken::new();
    let left = Arc::new(AtomicUsize::new(WATCHED.len()));
    let supervisor = Supervisor::new(stop.clone());
    follow_custom((api, health), cache, &settings.jobs, &supervisor, stop);
    for (resource, kind) in WATCHED {
        let reflector = reflector(api, resource, health);
        let (cache, stop) = (cache.clone(), stop.clone());
        let (synced, left, counted) = (synced.clone(), Arc::clone(&left), Arc::new(AtomicBool::new(false)));
        supervisor.spawn(format!("watch of {} for webhooks", resource.plural), move || {
            let (cache, synced, left) = (cache.clone(), synced.clone(), Arc::clone(&left));
            let counted = Arc::clone(&counted);
            reflector.clone().run(stop.clone(), move |delta| {
                handle_delta(&cache, kind, delta);
                if matches!(delta, Delta::Synced { .. })
                    && !counted.swap(true, Ordering::AcqRel)
                    && left.fetch_sub(1, Ordering::AcqRel) == 1
                {
                    synced.cancel();
                }
            })
        });
    }
    synced
}

/// Certificates, and TLS with them, tried until they are there.
async fn first(api: &Api, settings: &Settings) -> (Certs, Arc<rustls::ServerConfig>) {
    let mut pause = RETRY.0;
    loop {
        let error = match certs::ensure(api, &settings.namespace, &settings.secret, &settings.hosts).await {
            Ok(certs) => match certs.config() {
                Ok(config) => return (certs, config),
                Err(e) => e,
            },
            Err(e) => e,
        };
        tracing::warn!(error = %error, "no certificates for the webhooks yet");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RETRY.1);
    }
}

/// Looks after certificates and registrations, for ever. Conversion does not wait for what is watched: objects that are stored in
/// another version can't be listed without it.
async fn keep(
    api: Api,
    (settings, kinds): (Settings, Cache),
    mut certs: Certs,
    tls: latest::Sender<Arc<rustls::ServerConfig>>,
    synced: CancellationToken,
    ready: CancellationToken,
) {
    let mut pause = RETRY.0;
    loop {
        let kinds = synced.is_cancelled().then_some(&kinds);
        match look(&api, &settings, kinds, &mut certs, &tls).await {
            Ok(()) => {
                pause = RETRY.0;
                if kinds.is_some() {
                    ready.cancel();
                    tokio::time::sleep(LOOK).await;
                } else {
                    let _ = tokio::time::timeout(LOOK, synced.cancelled()).await;
                }
            }
            Err(e) => {
                tracing::warn!("{e}");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(RETRY.1);
            }
        }
    }
}

/// Takes what the Secret has, tells the API server, and only then serves it: a new bundle has the old authority too,
/// an old bundle doesn't know the new one. For the same reason nothing older than the Secret is ever registered. Without `kinds`
/// only conversion is registered.
async fn look(
    api: &Api,
    settings: &Settings,
    kinds: Option<&Cache>,
    certs: &mut Certs,
    tls: &latest::Sender<Arc<rustls::ServerConfig>>,
) -> Result<(), String> {
    let new = certs::ensure(api, &settings.namespace, &settings.secret, &settings.hosts)
        .await
        .map_err(|e| format!("the certificates of the webhooks could not be looked at: {e}"))?;
    register::ensure_conversion(api, &settings.conversion, &new.bundle)
        .await
        .map_err(|e| format!("the conversion webhook could not be registered: {e}"))?;
    if let Some(kinds) = kinds {
        let declared = kinds.objects(plimsoll_jobs::webhook::declared_targets);
        register::ensure(api, &settings.reach, &settings.namespace, &new.bundle, &declared)
            .await
            .map_err(|e| format!("the webhooks could not be registered: {e}"))?;
    }
    if new != *certs {
        let config =
            new.config().map_err(|e| format!("the new certificates of the webhooks can't be used: {e}"))?;
        if new.trusts(certs) {
            tokio::time::sleep(GRACE).await;
        }
        tracing::info!("the webhooks have new certificates");
        tls.send_replace(config);
        *certs = new;
    }
    Ok(())
}

/// The answer, also where finding it panics (controller-runtime's `RecoverPanic`). A connection that breaks would end other reviews on
/// it, too; with this status the API server does what the failure policy of the webhook says.
async fn recovered(answer: impl FnOnce() -> Response<Full<Bytes>>) -> Response<Full<Bytes>> {
    let answer = supervise::caught("webhooks", async { answer() }).await;
    answer.unwrap_or_else(|why| {
        https::text(StatusCode::INTERNAL_SERVER_ERROR, &format!("panic: {why} [recovered]"))
    })
}

fn handle(request: &Request<Bytes>, cache: &Cache) -> Response<Full<Bytes>> {
    if request.method() != Method::POST {
        return https::text(StatusCode::METHOD_NOT_ALLOWED, "webhooks are posted to");
    }
    match review::answer(request.uri().path(), request.body(), cache) {
        Ok(answer) => {
            let mut response = Response::new(Full::new(Bytes::from(answer.to_string())));
            let json = header::HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, json);
            response
        }
        Err(review::Refused(code, message)) => {
            https::text(StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_REQUEST), &message)
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_answer() {
        let answer = recovered(|| panic!("odd")).await;
        assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "panic: odd [recovered]");
    }
}

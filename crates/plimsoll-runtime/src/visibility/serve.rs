//! HTTPS servers whose clients are authenticated and authorized by the API server: the visibility API of `plimsoll run`, behind the
//! aggregation layer of an API server, and its metrics (controller-runtime's `filters.WithAuthenticationAndAuthorization`).
//!
//! Every replica serves, also those that do not lead, each from its own state.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use plimsoll_apimachinery::ApiError;
use plimsoll_client::https::handler::{self as https, ClientCertificate, Limits};
use tokio::net::TcpListener;
use tokio::sync::watch as latest;
use tokio_util::sync::CancellationToken;

use super::delegated::{Attributes, Delegated, Trust};
use super::{Answer, Visibility, register};
use crate::api::Api;
use crate::webhook::certs::{self, Certs};

/// How often certificates, APIServices and trust are looked at.
const LOOK: Duration = Duration::from_secs(15);
/// First and longest pause after a failure.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(15));
/// How long the old certificate is served after the API servers were told of the new one.
const GRACE: Duration = Duration::from_secs(5);
const LIMITS: Limits = Limits { connections: 256, body: 3 << 20 };

/// Settings of the server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What it serves, for messages.
    pub what: &'static str,
    /// The Service in front of it: namespace and name, to be registered with the API server; `None`: nothing is registered.
    pub service: Option<(String, String)>,
    /// Namespace of the Secret with its certificates.
    pub namespace: String,
    /// Name of the Secret.
    pub secret: String,
    /// Names and addresses that the certificate is for.
    pub hosts: Vec<String>,
}

/// The visibility API.
pub fn endpoints(visibility: Visibility) -> https::Handler {
    Arc::new(move |request| {
        let visibility = visibility.clone();
        Box::pin(async move {
            let accept = request.headers().get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or("");
            response(visibility.answer(request.method(), request.uri(), accept, request.body()).await)
        })
    })
}

/// Serves these endpoints until stopped. `ready` is set when the API server has been told of us.
pub async fn run(
    api: Api,
    listener: TcpListener,
    (settings, endpoints): (Settings, https::Handler),
    ready: CancellationToken,
    stop: CancellationToken,
) {
    let api = api.writing_as("plimsoll-visibility");
    let first = tokio::select! {
        () = stop.cancelled() => return,
        first = first(&api, &settings) => first,
    };
    let (certs, trust, config) = first;
    let (tls, seen) = latest::channel(config);
    let delegated = Arc::new(Delegated::new(api.clone(), trust.clone()));
    let asked = Arc::clone(&delegated);
    let handler: https::Handler = Arc::new(move |request| {
        let (endpoints, delegated) = (Arc::clone(&endpoints), Arc::clone(&asked));
        Box::pin(async move {
            match refusal(&request, &delegated).await {
                Some(answer) => response(answer),
                None => endpoints(request).await,
            }
        })
    });
    let serving = https::serve((settings.what, listener), Some(seen), LIMITS, handler, stop);
    tokio::select! {
        () = serving => {}
        () = keep(api, settings, (certs, trust), (tls, delegated), ready) => {}
    }
}

type Config = Arc<rustls::ServerConfig>;

/// Certificates, and whom to trust.
async fn read(api: &Api, settings: &Settings) -> Result<(Certs, Trust), String> {
    let certs = certs::ensure(api, &settings.namespace, &settings.secret, &settings.hosts).await;
    Ok((certs.map_err(|e| e.to_string())?, Trust::read(api).await?))
}

/// TLS with them.
fn config(certs: &Certs, trust: &Trust) -> Result<Config, String> {
    certs.config_for(trust.verifier()?).map_err(|e| e.to_string())
}

/// Certificates and TLS with them, tried until they are there.
async fn first(api: &Api, settings: &Settings) -> (Certs, Trust, Config) {
    let mut pause = RETRY.0;
    loop {
        let made = read(api, settings).await.and_then(|(certs, trust)| {
            let config = config(&certs, &trust)?;
            Ok((certs, trust, config))
        });
        match made {
            Ok(first) => return first,
            Err(error) => tracing::warn!(error, what = settings.what, "no certificate to serve with yet"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RETRY.1);
    }
}

/// Looks after certificates, APIServices and trust, for ever.
async fn keep(
    api: Api,
    settings: Settings,
    mut present: (Certs, Trust),
    (tls, delegated): (latest::Sender<Config>, Arc<Delegated>),
    ready: CancellationToken,
) {
    let mut pause = RETRY.0;
    loop {
        match look(&api, &settings, &mut present, (&tls, &delegated)).await {
            Ok(()) => {
                ready.cancel();
                pause = RETRY.0;
                tokio::time::sleep(LOOK).await;
            }
            Err(error) => {
                tracing::warn!(
                    error,
                    what = settings.what,
                    "certificate and registration are not up to date"
                );
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(RETRY.1);
            }
        }
    }
}

/// Takes what the Secret has, tells the API server, and only then serves it: a new bundle has the old authority too.
async fn look(
    api: &Api,
    settings: &Settings,
    present: &mut (Certs, Trust),
    (tls, delegated): (&latest::Sender<Config>, &Delegated),
) -> Result<(), String> {
    let (certs, trust) = read(api, settings).await?;
    if let Some((namespace, name)) = &settings.service {
        register::ensure(api, namespace, name, &certs.bundle).await.map_err(|e| e.to_string())?;
    }
    if (&certs, &trust) == (&present.0, &present.1) {
        return Ok(());
    }
    let config = config(&certs, &trust)?;
    if certs != present.0 && certs.trusts(&present.0) {
        tokio::time::sleep(GRACE).await;
    }
    delegated.set_trust(trust.clone());
    tls.send_replace(config);
    *present = (certs, trust);
    Ok(())
}

/// What a request does, as it is authorized.
fn attributes(request: &Request<Bytes>) -> Attributes {
    let path = request.uri().path();
    let segments: Vec<String> = path.trim_matches('/').split('/').map(super::decoded).collect();
    let verb = |resource: bool| match *request.method() {
        Method::GET | Method::HEAD if resource => "get".to_owned(),
        Method::POST if resource => "create".to_owned(),
        Method::PUT if resource => "update".to_owned(),
        ref other => other.as_str().to_ascii_lowercase(),
    };
    let (group, version, rest) = match &segments[..] {
        [apis, group, version, rest @ ..] if apis == "apis" && !rest.is_empty() => (group, version, rest),
        _ => return Attributes { verb: verb(false), path: path.to_owned(), resource: None },
    };
    let (namespace, rest) = match rest {
        [namespaces, namespace, rest @ ..] if namespaces == "namespaces" && !rest.is_empty() => {
            (namespace.clone(), rest)
        }
        _ => (String::new(), rest),
    };
    let part = |i: usize| rest.get(i).cloned().unwrap_or_default();
    let resource = [group.clone(), version.clone(), part(0), part(2), namespace, part(1)];
    Attributes { verb: verb(true), path: path.to_owned(), resource: Some(resource) }
}

/// The answer to a request that does not reach the endpoints.
async fn refusal(request: &Request<Bytes>, delegated: &Delegated) -> Option<Answer> {
    let path = request.uri().path();
    // Probes need no rights (upstream's `AlwaysAllowPaths`).
    if matches!(path, "/healthz" | "/livez" | "/readyz") {
        return Some(Answer { status: 200, content_type: "text/plain; charset=utf-8", body: "ok".into() });
    }
    let certificate = request.extensions().get::<ClientCertificate>();
    let admitted: Result<(), ApiError> =
        delegated.admit(request.headers(), certificate, &attributes(request)).await;
    admitted.err().map(|e| Answer::error(&e))
}

fn response(answer: Answer) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(answer.body));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(answer.content_type));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-cache, private"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_authorized_by_their_path() {
        let of = |method: Method, path: &str| {
            attributes(&Request::builder().method(method).uri(path).body(Bytes::new()).unwrap())
        };
        let base = "/apis/visibility.kueue.x-k8s.io/v1beta2";
        let read = of(Method::GET, &format!("{base}/namespaces/n/localqueues/l/pendingworkloads?limit=1"));
        let resource = ["visibility.kueue.x-k8s.io", "v1beta2", "localqueues", "pendingworkloads", "n", "l"]
            .map(str::to_owned);
        assert_eq!((read.verb.as_str(), read.resource), ("get", Some(resource)));
        let cq = of(Method::POST, &format!("{base}/clusterqueues/c/pendingworkloads"));
        let resource = ["visibility.kueue.x-k8s.io", "v1beta2", "clusterqueues", "pendingworkloads", "", "c"]
            .map(str::to_owned);
        assert_eq!((cq.verb.as_str(), cq.resource), ("create", Some(resource)));
        assert_eq!(
            of(Method::GET, base),
            Attributes { verb: "get".into(), path: base.into(), resource: None }
        );
    }
}

//! The controllers' client: the server's own pipeline, without a socket. The audit log shows its requests as those of any
//! client.

use std::sync::Arc;

use http::header::{HeaderMap, HeaderValue, USER_AGENT};
use http::{Method, Uri};
use plimsoll_apimachinery::{ApiError, Gvk, Kind, KindTable};
use plimsoll_client::{Client, Deletion, Propagation, Reader, Reply, Target};
use serde_json::{Value, json};

use crate::audit::{Annotations, Record};
use crate::auth::User;
use crate::http::info::RequestInfo;
use crate::http::options;
use crate::http::query::Query;
use crate::machine;
use crate::pipeline::{self, Change, Deleted};
use crate::server::Server;
use crate::write::{Admission, Write};

/// Identity of the controllers.
const USER: &str = "system:kube-controller-manager";
/// Their name in managed fields.
const MANAGER: &str = "kube-controller-manager";

/// A client of a server in the same process.
#[derive(Clone)]
pub struct ServerClient {
    server: Arc<Server>,
    reader: Arc<dyn Reader>,
    user: User,
    manager: String,
}

impl ServerClient {
    /// The client of the controllers.
    pub fn new(server: Arc<Server>) -> Self {
        Self::of(server, User::new(USER, &[crate::auth::MASTERS]), MANAGER)
    }

    /// A client with another identity and a field manager.
    pub fn of(server: Arc<Server>, user: User, manager: &str) -> Self {
        let reader = Arc::new(server.store().clone());
        Self { server, reader, user, manager: manager.to_owned() }
    }

    fn write(&self, target: Target<'_>, options: &str, audited: &Audited) -> Result<Write, ApiError> {
        let table = self.server.kinds();
        let resource = target.resource;
        let kind = table.resource(&resource.group, &resource.version, &resource.plural).cloned();
        let unknown = || ApiError::new(404, "NotFound", "the server could not find the requested resource");
        let kind: Arc<Kind> = kind.ok_or_else(unknown)?;
        Ok(Write {
            server: Arc::clone(&self.server),
            table,
            namespace: if kind.namespaced { target.namespace.to_owned() } else { String::new() },
            kind,
            subresource: target.subresource.to_owned(),
            name: target.name.to_owned(),
            user: self.user.clone(),
            manager: self.manager.clone(),
            dry_run: false,
            options: json!({"kind": options, "apiVersion": "meta.k8s.io/v1", "fieldManager": self.manager}),
            admission: Admission::default(),
            may_create: options == "CreateOptions",
            warnings: Vec::new(),
            annotations: Arc::clone(&audited.annotations),
            follows_template: false,
            now: self.server.now(),
        })
    }
}

/// An object has to be what the target says.
fn check(write: &Write, object: &Value) -> Result<(), ApiError> {
    let Gvk { kind, .. } = &write.kind.gvk;
    let version = write.kind.gvk.api_version();
    if object["kind"] == kind.as_str() && object["apiVersion"] == version.as_str() {
        return Ok(());
    }
    let (found_version, found) = (&object["apiVersion"], &object["kind"]);
    let message = format!("the object is {found_version} {found}, the request is for {version} {kind}");
    Err(ApiError::bad_request(message))
}

impl Client for ServerClient {
    fn reader(&self) -> &Arc<dyn Reader> {
        &self.reader
    }

    fn kinds(&self) -> Arc<KindTable> {
        self.server.kinds()
    }

    fn is_charging(&self, namespace: &str) -> bool {
        self.server.charges().any(namespace)
    }

    fn create<'a>(&'a self, target: Target<'a>, mut object: Value) -> Reply<'a, Value> {
        Box::pin(async move {
            let audited = Audited::begin(self, Method::POST, target, || object.clone()).await;
            let result = async {
                let mut write = self.write(target, "CreateOptions", &audited)?;
                check(&write, &object)?;
                machine::default(&write.kind, &mut object);
                let created = pipeline::create(&mut write, object).await?;
                created.into_object(&self.server, &write.kind).await
            };
            let result = result.await;
            audited.end(201, result.as_ref()).await;
            result
        })
    }

    fn update<'a>(&'a self, target: Target<'a>, mut object: Value) -> Reply<'a, Value> {
        Box::pin(async move {
            let audited = Audited::begin(self, Method::PUT, target, || object.clone()).await;
            let result = async {
                let mut write = self.write(target, "UpdateOptions", &audited)?;
                check(&write, &object)?;
                machine::default(&write.kind, &mut object);
                let updated = pipeline::update(&mut write, Change::Replace(object)).await?;
                updated.into_object(&self.server, &write.kind).await
            };
            let result = result.await;
            audited.end(200, result.as_ref()).await;
            result
        })
    }

    fn delete<'a>(&'a self, target: Target<'a>, deletion: Deletion) -> Reply<'a, ()> {
        Box::pin(async move {
            let propagation = deletion.propagation.map(|p| match p {
                Propagation::Background => options::Propagation::Background,
                Propagation::Foreground => options::Propagation::Foreground,
                Propagation::Orphan => options::Propagation::Orphan,
            });
            let options = options::DeleteOptions {
                grace: deletion.grace_seconds,
                propagation,
                uid: deletion.uid,
                resource_version: deletion.resource_version,
                ..options::DeleteOptions::default()
            };
            let audited = Audited::begin(self, Method::DELETE, target, || options.to_value()).await;
            let result = async {
                let mut write = self.write(target, "DeleteOptions", &audited)?;
                write.options = options.to_value();
                Ok(match pipeline::delete(&mut write, &options).await? {
                    Deleted::Gone(object) | Deleted::Pending(object) => object,
                })
            };
            let result = result.await;
            audited.end(200, result.as_ref()).await;
            result.map(drop)
        })
    }
}

/// The audit event of one request, where there is an audit log; otherwise it costs nothing.
struct Audited {
    record: Option<Record>,
    annotations: Annotations,
}

impl Audited {
    async fn begin(
        client: &ServerClient,
        method: Method,
        target: Target<'_>,
        body: impl FnOnce() -> Value,
    ) -> Self {
        let annotations = Annotations::default();
        let config = client.server.config();
        let Some(audit) = &config.audit else { return Self { record: None, annotations } };
        let path = path(target);
        let info = RequestInfo::parse(&method, &path, &Query::default());
        let mut headers = HeaderMap::new();
        if let Ok(agent) = HeaderValue::from_str(&format!("{}/embedded", client.manager)) {
            headers.insert(USER_AGENT, agent);
        }
        let uri = Uri::try_from(path).unwrap_or_default();
        let clock = config.clock.clone();
        let mut record = Record::new(Arc::clone(audit), clock, &headers, &uri, &info, None);
        record.begin(&client.user, &info).await;
        // The user is one of `system:masters`.
        record.authorized(true, "");
        if record.wants_request() {
            record.request(body());
        }
        Self { record: Some(record), annotations }
    }

    async fn end(self, code: u16, result: Result<&Value, &ApiError>) {
        let Some(mut record) = self.record else { return };
        record.annotate(&self.annotations);
        match result {
            Ok(object) => {
                if record.wants_response() {
                    record.response(object.clone());
                }
                record.answered(code);
            }
            Err(error) => record.failed(error),
        }
        record.complete().await;
    }
}

/// The path of a request for a target.
fn path(target: Target<'_>) -> String {
    let Target { resource, namespace, name, subresource } = target;
    let root = if resource.group.is_empty() { "/api" } else { "/apis" };
    let mut path = format!("{root}/{}", resource.api_version());
    for (before, part) in [("namespaces/", namespace), ("", &resource.plural), ("", name), ("", subresource)]
    {
        if !part.is_empty() {
            path.extend(["/", before, part]);
        }
    }
    path
}

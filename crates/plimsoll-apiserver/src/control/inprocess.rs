//! The controllers' client: the server's own pipeline, without a socket.

use std::sync::Arc;

use plimsoll_machinery::{ApiError, Gvk, Kind, KindTable};
use serde_json::{Value, json};

use super::client::{Client, Deletion, Propagation, Reply, Target};
use crate::auth::User;
use crate::http::options;
use crate::machine;
use crate::pipeline::{self, Admission, Change, Write};
use crate::server::Server;
use crate::store::Store;

/// Who the controllers are.
const USER: &str = "system:kube-controller-manager";
/// Their name in managed fields.
const MANAGER: &str = "kube-controller-manager";

/// A client of a server in the same process.
#[derive(Clone)]
pub struct ServerClient {
    server: Arc<Server>,
    user: User,
    manager: String,
}

impl ServerClient {
    /// The client of the controllers.
    pub fn new(server: Arc<Server>) -> Self {
        Self::of(server, User::new(USER, &["system:masters", "system:authenticated"]), MANAGER)
    }

    /// A client of somebody else, with a field manager.
    pub fn of(server: Arc<Server>, user: User, manager: &str) -> Self {
        Self { server, user, manager: manager.to_owned() }
    }

    fn write(&self, target: Target<'_>, options: &str) -> Result<Write, ApiError> {
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
            annotations: crate::audit::Annotations::default(),
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
    fn store(&self) -> &Store {
        self.server.store()
    }

    fn kinds(&self) -> Arc<KindTable> {
        self.server.kinds()
    }

    fn is_charging(&self, namespace: &str) -> bool {
        self.server.charges().any(namespace)
    }

    fn create<'a>(&'a self, target: Target<'a>, mut object: Value) -> Reply<'a, Value> {
        Box::pin(async move {
            let mut write = self.write(target, "CreateOptions")?;
            check(&write, &object)?;
            machine::default(&write.kind, &mut object);
            let created = pipeline::create(&mut write, object).await?;
            created.into_object(&self.server, &write.kind).await
        })
    }

    fn update<'a>(&'a self, target: Target<'a>, mut object: Value) -> Reply<'a, Value> {
        Box::pin(async move {
            let mut write = self.write(target, "UpdateOptions")?;
            check(&write, &object)?;
            machine::default(&write.kind, &mut object);
            let updated = pipeline::update(&mut write, Change::Replace(object)).await?;
            updated.into_object(&self.server, &write.kind).await
        })
    }

    fn delete<'a>(&'a self, target: Target<'a>, deletion: Deletion) -> Reply<'a, ()> {
        Box::pin(async move {
            let mut write = self.write(target, "DeleteOptions")?;
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
            write.options = options.to_value();
            pipeline::delete(&mut write, &options).await.map(drop)
        })
    }
}

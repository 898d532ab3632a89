//! Requests of `plimsoll queue`.

use anyhow::Context;
use http::{Method, Request, header};
use kube::config::{KubeConfigOptions, Kubeconfig};
use plimsoll_client::rest::encode;
use plimsoll_runtime::connect;
use serde_json::Value;

use crate::cli::{Cluster, DryRun};

/// Objects of one page of a list, and the variable that changes it (kueuectl's).
const PAGE: (&str, i64) = ("KUEUECTL_LIST_REQUEST_LIMIT", 100);

/// The cluster, and the namespace that is meant.
pub struct Client {
    client: kube::Client,
    /// The namespace.
    pub namespace: String,
}

/// What an API server refuses, in its words.
#[derive(Debug)]
struct Refused {
    code: u16,
    message: String,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refused {}

/// What was asked for is not there.
pub fn is_not_found(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Refused>().is_some_and(|refused| refused.code == 404)
}

/// Another version of the object is there than the one that was to be changed.
pub fn is_conflict(error: &anyhow::Error) -> bool {
    is_already_exists(error)
}

/// What was to be created is there.
pub fn is_already_exists(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Refused>().is_some_and(|refused| refused.code == 409)
}

fn plain(error: kube::Error) -> anyhow::Error {
    match &error {
        kube::Error::Api(status) if !status.message.is_empty() => {
            Refused { code: status.code, message: status.message.clone() }.into()
        }
        _ => error.into(),
    }
}

impl Client {
    /// Reads the kubeconfig.
    ///
    /// # Errors
    /// It can't be read or used.
    pub async fn connect(cluster: &Cluster) -> anyhow::Result<Self> {
        let options = KubeConfigOptions { context: cluster.context.clone(), ..KubeConfigOptions::default() };
        let config = match &cluster.kubeconfig {
            Some(path) => {
                let at = || format!("reading {}", path.display());
                let file = Kubeconfig::read_from(path).with_context(at)?;
                connect::from_kubeconfig(file, &options).await.with_context(at)?
            }
            None => connect::infer(&options).await.context("reading the kubeconfig")?,
        };
        let namespace = cluster.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = connect::client(config).context("connecting")?;
        Ok(Self { client, namespace })
    }

    async fn request(&self, request: http::request::Builder, body: Vec<u8>) -> anyhow::Result<Value> {
        self.client.request(request.body(body)?).await.map_err(plain)
    }

    /// GET of a path.
    ///
    /// # Errors
    /// What the server said, or why it could not be asked.
    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.get_as(path, "application/json").await
    }

    /// As [`Client::get`], in one of these forms.
    ///
    /// # Errors
    /// As there.
    pub async fn get_as(&self, path: &str, accept: &str) -> anyhow::Result<Value> {
        self.request(Request::get(path).header(header::ACCEPT, accept), Vec::new()).await
    }

    /// As [`Client::get`]; `None`: it is not there.
    ///
    /// # Errors
    /// As there, but for 404.
    pub async fn find(&self, path: &str) -> anyhow::Result<Option<Value>> {
        match self.get(path).await {
            Ok(found) => Ok(Some(found)),
            Err(e) if is_not_found(&e) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// All pages of a list, as the first page with all items.
    ///
    /// # Errors
    /// As [`Client::get`], and for a page size that is no number.
    pub async fn list(&self, path: &str, selectors: (&str, &str), accept: &str) -> anyhow::Result<Value> {
        let limit = match std::env::var(PAGE.0) {
            Ok(text) if !text.is_empty() => text.parse().context("invalid list request limit")?,
            _ => PAGE.1,
        };
        let (labels, fields) = (encode(selectors.0), encode(selectors.1));
        let query = format!("{path}?limit={limit}&labelSelector={labels}&fieldSelector={fields}");
        let mut all = self.get_as(&query, accept).await?;
        // A Table has rows.
        let items = if all["rows"].is_array() { "rows" } else { "items" };
        let mut next = all["metadata"]["continue"].take();
        while let Some(token) = next.as_str().filter(|t| !t.is_empty()) {
            let mut page = self.get_as(&format!("{query}&continue={}", encode(token)), accept).await?;
            if let (Some(all), Some(more)) = (all[items].as_array_mut(), page[items].as_array_mut()) {
                all.append(more);
            }
            next = page["metadata"]["continue"].take();
        }
        Ok(all)
    }

    async fn write(
        &self,
        (method, path, content_type): (Method, &str, &str),
        body: &Value,
        dry_run: DryRun,
    ) -> anyhow::Result<Value> {
        let dry = if dry_run == DryRun::Server { "&dryRun=All" } else { "" };
        let request = Request::builder()
            .method(method)
            .uri(format!("{path}?fieldManager=plimsoll-queue{dry}"))
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, content_type);
        self.request(request, body.to_string().into_bytes()).await
    }

    /// Creates an object, unless only a client's dry run is wanted; gives it as it is then.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn create(&self, path: &str, object: Value, dry_run: DryRun) -> anyhow::Result<Value> {
        match dry_run {
            DryRun::Client => Ok(object),
            _ => self.write((Method::POST, path, "application/json"), &object, dry_run).await,
        }
    }

    /// Changes fields of an object.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn patch(&self, path: &str, patch: &Value, dry_run: DryRun) -> anyhow::Result<Value> {
        self.write((Method::PATCH, path, "application/merge-patch+json"), patch, dry_run).await
    }

    /// Server-side apply of fields of an object or its status, taken over from other owners.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn apply(&self, path: &str, object: &Value, owner: &str) -> anyhow::Result<Value> {
        let request = Request::patch(format!("{path}?fieldManager={owner}&force=true"))
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, "application/apply-patch+yaml");
        self.request(request, object.to_string().into_bytes()).await
    }

    /// Deletes an object, and what it owns after it; one that is not there is deleted already. Without a policy an API server
    /// leaves what a Job of `batch/v1` owns, and so its workload, which kueuectl's help says goes too.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn delete(&self, path: &str, dry_run: DryRun) -> anyhow::Result<()> {
        let mut options = serde_json::json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"});
        if dry_run == DryRun::Server {
            options["dryRun"] = serde_json::json!(["All"]);
        }
        let request = Request::delete(path).header(header::CONTENT_TYPE, "application/json");
        match self.request(request, options.to_string().into_bytes()).await {
            Err(e) if !is_not_found(&e) => Err(e),
            _ => Ok(()),
        }
    }
}

const GROUP: &str = "/apis/kueue.x-k8s.io/v1beta2";

/// Path of cluster-scoped objects of Kueue, or of one of them.
pub fn cluster_path(plural: &str, name: &str) -> String {
    path_of(&format!("{GROUP}/{plural}"), name)
}

/// Path of objects of Kueue in a namespace, or of one of them; of all namespaces if there is none.
pub fn namespaced_path(namespace: &str, plural: &str, name: &str) -> String {
    match namespace {
        "" => format!("{GROUP}/{plural}"),
        namespace => path_of(&format!("{GROUP}/namespaces/{}/{plural}", encode(namespace)), name),
    }
}

fn path_of(collection: &str, name: &str) -> String {
    if name.is_empty() { collection.to_owned() } else { format!("{collection}/{}", encode(name)) }
}

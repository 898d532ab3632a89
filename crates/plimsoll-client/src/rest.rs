//! Plain requests to an API server (client-go's `rest.RESTClient`): paths, verbs, classified errors.

mod transport;

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::{AsyncBufRead, TryStreamExt};
use http::{HeaderValue, Method, Request, StatusCode, header};
use plimsoll_api::request::{Error, PatchKind};
use plimsoll_api::resource::Resource;
use plimsoll_api::{object, protobuf};
use serde_json::Value;

pub use self::transport::{Answer, Direct, Parts, Transport, retry_after};
use self::transport::{InProcess, Unanswered};
use crate::limit::Limit;

/// Time for a request, from connecting to the last byte of the answer; of a watch, for the head of the answer. As long as
/// an API server waits for one webhook (`timeoutSeconds`). A write that was given up may still be carried out.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Why a write is not sent.
pub const FOLLOWS: &str = "this process does not lead";

type Result<T> = std::result::Result<T, Error>;

/// How objects are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// JSON.
    #[default]
    Json,
    /// Kubernetes' protobuf, JSON where the server has none. A server in this process is asked for JSON.
    Protobuf,
    /// JSON of a list's metadata and of that of its items.
    Metadata,
}

impl Encoding {
    const fn accept(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Json => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf,application/json",
            Self::Metadata => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        })
    }
}

/// A client with a field manager.
#[derive(Clone)]
pub struct Api {
    transport: Arc<dyn Transport>,
    manager: &'static str,
    /// For all requests but watches.
    limit: Limit,
    /// Whether the next request has its token already.
    prepaid: Option<Arc<AtomicBool>>,
    /// Whether objects in answers are given with their `managedFields`.
    managed_fields: bool,
    /// Whether this process leads; `None`: writes don't depend on that.
    leads: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
    /// Called when a write is given up before its answer.
    cut: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("manager", &self.manager).finish_non_exhaustive()
    }
}

fn request(method: Method, path: &str, content_type: &str, body: Vec<u8>) -> Result<Request<Vec<u8>>> {
    let mut builder =
        Request::builder().method(method).uri(path).header(http::header::ACCEPT, "application/json");
    if !body.is_empty() {
        builder = builder.header(http::header::CONTENT_TYPE, content_type);
    }
    builder.body(body).map_err(|e| Error::Malformed(e.to_string()))
}

/// Percent-encodes everything but unreserved characters, for query values.
pub fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

impl Api {
    /// Requests through `transport`, writing as `manager`.
    pub fn new(transport: Arc<dyn Transport>, manager: &'static str) -> Self {
        let (limit, prepaid, leads) = (Limit::default(), None, None);
        Self { transport, manager, limit, prepaid, managed_fields: true, leads, cut: None }
    }

    /// Requests to a server in this process, writing as `manager`.
    pub fn direct(server: Arc<dyn Direct>, manager: &'static str) -> Self {
        Self::new(Arc::new(InProcess(server)), manager)
    }

    /// The same client, writing as another manager.
    #[must_use]
    pub fn writing_as(&self, manager: &'static str) -> Self {
        Self { manager, ..self.clone() }
    }

    /// The same client, which leaves `managedFields` out of the objects that it gives. Those in lists keep theirs.
    #[must_use]
    pub fn without_managed_fields(&self) -> Self {
        Self { managed_fields: false, ..self.clone() }
    }

    /// The same client, under a limit.
    #[must_use]
    pub fn limited(&self, limit: &Limit) -> Self {
        Self { limit: limit.clone(), ..self.clone() }
    }

    /// The same client, which sends writes only while `leads` returns true and fails them with [`FOLLOWS`] otherwise: a `resourceVersion`
    /// does not protect the next leader from a write about an object that it has not changed. `leads` is called after the rate limiter.
    #[must_use]
    pub fn while_leading(&self, leads: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { leads: Some(Arc::new(leads)), ..self.clone() }
    }

    /// The same client, which calls `cut` when a write is dropped before its answer: the server may still carry it out.
    #[must_use]
    pub fn reporting_cuts(&self, cut: impl Fn() + Send + Sync + 'static) -> Self {
        Self { cut: Some(Arc::new(cut)), ..self.clone() }
    }

    /// The same client, under a limit from which a caller has taken the token of the first request already.
    #[must_use]
    pub fn prepaid(&self, limit: &Limit) -> Self {
        let prepaid = limit.is_some().then(|| Arc::new(AtomicBool::new(true)));
        Self { limit: limit.clone(), prepaid, ..self.clone() }
    }

    /// Whether a limit of its own may hold up requests.
    pub fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// Sends a request and reads the answer.
    async fn ask(&self, request: Request<Vec<u8>>) -> Result<Bytes> {
        if !self.prepaid.as_ref().is_some_and(|prepaid| prepaid.swap(false, Ordering::Relaxed)) {
            self.limit.take().await;
        }
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        if !reads && self.leads.as_ref().is_some_and(|leads| !leads()) {
            return Err(Error::Transport(FOLLOWS.into()));
        }
        let unanswered = Unanswered(self.cut.as_deref().filter(|_| !reads));
        let answer = self.transport.send(request);
        let answer = self.within(async {
            let Answer { status, retry_after, body } = answer.await?;
            let whole = collect(body).await?;
            if status.is_success() { Ok(whole) } else { Err(refused(status, retry_after, &whole)) }
        });
        let answer = answer.await;
        unanswered.end();
        answer
    }

    /// Waits no longer than the deadline. Dropping the request closes its connection.
    async fn within<T>(&self, answer: impl Future<Output = Result<T>>) -> Result<T> {
        if !self.is_remote() {
            return answer.await;
        }
        let late = |_| Err(Error::Transport(format!("no answer within {} s", DEADLINE.as_secs())));
        tokio::time::timeout(DEADLINE, answer).await.unwrap_or_else(late)
    }

    async fn ask_value(&self, request: Request<Vec<u8>>) -> Result<Value> {
        let answer = self.ask(request).await?;
        let parsed = match self.managed_fields {
            true => serde_json::from_slice(&answer),
            false => object::parse(&answer),
        };
        parsed.map_err(|e| Error::Malformed(e.to_string()))
    }

    fn reading(&self, path: &str, encoding: Encoding) -> Result<Request<Vec<u8>>> {
        let mut request = request(Method::GET, path, "", Vec::new())?;
        if self.is_remote() || encoding != Encoding::Protobuf {
            request.headers_mut().insert(header::ACCEPT, encoding.accept());
        }
        Ok(request)
    }

    /// GET of a list, or of a page of one: see [`plimsoll_api::watch::Page`].
    ///
    /// # Errors
    /// What the server said, or why it could not be asked.
    pub async fn get_list(&self, path: &str, encoding: Encoding) -> Result<Bytes> {
        self.ask(self.reading(path, encoding)?).await
    }

    /// Whether there is a network in between.
    pub(crate) fn is_remote(&self) -> bool {
        self.transport.is_remote()
    }

    /// Opens a watch, and gives what comes: lines of JSON, or frames of protobuf where the server has it.
    ///
    /// # Errors
    /// What the server said, or why it could not be asked.
    pub async fn watch(
        &self,
        path: &str,
        encoding: Encoding,
    ) -> Result<impl AsyncBufRead + Send + Unpin + use<>> {
        let mut request = self.reading(path, encoding)?;
        // Compressed watches are cut into one member per event, which decoders stumble over.
        request.headers_mut().insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let answer = self.transport.send(request);
        self.within(async {
            let Answer { status, retry_after, body } = answer.await?;
            if status.is_success() {
                return Ok(body.into_async_read());
            }
            Err(refused(status, retry_after, &collect(body).await?))
        })
        .await
    }

    /// GET of any path, parsed.
    ///
    /// # Errors
    /// What the server said, or why it could not be asked.
    pub async fn get_path(&self, path: &str) -> Result<Value> {
        self.ask_value(request(Method::GET, path, "", Vec::new())?).await
    }

    /// GET of any path, as text.
    ///
    /// # Errors
    /// What the server said, or why it could not be asked.
    pub async fn get_text(&self, path: &str) -> Result<String> {
        let bytes = self.ask(request(Method::GET, path, "", Vec::new())?).await?;
        String::from_utf8(bytes.into()).map_err(|e| Error::Malformed(e.to_string()))
    }

    /// One object.
    ///
    /// # Errors
    /// What the server said, or why it could not be asked.
    pub async fn get(&self, resource: Resource, namespace: &str, name: &str) -> Result<Value> {
        self.get_path(&resource.object(namespace, name)).await
    }

    /// Reads an object that may not be there. Unlike the 404 of a GET, which a proxy may have sent, `None` is the API
    /// server's word.
    ///
    /// # Errors
    /// What the server said, or why it could not be asked.
    pub async fn find(&self, resource: Resource, namespace: &str, name: &str) -> Result<Option<Value>> {
        let path =
            format!("{}?fieldSelector=metadata.name%3D{}", resource.collection(namespace), encode(name));
        let mut list = self.get_path(&path).await?;
        let items = list.get_mut("items").map(Value::take);
        let mut found = match items {
            Some(Value::Array(items)) => items.into_iter().next(),
            Some(Value::Null) | None => None,
            Some(_) => return Err(Error::Malformed(format!("the list of {} has no items", resource.plural))),
        };
        // The API server leaves out kind and version of items of a list.
        if let Some(object) = &mut found {
            object["apiVersion"] = Value::from(resource.api_version);
            object["kind"] = Value::from(resource.kind);
        }
        Ok(found)
    }

    /// Creates an object in the namespace it names.
    ///
    /// # Errors
    /// What the server said, or why it could not be asked.
    pub async fn create(&self, resource: Resource, object: &Value) -> Result<Value> {
        let namespace = plimsoll_api::json::namespace(object);
        let path = format!("{}?fieldManager={}", resource.collection(namespace), self.manager);
        self.write(Method::POST, &path, "application/json", object).await
    }

    /// As [`Api::create`] for callers that don't need the created object.
    ///
    /// # Errors
    /// What the server said, or why it could not be asked.
    pub async fn create_unseen(&self, resource: Resource, object: &Value) -> Result<()> {
        let namespace = plimsoll_api::json::namespace(object);
        let path = format!("{}?fieldManager={}", resource.collection(namespace), self.manager);
        self.send_unseen(&path, object).await
    }

    /// POST of an object to a path whose answer says something about it, and of which nothing is kept.
    ///
    /// # Errors
    /// What the server said, or why it could not be asked.
    pub async fn post_path(&self, path: &str, object: &Value) -> Result<Value> {
        self.write(Method::POST, path, "application/json", object).await
    }

    /// Creates a subresource such as `pods/binding`.
    ///
    /// # Errors
    /// What the server said, or why it could not be asked.
    pub async fn create_sub(
        &self,
        resource: Resource,
        ns: &str,
        name: &str,
        sub: &str,
        body: &Value,
    ) -> Result<()> {
        let path = format!("{}/{sub}?fieldManager={}", resource.object(ns, name), self.manager);
        self.send_unseen(&path, body).await
    }

    /// Creates something and tells a server that can do without that no caller will read the answer.
    async fn send_unseen(&self, path: &str, body: &Value) -> Result<()> {
        let body = serde_json::to_vec(body).map_err(|e| Error::Malformed(e.to_string()))?;
        let mut request = request(Method::POST, path, "application/json", body)?;
        let prefer = http::HeaderValue::from_static("return=minimal");
        request.headers_mut().insert(http::HeaderName::from_static("prefer"), prefer);
        self.ask(request).await.map(drop)
    }

    /// Replaces an object; its resourceVersion is the precondition.
    ///
    /// # Errors
    /// What the server said, or why it could not be asked.
    pub async fn replace(&self, resource: Resource, object: &Value) -> Result<Value> {
        let path = resource.object(plimsoll_api::json::namespace(object), plimsoll_api::json::name(object));
        let path = format!("{path}?fieldManager={}", self.manager);
        self.write(Method::PUT, &path, "application/json", object).await
    }

    /// Patches an object, or its subresource `sub` when not empty.
    ///
    /// # Errors
    /// What the server said, or why it could not be asked.
    pub async fn patch(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        sub: &str,
        kind: PatchKind,
        body: &Value,
    ) -> Result<Value> {
        let mut path = resource.object(namespace, name);
        if !sub.is_empty() {
            path.push('/');
            path.push_str(sub);
        }
        let path = format!("{path}?fieldManager={}", self.manager);
        self.write(Method::PATCH, &path, kind.content_type(), body).await
    }

    /// Applies an object server-side and takes over fields of other managers.
    ///
    /// # Errors
    /// What the server said, or why it could not be asked.
    pub async fn apply(&self, resource: Resource, object: &Value) -> Result<Value> {
        let path = resource.object(plimsoll_api::json::namespace(object), plimsoll_api::json::name(object));
        let path = format!("{path}?fieldManager={}&force=true", self.manager);
        self.write(Method::PATCH, &path, "application/apply-patch+yaml", object).await
    }

    /// Deletes an object with this UID; `grace` overrides the grace period.
    ///
    /// # Errors
    /// What the server said, or why it could not be asked.
    pub async fn delete(
        &self,
        resource: Resource,
        ns: &str,
        name: &str,
        uid: &str,
        grace: Option<i64>,
    ) -> Result<Value> {
        let options = plimsoll_api::request::delete_options(uid, grace);
        self.write(Method::DELETE, &resource.object(ns, name), "application/json", &options).await
    }

    /// Deletes an object with this UID, and in the background what it owns: Jobs would leave their pods otherwise.
    ///
    /// # Errors
    /// What the server said, or why it could not be asked.
    pub async fn delete_with_dependents(
        &self,
        resource: Resource,
        ns: &str,
        name: &str,
        uid: &str,
    ) -> Result<Value> {
        let mut options = plimsoll_api::request::delete_options(uid, None);
        options["propagationPolicy"] = "Background".into();
        self.write(Method::DELETE, &resource.object(ns, name), "application/json", &options).await
    }

    /// Sends a request; responses without a body of interest are null.
    ///
    /// # Errors
    /// What the server said, or why it could not be asked.
    pub async fn send(&self, request: &plimsoll_api::request::Request) -> Result<Value> {
        use plimsoll_api::request::Request;
        match request {
            Request::Get { resource, namespace, name } => self.get(*resource, namespace, name).await,
            Request::Find { resource, namespace, name } => {
                self.find(*resource, namespace, name).await.map(Option::unwrap_or_default)
            }
            Request::Create { resource, object } => self.create(*resource, object).await,
            Request::CreateSubresource { resource, namespace, name, subresource, body } => {
                self.create_sub(*resource, namespace, name, subresource, body).await.map(|()| Value::Null)
            }
            Request::Patch { resource, namespace, name, subresource, kind, body } => {
                self.patch(*resource, namespace, name, subresource, *kind, body).await
            }
            Request::Delete { resource, namespace, name, uid, grace_seconds: None } => {
                self.delete_with_dependents(*resource, namespace, name, uid).await
            }
            Request::Delete { resource, namespace, name, uid, grace_seconds } => {
                self.delete(*resource, namespace, name, uid, *grace_seconds).await
            }
        }
    }

    async fn write(&self, method: Method, path: &str, content_type: &str, body: &Value) -> Result<Value> {
        let body = serde_json::to_vec(body).map_err(|e| Error::Malformed(e.to_string()))?;
        self.ask_value(request(method, path, content_type, body)?).await
    }
}

/// The whole body of an answer.
async fn collect(mut body: Parts) -> Result<Bytes> {
    let broken = |e: io::Error| Error::Transport(e.to_string());
    let first = body.try_next().await.map_err(broken)?.unwrap_or_default();
    let Some(next) = body.try_next().await.map_err(broken)? else { return Ok(first) };
    let mut whole = BytesMut::from(first);
    whole.extend_from_slice(&next);
    while let Some(part) = body.try_next().await.map_err(broken)? {
        whole.extend_from_slice(&part);
    }
    Ok(whole.freeze())
}

/// An answer that is no success, as an error. `retry_after`: seconds of the header.
fn refused(status: StatusCode, retry_after: u32, body: &[u8]) -> Error {
    if protobuf::is_envelope(body) {
        let (code, message) = protobuf::error(body).unwrap_or((status.as_u16(), ""));
        return Error::Status { code, reason: String::new(), message: message.to_owned(), retry_after };
    }
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
    let message = match text("message") {
        none if none.is_empty() => String::from_utf8_lossy(body).into_owned(),
        message => message,
    };
    let said = answer["details"]["retryAfterSeconds"].as_u64().unwrap_or(0);
    Error::Status {
        code: status.as_u16(),
        reason: text("reason"),
        message,
        retry_after: u32::try_from(said).unwrap_or(u32::MAX).max(retry_after),
    }
}

#[cfg(test)]
mod tests;

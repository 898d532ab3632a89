//! Plain requests to an API server, through `kube::Client` or straight to one in this process: paths, verbs,
//! classified errors.

use std::fmt::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{AsyncBufRead, StreamExt, TryStreamExt};
use http::{Method, Request, StatusCode};
use kube::Client;
use serde_json::Value;

use crate::limit::Limit;

/// Time for a request, from connecting to the last byte of the answer; of a watch, for the head of the answer. As long as
/// an API server waits for one webhook (`timeoutSeconds`). A write that was given up may still be carried out.
pub const DEADLINE: Duration = Duration::from_secs(30);

pub use plimsoll_api::request::{Error, PatchKind};
pub use plimsoll_api::resource::*;

/// The error of a request that kube's client sent.
fn client_error(e: kube::Error) -> Error {
    match e {
        kube::Error::Api(status) => Error::Status {
            code: status.code,
            retry_after: status.details.as_ref().map_or(0, |d| d.retry_after_seconds),
            reason: status.reason,
            message: status.message,
        },
        kube::Error::SerdeError(e) => Error::Malformed(e.to_string()),
        kube::Error::FromUtf8(e) => Error::Malformed(e.to_string()),
        other => Error::Transport(other.to_string()),
    }
}

/// An API server in this process. Requests go to it without a connection, and without the queue and the layers of
/// kube's client, which cost as much as a small write itself.
pub trait Direct: Send + Sync + 'static {
    /// Carries out a request: the status, and the body as it comes.
    fn call(&self, request: Request<Vec<u8>>) -> BoxFuture<'static, (StatusCode, BoxStream<'static, Bytes>)>;
}

/// How objects are asked for. A server in this process is asked for JSON, whatever this says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// JSON.
    #[default]
    Json,
    /// Kubernetes' protobuf, JSON where the server has none.
    Protobuf,
}

impl Encoding {
    const fn accept(self) -> http::HeaderValue {
        http::HeaderValue::from_static(match self {
            Self::Json => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf,application/json",
        })
    }
}

#[derive(Clone)]
enum Transport {
    Kube(Client),
    Direct(Arc<dyn Direct>),
}

/// A client with a field manager.
#[derive(Clone)]
pub struct Api {
    transport: Transport,
    manager: &'static str,
    /// For all requests but watches.
    limit: Limit,
    /// Whether the next request has its token already.
    paid: Option<Arc<AtomicBool>>,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("manager", &self.manager).finish_non_exhaustive()
    }
}

type Result<T> = std::result::Result<T, Error>;

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
    /// Requests through `client`, writing as `manager`.
    pub fn new(client: Client, manager: &'static str) -> Self {
        Self::over(Transport::Kube(client), manager)
    }

    /// Requests to a server in this process, writing as `manager`.
    pub fn direct(server: Arc<dyn Direct>, manager: &'static str) -> Self {
        Self::over(Transport::Direct(server), manager)
    }

    fn over(transport: Transport, manager: &'static str) -> Self {
        Self { transport, manager, limit: Limit::default(), paid: None }
    }

    /// The same client, writing as another manager.
    #[must_use]
    pub fn writing_as(&self, manager: &'static str) -> Self {
        Self { manager, ..self.clone() }
    }

    /// The same client, under a limit.
    #[must_use]
    pub fn limited(&self, limit: &Limit) -> Self {
        Self { limit: limit.clone(), ..self.clone() }
    }

    /// The same client, under a limit from which a caller has taken the token of the first request already.
    #[must_use]
    pub fn paid(&self, limit: &Limit) -> Self {
        let paid = limit.is_some().then(|| Arc::new(AtomicBool::new(true)));
        Self { limit: limit.clone(), paid, ..self.clone() }
    }

    /// Whether a limit of its own may hold up requests.
    pub fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// Sends a request and reads the answer.
    async fn ask(&self, request: Request<Vec<u8>>) -> Result<Bytes> {
        if !self.paid.as_ref().is_some_and(|paid| paid.swap(false, Ordering::Relaxed)) {
            self.limit.take().await;
        }
        match &self.transport {
            Transport::Kube(client) => Ok(within(client.request_text(request)).await?.into()),
            Transport::Direct(server) => {
                let (status, mut body) = server.call(request).await;
                let mut whole = body.next().await.unwrap_or_default();
                while let Some(part) = body.next().await {
                    let mut both = BytesMut::from(whole);
                    both.extend_from_slice(&part);
                    whole = both.freeze();
                }
                if status.is_success() { Ok(whole) } else { Err(refused(status, &whole)) }
            }
        }
    }

    async fn ask_value(&self, request: Request<Vec<u8>>) -> Result<Value> {
        serde_json::from_slice(&self.ask(request).await?).map_err(|e| Error::Malformed(e.to_string()))
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

    /// GET of a list, as text, with the metadata of its items only.
    ///
    /// # Errors
    /// What the server said, or why it could not be asked.
    pub async fn get_metadata(&self, path: &str) -> Result<Bytes> {
        let mut request = request(Method::GET, path, "", Vec::new())?;
        let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        request.headers_mut().insert(http::header::ACCEPT, http::HeaderValue::from_static(accept));
        self.ask(request).await
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
            Request::Delete { resource, namespace, name, uid } => {
                self.delete(*resource, namespace, name, uid, None).await
            }
        }
    }

    async fn write(&self, method: Method, path: &str, content_type: &str, body: &Value) -> Result<Value> {
        let body = serde_json::to_vec(body).map_err(|e| Error::Malformed(e.to_string()))?;
        self.ask_value(request(method, path, content_type, body)?).await
    }

    /// GET of a list in `encoding`.
    pub(crate) async fn get_list(&self, path: &str, encoding: Encoding) -> Result<Bytes> {
        let mut request = request(Method::GET, path, "", Vec::new())?;
        match &self.transport {
            Transport::Kube(client) if encoding == Encoding::Protobuf => {
                request.headers_mut().insert(http::header::ACCEPT, encoding.accept());
                self.limit.take().await;
                let mut whole = Vec::new();
                // kube gives the bytes of a stream only.
                let read = async {
                    let mut body = client.request_stream(request).await?;
                    let read = futures::AsyncReadExt::read_to_end(&mut body, &mut whole).await;
                    read.map_err(|e| kube::Error::Service(e.into()))
                };
                match within(read).await {
                    Ok(_) => Ok(whole.into()),
                    // kube's client reads errors as JSON only.
                    Err(Error::Malformed(_)) => {
                        self.ask(self::request(Method::GET, path, "", Vec::new())?).await
                    }
                    Err(e) => Err(e),
                }
            }
            _ => self.ask(request).await,
        }
    }

    /// Opens a watch in `encoding`, and gives what comes: lines of JSON, or frames of protobuf where the server has it.
    pub(crate) async fn stream(
        &self,
        path: &str,
        encoding: Encoding,
    ) -> Result<Pin<Box<dyn AsyncBufRead + Send>>> {
        match self.open(path, encoding).await {
            // kube's client reads errors as JSON only.
            Err(Error::Malformed(_)) if encoding == Encoding::Protobuf => {
                self.open(path, Encoding::Json).await
            }
            opened => opened,
        }
    }

    async fn open(&self, path: &str, encoding: Encoding) -> Result<Pin<Box<dyn AsyncBufRead + Send>>> {
        let mut request = request(Method::GET, path, "", Vec::new())?;
        if matches!(self.transport, Transport::Kube(_)) {
            request.headers_mut().insert(http::header::ACCEPT, encoding.accept());
        }
        // Compressed watches are cut into one member per event, which decoders stumble over.
        let identity = http::HeaderValue::from_static("identity");
        request.headers_mut().insert(http::header::ACCEPT_ENCODING, identity);
        match &self.transport {
            Transport::Kube(client) => Ok(Box::pin(within(client.request_stream(request)).await?)),
            Transport::Direct(server) => {
                let (status, body) = server.call(request).await;
                if status.is_success() {
                    return Ok(Box::pin(body.map(Ok::<_, std::io::Error>).into_async_read()));
                }
                let whole: Vec<Bytes> = body.collect().await;
                Err(refused(status, &whole.concat()))
            }
        }
    }
}

/// Waits no longer than the deadline. Dropping the request closes its connection.
async fn within<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T> {
    match tokio::time::timeout(DEADLINE, request).await {
        Ok(answer) => answer.map_err(client_error),
        Err(_) => Err(Error::Transport(format!("no answer within {} s", DEADLINE.as_secs()))),
    }
}

/// An answer that is no success, as an error.
fn refused(status: StatusCode, body: &[u8]) -> Error {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
    let message = match text("message") {
        none if none.is_empty() => String::from_utf8_lossy(body).into_owned(),
        message => message,
    };
    let retry_after = answer["details"]["retryAfterSeconds"].as_u64().unwrap_or(0);
    Error::Status {
        code: status.as_u16(),
        reason: text("reason"),
        message,
        retry_after: u32::try_from(retry_after).unwrap_or(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_values_are_percent_encoded() {
        assert_eq!(encode("a=b, c"), "a%3Db%2C%20c");
    }

    /// kube-apiserver encodes errors as objects were asked for.
    #[tokio::test]
    async fn errors_in_protobuf_are_read_in_json() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                let protobuf =
                    String::from_utf8(head).unwrap().contains("application/vnd.kubernetes.protobuf");
                // The code 403 in field 6 of a Status.
                let body: &[u8] =
                    if protobuf { b"k8s\0\x12\x03\x30\x93\x03" } else { br#"{"kind":"Status","code":403}"# };
                let head = "HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length:";
                stream.write_all(format!("{head} {}\r\n\r\n", body.len()).as_bytes()).await.unwrap();
                stream.write_all(body).await.unwrap();
            }
        });
        let client = Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap();
        let api = Api::new(client, "test");
        let list = api.get_list("/api/v1/nodes", Encoding::Protobuf).await;
        assert_eq!(list.unwrap_err().code(), 403);
        let watch = api.stream("/api/v1/nodes?watch=1", Encoding::Protobuf).await;
        assert_eq!(watch.err().map(|e| e.code()), Some(403));
        server.abort();
    }
}

//! The server as a service that connections and clients in this process call.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt;
use tokio_util::sync::CancellationToken;

use crate::auth::User;
use crate::http::{BodyError, RequestBody, body::Body, handle};
use crate::server::Server;

impl Server {
    /// A client in this process, as the administrator.
    pub fn service(self: &Arc<Self>) -> ApiService {
        self.service_as(User::admin())
    }

    /// A client in this process, as a user.
    pub fn service_as(self: &Arc<Self>, user: User) -> ApiService {
        ApiService { server: Arc::clone(self), identity: Some(Arc::new(user)), stop: None }
    }

    /// The service for connections: every request is authenticated.
    pub fn authenticating_service(self: &Arc<Self>) -> ApiService {
        ApiService { server: Arc::clone(self), identity: None, stop: None }
    }
}

/// The server as a `tower::Service`. Cheap to clone; `kube::Client::new` takes it as it is.
#[derive(Clone)]
pub struct ApiService {
    server: Arc<Server>,
    identity: Option<Arc<User>>,
    stop: Option<CancellationToken>,
}

impl ApiService {
    /// Ends answers that would go on (watches, followed logs) with `stop`, as the end of their streams.
    #[must_use]
    pub fn until(self, stop: CancellationToken) -> Self {
        Self { stop: Some(stop), ..self }
    }

    fn answer(self, request: Request<RequestBody>) -> BoxFuture<'static, Result<Response<Body>, Infallible>> {
        Box::pin(async move {
            let answer = handle(&self.server, request, self.identity.as_deref()).await;
            Ok(match self.stop {
                Some(stop) if answer.body().is_endless() => {
                    answer.map(|body| body.until(stop.cancelled_owned()))
                }
                _ => answer,
            })
        })
    }

    /// The server behind it.
    pub const fn server(&self) -> &Arc<Server> {
        &self.server
    }
}

impl<B> tower::Service<Request<B>> for ApiService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        self.clone().answer(request.map(|body| body.map_err(|e| BodyError(e.into())).boxed_unsync()))
    }
}

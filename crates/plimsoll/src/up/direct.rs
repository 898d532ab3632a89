//! The embedded server as the runtime's transport.

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use http::{Request, StatusCode};
use http_body_util::{BodyDataStream, Full};
use plimsoll_apiserver::ApiService;
use plimsoll_runtime::api::Direct;
use tower::Service;

/// The server's service, called without a connection.
pub struct Embedded(pub ApiService);

impl Direct for Embedded {
    fn call(&self, request: Request<Vec<u8>>) -> BoxFuture<'static, (StatusCode, BoxStream<'static, Bytes>)> {
        // Always ready: it has no queue.
        let mut service = self.0.clone();
        let answer = service.call(request.map(|body| Full::new(Bytes::from(body))));
        Box::pin(async move {
            let response = match answer.await {
                Ok(response) => response,
                Err(never) => match never {},
            };
            let (status, body) = (response.status(), BodyDataStream::new(response.into_body()));
            // A list that breaks off is no JSON, and is read again.
            let parts = body.filter_map(|part| async { part.ok() });
            (status, parts.boxed())
        })
    }
}

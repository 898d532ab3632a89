//! How requests come to an API server: over a network, or to one in this process.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use http::{HeaderMap, Request, StatusCode, header};

use super::Result;

/// The body of an answer, as it comes.
pub type Parts = BoxStream<'static, io::Result<Bytes>>;

/// The head of a response, and its body as a stream.
#[allow(missing_debug_implementations, reason = "a stream")]
pub struct Answer {
    /// HTTP status.
    pub status: StatusCode,
    /// Seconds in the header `Retry-After`; 0 without one.
    pub retry_after: u32,
    /// Body.
    pub body: Parts,
}

/// Seconds in the header `Retry-After`; 0 without one. kube-apiserver sets it when it throttles a request, and the body is plain text
/// then (`tooManyRequests` in `k8s.io/apiserver/pkg/server/filters/maxinflight.go`). It never sends a date.
pub fn retry_after(head: &HeaderMap) -> u32 {
    let seconds = head.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    seconds.unwrap_or(0)
}

/// A write without an answer, and what is called when it is dropped.
pub(super) struct Unanswered<'a>(pub(super) Option<&'a (dyn Fn() + Send + Sync)>);

impl Unanswered<'_> {
    /// The answer is there, or will not come.
    pub(super) fn end(mut self) {
        self.0 = None;
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(cut) = self.0 {
            cut();
        }
    }
}

/// How requests come to an API server.
pub trait Transport: Send + Sync + 'static {
    /// Sends a request, and waits for the head of the answer.
    fn send(&self, request: Request<Vec<u8>>) -> BoxFuture<'static, Result<Answer>>;

    /// Whether there is a network in between: then requests have the deadline [`DEADLINE`], and objects may be asked for in
    /// protobuf.
    fn is_remote(&self) -> bool;
}

/// An API server in this process. Requests go to it without a connection, and without the queue and the layers of an HTTP
/// client, which cost as much as a small write itself.
pub trait Direct: Send + Sync + 'static {
    /// Carries out a request: the status, and the body as it comes.
    fn call(&self, request: Request<Vec<u8>>) -> BoxFuture<'static, (StatusCode, BoxStream<'static, Bytes>)>;
}

pub(super) struct InProcess(pub(super) Arc<dyn Direct>);

impl Transport for InProcess {
    fn send(&self, request: Request<Vec<u8>>) -> BoxFuture<'static, Result<Answer>> {
        let answer = self.0.call(request);
        Box::pin(async {
            let (status, body) = answer.await;
            // The embedded server's Status has the seconds in its details.
            Ok(Answer { status, retry_after: 0, body: body.map(Ok).boxed() })
        })
    }

    fn is_remote(&self) -> bool {
        false
    }
}

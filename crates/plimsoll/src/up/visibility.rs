//! Kueue's visibility API, served by the API server of this process.

use futures::FutureExt;
use futures::future::BoxFuture;
use plimsoll_apiserver::{LocalAnswer, LocalApi, LocalRequest};
use plimsoll_runtime::visibility::{self, Visibility};
use serde_json::Value;

/// The API over the engine of this process.
pub struct Served(pub Visibility);

impl LocalApi for Served {
    fn group(&self) -> &'static str {
        visibility::GROUP
    }

    fn versions(&self) -> &'static [&'static str] {
        &visibility::VERSIONS
    }

    fn resources(&self, version: &str) -> Value {
        Visibility::resources(version)
    }

    fn answer(&self, request: LocalRequest) -> BoxFuture<'static, LocalAnswer> {
        let visibility = self.0.clone();
        async move {
            let LocalRequest { method, uri, accept, body } = request;
            let answer = visibility.answer(&method, &uri, &accept, &body).await;
            LocalAnswer { status: answer.status, content_type: answer.content_type, body: answer.body }
        }
        .boxed()
    }
}

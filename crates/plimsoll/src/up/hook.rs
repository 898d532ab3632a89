//! Our admission webhooks, called in process.

use std::sync::Arc;

use plimsoll_apimachinery::ApiError;
use plimsoll_apiserver::admission::Operation as ServerOperation;
use plimsoll_apiserver::{AdmissionHook, HookRequest, Server};
use plimsoll_jobs::webhook::{self, Operation, Review};
use plimsoll_runtime::cache::Cache;
use plimsoll_runtime::clock;
use serde_json::Value;

/// Makes the server call the webhooks of this process.
pub fn register(server: &Arc<Server>, cache: Cache) {
    server.add_hook(Arc::new(Hook { cache }));
}

struct Hook {
    cache: Cache,
}

/// The request as our mutating or validating webhooks see it; `None`: none of them handles it.
fn review<'a>(cache: &Cache, request: &HookRequest<'a>, mutates: bool) -> Option<Review<'a>> {
    let operation = match request.operation {
        ServerOperation::Create => Operation::Create,
        ServerOperation::Update => Operation::Update,
        ServerOperation::Delete => Operation::Delete,
        ServerOperation::Connect => return None,
    };
    let (group, plural, subresource) = (request.group, request.plural, request.subresource);
    // Only kinds of definitions can be declared.
    let declared = || {
        group.contains('.')
            && cache.objects(|objects| webhook::concerns_declared(group, plural, subresource, objects))
    };
    (webhook::concerns(group, plural, subresource, mutates) || declared()).then_some(Review {
        group,
        plural,
        operation,
        namespace: request.namespace,
        old: request.old,
    })
}

impl AdmissionHook for Hook {
    fn concerns(&self, request: &HookRequest<'_>) -> bool {
        review(&self.cache, request, false).is_some()
    }

    fn mutates(&self, request: &HookRequest<'_>) -> bool {
        review(&self.cache, request, true).is_some()
    }

    fn mutate(&self, request: &HookRequest<'_>, object: &mut Value) -> Result<(), ApiError> {
        if let Some(review) = review(&self.cache, request, true) {
            self.cache.read(clock::now(), |env| webhook::mutate(&review, object, env));
        }
        Ok(())
    }

    fn validate(&self, request: &HookRequest<'_>, object: Option<&Value>) -> Result<Vec<String>, ApiError> {
        let (Some(review), Some(object)) = (review(&self.cache, request, false), object) else {
            return Ok(Vec::new());
        };
        self.cache
            .read(clock::now(), |env| webhook::validate(&review, object, env))
            .map_err(|denied| ApiError::new(403, "Forbidden", denied.to_string()))
    }
}

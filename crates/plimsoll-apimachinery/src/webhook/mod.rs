//! Admission webhooks without the network: the webhooks to call, their requests and the meaning of their responses
//! (`k8s.io/apiserver/pkg/admission/plugin/webhook`).
//!
//! The server calls them: mutating ones one after the other, in [`Reinvocation`]'s order; validating ones at the same
//! time. [`Webhook::failed`] decides about a call that fails.

mod answer;
mod review;
mod select;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde_json::Value;

pub use self::answer::{Verdict, apply_patch, http_error};
pub use self::review::{options, review};
use crate::admission::{Attributes, MatchCondition};
use crate::error::ApiError;
use crate::json::{at, list, text};

/// The kind of configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// `MutatingWebhookConfiguration`.
    Mutating,
    /// `ValidatingWebhookConfiguration`.
    Validating,
}

/// One webhook of a configuration, ready for use.
#[derive(Debug)]
pub struct Webhook {
    /// Name, as messages have it.
    pub name: String,
    /// Name of its configuration.
    pub configuration: String,
    /// Stage.
    pub stage: Stage,
    /// `clientConfig` as written.
    pub client: Value,
    /// Whether a failing call lets the request pass.
    pub ignore_failures: bool,
    /// Seconds a call may take.
    pub timeout_seconds: u32,
    /// Whether it is called again when later webhooks changed the object.
    pub reinvoke: bool,
    /// Whether it may be called on dry runs.
    pub dry_run: bool,
    rules: Vec<Value>,
    namespace_selector: Value,
    object_selector: Value,
    equivalent: bool,
    conditions: Vec<MatchCondition>,
}

/// Makes webhooks of configuration objects: by name of the configuration, then in their order there.
pub fn compile(stage: Stage, configurations: &[Value]) -> Vec<Webhook> {
    let mut sorted: Vec<&Value> = configurations.iter().collect();
    sorted.sort_by_key(|c| text(at(c, "metadata"), "name"));
    let of = |c: &Value| -> Vec<Webhook> {
        let name = text(at(c, "metadata"), "name");
        list(c, "webhooks").iter().map(|w| Webhook::new(stage, name, w)).collect()
    };
    sorted.into_iter().flat_map(of).collect()
}

/// The address of a `clientConfig` with the time a call has: the configured URL, or the service's name in the cluster.
pub fn url(client: &Value, seconds: u32) -> String {
    let service = at(client, "service");
    let base = if service.is_object() {
        let port = at(service, "port").as_u64().unwrap_or(443);
        let path = text(service, "path").trim_start_matches('/');
        format!("https://{}.{}.svc:{port}/{path}", text(service, "name"), text(service, "namespace"))
    } else {
        text(client, "url").to_owned()
    };
    let sign = if base.contains('?') { '&' } else { '?' };
    format!("{base}{sign}timeout={seconds}s")
}

impl Webhook {
    fn new(stage: Stage, configuration: &str, raw: &Value) -> Self {
        Self {
            name: text(raw, "name").to_owned(),
            configuration: configuration.to_owned(),
            stage,
            client: at(raw, "clientConfig").clone(),
            ignore_failures: text(raw, "failurePolicy") == "Ignore",
            timeout_seconds: at(raw, "timeoutSeconds").as_u64().and_then(|s| s.try_into().ok()).unwrap_or(10),
            reinvoke: text(raw, "reinvocationPolicy") == "IfNeeded",
            dry_run: matches!(text(raw, "sideEffects"), "None" | "NoneOnDryRun"),
            rules: list(raw, "rules").to_vec(),
            namespace_selector: at(raw, "namespaceSelector").clone(),
            object_selector: at(raw, "objectSelector").clone(),
            equivalent: text(raw, "matchPolicy") != "Exact",
            conditions: list(raw, "matchConditions").iter().map(MatchCondition::parse).collect(),
        }
    }

    /// The address with the timeout as the server calls it.
    pub fn url(&self) -> String {
        url(&self.client, self.timeout_seconds)
    }

    /// The error of a failed call; `None`: failures are ignored. `why` is in upstream's words: `failed to call webhook:
    /// …` or `received invalid webhook response: …`.
    pub fn failed(&self, why: &str) -> Option<ApiError> {
        if self.ignore_failures {
            return None;
        }
        Some(ApiError::internal(format_args!("failed calling webhook {:?}: {why}", self.name)))
    }

    /// The failure of a request that got no answer: `failed to call webhook: Post "<url>": <why>`.
    pub fn unreachable(&self, why: &str) -> Option<ApiError> {
        self.failed(&format!("failed to call webhook: Post {:?}: {why}", self.url()))
    }

    /// Refuses dry runs for webhooks with side effects.
    ///
    /// # Errors
    /// 400 as upstream.
    pub fn check_dry_run(&self, attributes: &Attributes) -> Result<(), ApiError> {
        if attributes.dry_run && !self.dry_run {
            let what = format!("admission webhook {:?} does not support dry run", self.name);
            return Err(ApiError::bad_request(what));
        }
        Ok(())
    }
}

/// The mutating webhooks that are called a second time.
#[derive(Debug, Default)]
pub struct Reinvocation {
    invoked: BTreeSet<usize>,
    again: BTreeSet<usize>,
}

impl Reinvocation {
    /// Notes that the webhook at `index` was called in the first round, and whether it changed the object.
    pub fn called(&mut self, index: usize, webhook: &Webhook, changed: bool) {
        if changed {
            self.again.append(&mut self.invoked);
        }
        if webhook.reinvoke {
            self.invoked.insert(index);
        }
    }

    /// Something else has changed the object after the first round: all that may be called again are.
    pub fn plugin_changed(&mut self) {
        self.again.append(&mut self.invoked);
    }

    /// Webhooks of the second and last round, in order.
    pub fn again(&self) -> impl Iterator<Item = usize> + '_ {
        self.again.iter().copied()
    }
}

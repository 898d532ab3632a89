//! Registers the webhooks with the API server: the authority to trust, and, outside of a cluster, their address.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use plimsoll_api::json;
use plimsoll_api::webhooks::{CONVERT, Target, configurations_with};
use serde_json::{Value, json};

use crate::api::{Api, Error, PatchKind, Resource};

const fn registration(plural: &'static str, kind: &'static str) -> Resource {
    Resource { api_version: "admissionregistration.k8s.io/v1", plural, kind }
}

const CONFIGURATIONS: [Resource; 2] = [
    registration("mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
    registration("validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
];
const DEFINITIONS: Resource = Resource {
    api_version: "apiextensions.k8s.io/v1",
    plural: "customresourcedefinitions",
    kind: "CustomResourceDefinition",
};

/// How the API server gets to the webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// By a Service in front of this process.
    Service {
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
    },
    /// By a URL, such as `https://10.0.0.7:9443`.
    Url(String),
}

fn client(reach: &Reach, path: &str, bundle: &str) -> Value {
    let ca = BASE64_STANDARD.encode(bundle);
    match reach {
        Reach::Url(base) => json!({"url": format!("{base}{path}"), "caBundle": ca}),
        Reach::Service { namespace, name } => {
            json!({"service": {"namespace": namespace, "name": name, "path": path, "port": 443}, "caBundle": ca})
        }
    }
}

/// Whether everything that is wanted is there already; the server adds defaults of its own.
fn contains(present: &Value, wanted: &Value) -> bool {
    match (present, wanted) {
        (Value::Object(p), Value::Object(w)) => {
            w.iter().all(|(k, v)| p.get(k).is_some_and(|p| contains(p, v)))
        }
        (Value::Array(p), Value::Array(w)) => {
            p.len() == w.len() && p.iter().zip(w).all(|(p, w)| contains(p, w))
        }
        _ => present == wanted,
    }
}

/// Writes the conversion of Kueue's definitions, as far as it is not as it should be.
///
/// # Errors
/// The first write that failed.
pub async fn ensure_conversion(api: &Api, reach: &Reach, bundle: &str) -> Result<(), Error> {
    let conversion = json!({"strategy": "Webhook", "webhook": {
        "clientConfig": client(reach, CONVERT, bundle), "conversionReviewVersions": ["v1"]}});
    // A kind with one version has nothing to convert.
    let has_old = |text: &str| text.contains("group: kueue.x-k8s.io") && text.contains("- name: v1beta1");
    for (file, _) in plimsoll_api::crds::MANIFESTS.iter().filter(|(_, text)| has_old(text)) {
        let plural = file.trim_end_matches(".yaml");
        convert(api, &format!("{plural}.kueue.x-k8s.io"), &conversion).await?;
    }
    Ok(())
}

/// Writes both configurations, with these declared kinds, as far as they are not as they should be.
///
/// # Errors
/// The first write that failed.
pub async fn ensure(
    api: &Api,
    reach: &Reach,
    namespace: &str,
    bundle: &str,
    declared: &[Target],
) -> Result<(), Error> {
    let wanted = configurations_with(|path| client(reach, path, bundle), namespace, declared);
    for (resource, wanted) in CONFIGURATIONS.into_iter().zip(wanted) {
        configure(api, resource, &wanted).await?;
    }
    Ok(())
}

async fn convert(api: &Api, name: &str, conversion: &Value) -> Result<(), Error> {
    let present = match api.get(DEFINITIONS, "", name).await {
        Ok(present) => present,
        // Not installed: there is nothing of it to convert.
        Err(e) if e.is_not_found() => return Ok(()),
        Err(e) => return Err(e),
    };
    if contains(&present["spec"]["conversion"], conversion) {
        return Ok(());
    }
    let mut patch = json!({"spec": {"conversion": conversion}});
    let to_url = conversion["webhook"]["clientConfig"]["service"].is_null();
    // Of the two ways to say where, only one may stay.
    json::set(
        &mut patch,
        &["spec", "conversion", "webhook", "clientConfig", if to_url { "service" } else { "url" }],
        Value::Null,
    );
    api.patch(DEFINITIONS, "", name, "", PatchKind::Merge, &patch).await.map(drop)
}

/// The wanted webhooks with the failure policies of those that are registered: how strict they are is for the administrator
/// to say (`plimsoll install --failure-policy`).
fn with_present_policies(wanted: &Value, present: &Value) -> Value {
    let mut webhooks = wanted.clone();
    let registered = json::list(present, &["webhooks"]);
    for webhook in webhooks.as_array_mut().into_iter().flatten() {
        let same = registered.iter().find(|r| r["name"] == webhook["name"]);
        if let Some(policy) = same.map(|r| &r["failurePolicy"]).filter(|p| p.is_string()) {
            webhook["failurePolicy"] = policy.clone();
        }
    }
    webhooks
}

async fn configure(api: &Api, resource: Resource, wanted: &Value) -> Result<(), Error> {
    let mut present = match api.get(resource, "", json::name(wanted)).await {
        Ok(present) => present,
        Err(e) if e.is_not_found() => return api.create(resource, wanted).await.map(drop),
        Err(e) => return Err(e),
    };
    let webhooks = with_present_policies(&wanted["webhooks"], &present);
    if contains(&present["webhooks"], &webhooks) {
        return Ok(());
    }
    json::set(&mut present, &["webhooks"], webhooks);
    match api.replace(resource, &present).await {
        // Another replica, which writes the same, or a client whose change the next look sees.
        Err(e) if e.is_conflict() => Ok(()),
        done => done.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_of_the_server_are_no_difference() {
        let wanted = json!({"webhooks": [{"name": "a", "rules": [{"resources": ["pods"]}]}]});
        let present = json!({"webhooks": [{"name": "a", "timeoutSeconds": 10,
                                           "rules": [{"resources": ["pods"], "scope": "*"}]}], "metadata": {}});
        assert!(contains(&present, &wanted));
        assert!(!contains(&wanted, &present));
        assert!(!contains(&json!({"webhooks": []}), &wanted));
    }

    #[test]
    fn failure_policies_are_the_administrators() {
        let wanted = json!([{"name": "a", "failurePolicy": "Fail"}, {"name": "b", "failurePolicy": "Fail"}]);
        let present = json!({"webhooks": [{"name": "a", "failurePolicy": "Ignore"}, {"name": "c"}]});
        let want = json!([{"name": "a", "failurePolicy": "Ignore"}, {"name": "b", "failurePolicy": "Fail"}]);
        assert_eq!(with_present_policies(&wanted, &present), want);
    }

    #[test]
    fn a_service_or_a_url() {
        let service = Reach::Service { namespace: "ns".into(), name: "s".into() };
        assert_eq!(
            client(&service, "/p", "x"),
            json!({"service": {"namespace": "ns", "name": "s", "path": "/p", "port": 443}, "caBundle": "eA=="})
        );
        let url = Reach::Url("https://h:1".into());
        assert_eq!(client(&url, "/p", "x"), json!({"url": "https://h:1/p", "caBundle": "eA=="}));
    }
}

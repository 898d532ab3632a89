//! Tells the API server's aggregation layer where the visibility API is.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::documents::{GROUP, VERSIONS};
use crate::api::{Api, Error, PatchKind, Resource};

const SERVICES: Resource =
    Resource { api_version: "apiregistration.k8s.io/v1", plural: "apiservices", kind: "APIService" };

/// The APIServices of the versions (`config/components/visibility` upstream, with our authority instead of
/// `insecureSkipTLSVerify`). `bundle`: authorities to trust, PEM; `None`: they are still to be filled in.
pub fn objects(namespace: &str, name: &str, bundle: Option<&str>) -> Vec<Value> {
    let object = |version: &&str| {
        let mut spec = json!({
            "group": GROUP, "version": version, "groupPriorityMinimum": 100, "versionPriority": 100,
            "service": {"namespace": namespace, "name": name, "port": 443},
        });
        if let Some(bundle) = bundle {
            spec["caBundle"] = json!(BASE64_STANDARD.encode(bundle));
        }
        json!({"apiVersion": SERVICES.api_version, "kind": SERVICES.kind,
               "metadata": {"name": format!("{version}.{GROUP}")}, "spec": spec})
    };
    VERSIONS.iter().map(object).collect()
}

/// Writes the APIServices, as far as they are not as they should be.
///
/// # Errors
/// The first write that failed.
pub async fn ensure(api: &Api, namespace: &str, name: &str, bundle: &str) -> Result<(), Error> {
    for wanted in objects(namespace, name, Some(bundle)) {
        let object = wanted["metadata"]["name"].as_str().unwrap_or("");
        let present = match api.get(SERVICES, "", object).await {
            Ok(present) => present,
            Err(e) if e.is_not_found() => {
                match api.create(SERVICES, &wanted).await {
                    // Another replica was faster, and writes the same.
                    Err(e) if !e.is_conflict() => return Err(e),
                    _ => continue,
                }
            }
            Err(e) => return Err(e),
        };
        let (spec, new) = (&present["spec"], &wanted["spec"]);
        if spec["service"] == new["service"] && spec["caBundle"] == new["caBundle"] {
            continue;
        }
        let mut patch = json!({"spec": {"service": new["service"], "caBundle": new["caBundle"]}});
        // An authority and no check at all exclude each other.
        patch["spec"]["insecureSkipTLSVerify"] = Value::Null;
        api.patch(SERVICES, "", object, "", PatchKind::Merge, &patch).await?;
    }
    Ok(())
}

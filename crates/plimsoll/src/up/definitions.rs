//! Kueue's kinds and the roles for their users, installed into the embedded server as any user would install them.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use plimsoll_api::json;
use plimsoll_api::roles;
use plimsoll_apimachinery::crd::kueue_definitions;
use plimsoll_runtime::api::{Api, Resource};
use serde_json::{Value, json};

const DEFINITIONS: Resource = Resource {
    api_version: "apiextensions.k8s.io/v1",
    plural: "customresourcedefinitions",
    kind: "CustomResourceDefinition",
};
const ROLES: Resource =
    Resource { api_version: "rbac.authorization.k8s.io/v1", plural: "clusterroles", kind: "ClusterRole" };
/// Annotation with a mark of the object's content, so that a newer program brings its newer definitions and roles.
const MARK: &str = "plimsoll.dev/definition";
/// Longest wait for a definition to be served.
const PATIENCE: Duration = Duration::from_secs(10);

/// A mark of the content (FNV-1a); it tells versions apart, it protects nothing.
fn mark(object: &Value) -> String {
    let text = object.to_string();
    let hash =
        text.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

/// Installs what is not there in this version, and waits until all are served.
pub async fn install(api: &Api) -> anyhow::Result<()> {
    for definition in kueue_definitions() {
        let name = json::name(definition).to_owned();
        one(api, DEFINITIONS, definition).await.with_context(|| format!("installing {name}"))?;
    }
    for role in roles::objects() {
        let name = json::name(&role);
        one(api, ROLES, &role).await.with_context(|| format!("installing the role {name}"))?;
    }
    let began = Instant::now();
    for definition in kueue_definitions() {
        let name = json::name(definition);
        while !json::is_true(&api.get(DEFINITIONS, "", name).await?, "Established") {
            if began.elapsed() > PATIENCE {
                bail!("{name} is not served");
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    Ok(())
}

/// Installs the definition of a kind of jobs, unless the user has installed one.
pub async fn install_kind(api: &Api, definition: &Value) -> anyhow::Result<()> {
    let name = json::name(definition);
    one(api, DEFINITIONS, definition).await.with_context(|| format!("installing {name}"))
}

async fn one(api: &Api, resource: Resource, object: &Value) -> anyhow::Result<()> {
    let mut wanted = object.clone();
    let mark = mark(object);
    json::set(&mut wanted, &["metadata", "annotations", MARK], json!(mark));
    match api.create(resource, &wanted).await {
        Ok(_) => return Ok(()),
        Err(e) if e.is_conflict() => {}
        Err(e) => return Err(e.into()),
    }
    let present = api.get(resource, "", json::name(object)).await?;
    // One without our mark was put there by the user.
    if json::annotation(&present, MARK).is_none_or(|m| m == mark) {
        return Ok(());
    }
    json::set(&mut wanted, &["metadata", "resourceVersion"], json!(json::version(&present)));
    api.replace(resource, &wanted).await?;
    Ok(())
}

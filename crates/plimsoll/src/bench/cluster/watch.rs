//! What changes in a collection, as it comes.

use std::time::Duration;

use anyhow::{Context, bail};
use http_body_util::BodyExt;
use plimsoll_api::json;
use plimsoll_runtime::api::Api;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::bench::client::Target;

/// An object, or the part of it that is read.
pub trait Seen: DeserializeOwned + Send + 'static {
    /// Its resourceVersion.
    fn version(&self) -> &str;
}

impl Seen for Value {
    fn version(&self) -> &str {
        json::text(self, &["metadata", "resourceVersion"])
    }
}

/// What is read of a pod: reading all of it would cost the schedulers processor time.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pod {
    metadata: Meta,
    spec: Spec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Meta {
    name: String,
    resource_version: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    node_name: String,
    scheduling_gates: Vec<IgnoredAny>,
}

impl Pod {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Whether it has a node.
    pub const fn is_bound(&self) -> bool {
        !self.spec.node_name.is_empty()
    }

    /// Whether it wants a node.
    pub const fn is_pending(&self) -> bool {
        self.spec.node_name.is_empty() && self.spec.scheduling_gates.is_empty()
    }
}

impl Seen for Pod {
    fn version(&self) -> &str {
        &self.metadata.resource_version
    }
}

#[derive(Deserialize)]
struct Event<T> {
    object: T,
}

/// Watches a collection from now on.
pub async fn start<T: Seen>(
    api: &Api,
    target: &Target,
    collection: String,
) -> anyhow::Result<(JoinHandle<anyhow::Result<()>>, mpsc::Receiver<T>)> {
    let (send, seen) = mpsc::channel(1024);
    let list = api.get_path(&format!("{collection}?limit=1")).await?;
    let version = json::text(&list, &["metadata", "resourceVersion"]).to_owned();
    Ok((tokio::spawn(watch(target.clone(), collection, version, send)), seen))
}

/// Sends each object of a collection that changes after a version. The API server ends watches of custom resources now
/// and then; they go on from the last version.
async fn watch<T: Seen>(
    target: Target,
    collection: String,
    mut version: String,
    send: mpsc::Sender<T>,
) -> anyhow::Result<()> {
    loop {
        let path = format!("{collection}?watch=1&resourceVersion={version}&timeoutSeconds=7200");
        // The stream ends with its connection.
        let mut connection = target.connect().await?;
        let mut body = connection.watch(&path).await?;
        let mut rest = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            rest.extend_from_slice(&data);
            let Some(end) = rest.iter().rposition(|b| *b == b'\n') else { continue };
            let tail = rest.split_off(end + 1);
            for line in rest.split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
                if line.starts_with(br#"{"type":"ERROR""#) {
                    bail!("the watch failed: {}", String::from_utf8_lossy(line));
                }
                let event: Event<T> = serde_json::from_slice(line).context("a watch event")?;
                event.object.version().clone_into(&mut version);
                if send.send(event.object).await.is_err() {
                    return Ok(());
                }
            }
            rest = tail;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_read_as_far_as_needed() {
        let read = |text: &str| serde_json::from_str::<Event<Pod>>(text).expect("a pod").object;
        let gated = read(
            r#"{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"p","resourceVersion":"7"},
                "spec":{"schedulingGates":[{"name":"x"}],"containers":[]}}}"#,
        );
        assert_eq!((gated.name(), gated.version()), ("p", "7"));
        assert!(!gated.is_pending() && !gated.is_bound());
        let bound = read(r#"{"type":"MODIFIED","object":{"metadata":{},"spec":{"nodeName":"n"}}}"#);
        assert!(bound.is_bound() && !bound.is_pending());
    }
}

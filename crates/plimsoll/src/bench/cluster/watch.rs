//! What changes in a collection, as it comes.

use std::time::Duration;

use anyhow::{Context, bail};
use http_body_util::BodyExt;
use plimsoll_api::json;
use plimsoll_runtime::api::Api;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::bench::client::Target;

/// Watches a collection from now on.
pub async fn start(
    api: &Api,
    target: &Target,
    collection: String,
) -> anyhow::Result<(JoinHandle<anyhow::Result<()>>, mpsc::Receiver<Value>)> {
    let (send, seen) = mpsc::channel(1024);
    let list = api.get_path(&format!("{collection}?limit=1")).await?;
    let version = json::text(&list, &["metadata", "resourceVersion"]).to_owned();
    Ok((tokio::spawn(watch(target.clone(), collection, version, send)), seen))
}

/// Sends each object of a collection that changes after a version. The API server ends watches of custom resources now
/// and then; they go on from the last version.
async fn watch(
    target: Target,
    collection: String,
    mut version: String,
    send: mpsc::Sender<Value>,
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
                let mut event: Value = serde_json::from_slice(line).context("a watch event")?;
                if event["type"] == "ERROR" {
                    bail!("the watch failed: {}", event["object"]["message"]);
                }
                let object = event["object"].take();
                json::text(&object, &["metadata", "resourceVersion"]).clone_into(&mut version);
                if send.send(object).await.is_err() {
                    return Ok(());
                }
            }
            rest = tail;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

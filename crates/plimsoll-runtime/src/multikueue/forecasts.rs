//! Asks workers when they could start a workload, through the visibility API.

use std::time::Duration;

use futures::future::join_all;
use plimsoll_api::json;
use plimsoll_api::request::Error;
use plimsoll_client::rest::encode;
use plimsoll_jobs::multikueue::{Answer, Outlook, Question, WorkloadKey};
use serde_json::Value;

use super::Context;
use super::clusters::Clusters;
use super::memories::{Memories, lock};
use crate::clock;
use crate::visibility::{FORECASTS, GROUP, VERSIONS};

/// How long an answer is waited for. Other questions to the same worker count: one that hangs has no answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Asks all clusters of a question at the same time, and has the workload planned again when all have answered.
pub fn ask(
    key: &WorkloadKey,
    question: Question,
    context: &Context,
    clusters: &Clusters,
    memories: &Memories,
) {
    if std::mem::replace(&mut lock(memories).entry(key.clone()).or_default().asks, true) {
        return;
    }
    let (key, context, clusters, memories) =
        (key.clone(), context.clone(), clusters.clone(), memories.clone());
    tokio::spawn(async move {
        let Question { workload, clusters: names } = question;
        let workload = &workload;
        let answers = names.into_iter().map(|name| {
            let clusters = &clusters;
            async move {
                let outlook = tokio::time::timeout(PATIENCE, ask_one(&name, workload, clusters)).await;
                let outlook = outlook.unwrap_or(Outlook::Silent);
                tracing::debug!(cluster = name, workload = json::name(workload), ?outlook, "forecast");
                (name, Answer { outlook, at: clock::now() })
            }
        });
        let answers = join_all(answers).await;
        {
            let mut all = lock(&memories);
            let known = all.entry(key.clone()).or_default();
            known.asks = false;
            known.memory.answers.extend(answers);
        }
        context.inbox.workloads.add(&key);
    });
}

async fn ask_one(cluster: &str, workload: &Value, clusters: &Clusters) -> Outlook {
    let Some(connection) = clusters.connection(cluster) else { return Outlook::Silent };
    let Ok(_permit) = connection.questions.acquire().await else { return Outlook::Silent };
    let (namespace, queue) = (json::namespace(workload), json::text(workload, &["spec", "queueName"]));
    let path = format!(
        "/apis/{GROUP}/{}/namespaces/{}/localqueues/{}/{FORECASTS}",
        VERSIONS[0],
        encode(namespace),
        encode(queue)
    );
    match connection.api.post_path(&path, workload).await {
        Ok(document) => Outlook::of(&document),
        // A server that does not serve the path answers with a 404, too.
        Err(Error::Status { code: 404, message, .. }) if message.starts_with("localqueue") => Outlook::Never,
        Err(error) => {
            tracing::debug!(cluster, %error, "the worker does not say when it could start a workload");
            Outlook::Silent
        }
    }
}

//! From the creation of pods to their binding.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use plimsoll_kubelet::nodes::{Shape, node};

use super::client::JSON;
use super::load::{self, pods};
use super::place::Place;
use super::report::{Row, rss};
use crate::cli;

/// A run that makes no progress for this long has failed.
const STALLED: Duration = Duration::from_secs(30);
/// When no event comes for this long, the last one has been written: schedulers may join events or leave some out.
const SILENT: Duration = Duration::from_secs(2);

/// Creates nodes and pods and waits until each pod has a node. On another server its own scheduler does the placing.
pub async fn placed(place: &Place, count: usize, nodes: usize, args: &cli::BenchApi) -> anyhow::Result<Row> {
    let now = plimsoll_runtime::clock::now().0;
    let shape = Shape { cpu: "64".into(), memory: "256Gi".into(), pods: 110 };
    let objects = (0..nodes).map(|i| node(i, &shape, now)).collect();
    place.create_nodes(objects).await?;

    let bound = Arc::new(AtomicUsize::new(0));
    let mut connection = place.target.connect().await?;
    let path = format!("{}?watch=true&timeoutSeconds=3600", place.pods());
    let mut body = connection.watch(&path).await?;
    let seen = Arc::clone(&bound);
    let reader = tokio::spawn(async move {
        let _connection = connection;
        let (mut line, mut known) = (Vec::new(), std::collections::HashSet::new());
        while let Some(Ok(frame)) = body.frame().await {
            let Some(data) = frame.data_ref() else { continue };
            for part in data.split_inclusive(|b| *b == b'\n') {
                line.extend_from_slice(part);
                if part.last() == Some(&b'\n') {
                    if let Some(name) = name_if_bound(&line)
                        && known.insert(name)
                    {
                        seen.fetch_add(1, Ordering::Relaxed);
                    }
                    line.clear();
                }
            }
        }
    });
    let began = Instant::now();
    let progress = load::bar(true, 0, "");
    let creating = load::post(
        &place.target,
        usize::from(args.connections),
        JSON,
        pods(place, 0..count, JSON),
        &progress,
    );
    let waiting = wait(&bound, count, args.quiet);
    let (created, waited) = tokio::join!(creating, waiting);
    let elapsed = began.elapsed().as_secs_f64();
    let created = created?;
    reader.abort();
    waited?;
    let events = written_events(place).await?;
    let what = format!("created → bound, {nodes} nodes, {count} pods");
    let row =
        Row::more(what, count as f64 / elapsed, "pods/s", None).with("createsPerSecond", created.rate());
    let row = row.with("eventsByThen", events as f64);
    let (events, last) = last_event(place, count as u64, began).await?;
    let row = row.with("events", events as f64).with("eventsSeconds", last);
    Ok(row.with("seconds", elapsed).with("memoryMiB", rss().map_or(0.0, |b| b as f64 / 1_048_576.0)))
}

/// How many events have been written; they come after what they tell of.
async fn written_events(place: &Place) -> anyhow::Result<u64> {
    let path = format!("{}?limit=1", place.events());
    let answer = place.target.connect().await?.send(Method::GET, &path, JSON, Bytes::new()).await?;
    let list: serde_json::Value = serde_json::from_slice(&answer)?;
    let rest = list["metadata"]["remainingItemCount"].as_u64().unwrap_or(0);
    Ok(rest + list["items"].as_array().map_or(0, |items| items.len() as u64))
}

/// How many events there are in the end, and how many seconds after `began` the last one was there.
async fn last_event(place: &Place, expected: u64, began: Instant) -> anyhow::Result<(u64, f64)> {
    let (mut count, mut last) = (0, began.elapsed());
    loop {
        let now = written_events(place).await?;
        if now > count {
            (count, last) = (now, began.elapsed());
        }
        if count >= expected || began.elapsed() > last + SILENT {
            return Ok((count, last.as_secs_f64()));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Name of the pod in an event, if the pod has a node.
fn name_if_bound(line: &[u8]) -> Option<u32> {
    let find = |what: &[u8]| memchr::memmem::find(line, what).map(|at| at + what.len());
    find(b"\"nodeName\":\"")?;
    let at = find(b"\"name\":\"pod-")?;
    std::str::from_utf8(line.get(at..at + 6)?).ok()?.parse().ok()
}

async fn wait(bound: &AtomicUsize, pods: usize, quiet: bool) -> anyhow::Result<()> {
    let progress = load::bar(quiet, pods, "bound");
    let (mut last, mut since) = (0, Instant::now());
    loop {
        let count = bound.load(Ordering::Relaxed);
        progress.set_position(count as u64);
        if count >= pods {
            progress.finish_and_clear();
            return Ok(());
        }
        if count > last {
            (last, since) = (count, Instant::now());
        } else if since.elapsed() > STALLED {
            anyhow::bail!("stalled: {count} of {pods} pods are bound");
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bound_pods_are_told_apart() {
        let line =
            br#"{"type":"MODIFIED","object":{"metadata":{"name":"pod-000012"},"spec":{"nodeName":"n"}}}"#;
        assert_eq!(name_if_bound(line), Some(12));
        assert_eq!(name_if_bound(br#"{"object":{"metadata":{"name":"pod-000012"}}}"#), None);
    }
}

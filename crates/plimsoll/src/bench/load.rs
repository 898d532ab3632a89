//! Many requests over a few connections, timed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use http::Method;
use indicatif::{ProgressBar, ProgressStyle};

use super::client::Target;
use super::objects;
use super::place::Place;

/// One request of a load.
#[derive(Clone, Debug)]
pub struct Shot {
    /// Path.
    pub path: String,
    /// Body.
    pub body: Bytes,
}

/// What came of a load.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// From the first request to the last answer.
    pub elapsed: Duration,
    /// When each request was sent, in the order of the load.
    pub sent: Vec<Instant>,
    /// Of each request.
    latencies: Vec<Duration>,
}

impl Outcome {
    /// Requests per second.
    pub fn rate(&self) -> f64 {
        self.latencies.len() as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// A quantile of the latencies, in milliseconds.
    pub fn quantile_ms(&self, q: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        let at = (last as f64 * q).round() as usize;
        self.latencies.get(at).map_or(0.0, |d| d.as_secs_f64() * 1e3)
    }
}

/// A progress bar on standard error, or nothing.
pub fn bar(quiet: bool, length: usize, what: &str) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(length as u64).with_message(what.to_owned());
    if let Ok(style) = ProgressStyle::with_template("{msg:28} {bar:32} {pos}/{len} {per_sec}") {
        bar.set_style(style);
    }
    bar
}

/// POSTs everything over so many connections, each with one request under way.
pub async fn post(
    target: &Target,
    connections: usize,
    format: &'static str,
    shots: Vec<Shot>,
    progress: &ProgressBar,
) -> anyhow::Result<Outcome> {
    paced(target, connections, format, shots, Duration::ZERO, progress).await
}

/// As [`post`], with at least `gap` from one request to the next.
pub async fn paced(
    target: &Target,
    connections: usize,
    format: &'static str,
    shots: Vec<Shot>,
    gap: Duration,
    progress: &ProgressBar,
) -> anyhow::Result<Outcome> {
    let mut open = Vec::new();
    for _ in 0..connections.clamp(1, shots.len().max(1)) {
        open.push(target.connect().await?);
    }
    let (shots, next) = (Arc::new(shots), Arc::new(AtomicUsize::new(0)));
    let began = Instant::now();
    let mut clients = tokio::task::JoinSet::new();
    for mut connection in open {
        let (shots, next, progress) = (Arc::clone(&shots), Arc::clone(&next), progress.clone());
        clients.spawn(async move {
            let mut done = Vec::new();
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                let Some(shot) = shots.get(i) else { break };
                if !gap.is_zero() {
                    let at = began + gap.mul_f64(i as f64);
                    tokio::time::sleep_until(at.into()).await;
                }
                let sent = Instant::now();
                connection.send(Method::POST, &shot.path, format, shot.body.clone()).await?;
                done.push((i, sent, sent.elapsed()));
                if done.len().is_multiple_of(64) {
                    progress.inc(64);
                }
            }
            anyhow::Ok(done)
        });
    }
    let mut all = Vec::with_capacity(shots.len());
    while let Some(done) = clients.join_next().await {
        all.extend(done.context("a client")??);
    }
    let elapsed = began.elapsed();
    all.sort_unstable_by_key(|(i, ..)| *i);
    let sent = all.iter().map(|(_, sent, _)| *sent).collect();
    let mut latencies: Vec<Duration> = all.into_iter().map(|(.., took)| took).collect();
    latencies.sort_unstable();
    progress.finish_and_clear();
    Ok(Outcome { elapsed, sent, latencies })
}

/// Requests that create pods.
pub fn pods(place: &Place, range: std::ops::Range<usize>, format: &'static str) -> Vec<Shot> {
    let path = place.pods();
    let body = |i| objects::encode(&objects::pod(&place.namespace, i), format).unwrap_or_default();
    range.map(|i| Shot { path: path.clone(), body: body(i) }).collect()
}

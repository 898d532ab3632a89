//! When pods were bound, as a watch shows it.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use indicatif::ProgressBar;
use plimsoll_runtime::api::{Api, PODS};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::actor::Actor;
use super::watch::{self, Pod};
use crate::bench::client::Target;
use crate::bench::placement::workload::{NAMESPACE, Pods};

/// Times of bindings by set and number of the pod.
pub struct Bound {
    watching: JoinHandle<anyhow::Result<()>>,
    seen: mpsc::Receiver<Pod>,
    at: Vec<(Vec<Option<Instant>>, usize)>,
}

impl Bound {
    /// Begins to watch sets of these sizes.
    pub async fn start(api: &Api, target: &Target, sizes: &[usize]) -> anyhow::Result<Self> {
        let (watching, seen) = watch::start(api, target, PODS.collection(NAMESPACE)).await?;
        Ok(Self { watching, seen, at: sizes.iter().map(|n| (vec![None; *n], 0)).collect() })
    }

    fn see(&mut self, pod: &Pod) {
        if pod.is_bound()
            && let Some((set, i)) = Pods::number(pod.name())
            && let Some((times, count)) = self.at.get_mut(set)
            && let Some(time @ None) = times.get_mut(i)
        {
            *time = Some(Instant::now());
            *count += 1;
        }
    }

    /// Waits until so many pods of a set are bound.
    pub async fn until(
        &mut self,
        (set, wanted): (usize, usize),
        actor: &mut Actor,
        patience: Duration,
        bar: &ProgressBar,
    ) -> anyhow::Result<()> {
        let began = Instant::now();
        let mut beat = tokio::time::interval(Duration::from_secs(1));
        loop {
            let count = self.at.get(set).map_or(0, |(_, count)| *count);
            bar.set_position(count as u64);
            if count >= wanted {
                return Ok(());
            }
            tokio::select! {
                pod = self.seen.recv() => match pod {
                    Some(pod) => self.see(&pod),
                    None => {
                        (&mut self.watching).await.context("the watch of pods")??;
                        bail!("the watch of pods ended");
                    }
                },
                _ = beat.tick() => {
                    actor.check()?;
                    if began.elapsed() > patience {
                        bail!("{count} of {wanted} pods of set {set} bound within {patience:?}");
                    }
                }
            }
        }
    }

    /// When the last pod of a set was bound.
    pub fn last(&self, set: usize) -> Option<Instant> {
        self.at.get(set)?.0.iter().flatten().max().copied()
    }

    /// Milliseconds from the times of creation to those of bindings, sorted.
    pub fn latencies(&self, set: usize, created: &[Instant]) -> Vec<f64> {
        let Some((bound, _)) = self.at.get(set) else { return Vec::new() };
        let both = created.iter().zip(bound);
        let mut all: Vec<f64> = both
            .filter_map(|(created, bound)| Some(bound.as_ref()?.duration_since(*created).as_secs_f64() * 1e3))
            .collect();
        all.sort_by(f64::total_cmp);
        all
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

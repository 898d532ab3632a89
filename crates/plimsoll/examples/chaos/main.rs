//! `plimsoll run`, twice, behind a proxy that treats it badly, with kills of both replicas and of the API server, and a
//! checker that watches the API server directly. `cargo xtask chaos` runs it and says what its environment means.
//!
//! Whatever the faults are: quota is never exceeded by running pods, no workload is admitted twice, no pod of an admitted
//! workload is stopped, and everything completes after they end. The seed decides the faults; how requests interleave
//! with them is up to the machine.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

#[path = "../../tests/integration/common/mod.rs"]
mod common;

mod checker;
mod faults;
mod replicas;

use std::time::{Duration, Instant};

use checker::Checker;
use common::proxy::Proxy;
use common::{Up, directory, job, queue};
use faults::Plan;
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_api::json;
use plimsoll_runtime::api::{JOBS, WORKLOADS};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use replicas::Replicas;
use serde_json::json;

/// CPUs of the only ClusterQueue.
const QUOTA: u32 = 8;
/// Most jobs that are not complete.
const OPEN: usize = 16;
/// For everything to complete after the last fault.
const SETTLE: Duration = Duration::from_secs(240);

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |v| v.parse().unwrap_or_else(|e| panic!("{name}={v}: {e}")))
}

#[tokio::main]
async fn main() {
    let duration = Duration::from_secs(setting("PLIMSOLL_CHAOS_SECONDS", 600));
    let seed = setting("PLIMSOLL_CHAOS_SEED", (u64::from(std::process::id()) << 32) | u64::from(millis()));
    println!("chaos: seed {seed}, {} s of faults", duration.as_secs());
    let mut random = StdRng::seed_from_u64(seed);
    let dir = directory();
    let data = dir.join("data").to_str().unwrap().to_owned();
    let args = ["--no-scheduler", "--speed", "1", "--data", &data];
    let mut up = Up::start_in(dir, &args).await;
    let port = json::text(&up.ready, &["url"]).rsplit(':').next().unwrap().to_owned();
    let args = [&args[..], &["--port", &port]].concat();
    up.apply(&queue(QUOTA)).await;
    let proxy = Proxy::start(&up.kubeconfig, &up.dir).await;
    let checker = Checker::start(&up.api, i64::from(QUOTA) * 1000);
    let mut replicas = Replicas::start(&proxy.kubeconfig);
    let mut plan = Plan::new(random.random());
    let bar = ProgressBar::new(duration.as_secs());
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} s  {msg}").unwrap();
    bar.set_style(style);
    let began = Instant::now();
    let (mut jobs, mut restarts) = (0u32, 0u32);
    while began.elapsed() < duration {
        let open = checker.open();
        if open < OPEN {
            create(&up, jobs, &mut random).await;
            jobs += 1;
        }
        plan.advance(&proxy);
        match random.random_range(0..240) {
            0..3 => replicas.kill(random.random_range(0..2)),
            3 => {
                up = restart(up, &args).await;
                restarts += 1;
            }
            _ => {}
        }
        replicas.tend();
        bar.set_position(began.elapsed().as_secs());
        bar.set_message(format!("{jobs} jobs, {open} open, {}", plan.now()));
        if let Some(violation) = checker.violation() {
            report(seed, &violation, &replicas, &plan);
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    proxy.heal();
    let healed = Instant::now();
    while checker.open() > 0 || checker.complete() < jobs as usize {
        replicas.tend();
        let open = checker.open();
        bar.set_message(format!("{jobs} jobs, {open} open, no faults any more"));
        let violation = checker.violation().or_else(|| {
            (healed.elapsed() > SETTLE)
                .then(|| format!("{open} of {jobs} jobs do not complete after the faults"))
        });
        if let Some(violation) = violation {
            report(seed, &violation, &replicas, &plan);
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    bar.finish_and_clear();
    let settled = healed.elapsed();
    if let Some(violation) = replicas.end().or_else(|| checker.violation()) {
        report(seed, &violation, &replicas, &plan);
    }
    let (jobs_made, workloads) = (up.list(JOBS).await.len(), up.list(WORKLOADS).await.len());
    assert_eq!(
        (jobs_made, workloads),
        (jobs as usize, jobs as usize),
        "seed {seed}: one workload for each job"
    );
    println!(
        "chaos: ok, seed {seed}: {} s, {jobs} jobs complete, {} changes checked, {}, {}, {restarts} kills of the API \
         server, settled in {:.1} s",
        began.elapsed().as_secs(),
        checker.seen(),
        plan.summary(),
        replicas.summary(),
        settled.as_secs_f64(),
    );
}

fn millis() -> u32 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_millis()
}

/// A job as the webhooks make it: suspended.
async fn create(up: &Up, number: u32, random: &mut StdRng) {
    let (pods, seconds) = (random.random_range(1..=3), random.random_range(1..=10));
    let mut job = job(&format!("job-{number}"), &json!({"kueue.x-k8s.io/queue-name": "main"}), pods, seconds);
    job["spec"]["suspend"] = true.into();
    up.create(&job).await.unwrap();
}

/// Kills the API server without a warning and starts it again where it was.
async fn restart(mut up: Up, args: &[&str]) -> Up {
    up.kill();
    let dir = std::mem::replace(&mut up.dir, std::env::temp_dir().join("plimsoll-test-none"));
    drop(up);
    Up::start_in(dir, args).await
}

/// Reports what is wrong and ends the test.
fn report(seed: u64, violation: &str, replicas: &Replicas, plan: &Plan) -> ! {
    let kept = std::env::temp_dir().join(format!("plimsoll-chaos-{seed}"));
    let logs = replicas.keep(&kept);
    panic!("seed {seed}: {violation}\nfaults until then: {}\nlogs: {}", plan.summary(), logs.display());
}

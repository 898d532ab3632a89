//! `plimsoll plugins bench`: what the plugins of a file add to a decision, without a cluster.

use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use plimsoll_scheduler::{Action, Config, Event, Scheduler};
use plimsoll_state::model::{Container, Node, Pod};
use plimsoll_state::{ObjectEvent, Time};
use serde::Serialize;
use serde_json::json;

use crate::cli::{BenchPlugins, Format};
use crate::{configure, say};

/// Decisions that are not measured: they make what is kept from pod to pod.
const WARM_UP: usize = 2;

/// Decisions about pods among so many nodes, in microseconds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    nodes: usize,
    /// Whether each pod is of a kind of its own, so that nothing is known of it.
    new_kinds: bool,
    /// With kube-scheduler's plugins alone.
    default: f64,
    /// With the file.
    with: f64,
    /// Pods that got no node with the file.
    failed: usize,
}

/// Measures and prints.
///
/// # Errors
/// When the file can't be read or is not valid.
pub fn run(args: &BenchPlugins) -> anyhow::Result<()> {
    let bytes = std::fs::read(&args.file).with_context(|| args.file.display().to_string())?;
    let text = match bytes.starts_with(b"\0asm") {
        true => configuration(&args.file, args.guest_config.as_deref())?,
        false => String::from_utf8(bytes).context("neither text nor a WebAssembly module")?,
    };
    let (default, with) = configure::beside_default(&text, &args.scheduler_feature_gates)?;
    let mut rows = Vec::new();
    for new_kinds in [true, false] {
        for &nodes in &args.nodes {
            let (base, _) = decisions(&default, (nodes, args.pods), new_kinds);
            let (took, failed) = decisions(&with, (nodes, args.pods), new_kinds);
            rows.push(Row { nodes, new_kinds, default: base, with: took, failed });
        }
    }
    match args.output {
        Format::Json => say::line(&serde_json::to_string(&rows)?),
        Format::Yaml => say::line(serde_saphyr::to_string(&rows)?.trim_end()),
        Format::Text => {
            say::line("KINDS OF PODS   NODES   DEFAULT (us)   WITH FILE (us)   ADDED (us)   NOT PLACED");
            for Row { nodes, new_kinds, default, with, failed } in rows {
                let kinds = if new_kinds { "new" } else { "known" };
                let added = with - default;
                say::line(&format!(
                    "{kinds:<15} {nodes:>5}   {default:>12.1}   {with:>14.1}   {added:>10.1}   {failed:>10}"
                ));
            }
        }
    }
    Ok(())
}

/// A configuration with one guest.
fn configuration(file: &Path, config: Option<&Path>) -> anyhow::Result<String> {
    let absolute = std::fs::canonicalize(file)?;
    let read = |path: &Path| std::fs::read_to_string(path).with_context(|| path.display().to_string());
    let config = config.map(read).transpose()?.unwrap_or_default();
    let args = json!({"guestURL": format!("file://{}", absolute.display()), "guestConfig": config});
    let profile = json!({
        "plugins": {"multiPoint": {"enabled": [{"name": "guest"}]}},
        "pluginConfig": [{"name": "guest", "args": args}],
    });
    let (api_version, kind) = ("kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration");
    Ok(json!({"apiVersion": api_version, "kind": kind, "profiles": [profile]}).to_string())
}

/// The median of decisions, and how many pods got no node.
fn decisions(config: &Config, (nodes, pods): (usize, usize), new_kinds: bool) -> (f64, usize) {
    let name = config.profiles.first().map_or("", |profile| profile.scheduler_name.as_str());
    let config = Config { decisions_per_step: 1, extenders: Vec::new(), ..config.clone() };
    let mut scheduler = Scheduler::new(config.clone());
    for i in 0..nodes {
        scheduler.handle_object(Time::default(), &ObjectEvent::NodeUpsert(Box::new(node(i))));
    }
    let (mut took, mut failed) = (Vec::new(), 0);
    for i in 0..pods + WARM_UP {
        let now = Time::from_seconds(1);
        let pod = pod(name, i, new_kinds);
        let uid = pod.uid.clone();
        scheduler.handle_object(now, &ObjectEvent::PodUpsert(Box::new(pod)));
        let mut bound = false;
        let began = Instant::now();
        scheduler.decide(now, &mut |action| bound |= matches!(action, Action::Bind { .. }));
        took.push(began.elapsed().as_secs_f64() * 1e6);
        match bound {
            true => scheduler.handle(now, Event::Bound(uid)),
            false => {
                failed += 1;
                scheduler.handle_object(now, &ObjectEvent::PodDelete(uid));
            }
        }
    }
    let mut took = took.split_off(WARM_UP);
    took.sort_by(f64::total_cmp);
    (took.get(took.len() / 2).copied().unwrap_or_default(), failed)
}

fn node(i: usize) -> Node {
    let amounts = [("cpu", 64_000), ("memory", 1 << 38), ("pods", 110), ("nvidia.com/gpu", 8)];
    let labels = [
        ("kubernetes.io/hostname", format!("node-{i}")),
        ("topology.kubernetes.io/zone", format!("zone-{}", i % 3)),
    ];
    Node {
        uid: format!("uid-{i}"),
        name: format!("node-{i}"),
        labels: labels.map(|(key, value)| (key.to_owned(), value)).into(),
        allocatable: amounts.map(|(key, amount)| (key.to_owned(), amount)).into(),
        ..Node::default()
    }
}

fn pod(scheduler: &str, i: usize, new_kinds: bool) -> Pod {
    let name = format!("pod-{i}");
    let mut pod = Pod { uid: name.clone(), namespace: "default".into(), name, ..Pod::default() };
    scheduler.clone_into(&mut pod.spec.scheduler_name);
    let cpu = 100 + if new_kinds { i64::try_from(i).unwrap_or(0) } else { 0 };
    let requests = [("cpu".to_owned(), cpu), ("memory".to_owned(), 1 << 27)].into();
    pod.spec.containers = vec![Container { name: "main".into(), requests, ..Container::default() }];
    pod
}

//! The rows: what each one does.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;

use super::client::{JSON, PROTOBUF};
use super::load::{self, Shot, pods};
use super::objects;
use super::place::{Place, Storage, What};
use super::report::{Row, rss};
use super::upstream::Upstream;
use crate::cli;

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What `--rows` calls it.
    pub name: &'static str,
    /// Whether it can be measured on another API server.
    pub anywhere: bool,
    /// Whether it can be measured on a kube-apiserver that is started for it.
    pub upstream: bool,
    kind: Kind,
    /// Objects (at scale 1).
    size: usize,
    /// What it shall reach.
    target: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Create(&'static str),
    Durable(usize),
    Bind,
    /// On so many nodes.
    Placed(usize),
    Watch(usize),
    List,
    Memory,
    Start,
}

const MIB: f64 = 1_048_576.0;
/// Nodes in the rows that need some.
const NODES: usize = 1000;

impl Case {
    const fn new(name: &'static str, kind: Kind, size: usize, target: Option<f64>) -> Self {
        let anywhere = !matches!(kind, Kind::Durable(_) | Kind::Memory | Kind::Start);
        // Created to bound has not been seen to work on a kube-apiserver of its own yet.
        let upstream = (anywhere && !matches!(kind, Kind::Placed(_))) || matches!(kind, Kind::Durable(_));
        Self { name, anywhere, upstream, kind, size, target }
    }

    /// All of them, in the order of the table.
    pub fn all() -> Vec<Self> {
        vec![
            Self::new("create-json", Kind::Create(JSON), 30_000, Some(6_000.0)),
            Self::new("create-protobuf", Kind::Create(PROTOBUF), 30_000, Some(8_000.0)),
            Self::new("durable-16", Kind::Durable(16), 15_000, None),
            Self::new("durable-1", Kind::Durable(1), 1_000, Some(5.0)),
            Self::new("bind", Kind::Bind, 30_000, Some(10_000.0)),
            Self::new("placed-10000", Kind::Placed(NODES), 10_000, None),
            Self::new("placed-50000", Kind::Placed(NODES), 50_000, Some(5_000.0)),
            Self::new("placed-15000-nodes", Kind::Placed(15_000), 50_000, None),
            Self::new("watch-50", Kind::Watch(50), 4_000, None),
            Self::new("watch-100", Kind::Watch(100), 4_000, Some(100_000.0)),
            Self::new("list-50000", Kind::List, 50_000, Some(0.5)),
            Self::new("memory-10000", Kind::Memory, 10_000, None),
            Self::new("memory-100000", Kind::Memory, 100_000, Some(1536.0)),
            Self::new("start-100000", Kind::Start, 100_000, Some(3.0)),
        ]
    }
}

/// What a row is measured with.
struct Bench<'a> {
    args: &'a cli::BenchApi,
    case: &'a Case,
    /// Objects.
    size: usize,
    _scratch: Option<Scratch>,
    storage: Storage,
    /// The kube-apiserver that is measured instead.
    upstream: Option<Upstream>,
}

/// A directory that goes away with this.
pub struct Scratch(pub PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Measures one row.
pub async fn run(case: &Case, args: &cli::BenchApi) -> anyhow::Result<Vec<Row>> {
    let parent = args.data.clone().unwrap_or_else(std::env::temp_dir);
    let dir = parent.join(format!("plimsoll-bench-{}-{}", case.name, std::process::id()));
    let durable = matches!(case.kind, Kind::Durable(_));
    let usual = if durable { cli::Durability::Durable } else { cli::Durability::Relaxed };
    let durability = args.durability.unwrap_or(usual);
    let upstream = match &args.kube_apiserver {
        Some(assets) => {
            let dir = dir.with_extension("upstream");
            Some(Upstream::start(assets, dir, durability == cli::Durability::Durable).await?)
        }
        None => None,
    };
    let bench = Bench {
        args,
        case,
        size: ((case.size as f64 * args.scale) as usize).max(1),
        _scratch: args.server.is_none().then(|| Scratch(dir.clone())),
        storage: Storage { data: Some(dir), durability },
        upstream,
    };
    match case.kind {
        Kind::Create(format) => create(&bench, format, usize::from(args.connections)).await,
        Kind::Durable(connections) => create(&bench, JSON, connections).await,
        Kind::Bind => bind(&bench).await,
        Kind::Placed(nodes) => super::engine::placed(&bench.place(true).await?, bench.size, nodes, args)
            .await
            .map(|row| vec![Row { target: case.target, ..row }]),
        Kind::Watch(watchers) => watch(&bench, watchers).await,
        Kind::List => list(&bench).await,
        Kind::Memory => memory(&bench).await,
        Kind::Start => start(&bench).await,
    }
}

impl Bench<'_> {
    async fn place(&self, engine: bool) -> anyhow::Result<Place> {
        let other = self.upstream.as_ref().map(|u| &u.kubeconfig);
        match self.args.server.as_ref().or(other) {
            Some(kubeconfig) => Place::other(kubeconfig).await,
            None => Place::own(&self.storage, if engine { What::Placement } else { What::Api }).await,
        }
    }

    /// Puts pods in, as fast as it goes.
    async fn fill(&self, place: &Place, count: usize) -> anyhow::Result<()> {
        let progress = load::bar(self.args.quiet, count, "filling");
        load::post(&place.target, 16, JSON, pods(place, 0..count, JSON), &progress).await?;
        Ok(())
    }
}

async fn create(b: &Bench<'_>, format: &'static str, connections: usize) -> anyhow::Result<Vec<Row>> {
    let place = b.place(false).await?;
    // Warm: the first requests of a kind build tables.
    let warm = load::bar(true, 0, "");
    load::post(&place.target, connections, format, pods(&place, 900_000..900_500, format), &warm).await?;
    let progress = load::bar(b.args.quiet, b.size, b.case.name);
    let done =
        load::post(&place.target, connections, format, pods(&place, 0..b.size, format), &progress).await?;
    place.end().await?;
    let word = if format == PROTOBUF { "protobuf" } else { "JSON" };
    let durability = match (&b.args.server, b.storage.durability) {
        (Some(_), _) => "",
        (None, cli::Durability::Durable) => ", fsync",
        (None, cli::Durability::Relaxed) => ", relaxed",
    };
    let what = format!("create pods, {connections} connections, {word}{durability}");
    let (p50, p99) = (done.quantile_ms(0.5), done.quantile_ms(0.99));
    let row = match b.case.kind {
        Kind::Durable(1) => Row::less(format!("{what}: p99 of the answer"), p99, "ms", b.case.target)
            .with("perSecond", done.rate()),
        _ => Row::more(what, done.rate(), "/s", b.case.target).with("p99ms", p99),
    };
    Ok(vec![row.with("p50ms", p50).with("maxMs", done.quantile_ms(1.0))])
}

async fn bind(b: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let place = b.place(false).await?;
    b.fill(&place, b.size).await?;
    let shots = (0..b.size).map(|i| Shot {
        path: format!("{}/{}/binding", place.pods(), objects::pod_name(i)),
        body: objects::binding(&place.namespace, i, NODES),
    });
    let progress = load::bar(b.args.quiet, b.size, b.case.name);
    let done =
        load::post(&place.target, usize::from(b.args.connections), JSON, shots.collect(), &progress).await?;
    place.end().await?;
    let what = format!("bindings, {} connections, JSON", b.args.connections);
    let row = Row::more(what, done.rate(), "/s", b.case.target);
    Ok(vec![row.with("p50ms", done.quantile_ms(0.5)).with("p99ms", done.quantile_ms(0.99))])
}

/// Time that watchers get to see the last events.
const CATCH_UP: Duration = Duration::from_secs(60);

async fn watch(b: &Bench<'_>, watchers: usize) -> anyhow::Result<Vec<Row>> {
    let place = b.place(false).await?;
    let delivered = Arc::new(AtomicU64::new(0));
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..watchers {
        let mut connection = place.target.connect().await?;
        let mut body = connection.watch("/api/v1/pods?watch=true&timeoutSeconds=3600").await?;
        let delivered = Arc::clone(&delivered);
        readers.spawn(async move {
            let _connection = connection;
            while let Some(Ok(frame)) = body.frame().await {
                if let Some(data) = frame.data_ref() {
                    let lines = data.iter().filter(|b| **b == b'\n').count();
                    delivered.fetch_add(lines as u64, Ordering::Relaxed);
                }
            }
        });
    }
    // What was there before is not part of it.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let before = delivered.load(Ordering::Relaxed);
    let expected = before + (b.size * watchers) as u64;
    let progress = load::bar(b.args.quiet, b.size, b.case.name);
    let began = Instant::now();
    let done = load::post(&place.target, 1, JSON, pods(&place, 0..b.size, JSON), &progress).await?;
    let deadline = Instant::now() + CATCH_UP;
    while delivered.load(Ordering::Relaxed) < expected && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let elapsed = began.elapsed().as_secs_f64();
    let events = delivered.load(Ordering::Relaxed).saturating_sub(before);
    let missing = expected.saturating_sub(before + events);
    anyhow::ensure!(missing == 0, "{missing} of {} events were not delivered", expected - before);
    readers.shutdown().await;
    place.end().await?;
    let what = format!("one writer, {watchers} watchers of all pods");
    let row = Row::more(what, events as f64 / elapsed, "events/s", b.case.target);
    Ok(vec![row.with("writesPerSecond", done.rate()).with("writeP99ms", done.quantile_ms(0.99))])
}

async fn list(b: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let place = b.place(false).await?;
    b.fill(&place, b.size).await?;
    let mut connection = place.target.connect().await?;
    let mut times = Vec::new();
    let mut bytes = 0;
    for _ in 0..5 {
        let began = Instant::now();
        bytes = connection.count(&place.pods()).await?;
        times.push(began.elapsed().as_secs_f64());
    }
    let began = Instant::now();
    let pages = pages(&place, &mut connection).await?;
    let paged = began.elapsed().as_secs_f64();
    place.end().await?;
    times.sort_unstable_by(f64::total_cmp);
    let median = times.get(times.len() / 2).copied().unwrap_or(f64::NAN);
    let row = Row::less(format!("list of {} pods, JSON (median of 5)", b.size), median, "s", b.case.target);
    let row = row.with("worst", times.last().copied().unwrap_or(f64::NAN)).with("MiB", bytes as f64 / MIB);
    Ok(vec![row.with("inPagesOf500", paged).with("pages", pages as f64)])
}

/// Reads all pods in pages, as kubectl does.
async fn pages(place: &Place, connection: &mut super::client::Connection) -> anyhow::Result<usize> {
    #[derive(serde::Deserialize)]
    struct Page {
        metadata: Meta,
    }
    #[derive(serde::Deserialize)]
    struct Meta {
        #[serde(rename = "continue", default)]
        next: String,
    }
    let (mut next, mut pages) = (String::new(), 0);
    loop {
        let path = format!("{}?limit=500&continue={next}", place.pods());
        let body = connection.send(Method::GET, &path, JSON, Bytes::new()).await?;
        pages += 1;
        next = serde_json::from_slice::<Page>(&body)?.metadata.next;
        if next.is_empty() {
            return Ok(pages);
        }
    }
}

async fn memory(b: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let idle = rss().context("no /proc/self/status here")?;
    let place = b.place(false).await?;
    // In parts, so that the load's own bodies don't count.
    const PART: usize = 5_000;
    let progress = load::bar(b.args.quiet, b.size, b.case.name);
    for from in (0..b.size).step_by(PART) {
        let to = (from + PART).min(b.size);
        load::post(&place.target, 16, JSON, pods(&place, from..to, JSON), &load::bar(true, 0, "")).await?;
        progress.set_position(to as u64);
    }
    progress.finish_and_clear();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let full = rss().context("no /proc/self/status here")?;
    let bytes = place.server().map_or(0, |s| s.store().metrics().object_bytes);
    place.end().await?;
    let row =
        Row::less(format!("memory with {} pods stored", b.size), full as f64 / MIB, "MiB", b.case.target);
    Ok(vec![row.with("idleMiB", idle as f64 / MIB).with("objectsMiB", bytes as f64 / MIB)])
}

async fn start(b: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let place = b.place(false).await?;
    b.fill(&place, b.size).await?;
    let storage = b.storage.clone();
    place.end().await?;
    let file: u64 = directory_size(storage.data.as_deref());
    let began = Instant::now();
    let place = Place::own(&storage, What::Api).await?;
    // Ready means that a client has been answered.
    let mut connection = place.target.connect().await?;
    connection.send(Method::GET, "/readyz", JSON, Bytes::new()).await?;
    let took = began.elapsed().as_secs_f64();
    let found = place.server().map_or(0, |s| s.store().metrics().objects);
    anyhow::ensure!(found >= b.size as u64, "{found} of {} objects are there after the start", b.size);
    place.end().await?;
    let row = Row::less(format!("start with {} stored objects", b.size), took, "s", b.case.target);
    Ok(vec![row.with("onDiskMiB", file as f64 / MIB)])
}

fn directory_size(dir: Option<&std::path::Path>) -> u64 {
    let entries = dir.and_then(|d| std::fs::read_dir(d).ok()).into_iter().flatten();
    entries.filter_map(|e| e.ok()?.metadata().ok()).map(|m| m.len()).sum()
}

//! Nothing acknowledged is lost: kills, full disks, two processes.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use plimsoll_apiserver::store::{Durability, Expected, Key, OpenError, Store, StoreError, Write};
use serde_json::json;

use crate::support::Disk;

/// Set for the process that writes until it is killed.
const CHILD_DIR: &str = "PLIMSOLL_DURABILITY_CHILD";
/// Kills of a usual run; `PLIMSOLL_KILLS` asks for another number.
const KILLS: u32 = 200;
const WRITERS: u32 = 8;

struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("plimsoll-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn key(name: &str) -> Key {
    Key::new("/configmaps", "default", name)
}

fn object(name: &str, value: u64) -> serde_json::Value {
    // Sizes around redb's page, so that rows move about.
    let filling = "x".repeat((value % 7 * 900) as usize);
    json!({"kind": "ConfigMap", "metadata": {"name": name, "uid": "u"}, "value": value, "data": filling})
}

async fn put(store: &Store, name: &str, value: u64) -> Result<u64, StoreError> {
    let write = Write::put(key(name), Expected::Anything, &object(name, value))?;
    store.commit(write).await.map(|r| r.revision)
}

fn value_of(store: &Store, name: &str) -> Option<u64> {
    store.get(&key(name)).map(|r| r.value().unwrap()["value"].as_u64().unwrap())
}

/// Not a test of its own: the process that `survives_sigkill` kills. Prints `revision name value` after each
/// acknowledgement; the value `gone` for a deletion.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_writes_until_killed() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let store = Store::open(&PathBuf::from(dir), Durability::Durable).unwrap();
    let out = Arc::new(Mutex::new(io::stdout()));
    let tasks: Vec<_> = (0..WRITERS)
        .map(|w| {
            let (store, out) = (store.clone(), Arc::clone(&out));
            tokio::spawn(async move {
                for n in 0..u64::MAX {
                    let name = format!("w{w}-{}", n % 5);
                    let deleting = n % 11 == 10 && store.get(&key(&name)).is_some();
                    let (revision, value) = if deleting {
                        let write = Write::delete(key(&name), Expected::Present);
                        (store.commit(write).await.unwrap().revision, "gone".to_owned())
                    } else {
                        (put(&store, &name, n).await.unwrap(), n.to_string())
                    };
                    let mut out = out.lock().unwrap();
                    writeln!(out, "ack {revision} {name} {value}").unwrap();
                    out.flush().unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// Newest acknowledged write of each name: revision and value.
type Acks = BTreeMap<String, (u64, Option<u64>)>;

fn run_and_kill(dir: &PathBuf, after: Duration, acks: &mut Acks) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "durability::child_writes_until_killed", "--nocapture", "--test-threads=1"])
        .env(CHILD_DIR, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let out = child.stdout.take().unwrap();
    let reader =
        std::thread::spawn(move || BufReader::new(out).lines().map_while(Result::ok).collect::<Vec<_>>());
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    for line in reader.join().unwrap() {
        // The first acknowledgement may follow the harness's own words on its line.
        let Some((_, ack)) = line.split_once("ack ") else { continue };
        let parts: Vec<_> = ack.split(' ').collect();
        let [revision, name, value] = parts.as_slice() else { continue };
        let entry = acks.entry((*name).to_owned()).or_default();
        let revision = revision.parse().unwrap();
        if revision > entry.0 {
            *entry = (revision, value.parse().ok());
        }
    }
}

#[tokio::test]
async fn survives_sigkill() {
    let dir = TempDir::new("sigkill");
    let mut acks = Acks::new();
    let (mut total, mut last) = (0, 0);
    let kills = std::env::var("PLIMSOLL_KILLS").ok().and_then(|k| k.parse().ok()).unwrap_or(KILLS);
    for round in 0..kills {
        let before: u64 = acks.values().map(|a| a.0).max().unwrap_or(0);
        // From before the first write to well into the run, differently each time.
        let jitter =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos();
        run_and_kill(&dir.0, Duration::from_millis(60 + u64::from(jitter % 240)), &mut acks);
        let store = reopen(&dir.0, Durability::Durable).await.unwrap();
        for (name, (revision, value)) in &acks {
            let found = store.get(&key(name)).map(|r| r.revision);
            match value {
                // A later write may have been stored without its acknowledgement getting out.
                Some(value) if found == Some(*revision) => assert_eq!(value_of(&store, name), Some(*value)),
                Some(_) => assert!(
                    found.is_none_or(|f| f > *revision) && store.current_revision() > *revision,
                    "round {round}: {name} acknowledged at {revision}, found {found:?}"
                ),
                None => assert!(found.is_none_or(|f| f > *revision), "{name} is back: {found:?}"),
            }
        }
        let newest = acks.values().map(|a| a.0).max().unwrap_or(0);
        assert!(store.current_revision() >= newest.max(last), "the revision went back");
        last = store.current_revision();
        total += newest.saturating_sub(before);
        // The window starts empty: what happened before is expired, not silently missing.
        let resource: Arc<str> = "/configmaps".into();
        assert!(store.watch(&resource, None, last).is_ok());
        assert!(matches!(store.watch(&resource, None, last - 1), Err(StoreError::Expired { .. })));
        store.close().await;
    }
    assert!(total > u64::from(kills) * 5, "too few writes to mean anything: {total}");
}

async fn until_well(store: &Store) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while store.journal_error().is_some() {
        assert!(Instant::now() < deadline, "the journal did not recover: {:?}", store.journal_error());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_writes_and_nothing_else() {
    let disk = Disk::default();
    disk.set_room(u64::MAX);
    let store = Store::open_with(disk.opener(), Durability::Durable).unwrap();
    let mut acknowledged: BTreeMap<String, u64> = BTreeMap::new();
    let mut refused = 0;
    for round in 0..6u64 {
        // Differently far into a transaction each time.
        disk.set_room(40_000 + round * 7_777);
        for n in 0..400u64 {
            let name = format!("n{}", n % 23);
            let value = round * 1000 + n;
            match put(&store, &name, value).await {
                Ok(_) => {
                    acknowledged.insert(name, value);
                }
                Err(e) => {
                    assert!(matches!(e, StoreError::Journal(_)), "{e}");
                    let shown = e.to_api("", "configmaps", "x");
                    assert_eq!((shown.code, shown.reason.as_str()), (500, "InternalError"));
                    assert!(shown.message.contains("journal"), "{}", shown.message);
                    refused += 1;
                    break;
                }
            }
        }
        // Reads show what was acknowledged, and a watch of all this shows it too.
        for (name, value) in &acknowledged {
            assert_eq!(value_of(&store, name), Some(*value));
        }
        disk.set_room(u64::MAX);
        until_well(&store).await;
    }
    assert_eq!(refused, 6);
    put(&store, "last", 1).await.unwrap();
    acknowledged.insert("last".to_owned(), 1);
    store.close().await;
    assert!(matches!(put(&store, "late", 1).await, Err(StoreError::Closed)));
    let revision = store.current_revision();
    let store = Store::open_with(disk.opener(), Durability::Durable).unwrap();
    assert_eq!(store.current_revision(), revision);
    assert_eq!(store.metrics().objects, acknowledged.len() as u64);
    for (name, value) in &acknowledged {
        assert_eq!(value_of(&store, name), Some(*value), "{name}");
    }
}

/// To read a large file anew takes its time. Meanwhile writes are refused at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_a_journal_that_is_opened_anew() {
    let disk = Disk::default();
    disk.set_room(u64::MAX);
    let (open, opened, held) = (disk.opener(), Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (count, wait) = (Arc::clone(&opened), Arc::clone(&held));
    let opener = Box::new(move || {
        count.fetch_add(1, Ordering::SeqCst);
        while wait.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        open()
    });
    let store = Store::open_with(opener, Durability::Durable).unwrap();
    put(&store, "a", 1).await.unwrap();
    held.store(true, Ordering::SeqCst);
    disk.set_room(0);
    put(&store, "a", 2).await.unwrap_err();
    disk.set_room(u64::MAX);
    while opened.load(Ordering::SeqCst) < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let asking = store.clone();
    let asked = tokio::spawn(async move { put(&asking, "a", 3).await.is_err() });
    let deadline = Instant::now() + Duration::from_secs(5);
    while !asked.is_finished() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let answered = asked.is_finished();
    held.store(false, Ordering::SeqCst);
    assert!(answered, "the write waited for the journal");
    assert!(asked.await.unwrap(), "it was taken");
    until_well(&store).await;
    put(&store, "a", 4).await.unwrap();
}

/// The process ends while the disk is still full: what was acknowledged is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_on_a_full_disk_loses_nothing_acknowledged() {
    for room in [30_000, 50_000, 70_000, 90_000, 110_000] {
        let disk = Disk::default();
        disk.set_room(u64::MAX);
        let store = Store::open_with(disk.opener(), Durability::Durable).unwrap();
        put(&store, "first", 0).await.unwrap();
        disk.set_room(room);
        let mut acknowledged = 0;
        while put(&store, "counter", acknowledged + 1).await.is_ok() {
            acknowledged += 1;
        }
        let image = disk.bytes.lock().unwrap().clone();
        let after = Disk {
            bytes: Arc::new(Mutex::new(image)),
            room: Arc::new(AtomicU64::new(u64::MAX)),
            ..Disk::default()
        };
        let store = Store::open_with(after.opener(), Durability::Durable).unwrap();
        assert_eq!(value_of(&store, "first"), Some(0));
        let found = value_of(&store, "counter").unwrap_or(0);
        // The refused one may have made it.
        assert!(found == acknowledged || found == acknowledged + 1, "{found} of {acknowledged}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_writers_share_transactions() {
    let dir = TempDir::new("group");
    let store = reopen(&dir.0, Durability::Durable).await.unwrap();
    let tasks: Vec<_> = (0..50)
        .map(|w| {
            let store = store.clone();
            tokio::spawn(async move {
                for n in 0..20 {
                    put(&store, &format!("w{w}"), n).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let metrics = store.metrics();
    assert_eq!((metrics.commits, metrics.journal_changes), (1000, 1000));
    assert!(metrics.journal_batches < 500, "{} transactions", metrics.journal_batches);
    assert_eq!(store.current_revision(), 1001);
}

/// A write that builds on one that isn't durable yet, and one that contradicts it.
#[tokio::test]
async fn writers_see_each_other_before_readers_do() {
    let dir = TempDir::new("pending");
    let store = reopen(&dir.0, Durability::Durable).await.unwrap();
    let create = || Write::put(key("x"), Expected::Absent, &object("x", 1)).unwrap();
    let (one, two) = tokio::join!(store.commit(create()), store.commit(create()));
    assert!(one.is_ok() && matches!(two, Err(StoreError::AlreadyExists { .. })));
    let replace = |at| Write::put(key("x"), Expected::Revision(at), &object("x", 2)).unwrap();
    let (one, two, three) = tokio::join!(store.commit(replace(2)), store.commit(replace(3)), async {
        store.latest(&key("x")).map(|r| r.revision)
    });
    assert_eq!((one.unwrap().revision, two.unwrap().revision, three), (3, 4, Some(4)));
    let delete = |at| Write::delete(key("x"), Expected::Revision(at));
    let (one, two) = tokio::join!(store.commit(delete(4)), store.commit(create()));
    assert_eq!((one.unwrap().revision, two.unwrap().revision), (5, 6));
}

#[tokio::test]
async fn relaxed_writes_survive_an_orderly_end() {
    let dir = TempDir::new("relaxed");
    for round in 0..3 {
        let store = reopen(&dir.0, Durability::Relaxed).await.unwrap();
        for n in 0..100 {
            put(&store, &format!("r{round}-{n}"), n).await.unwrap();
        }
        store.close().await;
        assert_eq!(store.current_revision(), 1 + 100 * (round + 1));
    }
    let store = reopen(&dir.0, Durability::Durable).await.unwrap();
    assert_eq!((store.metrics().objects, store.current_revision()), (300, 301));
}

/// A file that is mostly holes gets smaller while the store is idle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_journal_is_compacted() {
    const OBJECTS: usize = 600;
    let dir = TempDir::new("compaction");
    let store = reopen(&dir.0, Durability::Durable).await.unwrap();
    let size = || std::fs::metadata(dir.0.join("plimsoll.redb")).unwrap().len();
    let filling = "x".repeat(200_000);
    let puts = (0..OBJECTS).map(|n| {
        let object = serde_json::json!({"metadata": {"name": format!("c{n}")}, "filling": filling});
        store.commit(Write::put(key(&format!("c{n}")), Expected::Absent, &object).unwrap())
    });
    for done in futures::future::join_all(puts).await {
        done.unwrap();
    }
    let full = size();
    assert!(full > 100 << 20, "{full}");
    // One of sixty stays, so that the holes are everywhere.
    let stays = |n: usize| n % 60 == 59;
    let holes = (0..OBJECTS).filter(|n| !stays(*n));
    let deletes = holes.map(|n| store.commit(Write::delete(key(&format!("c{n}")), Expected::Present)));
    for done in futures::future::join_all(deletes).await {
        done.unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(30);
    while size() > full / 4 {
        assert!(Instant::now() < deadline, "not compacted: {} of {full} bytes", size());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    put(&store, "after", 7).await.unwrap();
    store.close().await;
    let store = reopen(&dir.0, Durability::Durable).await.unwrap();
    assert_eq!(value_of(&store, "after"), Some(7));
    for n in 0..OBJECTS {
        assert_eq!(store.get(&key(&format!("c{n}"))).is_some(), stays(n), "c{n}");
    }
}

#[tokio::test]
async fn a_directory_has_one_owner() {
    let dir = TempDir::new("lock");
    let store = reopen(&dir.0, Durability::Durable).await.unwrap();
    let second = Store::open(&dir.0, Durability::Durable).map(|_| ()).unwrap_err();
    assert!(matches!(second, OpenError::InUse { .. }));
    let expected = format!("is in use by another process (pid {})", std::process::id());
    assert!(second.to_string().ends_with(&expected), "{second}");
    store.close().await;
    drop(store);
    assert!(reopen(&dir.0, Durability::Durable).await.is_ok());
}

/// Opens a store that was just given up: a child that another test forks at this moment has its lock until it executes
/// its program.
async fn reopen(dir: &Path, durability: Durability) -> Result<Store, OpenError> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match Store::open(dir, durability) {
            Err(OpenError::InUse { .. }) if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            opened => return opened,
        }
    }
}

/// Dropping the store without `close` must let go of the directory too, and write what is queued.
#[tokio::test]
async fn a_dropped_store_writes_what_it_owes() {
    let dir = TempDir::new("drop");
    let store = reopen(&dir.0, Durability::Relaxed).await.unwrap();
    for n in 0..50 {
        put(&store, &format!("n{n}"), n).await.unwrap();
    }
    drop(store);
    let store = reopen(&dir.0, Durability::Relaxed).await.unwrap();
    assert_eq!((store.metrics().objects, store.current_revision()), (50, 51));
}

/// What a process leaves that is killed while it creates the journal, now and in versions that created it in place.
#[tokio::test]
async fn what_an_unfinished_first_start_left_is_removed() {
    let fresh = TempDir::new("fresh");
    Store::open(&fresh.0, Durability::Durable).unwrap().close().await;
    let whole = std::fs::read(fresh.0.join("plimsoll.redb")).unwrap();
    let mut header = vec![0; whole.len()];
    header[9..320].copy_from_slice(&whole[9..320]);
    let states: [(&str, &[u8]); 6] = [
        ("plimsoll.redb.new", b""),
        ("plimsoll.redb.new", &header),
        ("plimsoll.redb.new", &whole[..5000]),
        ("plimsoll.redb", b""),
        ("plimsoll.redb", &vec![0; whole.len()]),
        ("plimsoll.redb", &header),
    ];
    for (n, (name, left)) in states.into_iter().enumerate() {
        let dir = TempDir::new(&format!("unfinished-{n}"));
        std::fs::create_dir_all(&dir.0).unwrap();
        std::fs::write(dir.0.join(name), left).unwrap();
        for round in 1..3 {
            let store =
                reopen(&dir.0, Durability::Durable).await.unwrap_or_else(|e| panic!("{name} {n}: {e}"));
            put(&store, &format!("o{round}"), 1).await.unwrap();
            assert_eq!(store.metrics().objects, round);
            store.close().await;
        }
        assert!(!dir.0.join("plimsoll.redb.new").exists());
    }
}

#[tokio::test]
async fn a_damaged_journal_is_refused_and_stays_as_it_is() {
    let dir = TempDir::new("garbage");
    let store = reopen(&dir.0, Durability::Durable).await.unwrap();
    put(&store, "x", 1).await.unwrap();
    store.close().await;
    drop(store);
    let path = dir.0.join("plimsoll.redb");
    let whole = std::fs::read(&path).unwrap();
    let mut without_magic = whole.clone();
    without_magic[..9].fill(0);
    let mut other_magic = whole.clone();
    other_magic[0] = b'x';
    for damaged in [vec![0x5a; 20_000], without_magic, other_magic, whole[..4096].to_vec()] {
        std::fs::write(&path, &damaged).unwrap();
        let error = Store::open(&dir.0, Durability::Durable).map(|_| ()).unwrap_err();
        assert!(matches!(error, OpenError::Journal(_)), "{error}");
        let shown = error.to_string();
        assert!(shown.contains("plimsoll.redb: ") && shown.contains("restore it"), "{shown}");
        assert!(std::fs::read(&path).unwrap() == damaged, "the damaged journal was changed");
    }
    std::fs::write(&path, &whole).unwrap();
    assert_eq!(value_of(&reopen(&dir.0, Durability::Durable).await.unwrap(), "x"), Some(1));
    let file = dir.0.join("a-file");
    std::fs::write(&file, "x").unwrap();
    let error = Store::open(&file, Durability::Durable).map(|_| ()).unwrap_err();
    assert!(matches!(error, OpenError::Directory { .. }), "{error}");
}

/// The start of a store with 100,000 objects of 2 KiB. Prints its time; the bound is for optimised builds.
#[tokio::test]
async fn a_large_store_opens_quickly() {
    if std::env::var_os("PLIMSOLL_LARGE").is_none() {
        println!("skipped: takes a while; set PLIMSOLL_LARGE=1 and use --release");
        return;
    }
    const OBJECTS: u64 = 100_000;
    let dir = TempDir::new("large");
    let store = reopen(&dir.0, Durability::Relaxed).await.unwrap();
    let begun = Instant::now();
    for n in 0..OBJECTS {
        let name = format!("object-{n}");
        let labels = json!({"app": "x", "n": n.to_string()});
        let object = json!({"metadata": {"name": name, "uid": format!("uid-{n}"), "labels": labels}, "data": "x".repeat(1900)});
        store.commit(Write::put(key(&name), Expected::Absent, &object).unwrap()).await.unwrap();
    }
    store.close().await;
    println!("written in {:?}", begun.elapsed());
    drop(store);
    let begun = Instant::now();
    let store = reopen(&dir.0, Durability::Durable).await.unwrap();
    let took = begun.elapsed();
    println!("opened in {took:?}");
    assert_eq!(store.metrics().objects, OBJECTS);
    assert!(cfg!(debug_assertions) || took < Duration::from_secs(3));
}

//! The data directory of `plimsoll up`, and how the process begins and ends with it.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Up, binary, directory, process};
use futures::AsyncBufReadExt as _;
use plimsoll_api::json;
use plimsoll_runtime::api::{NODES, Resource};
use serde_json::json;

const MAPS: Resource = Resource { api_version: "v1", plural: "configmaps", kind: "ConfigMap" };
const BARE: [&str; 5] = ["--nodes", "0", "--no-queueing", "--no-placement", "--data"];

/// A directory that goes with the test.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        Self(directory())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn data(&self) -> String {
        self.path("data").display().to_string()
    }

    /// Starts with the store in `data`; the kubeconfig is elsewhere.
    async fn up(&self, more: &[&str]) -> Up {
        let data = self.data();
        let args: Vec<&str> = BARE.into_iter().chain([data.as_str()]).chain(more.iter().copied()).collect();
        Up::start(&args).await
    }

    /// Starts and expects the end; what is on stderr.
    fn refused(&self, more: &[&str]) -> String {
        let output =
            binary().arg("up").args(BARE).arg(self.data()).args(["--port", "0"]).args(more).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args([name, &pid.to_string()]).status().unwrap().success());
}

async fn client(kubeconfig: &Path) -> kube::Client {
    let file = kube::config::Kubeconfig::read_from(kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

/// Writes from several clients until the server has gone; the names that were acknowledged.
async fn write_until_gone(up: &Up, prefix: &str, enough: usize, pid: u32) -> Vec<String> {
    let count = Arc::new(AtomicUsize::new(0));
    let writers = (0..8).map(|w| {
        let (api, count, prefix) = (up.api.clone(), Arc::clone(&count), prefix.to_owned());
        tokio::spawn(async move {
            let mut acknowledged = Vec::new();
            for n in 0.. {
                let name = format!("{prefix}-{w}-{n}");
                let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
                                 "metadata": {"name": name, "namespace": "default"}});
                if api.create(MAPS, &map).await.is_err() {
                    break;
                }
                acknowledged.push(name);
                if count.fetch_add(1, Ordering::SeqCst) + 1 == enough {
                    signal(pid, "-TERM");
                }
            }
            acknowledged
        })
    });
    futures::future::join_all(writers).await.into_iter().flat_map(Result::unwrap).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_with_relaxed_durability_keeps_acknowledged_writes() {
    let dir = Dir::new();
    let mut all = Vec::new();
    for round in 0..4 {
        let mut up = dir.up(&["--durability", "relaxed"]).await;
        all.extend(write_until_gone(&up, &format!("r{round}"), 150 + 50 * round, up.pid()).await);
        assert_eq!(up.wait(), Some(0));
        let up = dir.up(&["--durability", "relaxed"]).await;
        let found = up.list(MAPS).await;
        let found: std::collections::BTreeSet<&str> = found.iter().map(json::name).collect();
        let lost: Vec<_> = all.iter().filter(|name| !found.contains(name.as_str())).collect();
        assert!(lost.is_empty(), "round {round}: {} of {} lost: {lost:?}", lost.len(), all.len());
    }
}

/// Kills first starts at times from before the first instruction to well after the first answer.
#[tokio::test]
async fn a_first_start_that_is_killed_does_not_spoil_the_directory() {
    const KILLS: u32 = 12;
    let began = Instant::now();
    drop(Dir::new().up(&[]).await);
    let whole = began.elapsed();
    for kill in 0..KILLS {
        let dir = Dir::new();
        let mut child = binary()
            .arg("up")
            .args(BARE)
            .arg(dir.data())
            .args(["--port", "0"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(whole * kill / KILLS);
        process::kill(&mut child);
        dir.up(&[]).await.list(NODES).await;
    }
}

#[tokio::test]
async fn a_second_process_on_the_same_data_changes_nothing() {
    let dir = Dir::new();
    let data = dir.data();
    let kubeconfig = dir.path("data").join("kubeconfig");
    let shown = kubeconfig.display().to_string();
    let up =
        Up::start_with(dir.path(""), &kubeconfig, &["--nodes", "0", "--no-scheduler", "--data", &data]).await;
    let files = |name: &str| std::fs::read(dir.path("data").join(name)).unwrap();
    let before = (files("kubeconfig"), files("pki/server.crt"));
    let error = dir.refused(&["--bind", "127.0.0.2", "--kubeconfig", &shown]);
    let holder = format!("is in use by another process (pid {})", up.pid());
    assert!(error.contains(&holder) && error.contains(&format!("--data {data}")), "{error}");
    assert!(before == (files("kubeconfig"), files("pki/server.crt")), "a refused process has written");
    up.list(NODES).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn another_bind_address_gets_a_certificate_that_names_it() {
    let dir = Dir::new();
    let mut up = dir.up(&[]).await;
    let old = kube::config::Kubeconfig::read_from(&up.kubeconfig).unwrap();
    assert_eq!(up.interrupt(), Some(0));
    // All of 127.0.0.0/8 is the loopback interface on Linux.
    let up = dir.up(&["--bind", "127.0.0.2"]).await;
    assert!(json::text(&up.ready, &["url"]).starts_with("https://127.0.0.2:"), "{}", up.ready);
    up.list(NODES).await;
    // Credentials that were handed out before are good for the new address.
    let mut old = old;
    let url = json::text(&up.ready, &["url"]).to_owned();
    old.clusters[0].cluster.as_mut().unwrap().server = Some(url);
    let config = kube::Config::from_custom_kubeconfig(old, &Default::default()).await.unwrap();
    kube::Client::try_from(config).unwrap().apiserver_version().await.unwrap();
}

#[tokio::test]
async fn damaged_credentials_are_named_with_the_way_out() {
    let dir = Dir::new();
    dir.up(&[]).await.interrupt();
    for name in ["ca.crt", "ca.key", "server.crt", "server.key", "admin.crt", "admin.key", "token", "sa.key"]
    {
        let path = dir.path("data").join("pki").join(name);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, if name == "token" { &[] } else { &whole[..80] }).unwrap();
        let error = dir.refused(&[]);
        assert!(error.contains(&format!("pki/{name}: ")) && error.contains("or remove"), "{error}");
        assert!(!error.contains("[80, 82"), "{error}");
        std::fs::write(&path, whole).unwrap();
    }
    dir.up(&[]).await.list(NODES).await;
}

#[cfg(unix)]
mod permissions {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn mode(path: &Path) -> u32 {
        path.symlink_metadata().unwrap().permissions().mode() & 0o777
    }

    fn set(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Everything under a directory, itself included.
    fn all(dir: &Path) -> Vec<PathBuf> {
        let mut found = vec![dir.to_owned()];
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                found.extend(all(&path));
            } else {
                found.push(path);
            }
        }
        found
    }

    const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n";

    #[tokio::test]
    async fn the_data_directory_is_closed_to_other_users() {
        let dir = Dir::new();
        let (data, log, policy) = (dir.path("data"), dir.path("data").join("audit.log"), dir.path("policy"));
        std::fs::write(&policy, POLICY).unwrap();
        let (log_text, policy) = (log.display().to_string(), policy.display().to_string());
        let args = ["--audit-log-path", &log_text, "--audit-policy-file", &policy];
        for round in 0..2 {
            let kubeconfig = data.join("kubeconfig");
            let text = data.display().to_string();
            let start = ["--nodes", "0", "--no-scheduler", "--data", &text];
            let start: Vec<&str> = start.into_iter().chain(args).collect();
            let mut up = Up::start_with(dir.path("gone"), &kubeconfig, &start).await;
            up.list(NODES).await;
            let open: Vec<_> = all(&data).into_iter().filter(|p| mode(p) & 0o077 != 0).collect();
            assert!(open.is_empty(), "round {round}: open to others: {open:?}");
            assert_eq!((mode(&data), mode(&log), mode(&kubeconfig)), (0o700, 0o600, 0o600));
            assert!(all(&data).len() >= 12, "{:?}", all(&data));
            assert_eq!(up.interrupt(), Some(0));
            // As earlier versions left it under the usual umask.
            for path in all(&data) {
                set(&path, if path.is_dir() { 0o755 } else { 0o644 });
            }
        }
    }

    #[tokio::test]
    async fn a_directory_with_other_things_keeps_its_permissions() {
        let dir = Dir::new();
        let data = dir.path("data");
        std::fs::create_dir_all(&data).unwrap();
        set(&data, 0o755);
        let other = data.join("notes");
        std::fs::write(&other, "x").unwrap();
        set(&other, 0o644);
        let mut up = dir.up(&[]).await;
        assert_eq!((mode(&data), mode(&other)), (0o755, 0o644));
        let open: Vec<_> = all(&data).into_iter().filter(|p| mode(p) & 0o077 != 0).collect();
        assert_eq!(open, [data.clone(), other]);
        assert_eq!(up.interrupt(), Some(0));
        std::fs::write(data.join("pki").join("token"), "").unwrap();
        let said = dir.refused(&[]);
        assert!(said.contains("it holds other things (notes)") && said.contains("chmod 700"), "{said}");
    }

    #[tokio::test]
    async fn symbolic_links_in_the_data_directory_are_not_followed() {
        let dir = Dir::new();
        let data = dir.path("data");
        std::fs::create_dir_all(&data).unwrap();
        let target = dir.path("target");
        for name in ["lock", "plimsoll.redb"] {
            std::fs::write(&target, "precious").unwrap();
            set(&target, 0o644);
            symlink(&target, data.join(name)).unwrap();
            let error = dir.refused(&[]);
            assert!(error.contains(name) && error.contains("symbolic link"), "{error}");
            assert_eq!(
                (std::fs::read_to_string(&target).unwrap().as_str(), mode(&target)),
                ("precious", 0o644)
            );
            std::fs::remove_file(data.join(name)).unwrap();
        }
        // The directory itself may be one.
        std::fs::rename(&data, dir.path("elsewhere")).unwrap();
        symlink(dir.path("elsewhere"), &data).unwrap();
        dir.up(&[]).await.list(NODES).await;
        assert_eq!(mode(&dir.path("elsewhere")), 0o700);
    }
}

#[tokio::test]
async fn a_stop_ends_watches_at_once() {
    let mut up = Up::start(&["--nodes", "1"]).await;
    let client = client(&up.kubeconfig).await;
    let mut watches = Vec::new();
    for path in ["/api/v1/nodes?watch=true", "/api/v1/pods?watch=true&allowWatchBookmarks=true"] {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        watches.push(Box::pin(client.request_stream(request).await.unwrap()).lines());
    }
    let first = futures::StreamExt::next(&mut watches[0]).await.unwrap().unwrap();
    assert!(first.contains("ADDED"), "{first}");
    let began = Instant::now();
    signal(up.pid(), "-INT");
    for watch in &mut watches {
        // The end of the stream, not a connection that breaks.
        while let Some(line) = futures::StreamExt::next(watch).await {
            line.unwrap();
        }
    }
    assert_eq!(up.wait(), Some(0));
    // Requests under way would get five seconds.
    assert!(began.elapsed() < Duration::from_millis(4500), "{:?}", began.elapsed());
}

//! What an answer shows is durable: also when the request itself writes nothing.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::{Duration, Instant};

use crate::support::Disk;
use crate::support::api::Api;
use plimsoll_apiserver::store::{Durability, Key, Store};
use plimsoll_apiserver::{Server, ServerConfig};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MAP: &str = "/api/v1/namespaces/default/configmaps/m";
const HELD: &str = "/api/v1/namespaces/default/configmaps/held";
/// Time in which an answer that doesn't wait would come.
const MOMENT: Duration = Duration::from_millis(150);

/// A server whose disk the test holds back.
struct Harness {
    api: Api,
    store: Store,
    disk: Disk,
}

fn map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": value}})
}

fn key(name: &str) -> Key {
    Key::new("/configmaps", "default", name)
}

impl Harness {
    async fn new() -> Self {
        let disk = Disk::default();
        disk.set_room(u64::MAX);
        let store = Store::open_with(disk.opener(), Durability::Durable).unwrap();
        let api = Api::of(Server::over(ServerConfig::default(), store.clone()).await.unwrap());
        assert_eq!(api.send("POST", MAPS, Some(&map("m", "1"))).await.0, 201);
        let mut held = map("held", "1");
        held["metadata"]["finalizers"] = json!(["example.com/wait"]);
        assert_eq!(api.send("POST", MAPS, Some(&held)).await.0, 201);
        Self { api, store, disk }
    }

    /// Sends a write whose sync is held back, then a request that writes nothing itself. The second has to wait for the
    /// first; the answers after `end`.
    async fn both(
        &self,
        first: (&str, &str, Option<Value>),
        second: (&str, &str, Option<Value>),
        end: impl FnOnce(&Disk),
    ) -> (u16, u16, Value) {
        let seen = |name: &str| self.store.latest(&key(name)).map(|r| r.revision);
        let before = (seen("m"), seen("held"), seen("new"));
        self.disk.hold(true);
        let one = self.api.send(first.0, first.1, first.2.as_ref());
        let two = async {
            let deadline = Instant::now() + Duration::from_secs(10);
            while (seen("m"), seen("held"), seen("new")) == before {
                assert!(Instant::now() < deadline, "the write was not taken in");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let answer = self.api.send(second.0, second.1, second.2.as_ref());
            let mut answer = std::pin::pin!(answer);
            if let Ok(early) = tokio::time::timeout(MOMENT, answer.as_mut()).await {
                self.disk.hold(false);
                panic!("answered before the write it shows was durable: {early:?}");
            }
            end(&self.disk);
            self.disk.hold(false);
            answer.await
        };
        let (one, two) = tokio::join!(one, two);
        (one.0, two.0, two.1)
    }
}

fn well(_: &Disk) {}

/// From now on every sync fails.
fn full(disk: &Disk) {
    disk.set_room(0);
}

/// The write, the request that shows it, and its answer.
type Case = (&'static str, &'static str, Option<Value>, &'static str, &'static str, Option<Value>, u16);

fn cases() -> Vec<Case> {
    let change = || Some(map("m", "2"));
    let dry = "/api/v1/namespaces/default/configmaps/m?dryRun=All";
    vec![
        ("PUT", MAP, change(), "PUT", MAP, change(), 200),
        ("PUT", MAP, change(), "PUT", dry, Some(map("m", "3")), 200),
        ("DELETE", MAP, None, "DELETE", MAP, None, 404),
        ("DELETE", MAP, None, "PUT", MAP, change(), 404),
        ("DELETE", HELD, None, "DELETE", HELD, None, 200),
        ("POST", MAPS, Some(map("new", "1")), "POST", MAPS, Some(map("new", "2")), 409),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_wait_for_the_writes_they_show() {
    for (method, path, body, method2, path2, body2, want) in cases() {
        let harness = Harness::new().await;
        let (one, two, answer) = harness.both((method, path, body), (method2, path2, body2), well).await;
        assert!((200..300).contains(&one), "{method} {path}: {one}");
        assert_eq!(two, want, "{method} {path}, {method2} {path2}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_show_a_lost_write_are_errors() {
    for (method, path, body, method2, path2, body2, _) in cases() {
        let harness = Harness::new().await;
        let (one, two, answer) = harness.both((method, path, body), (method2, path2, body2), full).await;
        assert_eq!((one, two), (500, 500), "{method} {path}, {method2} {path2}: {answer}");
        assert!(answer["message"].as_str().unwrap().contains("journal"), "{answer}");
        // Reads go on, and show what was there before.
        assert_eq!(harness.api.send("GET", MAP, None).await.1["data"]["a"], "1");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_do_not_wait_without_writes_under_way() {
    let harness = Harness::new().await;
    harness.disk.hold(true);
    let map = map("m", "1");
    let same = harness.api.send("PUT", MAP, Some(&map));
    assert_eq!(tokio::time::timeout(Duration::from_secs(10), same).await.unwrap().0, 200);
    let missing = harness.api.send("DELETE", "/api/v1/namespaces/default/configmaps/none", None);
    assert_eq!(tokio::time::timeout(Duration::from_secs(10), missing).await.unwrap().0, 404);
    harness.disk.hold(false);
}

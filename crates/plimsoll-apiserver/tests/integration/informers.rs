//! Informers on a store: each is told of every change, and states that were overtaken are left out.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use plimsoll_apiserver::store::{Expected, Key, Store, Window, Write};
use plimsoll_client::{IndexFn, Informer, Reader};
use serde_json::{Value, json};

fn reader(store: &Store) -> Arc<dyn Reader> {
    Arc::new(store.clone())
}

#[tokio::test]
async fn what_was_in_between_is_left_out_and_ends_are_not() {
    let store = Store::in_memory();
    let informer: Informer<Value> = Informer::new(&reader(&store), "/pods", |_| None);
    let key = |name: &str| Key::new("/pods", "a", name);
    let put = async |name: &str, uid: &str, n: u32| {
        let object = json!({"metadata": {"name": name, "uid": uid}, "n": n});
        store.commit(Write::put(key(name), Expected::Anything, &object).unwrap()).await.unwrap();
    };
    let log = || {
        let mut log = Vec::new();
        informer.refresh(|seen| {
            let n = |o: Option<&Arc<Value>>| o.map_or("-".to_owned(), |o| o["n"].to_string());
            log.push(format!("{} {} {}", seen.path, n(seen.old), n(seen.new)));
        });
        log
    };
    put("x", "1", 1).await;
    assert_eq!(log(), ["a/x - 1"]);
    for n in 2..5 {
        put("x", "1", n).await;
        put("y", "2", n).await;
    }
    assert_eq!(log(), ["a/x 1 4", "a/y - 4"]);
    put("x", "1", 5).await;
    store.commit(Write::delete(key("x"), Expected::Anything)).await.unwrap();
    put("x", "3", 6).await;
    put("x", "3", 7).await;
    assert_eq!(log(), ["a/x 4 5", "a/x 5 -", "a/x - 7"]);
    assert!(log().is_empty());
}

#[tokio::test]
async fn each_is_told_everything_however_late_it_looks() {
    let store = Store::in_memory();
    let all: IndexFn<Value> = |o| o["n"].as_u64().map(|n| (n % 2).to_string());
    let quick: Informer<Value> = Informer::new(&reader(&store), "/pods", all);
    let slow: Informer<Value> = Informer::new(&reader(&store), "/pods", |_| None);
    let never: Informer<Value> = Informer::new(&reader(&store), "/pods", |_| None);
    let key = |name: &str| Key::new("/pods", "a", name);
    let put = async |name: &str, n: u64| {
        let object = json!({"metadata": {"name": name, "uid": name}, "n": n});
        store.commit(Write::put(key(name), Expected::Anything, &object).unwrap()).await.unwrap();
    };
    let told = |informer: &Informer<Value>| {
        let mut log = Vec::new();
        informer.refresh(|seen| {
            let n = |o: Option<&Arc<Value>>| o.map_or("-".to_owned(), |o| o["n"].to_string());
            log.push(format!("{} {} {}", seen.path, n(seen.old), n(seen.new)));
        });
        log
    };
    assert!(told(&slow).is_empty());
    for n in 0..10_000 {
        put("x", n).await;
        if n == 5_000 {
            put("y", 1).await;
            put("y", 2).await;
            store.commit(Write::delete(key("y"), Expected::Anything)).await.unwrap();
        }
        told(&quick);
    }
    assert_eq!(quick.indexed("1").len(), 1);
    assert!(quick.indexed("0").is_empty());
    let slow = told(&slow);
    assert!(slow.len() < 8_192, "{}", slow.len());
    let of = |name: &str| slow.iter().filter(|l| l.starts_with(name)).cloned().collect::<Vec<_>>();
    assert_eq!(of("a/y").first().map(String::as_str), Some("a/y - 2"));
    assert_eq!(of("a/y").last().map(String::as_str), Some("a/y 2 -"));
    let x = of("a/x");
    assert!(x[0].starts_with("a/x - "), "{}", x[0]);
    assert!(x.windows(2).all(|w| w[0].rsplit(' ').next() == w[1].split(' ').nth(1)), "nothing is left out");
    assert!(x.last().unwrap().ends_with(" 9999"));
    assert_eq!(told(&never), ["a/x - 9999"]);
}

/// Handlers of deletions see each of them: an object with the same name and another UID is not a changed one.
#[tokio::test]
async fn a_list_after_missed_changes_reports_the_end_of_an_object_that_was_made_again() {
    let store = Store::in_memory_with(Window { changes: 4, bytes: 1 << 20 });
    let by_uid: IndexFn<Value> = |o| o["metadata"]["uid"].as_str().map(str::to_owned);
    let informer: Informer<Value> = Informer::new(&reader(&store), "/pods", by_uid);
    let key = |name: &str| Key::new("/pods", "a", name);
    let put = async |name: &str, uid: &str| {
        let object = json!({"metadata": {"name": name, "uid": uid}});
        store.commit(Write::put(key(name), Expected::Anything, &object).unwrap()).await.unwrap();
    };
    let log = || {
        let mut log = Vec::new();
        informer.refresh(|seen| {
            let uid = |o: Option<&Arc<Value>>| {
                o.map_or("-".to_owned(), |o| o["metadata"]["uid"].as_str().unwrap().to_owned())
            };
            log.push(format!("{} {} {}", seen.path, uid(seen.old), uid(seen.new)));
        });
        log
    };
    for name in ["gone", "made-again", "stays"] {
        put(name, &format!("{name}-1")).await;
    }
    assert_eq!(log().len(), 3);
    for name in ["gone", "made-again"] {
        store.commit(Write::delete(key(name), Expected::Anything)).await.unwrap();
    }
    put("made-again", "made-again-2").await;
    for n in 0..100 {
        put("busy", &n.to_string()).await;
    }
    let seen = log();
    let of = |name: &str| {
        let path = format!("a/{name} ");
        seen.iter().filter_map(|l| l.strip_prefix(&path)).collect::<Vec<_>>()
    };
    assert_eq!(of("made-again"), ["made-again-1 -", "- made-again-2"], "{seen:?}");
    assert_eq!((of("gone"), of("busy")), (vec!["gone-1 -"], vec!["- 99"]), "{seen:?}");
    assert!(informer.indexed("made-again-1").is_empty());
    assert_eq!(informer.indexed("made-again-2").len(), 1);
}

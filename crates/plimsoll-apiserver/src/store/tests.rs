use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{ChangeKind, Expected, Key, Record, Store, StoreError, View, Write};

fn pods() -> Arc<str> {
    "/pods".into()
}

fn key(namespace: &str, name: &str) -> Key {
    Key::new("/pods", namespace, name)
}

fn pod(name: &str, app: &str) -> Value {
    json!({"kind": "Pod", "metadata": {"name": name, "uid": format!("u-{name}"), "zzz": 1, "labels": {"app": app}}})
}

async fn put(store: &Store, key: Key, expected: Expected, app: &str) -> Result<Arc<Record>, StoreError> {
    let object = pod(&key.name, app);
    store.commit(Write::put(key, expected, &object)?).await
}

#[tokio::test]
async fn revision_is_stamped_into_the_object() {
    let store = Store::in_memory();
    let record = put(&store, key("a", "x"), Expected::Absent, "web").await.unwrap();
    assert_eq!(record.revision, 2);
    let value = record.value().unwrap();
    assert_eq!(value["metadata"]["resourceVersion"], "2");
    assert_eq!(value["metadata"]["zzz"], 1);
    assert_eq!(record.labels["app"], "web");
    assert_eq!(record.uid, "u-x");
    let later = record.restamped(123_456).value().unwrap();
    assert_eq!(later["metadata"]["resourceVersion"], "123456");
    // A version that the object brings is replaced, also when its metadata is empty otherwise.
    let bare = json!({"metadata": {"resourceVersion": "77"}});
    let bare = store.commit(Write::put(key("a", "bare"), Expected::Absent, &bare).unwrap()).await.unwrap();
    assert_eq!(bare.json, br#"{"metadata":{"resourceVersion":"3"}}"#.as_slice());
}

#[tokio::test]
async fn expectations_are_checked() {
    let store = Store::in_memory();
    let first = put(&store, key("a", "x"), Expected::Absent, "1").await.unwrap();
    let again = put(&store, key("a", "x"), Expected::Absent, "1").await.unwrap_err();
    assert!(matches!(again, StoreError::AlreadyExists { current } if current.revision == first.revision));
    let second = put(&store, key("a", "x"), Expected::Revision(first.revision), "2").await.unwrap();
    let stale = put(&store, key("a", "x"), Expected::Revision(first.revision), "3").await.unwrap_err();
    assert!(matches!(stale, StoreError::Conflict { current } if current.revision == second.revision));
    for expected in [Expected::Present, Expected::Revision(1)] {
        let absent = put(&store, key("a", "y"), expected, "1").await.unwrap_err();
        assert!(matches!(absent, StoreError::NotFound));
    }
    let gone = store.commit(Write::delete(key("a", "y"), Expected::Anything)).await.unwrap_err();
    assert!(matches!(gone, StoreError::NotFound));
    assert!(put(&store, key("a", "y"), Expected::Anything, "1").await.is_ok());
    assert_eq!(store.metrics().conflicts, 5);
}

#[tokio::test]
async fn lists_are_ordered_scoped_and_frozen() {
    let store = Store::in_memory();
    for (namespace, name) in [("a", "y"), ("a-b", "x"), ("a", "x"), ("b", "z")] {
        put(&store, key(namespace, name), Expected::Absent, "1").await.unwrap();
    }
    let all = store.list("/pods", None);
    put(&store, key("a", "w"), Expected::Absent, "1").await.unwrap();
    let paths = |s: &super::Snapshot| s.iter().map(|r| r.key.path()).collect::<Vec<_>>();
    // '-' sorts before '/': the order of etcd's keys.
    assert_eq!(paths(&all), ["a-b/x", "a/x", "a/y", "b/z"]);
    let one = store.list("/pods", Some("a"));
    assert_eq!(paths(&one), ["a/w", "a/x", "a/y"]);
    let rest: Vec<_> = one.iter_from("w\0").map(|r| one.relative_path(r)).collect();
    assert_eq!(rest, ["x", "y"]);
    assert_eq!(one.iter_from("\u{10ffff}").count(), 0);
    assert_eq!((one.len(), all.len(), store.list("/pods", Some("c")).len()), (3, 4, 0));
    assert!(store.list("/nothing", None).is_empty());
}

#[tokio::test]
async fn old_lists_until_compaction() {
    let store = Store::in_memory();
    for n in 0..6 {
        put(&store, key("a", &format!("p{n}")), Expected::Absent, "1").await.unwrap();
    }
    store.commit(Write::delete(key("a", "p1"), Expected::Present)).await.unwrap();
    put(&store, key("a", "p0"), Expected::Present, "2").await.unwrap();
    let at = store.list_at("/pods", Some("a"), 4).unwrap();
    let seen: Vec<_> = at.iter().map(|r| (r.key.name.as_str(), r.revision)).collect();
    assert_eq!(seen, [("p0", 2), ("p1", 3), ("p2", 4)]);
    store.compact(5);
    let expired = store.list_at("/pods", Some("a"), 4).map(|_| ()).unwrap_err();
    assert!(matches!(expired, StoreError::Expired { requested: 4, oldest: 5 }));
    assert_eq!(store.list_at("/pods", Some("a"), 5).unwrap().len(), 4);
    assert!(matches!(store.list_at("/pods", None, 100), Err(StoreError::TooLarge { .. })));
    // The window of watches survives a compaction, but not a fresh start.
    assert!(store.watch(&pods(), None, 3).is_ok());
    store.forget_changes();
    assert!(matches!(store.watch(&pods(), None, 3), Err(StoreError::Expired { .. })));
    assert!(matches!(store.watch(&"/other".into(), None, 3), Err(StoreError::Expired { .. })));
    assert!(store.watch(&pods(), None, store.current_revision()).is_ok());
}

#[tokio::test]
async fn old_changes_go_with_time() {
    let store = Store::in_memory();
    let start = std::time::Instant::now();
    let minutes = |n: u64| start + std::time::Duration::from_secs(60 * n);
    let kept = || store.metrics().window_changes;
    for n in 0..600 {
        put(&store, key("a", &format!("p{n}")), Expected::Absent, "1").await.unwrap();
    }
    store.inner.write().age(minutes(4));
    assert_eq!(kept(), 600);
    // Five minutes on they are the old ones, and five more on they go, some at a time.
    store.inner.write().age(minutes(6));
    put(&store, key("a", "p0"), Expected::Present, "2").await.unwrap();
    assert_eq!(kept(), 601);
    let young = store.current_revision();
    store.inner.write().age(minutes(12));
    assert!((300..400).contains(&kept()), "{}", kept());
    store.inner.write().age(minutes(12));
    store.inner.write().age(minutes(12));
    assert_eq!(kept(), 1);
    assert!(matches!(store.watch(&pods(), None, 3), Err(StoreError::Expired { .. })));
    assert!(store.list_at("/pods", None, young - 1).is_ok() && store.watch(&pods(), None, young - 1).is_ok());
    assert!(matches!(store.list_at("/pods", None, young - 2), Err(StoreError::Expired { .. })));
    assert_eq!(store.list("/pods", None).len(), 600);
    // What has not changed for long can still be watched from its last change on.
    store.inner.write().age(minutes(18));
    store.inner.write().age(minutes(24));
    assert!(kept() == 0 && store.watch(&pods(), None, young).is_ok());
}

#[tokio::test]
async fn watches_see_their_namespace_in_order() {
    let store = Store::in_memory();
    let (list, mut watch) = store.list_and_watch(&pods(), Some("a"));
    assert_eq!((list.revision, list.len()), (1, 0));
    put(&store, key("a", "x"), Expected::Absent, "1").await.unwrap();
    put(&store, key("b", "x"), Expected::Absent, "1").await.unwrap();
    put(&store, key("a", "x"), Expected::Present, "2").await.unwrap();
    store.commit(Write::delete(key("a", "x"), Expected::Present)).await.unwrap();
    let mut seen = Vec::new();
    while let Some(change) = watch.try_next().unwrap() {
        seen.push((change.kind, change.revision()));
    }
    assert_eq!(seen, [(ChangeKind::Added, 2), (ChangeKind::Modified, 4), (ChangeKind::Deleted, 5)]);
    assert_eq!(watch.position(), 5);
    // Other resources move the position, so that bookmarks get on.
    store
        .commit(Write::put(Key::new("/x", "", "n"), Expected::Absent, &pod("n", "1")).unwrap())
        .await
        .unwrap();
    assert_eq!(watch.position(), 6);
    let waiting = tokio::spawn(async move { watch.next().await.map(|c| c.revision()) });
    put(&store, key("a", "x"), Expected::Absent, "1").await.unwrap();
    assert_eq!(waiting.await.unwrap(), Ok(7));
}

#[tokio::test]
async fn a_future_revision_is_silent_until_reached() {
    let store = Store::in_memory();
    let mut watch = store.watch(&pods(), None, 3).unwrap();
    put(&store, key("a", "x"), Expected::Absent, "1").await.unwrap();
    put(&store, key("a", "y"), Expected::Absent, "1").await.unwrap();
    assert!(watch.try_next().unwrap().is_none());
    put(&store, key("a", "z"), Expected::Absent, "1").await.unwrap();
    assert_eq!(watch.try_next().unwrap().map(|c| c.revision()), Some(4));
    let waited = store.wait_until(4, Duration::from_millis(1)).await;
    assert_eq!(waited.ok(), Some(4));
    let waited = store.wait_until(5, Duration::from_millis(1)).await;
    assert!(matches!(waited, Err(StoreError::TooLarge { requested: 5, current: 4 })));
}

#[tokio::test]
async fn selectors_turn_changes_into_views() {
    let store = Store::in_memory();
    let mut watch = store.watch(&pods(), None, 1).unwrap();
    for app in ["db", "web", "web", "db", "db"] {
        put(&store, key("a", "x"), Expected::Anything, app).await.unwrap();
    }
    store.commit(Write::delete(key("a", "x"), Expected::Present)).await.unwrap();
    let mut seen = Vec::new();
    while let Some(change) = watch.try_next().unwrap() {
        let view = change.view(|r| r.labels.get("app").is_some_and(|a| a == "web"));
        seen.push(view.map(|v| (v, change.object(v))));
    }
    let views: Vec<_> = seen.iter().map(|s| s.as_ref().map(|(v, _)| *v)).collect();
    let expected = [None, Some(View::Added), Some(View::Modified), Some(View::Deleted), None, None];
    assert_eq!(views, expected);
    // On leaving, the object as it was, at the revision of the change.
    let last = seen[3].as_ref().unwrap().1.value().unwrap();
    assert_eq!(last["metadata"]["labels"]["app"], "web");
    assert_eq!(last["metadata"]["resourceVersion"], "5");
}

/// Readers tell the version by the first bytes, also of kinds with fields that sort before it.
#[tokio::test]
async fn version_and_kind_come_first() {
    let store = Store::in_memory();
    for (kind, field) in [("Event", "action"), ("ConfigMap", "data"), ("Secret", "Data")] {
        let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}, field: {"b": "c"}});
        let key = Key::new(format!("/{}s", kind.to_lowercase()), "default", "x");
        let record = store.commit(Write::put(key, Expected::Absent, &object).unwrap()).await.unwrap();
        let head = format!("{{\"apiVersion\":\"v1\",\"kind\":\"{kind}\",");
        assert!(record.json.starts_with(head.as_bytes()), "{:?}", record.json);
        let mut stored = record.value().unwrap();
        assert_eq!(stored["metadata"]["resourceVersion"].take(), record.revision.to_string().as_str());
        assert_eq!(stored[field], object[field]);
    }
}

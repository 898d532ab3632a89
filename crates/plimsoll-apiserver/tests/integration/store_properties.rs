//! Random operations against the store and against plain maps: the same at every revision.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_apiserver::store::{ChangeKind, Expected, Key, Record, Store, StoreError, Window, Write};
use proptest::prelude::*;
use serde_json::json;

const RESOURCES: [&str; 2] = ["/pods", "batch/jobs"];
const NAMESPACES: [&str; 3] = ["", "a", "a-b"];

#[derive(Clone, Debug)]
struct Step {
    resource: usize,
    namespace: usize,
    name: u8,
    value: u32,
    action: Action,
}

#[derive(Clone, Debug)]
enum Action {
    Create,
    /// Replace; `true`: at the right revision, `false`: at a wrong one.
    Replace(bool),
    Upsert,
    Delete(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let action = prop_oneof![
        3 => Just(Action::Create),
        3 => any::<bool>().prop_map(Action::Replace),
        2 => Just(Action::Upsert),
        2 => any::<bool>().prop_map(Action::Delete),
    ];
    (0..RESOURCES.len(), 0..NAMESPACES.len(), 0..6u8, any::<u32>(), action).prop_map(
        |(resource, namespace, name, value, action)| Step { resource, namespace, name, value, action },
    )
}

/// The plain reference: what each object is, at which revision.
type State = BTreeMap<(usize, String), (u64, u32)>;

/// All states by revision.
struct Model {
    states: Vec<State>,
}

impl Model {
    fn new() -> Self {
        // Index 0 is unused; the empty store has revision 1.
        Self { states: vec![State::new(), State::new()] }
    }

    fn now(&self) -> &State {
        self.states.last().unwrap()
    }

    /// Applies a step; the kind of the change, or `None` if it must be refused.
    fn apply(&mut self, step: &Step, at: &(usize, String)) -> Option<ChangeKind> {
        let mut next = self.now().clone();
        let there = next.contains_key(at);
        let revision = self.states.len() as u64;
        let kind = match (&step.action, there) {
            (Action::Create | Action::Upsert, false) => ChangeKind::Added,
            (Action::Replace(true) | Action::Upsert, true) => ChangeKind::Modified,
            (Action::Delete(true), true) => ChangeKind::Deleted,
            _ => return None,
        };
        if kind == ChangeKind::Deleted {
            next.remove(at);
        } else {
            next.insert(at.clone(), (revision, step.value));
        }
        self.states.push(next);
        Some(kind)
    }
}

fn write_of(step: &Step, key: Key, current: Option<u64>) -> Write {
    let object =
        json!({"metadata": {"name": key.name, "labels": {"v": step.value.to_string()}}, "v": step.value});
    let revision = |right: bool| Expected::Revision(if right { current.unwrap_or(1) } else { 0 });
    match step.action {
        Action::Create => Write::put(key, Expected::Absent, &object).unwrap(),
        Action::Replace(right) => Write::put(key, revision(right), &object).unwrap(),
        Action::Upsert => Write::put(key, Expected::Anything, &object).unwrap(),
        Action::Delete(right) => Write::delete(key, revision(right)),
    }
}

fn seen(record: &Record) -> (u64, u32) {
    let value = record.value().unwrap();
    assert_eq!(value["metadata"]["resourceVersion"], record.revision.to_string());
    let number = value["v"].as_u64().unwrap() as u32;
    assert_eq!(record.labels["v"], number.to_string());
    (record.revision, number)
}

fn expected_list(state: &State, resource: usize, namespace: Option<&str>) -> BTreeMap<String, (u64, u32)> {
    let inside =
        |path: &str| namespace.is_none_or(|n| path.strip_prefix(n).is_some_and(|p| p.starts_with('/')));
    let rows = state.iter().filter(|((r, path), _)| *r == resource && inside(path));
    rows.map(|((_, path), v)| (path.clone(), *v)).collect()
}

fn check_lists(store: &Store, model: &Model) {
    for (revision, state) in model.states.iter().enumerate().skip(1) {
        for (r, resource) in RESOURCES.iter().enumerate() {
            for namespace in [None, Some("a"), Some("a-b")] {
                let list = match store.list_at(resource, namespace, revision as u64) {
                    Ok(list) => list,
                    Err(StoreError::Expired { requested, oldest }) => {
                        assert!(requested < oldest);
                        continue;
                    }
                    Err(e) => panic!("{e}"),
                };
                let found: BTreeMap<_, _> = list.iter().map(|r| (r.key.path(), seen(r))).collect();
                assert_eq!(found, expected_list(state, r, namespace), "{resource} at {revision}");
                let order: Vec<_> = list.iter().map(|r| r.key.path()).collect();
                assert!(order.is_sorted());
            }
        }
    }
}

/// A watch from any revision, applied to the list at that revision, gives the state now.
fn check_watches(store: &Store, model: &Model) {
    for from in 1..model.states.len() {
        for (r, resource) in RESOURCES.iter().enumerate() {
            for namespace in [None, Some("a")] {
                let resource: Arc<str> = (*resource).into();
                let Ok(mut watch) = store.watch(&resource, namespace, from as u64) else { continue };
                let mut state = expected_list(&model.states[from], r, namespace);
                let mut last = from as u64;
                while let Some(change) = watch.try_next().unwrap() {
                    assert!(change.revision() > last);
                    last = change.revision();
                    let path = change.record.key.path();
                    let before = match change.kind {
                        ChangeKind::Deleted => state.remove(&path),
                        _ => state.insert(path, seen(&change.record)),
                    };
                    assert_eq!(before, change.previous.as_deref().map(seen));
                    assert_eq!(before.is_none(), change.kind == ChangeKind::Added);
                }
                assert_eq!(state, expected_list(model.now(), r, namespace), "{resource} from {from}");
                assert_eq!(watch.position(), (model.states.len() - 1) as u64);
            }
        }
    }
}

fn run(store: &Store, steps: &[Step], check_at: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut model = Model::new();
    for (i, step) in steps.iter().enumerate() {
        let key = Key::new(RESOURCES[step.resource], NAMESPACES[step.namespace], format!("n{}", step.name));
        let at = (step.resource, key.path());
        let current = model.now().get(&at).map(|(revision, _)| *revision);
        let expected = model.apply(step, &at);
        let outcome = runtime.block_on(store.commit(write_of(step, key.clone(), current)));
        assert_eq!(outcome.is_ok(), expected.is_some(), "{step:?}: {outcome:?}");
        assert_eq!(store.current_revision(), (model.states.len() - 1) as u64);
        assert_eq!(store.get(&key).map(|r| seen(&r)), model.now().get(&at).copied());
        if i == check_at {
            check_lists(store, &model);
        }
    }
    check_lists(store, &model);
    check_watches(store, &model);
    assert_eq!(store.metrics().objects, model.now().len() as u64);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn same_as_a_plain_map(steps in prop::collection::vec(step(), 1..120), check_at in 0..120usize) {
        run(&Store::in_memory(), &steps, check_at);
    }

    #[test]
    fn same_with_a_small_window(steps in prop::collection::vec(step(), 1..120), changes in 1..20usize) {
        let store = Store::in_memory_with(Window { changes, bytes: 1 << 20 });
        run(&store, &steps, 60);
        let first: Arc<str> = RESOURCES[0].into();
        let kept = store.metrics().window_changes;
        prop_assert!(kept <= 2 * changes as u64);
        // Once a change has left the window, the beginning is out of reach.
        if store.last_revision(RESOURCES[0]) > 1 + 2 * steps.len() as u64 {
            prop_assert!(store.watch(&first, None, 1).is_err());
        }
    }
}

#[test]
fn a_slow_watch_is_cut_and_writers_go_on() {
    let store = Store::in_memory_with(Window { changes: 8, bytes: 1 << 20 });
    let pods: Arc<str> = "/pods".into();
    let mut slow = store.watch(&pods, None, 1).unwrap();
    let mut quick = store.watch(&pods, None, 1).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for n in 0..20 {
        let object = json!({"metadata": {"name": "x", "labels": {"v": n.to_string()}}, "v": n});
        let write = Write::put(Key::new("/pods", "a", "x"), Expected::Anything, &object).unwrap();
        runtime.block_on(store.commit(write)).unwrap();
        assert_eq!(quick.try_next().unwrap().map(|c| c.revision()), Some(n + 2));
    }
    assert!(slow.try_next().is_err());
    assert!(runtime.block_on(slow.next()).is_err());
    assert_eq!(store.metrics().watches_cut, 2);
    assert!(matches!(store.watch(&pods, None, 1), Err(StoreError::Expired { requested: 1, oldest: 13 })));
}

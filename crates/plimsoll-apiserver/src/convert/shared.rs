//! What conversion webhooks made of records: asked for once, however many want it at the same time, and kept for those
//! that come later as far as memory is set aside for it.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use plimsoll_apimachinery::ApiError;
use plimsoll_apimachinery::crd::Conversion;
use serde_json::Value;
use tokio::sync::watch;

use super::call::ask;
use crate::store::{Record, Store};

/// Memory for converted records, in bytes.
const BUDGET: usize = 64 << 20;
/// What an entry costs beside its record.
const ENTRY: usize = 256;
/// Bytes of objects put into one call; one object may have more.
const MAX_BYTES: usize = 8 << 20;

/// Calls of others that are waited for before a record is asked for by oneself.
const MAX_SHARED: usize = 3;

/// Converted records, and those being converted.
#[derive(Default)]
pub struct Conversions(Mutex<State>);

#[derive(Default)]
struct State {
    kept: Kept,
    under_way: HashMap<Key, Flight>,
    /// Calls so far.
    calls: u64,
}

/// One version of one object, one configuration of a webhook and one version wanted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    /// Address of the record: nothing else has it while a reader holds on to the record.
    record: usize,
    hook: u64,
    version: Arc<str>,
}

/// A conversion that a reader has requested.
struct Flight {
    /// Keeps the address.
    _record: Arc<Record>,
    outcome: watch::Receiver<Option<Outcome>>,
}

type Outcome = Result<Arc<Record>, Failure>;

#[derive(Clone, Debug)]
struct Failure {
    error: ApiError,
    /// Number of the call.
    call: u64,
    /// Records in it: each of them may be the one that failed.
    size: usize,
}

/// The webhook of a kind and the version wanted.
#[derive(Clone)]
pub struct Wanted {
    /// The webhook.
    pub hook: Arc<Conversion>,
    /// `apiVersion` wanted.
    pub version: Arc<str>,
}

impl Wanted {
    fn key(&self, record: &Arc<Record>) -> Key {
        Key {
            record: Arc::as_ptr(record).addr(),
            hook: self.hook.fingerprint,
            version: Arc::clone(&self.version),
        }
    }
}

enum Found {
    Made(Arc<Record>),
    UnderWay(watch::Receiver<Option<Outcome>>),
    Mine(Asked, watch::Receiver<Option<Outcome>>),
}

/// A record that this caller is to have converted. Others wait for it: when it is dropped, they know.
struct Asked {
    conversions: Arc<Conversions>,
    key: Key,
    record: Arc<Record>,
    tell: watch::Sender<Option<Outcome>>,
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.conversions.state().under_way.remove(&self.key);
    }
}

impl Asked {
    fn made(self, object: &Value) {
        let outcome = match self.record.remade(object) {
            Ok(made) => {
                let made = Arc::new(made);
                let kept = Made { record: Arc::clone(&made), _source: Arc::downgrade(&self.record) };
                self.conversions.state().kept.insert(self.key.clone(), kept);
                Ok(made)
            }
            Err(e) => Err(Failure { error: ApiError::internal(e), call: 0, size: 1 }),
        };
        self.tell.send_replace(Some(outcome));
    }

    fn failed(self, failure: &Failure) {
        self.tell.send_replace(Some(Err(failure.clone())));
    }
}

impl Conversions {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for a call.
    fn number(&self) -> u64 {
        let mut state = self.state();
        state.calls += 1;
        state.calls
    }

    fn find(self: &Arc<Self>, key: Key, record: &Arc<Record>) -> Found {
        let mut state = self.state();
        if let Some(made) = state.kept.get(&key) {
            return Found::Made(made);
        }
        if let Some(flight) = state.under_way.get(&key) {
            return Found::UnderWay(flight.outcome.clone());
        }
        let (tell, outcome) = watch::channel(None);
        let flight = Flight { _record: Arc::clone(record), outcome: outcome.clone() };
        state.under_way.insert(key.clone(), flight);
        drop(state);
        let asked = Asked { conversions: Arc::clone(self), key, record: Arc::clone(record), tell };
        Found::Mine(asked, outcome)
    }

    /// Puts the records at these places into the version wanted.
    ///
    /// # Errors
    /// What the webhook's failure means.
    pub async fn convert(
        self: &Arc<Self>,
        store: &Store,
        wanted: &Wanted,
        records: &mut [Arc<Record>],
        places: &[usize],
    ) -> Result<(), ApiError> {
        let (mut mine, mut waits) = (Vec::new(), Vec::new());
        for place in places {
            let Some(slot) = records.get_mut(*place) else { continue };
            match self.find(wanted.key(slot), slot) {
                Found::Made(made) => *slot = made,
                Found::UnderWay(outcome) => waits.push((*place, outcome, false)),
                Found::Mine(asked, outcome) => {
                    mine.push(asked);
                    waits.push((*place, outcome, true));
                }
            }
        }
        if !mine.is_empty() {
            // On its own: others may wait for it when this caller no longer does.
            tokio::spawn(call(store.clone(), wanted.clone(), mine));
        }
        let mut failed = Vec::new();
        for (place, mut outcome, own) in waits {
            let outcome = match outcome.wait_for(Option::is_some).await {
                Ok(outcome) => outcome.clone(),
                Err(_) => None,
            };
            match outcome {
                Some(Ok(made)) => {
                    if let Some(slot) = records.get_mut(place) {
                        *slot = made;
                    }
                }
                Some(Err(failure)) if own => return Err(failure.error),
                other => failed.push((place, other.and_then(Result::err))),
            }
        }
        self.after_others(store, wanted, records, failed).await
    }

    /// Records that others failed to have converted: perhaps because of records that this caller doesn't want.
    async fn after_others(
        self: &Arc<Self>,
        store: &Store,
        wanted: &Wanted,
        records: &mut [Arc<Record>],
        failed: Vec<(usize, Option<Failure>)>,
    ) -> Result<(), ApiError> {
        let mut in_calls: HashMap<u64, BTreeSet<usize>> = HashMap::new();
        for (place, failure) in &failed {
            let (Some(failure), Some(record)) = (failure, records.get(*place)) else { continue };
            let ours = in_calls.entry(failure.call).or_default();
            ours.insert(Arc::as_ptr(record).addr());
            if ours.len() >= failure.size {
                return Err(failure.error.clone());
            }
        }
        for (place, _) in failed {
            let Some(slot) = records.get_mut(place) else { continue };
            *slot = self.alone(store, wanted, slot).await?;
        }
        Ok(())
    }

    /// Converts a record by a call for it alone: one call, however many readers want that at the same time.
    async fn alone(
        self: &Arc<Self>,
        store: &Store,
        wanted: &Wanted,
        record: &Arc<Record>,
    ) -> Result<Arc<Record>, ApiError> {
        for _ in 0..MAX_SHARED {
            let mut outcome = match self.find(wanted.key(record), record) {
                Found::Made(made) => return Ok(made),
                Found::UnderWay(outcome) => outcome,
                Found::Mine(asked, outcome) => {
                    tokio::spawn(call(store.clone(), wanted.clone(), vec![asked]));
                    outcome
                }
            };
            let outcome = outcome.wait_for(Option::is_some).await.ok().and_then(|found| found.clone());
            match outcome {
                Some(Ok(made)) => return Ok(made),
                Some(Err(failure)) if failure.size == 1 => return Err(failure.error),
                // Another batch requested it again.
                _ => {}
            }
        }
        let object = record.value().map_err(ApiError::internal)?;
        let made = ask(store, &wanted.hook, &wanted.version, &[object]).await?;
        let made = made.first().ok_or_else(|| ApiError::internal("a record was lost by its conversion"))?;
        let made = Arc::new(record.remade(made).map_err(ApiError::internal)?);
        let kept = Made { record: Arc::clone(&made), _source: Arc::downgrade(record) };
        self.state().kept.insert(wanted.key(record), kept);
        Ok(made)
    }
}

/// Converts records, as many at a time as fit into a call.
async fn call(store: Store, wanted: Wanted, mut asked: Vec<Asked>) {
    while !asked.is_empty() {
        let (mut bytes, mut fit) = (0, 0);
        for a in &asked {
            bytes += a.record.json.len();
            if bytes > MAX_BYTES && fit > 0 {
                break;
            }
            fit += 1;
        }
        let rest = asked.split_off(fit);
        let batch = std::mem::replace(&mut asked, rest);
        let size = batch.len();
        match objects(&store, &wanted, &batch).await {
            Ok(objects) => {
                for (a, object) in batch.into_iter().zip(objects) {
                    a.made(&object);
                }
            }
            Err(error) => {
                let call = batch.first().map_or(0, |a| a.conversions.number());
                let failure = Failure { error, call, size };
                for a in batch {
                    a.failed(&failure);
                }
            }
        }
    }
}

async fn objects(store: &Store, wanted: &Wanted, batch: &[Asked]) -> Result<Vec<Value>, ApiError> {
    let objects: Result<Vec<Value>, _> = batch.iter().map(|a| a.record.value()).collect();
    ask(store, &wanted.hook, &wanted.version, &objects.map_err(ApiError::internal)?).await
}

struct Made {
    record: Arc<Record>,
    /// Keeps the address of what it was made of, not the object.
    _source: Weak<Record>,
}

impl Made {
    fn weight(&self) -> usize {
        // The memory of the record it was made of stays as well, without what it points to.
        self.record.weight() + size_of::<Record>() + ENTRY
    }
}

/// Two generations: what is used moves to the young one; when that has half of the budget, the old one goes.
#[derive(Default)]
struct Kept {
    young: HashMap<Key, Made>,
    old: HashMap<Key, Made>,
    young_bytes: usize,
}

impl Kept {
    fn get(&mut self, key: &Key) -> Option<Arc<Record>> {
        if let Some(made) = self.young.get(key) {
            return Some(Arc::clone(&made.record));
        }
        let made = self.old.remove(key)?;
        let record = Arc::clone(&made.record);
        self.insert(key.clone(), made);
        Some(record)
    }

    fn insert(&mut self, key: Key, made: Made) {
        let weight = made.weight();
        if weight > BUDGET / 2 {
            return;
        }
        if self.young_bytes + weight > BUDGET / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes += weight;
        if let Some(before) = self.young.insert(key, made) {
            self.young_bytes = self.young_bytes.saturating_sub(before.weight());
        }
    }
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::{Expected, Key as Place, Write};

    async fn record(store: &Store, name: &str, text: &str) -> Arc<Record> {
        let object = json!({"metadata": {"name": name}, "text": text});
        let write = Write::put(Place::new("a/b", "", name), Expected::Anything, &object).unwrap();
        store.commit(write).await.unwrap()
    }

    fn key(record: &Arc<Record>, hook: u64) -> Key {
        Key { record: Arc::as_ptr(record).addr(), hook, version: "a/v1".into() }
    }

    #[tokio::test]
    async fn memory_is_bounded_and_what_is_used_stays() {
        let store = Store::in_memory();
        let source = record(&store, "a", &"x".repeat(1 << 20)).await;
        let mut kept = Kept::default();
        let made = || Made { record: Arc::clone(&source), _source: Arc::downgrade(&source) };
        for hook in 0..1000 {
            kept.insert(key(&source, hook), made());
            assert!(kept.get(&key(&source, 0)).is_some(), "it was used just now");
            let all: usize = kept.young.values().chain(kept.old.values()).map(Made::weight).sum();
            assert!(all <= BUDGET, "{all} after {hook}");
            let young: usize = kept.young.values().map(Made::weight).sum();
            assert_eq!(young, kept.young_bytes);
        }
        assert!(kept.get(&key(&source, 1)).is_none());
        assert!(kept.get(&key(&source, 999)).is_some());
    }

    #[tokio::test]
    async fn who_comes_later_waits_for_who_was_first() {
        let store = Store::in_memory();
        let source = record(&store, "a", "x").await;
        let conversions: Arc<Conversions> = Arc::default();
        let Found::Mine(asked, _) = conversions.find(key(&source, 1), &source) else {
            panic!("nobody asked")
        };
        let Found::UnderWay(outcome) = conversions.find(key(&source, 1), &source) else { panic!("it is") };
        assert!(matches!(conversions.find(key(&source, 2), &source), Found::Mine(..)));
        asked.made(&json!({"metadata": {"name": "a"}, "text": "y"}));
        assert!(outcome.borrow().as_ref().unwrap().as_ref().unwrap().json.ends_with(b"\"y\"}"));
        assert!(matches!(conversions.find(key(&source, 1), &source), Found::Made(_)));
        // Given up: the next one asks anew.
        let other = record(&store, "b", "x").await;
        let Found::Mine(asked, mut outcome) = conversions.find(key(&other, 1), &other) else {
            panic!("first")
        };
        drop(asked);
        assert!(outcome.wait_for(Option::is_some).await.is_err());
        assert!(matches!(conversions.find(key(&other, 1), &other), Found::Mine(..)));
        assert!(conversions.state().under_way.is_empty(), "nobody asks any more");
    }
}

//! Work that takes long, away from the threads that answer requests.
//!
//! Large lists, large bodies and schema documents take milliseconds to seconds of a processor. They run as tasks of a
//! runtime of their own, with one thread for each processor. Its tasks take turns in the order in which they come, and
//! give way between two pieces of work ([`next_piece`]); so a request waits for a piece of each other one, not for all
//! of them, and the threads of the server itself, which answer health checks and small requests, wait for none. The
//! operating system divides the processors between both. A second runtime rather than a pool of blocking threads,
//! because a request waits on the way (for admission, for the journal) and must not keep a thread meanwhile.
//!
//! Small requests stay where they are: handing one over costs more than answering it.

use std::sync::{Arc, OnceLock};

use plimsoll_apimachinery::decode::depth::STACK;
use tokio::runtime::{Builder, Runtime};
use tokio_util::task::AbortOnDropHandle;

use crate::http::Req;
use crate::store::{Key, Record};

/// Bytes of JSON or protobuf, in a request or in the record that it is about, that take a few milliseconds.
const LARGE: usize = 64 << 10;
/// As [`LARGE`], of YAML, which takes ten times as long to read.
const LARGE_YAML: usize = 8 << 10;
/// Objects in one piece of work.
const PIECE: usize = 100;
/// Bytes of the objects in one piece of work.
const PIECE_BYTES: usize = 256 << 10;

/// The threads of all servers in this process; `None`: they could not be started.
fn threads() -> Option<&'static Runtime> {
    static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();
    let start = || {
        let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        let started = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("heavy")
            .thread_stack_size(STACK)
            .enable_all()
            .build();
        started.inspect_err(|e| tracing::warn!(error = %e, "threads for heavy work can't be started")).ok()
    };
    RUNTIME.get_or_init(start).as_ref()
}

/// Does some work on the threads for heavy work. It ends with the future returned here, at its next `await`.
pub async fn run<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let Some(threads) = threads() else { return work.await };
    match AbortOnDropHandle::new(threads.spawn(work)).await {
        Ok(done) => done,
        // As it would have been here.
        Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
        // Only dropping this future ends it.
        Err(_) => std::future::pending().await,
    }
}

/// As [`run`], by itself.
pub fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    match threads() {
        Some(threads) => drop(threads.spawn(work)),
        None => drop(tokio::spawn(work)),
    }
}

/// Lets others have a turn, between two pieces of work.
pub async fn give_way() {
    tokio::task::yield_now().await;
}

/// How many of these records make one piece of work: at least one, unless there are none.
pub fn next_piece(records: &[Arc<Record>]) -> usize {
    let mut bytes = 0;
    let fits = |record: &&Arc<Record>| {
        bytes += record.json.len();
        bytes <= PIECE_BYTES
    };
    records.iter().take(PIECE).take_while(fits).count().max(usize::from(!records.is_empty()))
}

/// Whether a request is one for these threads, as far as that shows before it is answered.
pub fn is_request(req: &Req) -> bool {
    let says = |name, word| req.header(name).is_some_and(|v| v.contains(word));
    if req.body.len() >= LARGE_YAML && (req.body.len() >= LARGE || says(http::header::CONTENT_TYPE, "yaml")) {
        return true;
    }
    let info = &req.info;
    if !info.is_resource {
        return info.path.starts_with("/openapi/") || matches!(info.path.as_str(), "/api" | "/apis");
    }
    match info.verb.as_str() {
        "create" | "update" => info.resource == "customresourcedefinitions",
        "patch" => is_record_large(req),
        "get" if req.header(http::header::ACCEPT).is_none_or(|v| v == "application/json") => false,
        "get" => is_record_large(req),
        _ => false,
    }
}

fn is_record_large(req: &Req) -> bool {
    let info = &req.info;
    let Some(kind) = req.table.resource(&info.group, &info.version, &info.resource) else { return false };
    let namespace = if kind.namespaced { info.namespace.as_str() } else { "" };
    let key = Key::new(kind.storage.as_str(), namespace, info.name.as_str());
    req.server.store().get(&key).is_some_and(|record| record.json.len() >= LARGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_ends_with_the_one_who_waits_for_it() {
        assert_eq!(run(async { 2 + 2 }).await, 4);
        let (ended, mut end) = tokio::sync::oneshot::channel::<()>();
        let work = run(async move {
            let _ended = ended;
            std::future::pending::<()>().await;
        });
        assert!(tokio::time::timeout(std::time::Duration::from_millis(50), work).await.is_err());
        let end = tokio::time::timeout(std::time::Duration::from_secs(20), &mut end).await.unwrap();
        assert!(end.is_err(), "the work was dropped");
    }
}

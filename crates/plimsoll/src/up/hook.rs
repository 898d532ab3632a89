//! Our admission webhooks, called in process.

use std::sync::Arc;

use plimsoll_apiserver::Server;
use plimsoll_runtime::cache::Cache;

/// Has the server ask our webhooks.
pub fn register(server: &Arc<Server>, cache: Cache) {
    let _ = (server, cache);
}

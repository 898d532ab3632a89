//! `componentstatuses`: how the parts of a cluster are, as far as this process is them.
//!
//! The store is one. The scheduler and the controllers run in this process or elsewhere and have no address to be asked
//! at, so nothing is said of them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_apimachinery::{ApiError, Details, Kind};
use serde_json::{Value, json};

use super::present::present;
use super::reply::Reply;
use super::{Req, list};

/// What the store is called; kubectl's users look for it.
const STORE: &str = "etcd-0";

/// Whether a kind is this one, of which nothing is stored.
pub fn is_one(kind: &Kind) -> bool {
    kind.gvk.group.is_empty() && kind.gvk.kind == "ComponentStatus"
}

/// Answers a request for one or for all.
pub fn answer(req: &Req, kind: &Arc<Kind>) -> Result<Reply, ApiError> {
    let name = req.info.name.as_str();
    if name == STORE {
        return present(req, kind, 200, store(req));
    }
    if !name.is_empty() {
        let mut e = ApiError::new(404, "NotFound", format!("componentstatus \"{name}\" not found"));
        let kind = "componentstatus".to_owned();
        e.details = Some(Box::new(Details { name: name.to_owned(), kind, ..Details::default() }));
        return Err(e);
    }
    let selector = list::selector(req, kind)?;
    let mut items = vec![store(req)];
    items.retain(|item| selector.matches_named(STORE, "", &BTreeMap::new(), || Cow::Borrowed(item)));
    list::present_objects(req, kind, items, json!({}))
}

/// The store, which is well as long as it can write.
fn store(req: &Req) -> Value {
    let condition = match req.server.store().journal_error() {
        None => json!({"type": "Healthy", "status": "True", "message": "ok"}),
        Some(why) => json!({"type": "Healthy", "status": "False", "error": why}),
    };
    json!({
        "kind": "ComponentStatus", "apiVersion": "v1", "metadata": {"name": STORE}, "conditions": [condition],
    })
}

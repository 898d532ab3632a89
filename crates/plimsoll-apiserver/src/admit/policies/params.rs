//! The parameters of a binding (apiserver `policy/generic` `CollectParams`).

use std::sync::Arc;

use plimsoll_machinery::Kind;
use plimsoll_machinery::policy::ParamRef;
use serde_json::Value;

use crate::convert;
use crate::pipeline::Write;
use crate::served;
use crate::store::{Key, Record};

/// Why a request with more evaluations than [`MAX_RUNS`](super::MAX_RUNS) is refused.
pub const TOO_MANY: &str = "policies select more than 1000 parameters for one request";

/// The objects a policy is run with, at most `room`; `None` stands for no parameter. Empty: it is not run.
///
/// # Errors
/// Why the binding can't be used for this request.
pub async fn collect(
    w: &Write,
    kind: Option<&Arc<Kind>>,
    wanted: Option<&ParamRef>,
    room: usize,
) -> Result<Vec<Option<Value>>, String> {
    let (Some(kind), Some(wanted)) = (kind, wanted) else { return Ok(vec![None]) };
    let namespace = match (kind.namespaced, wanted.namespace.as_str()) {
        (false, "") => "",
        (false, _) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
        }
        (true, "") if w.namespace.is_empty() => {
            return Err(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                    .to_owned(),
            );
        }
        (true, "") => w.namespace.as_str(),
        (true, given) => given,
    };
    let store = w.server.store();
    let records: Vec<Arc<Record>> = if wanted.name.is_empty() {
        store.list(&kind.storage, kind.namespaced.then_some(namespace)).iter().cloned().collect()
    } else {
        store.latest(&Key::new(kind.storage.as_str(), namespace, wanted.name.as_str())).into_iter().collect()
    };
    // Only a webhook can give an object other labels than those it is stored with.
    let hooked = convert::webhook::is_hooked(kind);
    let by_name = !wanted.name.is_empty();
    let mut found = Vec::new();
    for record in &records {
        if !by_name && !hooked && !wanted.selects(&record.labels) {
            continue;
        }
        if found.len() >= room {
            return Err(TOO_MANY.to_owned());
        }
        let object = served::in_version(&w.server, kind, record).await.map_err(|e| e.message)?;
        if !by_name && hooked && !wanted.selects(&plimsoll_machinery::webhook::labels_of(&object)) {
            continue;
        }
        found.push(Some(object));
    }
    if found.is_empty() && wanted.deny_missing {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    Ok(found)
}

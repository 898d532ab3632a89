//! The parameters of a binding (apiserver `policy/generic` `CollectParams`).

use std::sync::Arc;

use plimsoll_apimachinery::Kind;
use plimsoll_apimachinery::admission::labels_of;
use plimsoll_apimachinery::policy::ParamRef;
use serde_json::Value;

use crate::convert;
use crate::representation;
use crate::store::{Key, Record};
use crate::write::Write;

/// Why a request with more evaluations than [`MAX_RUNS`](super::MAX_RUNS) is refused.
pub const TOO_MANY: &str = "policies select more than 1000 parameters for one request";

/// Objects that a conversion webhook is asked for in one call.
const AT_ONCE: usize = 500;

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
    let stored = |record: &Arc<Record>| by_name || hooked || wanted.selects(&record.labels);
    let chosen: Vec<Arc<Record>> = records.into_iter().filter(stored).collect();
    if chosen.len() > room && !hooked {
        return Err(TOO_MANY.to_owned());
    }
    let mut found = Vec::new();
    for some in chosen.chunks(AT_ONCE) {
        let some = convert::webhook::records(&w.server, kind, some.to_vec()).await.map_err(|e| e.message)?;
        for record in &some {
            let object = representation::value(kind, record).map_err(|e| e.to_string())?;
            if hooked && !by_name && !wanted.selects(&labels_of(&object)) {
                continue;
            }
            if found.len() >= room {
                return Err(TOO_MANY.to_owned());
            }
            found.push(Some(object));
        }
    }
    if found.is_empty() && wanted.deny_missing {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    Ok(found)
}

//! OpenAPI documents and their hashes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use plimsoll_apimachinery::{KindTable, openapi};
use serde_json::Value;

use crate::version::GIT_VERSION;

/// A schema document, ready to send.
#[derive(Debug)]
pub struct Document {
    /// JSON.
    pub bytes: Bytes,
    /// Its hash.
    pub hash: String,
}

/// SHA-256 in hexadecimal, upper case, for ETags.
pub fn hash(bytes: &[u8]) -> String {
    openapi::digest(bytes)
}

/// The index of schema documents.
pub fn openapi_index(table: &KindTable) -> Value {
    openapi::index(table)
}

/// Whether there is a schema document of this name.
pub fn has_openapi_document(table: &KindTable, name: &str) -> bool {
    openapi::hash(table, name).is_some()
}

/// Most schema documents kept; there are about 35 of built-in kinds.
const MAX_DOCUMENTS: usize = 256;

static DOCUMENTS: Mutex<BTreeMap<(String, String), Arc<Document>>> = Mutex::new(BTreeMap::new());

/// One schema document. Its hash says all there is to know about it, so documents are shared by all servers of
/// the process and made once.
pub fn openapi_document(table: &KindTable, name: &str) -> Option<Arc<Document>> {
    let hash = openapi::hash(table, name)?;
    let key = (name.to_owned(), hash.clone());
    let kept = || DOCUMENTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = kept().get(&key) {
        return Some(Arc::clone(found));
    }
    let value = openapi::document(table, name, GIT_VERSION)?;
    let made = Arc::new(Document { bytes: serde_json::to_vec(&value).ok()?.into(), hash });
    let mut documents = kept();
    if documents.len() >= MAX_DOCUMENTS {
        documents.clear();
    }
    documents.insert(key, Arc::clone(&made));
    Some(made)
}

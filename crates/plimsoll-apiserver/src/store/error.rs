//! What can go wrong.

use std::sync::Arc;

use plimsoll_apimachinery::ApiError;

use super::Record;

/// Why the store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("the data directory {dir} is in use by another process{holder}")]
    InUse {
        /// The directory.
        dir: String,
        /// ` (pid N)` when known.
        holder: String,
    },
    /// The directory can't be used.
    #[error("the data directory {dir} can't be used: {source}")]
    Directory {
        /// The directory.
        dir: String,
        /// Why.
        source: std::io::Error,
    },
    /// The database can't be opened or read.
    #[error("the journal can't be read: {0}")]
    Journal(String),
    /// It was written by a version that this one doesn't know.
    #[error("the journal has format {found}, this program knows {known}")]
    Format {
        /// Format found.
        found: u64,
        /// Format known.
        known: u64,
    },
}

/// Why the store did not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// A write expected the object to be there.
    #[error("not found")]
    NotFound,
    /// A write expected the object not to be there.
    #[error("already exists")]
    AlreadyExists {
        /// The object that is there.
        current: Arc<Record>,
    },
    /// A write expected another revision.
    #[error("the object has been modified; please apply your changes to the latest version and try again")]
    Conflict {
        /// The object that is there.
        current: Arc<Record>,
    },
    /// The revision is older than what is kept.
    #[error("too old resource version: {requested} ({oldest})")]
    Expired {
        /// Revision asked for.
        requested: u64,
        /// Oldest revision that could be answered.
        oldest: u64,
    },
    /// The revision has not been reached.
    #[error("Too large resource version: {requested}, current: {current}")]
    TooLarge {
        /// Revision asked for.
        requested: u64,
        /// Revision reached.
        current: u64,
    },
    /// The journal could not make the write durable. Reads go on; writes are refused until it can.
    #[error("the journal refused the write: {0}")]
    Journal(String),
    /// The store has been closed.
    #[error("the store is closed")]
    Closed,
    /// An object that is none, or a record that can't be read.
    #[error("{0}")]
    Corrupt(String),
}

impl StoreError {
    /// The error as the API shows it, for an object `name` of a resource.
    pub fn to_api(&self, group: &str, resource: &str, name: &str) -> ApiError {
        match self {
            Self::NotFound => ApiError::not_found(group, resource, name),
            Self::AlreadyExists { .. } => ApiError::already_exists(group, resource, name),
            Self::Conflict { .. } => ApiError::conflict(group, resource, name, &self.to_string()),
            Self::Expired { .. } => ApiError::new(410, "Expired", self.to_string()),
            Self::TooLarge { .. } => too_large(&self.to_string()),
            Self::Journal(_) | Self::Closed | Self::Corrupt(_) => ApiError::internal(self),
        }
    }
}

/// 504 with the cause by which clients know that they may just wait (apimachinery `NewTooLargeResourceVersionError`).
fn too_large(message: &str) -> ApiError {
    let mut error = ApiError::new(504, "Timeout", format!("Timeout: {message}"));
    error.details = Some(Box::new(plimsoll_apimachinery::Details {
        causes: vec![plimsoll_apimachinery::Cause {
            reason: "ResourceVersionTooLarge".to_owned(),
            message: "Too large resource version".to_owned(),
            field: String::new(),
        }],
        retry_after_seconds: 1,
        ..plimsoll_apimachinery::Details::default()
    }));
    error
}

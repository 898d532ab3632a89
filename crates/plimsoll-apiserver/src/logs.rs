//! Where `pods/log` gets its text: another part of this process.

use plimsoll_apimachinery::ApiError;
use serde_json::Value;

use crate::http::body::Body;

/// Where `pods/log` gets its text.
pub trait LogSource: Send + Sync + 'static {
    /// The log of a container, as a body.
    ///
    /// # Errors
    /// What the answer shall be instead.
    fn logs(&self, request: &LogRequest<'_>) -> Result<Body, ApiError>;
}

/// What `pods/log` asks for.
#[derive(Debug)]
pub struct LogRequest<'a> {
    /// The pod.
    pub pod: &'a Value,
    /// Container, one of the pod's.
    pub container: &'a str,
    /// Whether to go on as lines come.
    pub follow: bool,
    /// Lines from the end; `None`: all.
    pub tail_lines: Option<u64>,
    /// Only lines of the last seconds.
    pub since_seconds: Option<u64>,
    /// Times before lines.
    pub timestamps: bool,
    /// Of the container before this one.
    pub previous: bool,
    /// Bytes at most.
    pub limit_bytes: Option<u64>,
}

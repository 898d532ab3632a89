//! A request on its way through the server.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Uri, header};
use plimsoll_apimachinery::{KindTable, apply};

use super::info::RequestInfo;
use super::negotiate::Accepted;
use super::query::Query;
use crate::auth::User;
use crate::flow::{Marks, Seat};
use crate::server::Server;

/// A request on its way through the server.
pub struct Req {
    /// The server.
    pub server: Arc<Server>,
    /// The kinds as they were when the request came.
    pub table: Arc<KindTable>,
    /// What is asked for.
    pub info: RequestInfo,
    /// Method.
    pub method: Method,
    /// URI as sent.
    pub uri: Uri,
    /// Query parameters.
    pub query: Query,
    /// Headers.
    pub headers: HeaderMap,
    /// The user.
    pub user: User,
    /// Body, whole.
    pub body: Bytes,
    /// Warnings for the client.
    pub warnings: Vec<String>,
    /// Annotations for the audit event.
    pub annotations: crate::audit::Annotations,
    /// The form of the answer, once negotiated.
    pub accepted: Accepted,
    /// Whether the answer goes into the audit log, for which it has to be made as a whole.
    pub recorded: bool,
    /// Headers that say how flow control has classified the request.
    pub marks: Option<Marks>,
    /// Its seat, until the answer has been sent; taken out by what frees it earlier.
    pub seat: Option<Seat>,
}

impl Req {
    /// A header as text.
    pub fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|v| v.to_str().ok())
    }

    /// Whether the answer shall be indented.
    pub fn pretty(&self) -> bool {
        self.accepted.pretty || self.query.non_empty("pretty").is_some_and(|v| !matches!(v, "0" | "false"))
    }

    /// The default field manager: the user agent up to the first `/`.
    pub fn manager_of_agent(&self) -> String {
        let agent = self.header(header::USER_AGENT).unwrap_or("");
        let name = apply::manager_name("", agent);
        if name.is_empty() { "unknown".to_owned() } else { name }
    }
}

//! What this crate's files need to talk to an API server, under one name.

pub use plimsoll_api::request::{Error, PatchKind};
pub use plimsoll_api::resource::*;
pub use plimsoll_client::rest::{Api, DEADLINE, Direct, Encoding, FOLLOWS, encode};

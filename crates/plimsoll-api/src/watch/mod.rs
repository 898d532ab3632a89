//! List and watch of one resource (https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes)
//! as far as nothing waits: how answers are encoded ([`Page`], [`Event`]), and what changes for the client with each of them
//! ([`Known`]). `plimsoll-client` sends the requests, and the simulator has a model of the server.

mod event;
mod known;
#[cfg(test)]
mod tests;

pub use event::{Event, Meta, Page};
pub use known::{Change, Gone, Known, join, split};

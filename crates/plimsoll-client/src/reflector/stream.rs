//! A list as the beginning of a watch (KEP-3157, `WatchList`; client-go's default from Kubernetes 1.35 on).
//!
//! The server sends one object after the other as it encodes them, and then a bookmark. So reading begins with the first one,
//! and neither side holds a page. A server that can't refuses it, or begins a usual watch, in which that bookmark never
//! comes: then the list comes in pages.

use std::time::Duration;

use plimsoll_api::request::Error;
use plimsoll_api::watch::Event;

use super::frames::{self, Next};
use super::{Session, Sink};

/// Seconds after which the server ends a list that has not ended by itself.
const SECONDS: u32 = 300;
/// A list that sends nothing for so long is given up: either the server does not know what it was asked for, or the network
/// has failed. It waits for no more than three seconds until it knows enough (kube-apiserver's cache of watches).
const SILENCE: Duration = Duration::from_secs(10);

/// What came of a list.
pub(super) enum Streamed {
    /// Everything was handed on, up to this version.
    All(String),
    /// The server can't, or did not come to the end of it.
    Unsupported,
}

impl Session {
    /// Lists the collection, and hands on each object as it comes.
    pub(super) async fn streamed(&mut self, sink: &mut Sink<'_>) -> Result<Streamed, Error> {
        self.seen.objects.begin_list();
        let path = format!(
            "{}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true\
             &timeoutSeconds={SECONDS}{}",
            self.collection, self.source.selector
        );
        let mut stream = match self.source.api.watch(&path, self.source.encoding).await {
            Ok(stream) => stream,
            Err(e) if is_unsupported(&e) => return Ok(Streamed::Unsupported),
            Err(e) => return Err(e),
        };
        let mut bytes: Vec<u8> = Vec::new();
        loop {
            // What has been received is read without a pause otherwise.
            tokio::task::consume_budget().await;
            let Ok(read) = tokio::time::timeout(SILENCE, frames::next(&mut stream, &mut bytes)).await else {
                return Ok(Streamed::Unsupported);
            };
            self.source.tracker.heard();
            let event = match read? {
                Next::End => return Ok(Streamed::Unsupported),
                Next::Line => Event::from_line(&bytes),
                Next::Frame => Event::from_frame(&bytes),
            };
            match event {
                Ok(Event::Listed(version)) => return Ok(Streamed::All(version.into_owned())),
                // An event that can't be read would come again; pages have none.
                Err(Error::Malformed(_)) => return Ok(Streamed::Unsupported),
                // Objects change while they are sent.
                event => drop(self.event(event?, sink)),
            }
        }
    }
}

/// Whether a server refuses a watch that begins with a list, whatever its state.
fn is_unsupported(error: &Error) -> bool {
    matches!(error.code(), 400 | 405 | 406 | 415 | 422 | 501)
}

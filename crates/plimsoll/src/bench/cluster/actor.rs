//! Who acts in a turn.

use std::time::Duration;

use super::answerer::Answerer;
use crate::bench::process::{Running, Usage};

/// The client that binds or admits.
pub enum Actor {
    /// A client that decides nothing.
    Limit(Answerer),
    /// A scheduler or a queueing controller.
    Controller(Running),
    /// This process, whose errors show elsewhere.
    Nobody,
}

impl Actor {
    /// An error when it has ended.
    pub fn check(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Limit(client) => client.check(),
            Self::Controller(running) => running.check(),
            Self::Nobody => Ok(()),
        }
    }

    /// What it has used so far; nothing is known of what is a part of this process.
    pub fn usage(&self) -> Usage {
        match self {
            Self::Controller(running) => running.usage(),
            Self::Limit(_) | Self::Nobody => Usage::default(),
        }
    }

    /// Asks it to end, and gives how long that took.
    pub async fn stop(self) -> anyhow::Result<Duration> {
        match self {
            Self::Controller(running) => running.stop().await,
            Self::Limit(_) | Self::Nobody => Ok(Duration::ZERO),
        }
    }
}

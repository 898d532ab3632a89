//! What dispatchers say.

use plimsoll_state::{Duration, Time};

/// How long a round lasts (`incrementalDispatcherRoundTimeout`).
pub(super) const ROUND: Duration = Duration::from_seconds(5 * 60);

/// What a dispatcher says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Nomination {
    /// The clusters that get a copy.
    pub clusters: Vec<String>,
    /// Whether they are to be written to `status.nominatedClusterNames`.
    pub write: bool,
    /// The end of the round.
    pub ends_in: Option<Duration>,
    /// When the round ends that this belongs to.
    pub ends: Option<Time>,
    /// The clusters that are to be asked first when they could start it.
    pub ask: Vec<String>,
}

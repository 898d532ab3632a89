//! Dispatchers of MultiKueue (Kueue `apis/config/v1beta2`, `multiKueue.dispatcherName`).

/// Which worker clusters get a copy of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatcher {
    /// All of them at once.
    AllAtOnce,
    /// Some more in each round.
    Incremental {
        /// Clusters that a round adds, at least 1 (`incrementalDispatcherConfig.stepSize`).
        step: usize,
    },
    /// The one that could start it first by its own answer, then the next one (Plimsoll's own).
    Earliest,
    /// Those that another controller writes to `status.nominatedClusterNames`.
    External,
}

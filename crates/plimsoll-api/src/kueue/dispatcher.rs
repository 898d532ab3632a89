//! What the section `multiKueue` of the configuration and the controllers of MultiKueue share.

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

/// How to get credentials for the worker clusters that ClusterProfiles describe (`multiKueue.clusterProfile.accessProviders`): an
/// exec plugin (KEP-541), which the configuration names, so that a ClusterProfile can't have another program run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessProvider {
    /// The name under which ClusterProfiles refer to it.
    pub name: String,
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its environment, beside that of this process.
    pub env: Vec<(String, String)>,
    /// Version of ExecCredential, such as `client.authentication.k8s.io/v1`.
    pub api_version: String,
    /// What to do when the program is missing.
    pub install_hint: String,
    /// Whether it is told about the cluster.
    pub provide_cluster_info: bool,
}

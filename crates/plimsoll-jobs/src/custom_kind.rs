//! Kinds of jobs that CustomResourceDefinitions add to a cluster: under which framework name they are configured and in which
//! versions they may be served.

use plimsoll_api::resource::{
    APP_WRAPPERS, CLUSTER_TRAINING_RUNTIMES, JAX_JOBS, JOB_SETS, LEADER_WORKER_SETS, MPI_JOBS, PADDLE_JOBS,
    PYTORCH_JOBS, RAY_CLUSTERS, RAY_JOBS, RAY_SERVICES, Resource, SPARK_APPLICATIONS, TF_JOBS, TRAIN_JOBS,
    TRAINING_RUNTIMES, XGBOOST_JOBS,
};

/// A kind of job that a CustomResourceDefinition adds: one that is built in, or one that a JobKind declares or a configuration
/// names at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CustomKind(&'static Row);

/// Framework name, and the versions that this crate reads, the preferred one first.
#[derive(Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Row(&'static str, &'static [Resource]);

static ROWS: [Row; 16] = [
    Row("jobset.x-k8s.io/jobset", &[JOB_SETS]),
    Row("kubeflow.org/pytorchjob", &[PYTORCH_JOBS]),
    Row("kubeflow.org/tfjob", &[TF_JOBS]),
    Row("kubeflow.org/xgboostjob", &[XGBOOST_JOBS]),
    Row("kubeflow.org/paddlejob", &[PADDLE_JOBS]),
    Row("kubeflow.org/jaxjob", &[JAX_JOBS]),
    Row("kubeflow.org/mpijob", &[MPI_JOBS]),
    Row("ray.io/raycluster", &[RAY_CLUSTERS]),
    Row("ray.io/rayjob", &[RAY_JOBS]),
    Row("ray.io/rayservice", &[RAY_SERVICES]),
    Row("workload.codeflare.dev/appwrapper", &[APP_WRAPPERS]),
    Row("leaderworkerset.x-k8s.io/leaderworkerset", &[LEADER_WORKER_SETS]),
    Row("sparkoperator.k8s.io/sparkapplication", &[SPARK_APPLICATIONS]),
    Row("trainer.kubeflow.org/trainjob", &[TRAIN_JOBS]),
    // What TrainJobs refer to: on with their framework, and no jobs themselves.
    Row("trainer.kubeflow.org/trainjob", &[TRAINING_RUNTIMES]),
    Row("trainer.kubeflow.org/trainjob", &[CLUSTER_TRAINING_RUNTIMES]),
];

impl CustomKind {
    /// JobSets.
    pub const JOB_SET: Self = Self(&ROWS[0]);
    /// Kubeflow's PyTorchJobs.
    pub const PYTORCH_JOB: Self = Self(&ROWS[1]);
    /// Kubeflow's TFJobs.
    pub const TF_JOB: Self = Self(&ROWS[2]);
    /// Kubeflow's XGBoostJobs.
    pub const XGBOOST_JOB: Self = Self(&ROWS[3]);
    /// Kubeflow's PaddleJobs.
    pub const PADDLE_JOB: Self = Self(&ROWS[4]);
    /// Kubeflow's JAXJobs.
    pub const JAX_JOB: Self = Self(&ROWS[5]);
    /// Kubeflow's MPIJobs.
    pub const MPI_JOB: Self = Self(&ROWS[6]);
    /// RayClusters.
    pub const RAY_CLUSTER: Self = Self(&ROWS[7]);
    /// RayJobs.
    pub const RAY_JOB: Self = Self(&ROWS[8]);
    /// RayServices.
    pub const RAY_SERVICE: Self = Self(&ROWS[9]);
    /// AppWrappers.
    pub const APP_WRAPPER: Self = Self(&ROWS[10]);
    /// LeaderWorkerSets.
    pub const LEADER_WORKER_SET: Self = Self(&ROWS[11]);
    /// SparkApplications.
    pub const SPARK_APPLICATION: Self = Self(&ROWS[12]);
    /// Kubeflow's TrainJobs.
    pub const TRAIN_JOB: Self = Self(&ROWS[13]);
    /// Runtimes of TrainJobs in their namespace.
    pub const TRAINING_RUNTIME: Self = Self(&ROWS[14]);
    /// Runtimes of TrainJobs in all namespaces.
    pub const CLUSTER_TRAINING_RUNTIME: Self = Self(&ROWS[15]);

    /// A kind that is not built in, with its resource in one or more versions, the preferred one first. Names stay in memory as
    /// long as the process runs: a caller keeps what it got for the same names ([`crate::ObjectStore`]).
    pub(crate) fn leak(framework: String, versions: Vec<Resource>) -> Self {
        Self(Box::leak(Box::new(Row(framework.leak(), versions.leak()))))
    }

    /// All kinds that are built in.
    pub fn all() -> impl Iterator<Item = Self> {
        ROWS.iter().map(Self)
    }

    /// Whether its objects are jobs.
    pub fn has_jobs(self) -> bool {
        self != Self::TRAINING_RUNTIME && self != Self::CLUSTER_TRAINING_RUNTIME
    }

    /// Whether it is built in.
    pub fn is_built_in(self) -> bool {
        ROWS.iter().any(|row| row.0 == self.framework())
    }

    /// Whether this is its resource, in any version.
    pub fn has_resource(self, group: &str, plural: &str) -> bool {
        let resource = self.preferred();
        resource.group() == group && resource.plural == plural
    }

    /// Whether an owner reference names it, in any version.
    pub fn has_kind(self, api_version: &str, kind: &str) -> bool {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let resource = self.preferred();
        resource.group() == group && resource.kind == kind
    }

    /// The built-in kind with this resource, in any version.
    pub fn of_resource(group: &str, plural: &str) -> Option<Self> {
        Self::all().find(|kind| kind.has_resource(group, plural))
    }

    /// The built-in kind that an owner reference names, in any version.
    pub fn of_kind(api_version: &str, kind: &str) -> Option<Self> {
        Self::all().find(|custom| custom.has_kind(api_version, kind))
    }

    /// Name in `integrations.frameworks`.
    pub const fn framework(self) -> &'static str {
        self.0.0
    }

    /// The resource in every version that is read, the preferred one first.
    pub const fn versions(self) -> &'static [Resource] {
        self.0.1
    }

    /// The resource in the preferred version.
    pub const fn preferred(self) -> Resource {
        self.versions()[0]
    }
}

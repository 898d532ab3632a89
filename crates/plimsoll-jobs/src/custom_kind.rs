//! Kinds of jobs that CustomResourceDefinitions add to a cluster: under which framework name they are configured and in which
//! versions they may be served.

use plimsoll_api::resource::{
    APP_WRAPPERS, JAX_JOBS, JOB_SETS, MPI_JOBS, PADDLE_JOBS, PYTORCH_JOBS, RAY_CLUSTERS, RAY_JOBS,
    RAY_SERVICES, Resource, TF_JOBS, XGBOOST_JOBS,
};

/// A kind of job that a CustomResourceDefinition adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CustomKind(u8);

/// Framework name, and the versions that this crate reads, the preferred one first.
struct Row(&'static str, &'static [Resource]);

const ROWS: [Row; 11] = [
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
];

impl CustomKind {
    /// JobSets.
    pub const JOB_SET: Self = Self(0);
    /// Kubeflow's PyTorchJobs.
    pub const PYTORCH_JOB: Self = Self(1);
    /// Kubeflow's TFJobs.
    pub const TF_JOB: Self = Self(2);
    /// Kubeflow's XGBoostJobs.
    pub const XGBOOST_JOB: Self = Self(3);
    /// Kubeflow's PaddleJobs.
    pub const PADDLE_JOB: Self = Self(4);
    /// Kubeflow's JAXJobs.
    pub const JAX_JOB: Self = Self(5);
    /// Kubeflow's MPIJobs.
    pub const MPI_JOB: Self = Self(6);
    /// RayClusters.
    pub const RAY_CLUSTER: Self = Self(7);
    /// RayJobs.
    pub const RAY_JOB: Self = Self(8);
    /// RayServices.
    pub const RAY_SERVICE: Self = Self(9);
    /// AppWrappers.
    pub const APP_WRAPPER: Self = Self(10);

    const fn row(self) -> &'static Row {
        &ROWS[self.0 as usize]
    }

    /// All kinds.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..).zip(&ROWS).map(|(n, _)| Self(n))
    }

    /// The kind with this resource, in any version.
    pub fn of_resource(group: &str, plural: &str) -> Option<Self> {
        Self::all().find(|kind| {
            let resource = kind.preferred();
            resource.group() == group && resource.plural == plural
        })
    }

    /// The kind that an owner reference names, in any version.
    pub fn of_kind(api_version: &str, kind: &str) -> Option<Self> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        Self::all().find(|custom| {
            let resource = custom.preferred();
            resource.group() == group && resource.kind == kind
        })
    }

    /// Name in `integrations.frameworks`.
    pub const fn framework(self) -> &'static str {
        self.row().0
    }

    /// The resource in every version that is read, the preferred one first.
    pub const fn versions(self) -> &'static [Resource] {
        self.row().1
    }

    /// The resource in the preferred version.
    pub const fn preferred(self) -> Resource {
        self.versions()[0]
    }
}

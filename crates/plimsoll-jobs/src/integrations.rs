//! The registry of job integrations (Kueue `pkg/controller/jobframework/integrationmanager.go`): one row per framework.

use crate::integration::Integration;
use crate::{job, kinds, pod, serving};

/// All frameworks.
pub static INTEGRATIONS: [Integration; 18] = [
    job::INTEGRATION,
    pod::INTEGRATION,
    serving::deployment::INTEGRATION,
    serving::stateful_set::INTEGRATION,
    kinds::integration(&kinds::jobset::JOB_SET),
    kinds::integration(&kinds::kubeflow::PYTORCH_JOB),
    kinds::integration(&kinds::kubeflow::TF_JOB),
    kinds::integration(&kinds::kubeflow::XGBOOST_JOB),
    kinds::integration(&kinds::kubeflow::PADDLE_JOB),
    kinds::integration(&kinds::kubeflow::JAX_JOB),
    kinds::integration(&kinds::kubeflow::MPI_JOB),
    kinds::integration(&kinds::ray::RAY_CLUSTER),
    kinds::integration(&kinds::ray::RAY_JOB),
    kinds::integration(&kinds::ray::RAY_SERVICE),
    kinds::integration(&kinds::appwrapper::APP_WRAPPER),
    serving::leader_worker_set::INTEGRATION,
    kinds::integration(&kinds::spark::SPARK_APPLICATION),
    kinds::trainjob::INTEGRATION,
];

/// The integration of a resource type.
pub fn of_resource(group: &str, plural: &str) -> Option<&'static Integration> {
    INTEGRATIONS.iter().find(|i| i.resource.group() == group && i.resource.plural == plural)
}

/// The integration of a kind in any version, as an owner reference names it.
pub fn of_kind(api_version: &str, kind: &str) -> Option<&'static Integration> {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    INTEGRATIONS.iter().find(|i| i.resource.group() == group && i.resource.kind == kind)
}

/// The integration of this name.
pub fn of_framework(framework: &str) -> Option<&'static Integration> {
    INTEGRATIONS.iter().find(|i| i.framework == framework)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::FRAMEWORKS;
    use crate::custom_kind::CustomKind;
    use crate::plan::job_controller;

    #[test]
    fn every_framework_has_an_integration() {
        let custom = CustomKind::all().filter(|kind| kind.has_jobs()).map(CustomKind::framework);
        let all: Vec<&str> = FRAMEWORKS.into_iter().chain(custom).collect();
        assert_eq!(INTEGRATIONS.map(|i| i.framework), *all);
        for row in &INTEGRATIONS {
            let (group, plural) = (row.resource.group(), row.resource.plural);
            assert!(of_resource(group, plural).is_some_and(|i| i.framework == row.framework));
            let of_kind = of_kind(row.resource.api_version, row.resource.kind);
            assert!(of_kind.is_some_and(|i| i.framework == row.framework));
            // As Kueue's `mgr.GetEventRecorder` in `jobframework/setup.go`.
            let reporter = job_controller(row.resource.api_version, row.resource.kind);
            assert_eq!(reporter, format!("{}-kueue-controller", row.framework));
        }
        assert!(of_kind("batch.volcano.sh/v1alpha1", "Job").is_none());
    }
}

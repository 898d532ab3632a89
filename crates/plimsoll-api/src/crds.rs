//! The manifests of Kueue's kinds (`kueue.x-k8s.io`) and of our own (`plimsoll.dev`), written for this project.
//!
//! They name built-in types by `x-plimsoll-embed`; `plimsoll_apimachinery::crd::kueue_definitions` has them written
//! out in full.

/// File name and text of each manifest, by plural name.
pub const MANIFESTS: &[(&str, &str)] = &[
    ("admissionchecks.yaml", include_str!("../crds/admissionchecks.yaml")),
    ("clusterqueues.yaml", include_str!("../crds/clusterqueues.yaml")),
    ("cohorts.yaml", include_str!("../crds/cohorts.yaml")),
    ("jobkinds.yaml", include_str!("../crds/jobkinds.yaml")),
    ("localqueues.yaml", include_str!("../crds/localqueues.yaml")),
    ("multikueueclusters.yaml", include_str!("../crds/multikueueclusters.yaml")),
    ("multikueueconfigs.yaml", include_str!("../crds/multikueueconfigs.yaml")),
    ("preemptionconfigs.yaml", include_str!("../crds/preemptionconfigs.yaml")),
    ("provisioningrequestconfigs.yaml", include_str!("../crds/provisioningrequestconfigs.yaml")),
    ("quotaloans.yaml", include_str!("../crds/quotaloans.yaml")),
    ("resourceflavors.yaml", include_str!("../crds/resourceflavors.yaml")),
    ("runwindows.yaml", include_str!("../crds/runwindows.yaml")),
    ("topologies.yaml", include_str!("../crds/topologies.yaml")),
    ("workloadpriorityclasses.yaml", include_str!("../crds/workloadpriorityclasses.yaml")),
    ("workloads.yaml", include_str!("../crds/workloads.yaml")),
];

//! The resources that the controllers read and write, and their request paths.

/// A resource type as the API serves it: group, version, plural and kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// Group and version: `v1` or `batch/v1`.
    pub api_version: &'static str,
    /// Plural: `pods`.
    pub plural: &'static str,
    /// Kind: `Pod`.
    pub kind: &'static str,
}

macro_rules! resources {
    ($($(#[$doc:meta])* $name:ident = $api:literal $plural:literal $kind:literal;)*) => {
        $($(#[$doc])* pub const $name: Resource = Resource { api_version: $api, plural: $plural, kind: $kind };)*
    };
}

resources! {
    /// Pods.
    PODS = "v1" "pods" "Pod";
    /// Nodes.
    NODES = "v1" "nodes" "Node";
    /// Namespaces.
    NAMESPACES = "v1" "namespaces" "Namespace";
    /// Events of the core group.
    CORE_EVENTS = "v1" "events" "Event";
    /// Events.
    EVENTS = "events.k8s.io/v1" "events" "Event";
    /// Leases.
    LEASES = "coordination.k8s.io/v1" "leases" "Lease";
    /// Jobs.
    JOBS = "batch/v1" "jobs" "Job";
    /// JobSets.
    JOB_SETS = "jobset.x-k8s.io/v1alpha2" "jobsets" "JobSet";
    /// Kubeflow's PyTorchJobs.
    PYTORCH_JOBS = "kubeflow.org/v1" "pytorchjobs" "PyTorchJob";
    /// Kubeflow's TFJobs.
    TF_JOBS = "kubeflow.org/v1" "tfjobs" "TFJob";
    /// Kubeflow's XGBoostJobs.
    XGBOOST_JOBS = "kubeflow.org/v1" "xgboostjobs" "XGBoostJob";
    /// Kubeflow's PaddleJobs.
    PADDLE_JOBS = "kubeflow.org/v1" "paddlejobs" "PaddleJob";
    /// Kubeflow's JAXJobs.
    JAX_JOBS = "kubeflow.org/v1" "jaxjobs" "JAXJob";
    /// Kubeflow's MPIJobs.
    MPI_JOBS = "kubeflow.org/v2beta1" "mpijobs" "MPIJob";
    /// RayClusters.
    RAY_CLUSTERS = "ray.io/v1" "rayclusters" "RayCluster";
    /// RayJobs.
    RAY_JOBS = "ray.io/v1" "rayjobs" "RayJob";
    /// RayServices.
    RAY_SERVICES = "ray.io/v1" "rayservices" "RayService";
    /// AppWrappers.
    APP_WRAPPERS = "workload.codeflare.dev/v1beta2" "appwrappers" "AppWrapper";
    /// LeaderWorkerSets.
    LEADER_WORKER_SETS = "leaderworkerset.x-k8s.io/v1" "leaderworkersets" "LeaderWorkerSet";
    /// SparkApplications.
    SPARK_APPLICATIONS = "sparkoperator.k8s.io/v1beta2" "sparkapplications" "SparkApplication";
    /// Kubeflow's TrainJobs.
    TRAIN_JOBS = "trainer.kubeflow.org/v1alpha1" "trainjobs" "TrainJob";
    /// Their runtimes.
    TRAINING_RUNTIMES = "trainer.kubeflow.org/v1alpha1" "trainingruntimes" "TrainingRuntime";
    /// Their runtimes for all namespaces.
    CLUSTER_TRAINING_RUNTIMES =
        "trainer.kubeflow.org/v1alpha1" "clustertrainingruntimes" "ClusterTrainingRuntime";
    /// Our declarations of kinds of jobs.
    JOB_KINDS = "plimsoll.dev/v1alpha1" "jobkinds" "JobKind";
    /// Priority classes of pods.
    PRIORITY_CLASSES = "scheduling.k8s.io/v1" "priorityclasses" "PriorityClass";
    /// Kueue workloads.
    WORKLOADS = "kueue.x-k8s.io/v1beta2" "workloads" "Workload";
    /// Kueue cluster queues.
    CLUSTER_QUEUES = "kueue.x-k8s.io/v1beta2" "clusterqueues" "ClusterQueue";
    /// Kueue local queues.
    LOCAL_QUEUES = "kueue.x-k8s.io/v1beta2" "localqueues" "LocalQueue";
    /// Kueue cohorts.
    COHORTS = "kueue.x-k8s.io/v1beta2" "cohorts" "Cohort";
    /// Services, for default spreading.
    SERVICES = "v1" "services" "Service";
    /// Replication controllers, for default spreading.
    REPLICATION_CONTROLLERS = "v1" "replicationcontrollers" "ReplicationController";
    /// Replica sets, for default spreading.
    REPLICA_SETS = "apps/v1" "replicasets" "ReplicaSet";
    /// Deployments.
    DEPLOYMENTS = "apps/v1" "deployments" "Deployment";
    /// Stateful sets, for default spreading.
    STATEFUL_SETS = "apps/v1" "statefulsets" "StatefulSet";
    /// Disruption budgets, for preemption.
    BUDGETS = "policy/v1" "poddisruptionbudgets" "PodDisruptionBudget";
    /// Volumes.
    VOLUMES = "v1" "persistentvolumes" "PersistentVolume";
    /// Claims of volumes.
    VOLUME_CLAIMS = "v1" "persistentvolumeclaims" "PersistentVolumeClaim";
    /// Storage classes.
    STORAGE_CLASSES = "storage.k8s.io/v1" "storageclasses" "StorageClass";
    /// Storage drivers on nodes.
    CSI_NODES = "storage.k8s.io/v1" "csinodes" "CSINode";
    /// Storage drivers.
    CSI_DRIVERS = "storage.k8s.io/v1" "csidrivers" "CSIDriver";
    /// Capacity of storage.
    CSI_CAPACITIES = "storage.k8s.io/v1" "csistoragecapacities" "CSIStorageCapacity";
    /// Volumes attached to nodes.
    ATTACHMENTS = "storage.k8s.io/v1" "volumeattachments" "VolumeAttachment";
    /// Claims of devices.
    DEVICE_CLAIMS = "resource.k8s.io/v1" "resourceclaims" "ResourceClaim";
    /// Devices.
    DEVICE_SLICES = "resource.k8s.io/v1" "resourceslices" "ResourceSlice";
    /// Classes of devices.
    DEVICE_CLASSES = "resource.k8s.io/v1" "deviceclasses" "DeviceClass";
    /// Templates of claims of devices.
    CLAIM_TEMPLATES = "resource.k8s.io/v1" "resourceclaimtemplates" "ResourceClaimTemplate";
    /// Groups of pods.
    POD_GROUPS = "scheduling.k8s.io/v1alpha2" "podgroups" "PodGroup";
    /// Bounds of requests.
    LIMIT_RANGES = "v1" "limitranges" "LimitRange";
    /// Runtime classes, for their overhead.
    RUNTIME_CLASSES = "node.k8s.io/v1" "runtimeclasses" "RuntimeClass";
    /// Kueue admission checks.
    ADMISSION_CHECKS = "kueue.x-k8s.io/v1beta2" "admissionchecks" "AdmissionCheck";
    /// Worker clusters of checks of MultiKueue.
    MULTIKUEUE_CONFIGS = "kueue.x-k8s.io/v1beta2" "multikueueconfigs" "MultiKueueConfig";
    /// Worker clusters.
    MULTIKUEUE_CLUSTERS = "kueue.x-k8s.io/v1beta2" "multikueueclusters" "MultiKueueCluster";
    /// Secrets.
    SECRETS = "v1" "secrets" "Secret";
    /// Kueue topologies.
    TOPOLOGIES = "kueue.x-k8s.io/v1beta2" "topologies" "Topology";
    /// Rules that add candidates for preemption.
    PREEMPTION_CONFIGS = "kueue.x-k8s.io/v1alpha1" "preemptionconfigs" "PreemptionConfig";
    /// What checks ask the cluster autoscaler with.
    PROVISIONING_CONFIGS = "kueue.x-k8s.io/v1beta2" "provisioningrequestconfigs" "ProvisioningRequestConfig";
    /// Requests to the cluster autoscaler.
    PROVISIONING_REQUESTS = "autoscaling.x-k8s.io/v1" "provisioningrequests" "ProvisioningRequest";
    /// The same as older cluster autoscalers serve them.
    PROVISIONING_REQUESTS_BETA = "autoscaling.x-k8s.io/v1beta1" "provisioningrequests" "ProvisioningRequest";
    /// Templates of pods, for requests to the cluster autoscaler.
    POD_TEMPLATES = "v1" "podtemplates" "PodTemplate";
    /// Our run windows.
    RUN_WINDOWS = "plimsoll.dev/v1alpha1" "runwindows" "RunWindow";
    /// Quota lent between trees of cohorts.
    QUOTA_LOANS = "plimsoll.dev/v1alpha1" "quotaloans" "QuotaLoan";
    /// Kueue flavors.
    FLAVORS = "kueue.x-k8s.io/v1beta2" "resourceflavors" "ResourceFlavor";
    /// Kueue priority classes.
    WORKLOAD_PRIORITY_CLASSES = "kueue.x-k8s.io/v1beta2" "workloadpriorityclasses" "WorkloadPriorityClass";
}

impl Resource {
    /// Group, empty for the core group.
    pub fn group(&self) -> &'static str {
        self.api_version.split_once('/').map_or("", |(g, _)| g)
    }

    /// Path of the collection; in all namespaces when `namespace` is empty.
    pub fn collection(&self, namespace: &str) -> String {
        let root = if self.api_version.contains('/') { "/apis/" } else { "/api/" };
        if namespace.is_empty() {
            format!("{root}{}/{}", self.api_version, self.plural)
        } else {
            format!("{root}{}/namespaces/{namespace}/{}", self.api_version, self.plural)
        }
    }

    /// Path of one object.
    pub fn object(&self, namespace: &str, name: &str) -> String {
        format!("{}/{name}", self.collection(namespace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        assert_eq!(PODS.object("ns", "p"), "/api/v1/namespaces/ns/pods/p");
        assert_eq!(NODES.object("", "n"), "/api/v1/nodes/n");
        assert_eq!(WORKLOADS.collection("ns"), "/apis/kueue.x-k8s.io/v1beta2/namespaces/ns/workloads");
        assert_eq!((JOBS.group(), PODS.group()), ("batch", ""));
    }
}

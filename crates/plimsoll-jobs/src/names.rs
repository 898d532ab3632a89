//! Labels, annotations, scheduling gates and finalizers of Kueue (`pkg/controller/constants`, `apis/kueue/v1beta2`).

/// Label: LocalQueue of a job.
pub const QUEUE: &str = "kueue.x-k8s.io/queue-name";
/// Label: WorkloadPriorityClass of a job.
pub const PRIORITY_CLASS: &str = "kueue.x-k8s.io/priority-class";
/// Label: how long the workload may run.
pub const MAX_EXEC_TIME: &str = "kueue.x-k8s.io/max-exec-time-seconds";
/// Label or annotation: Workload that a user has created for the job.
pub const PREBUILT: &str = "kueue.x-k8s.io/prebuilt-workload-name";
/// Label on pods that a queue manages, and their finalizer.
pub const MANAGED: &str = "kueue.x-k8s.io/managed";
/// Finalizer of workloads, flavors and cluster queues.
pub const IN_USE: &str = "kueue.x-k8s.io/resource-in-use";
/// Scheduling gate of pods that wait for admission.
pub const GATE: &str = "kueue.x-k8s.io/admission";
/// Annotation on jobs that may grow and shrink while they run, and on their workloads.
pub const ELASTIC: &str = "kueue.x-k8s.io/elastic-job";
/// Annotation on elastic jobs: whether a scale-up that does not fit as a whole waits (`atomic`) or gets what fits (`partial`).
pub const SCALE_UP_STRATEGY: &str = "kueue.x-k8s.io/elastic-job-scale-up-strategy";
/// Scheduling gate of pods of elastic jobs.
pub const ELASTIC_GATE: &str = "kueue.x-k8s.io/elastic-job";
/// Annotation on workloads and pods of elastic jobs: name of the first slice.
pub const SLICE: &str = plimsoll_api::kueue::FIRST_SLICE;
/// Scheduling gate of pods that wait for their topology domain.
pub const TOPOLOGY_GATE: &str = "kueue.x-k8s.io/topology";
/// Annotation for pods that get places in a topology without asking for a level of it.
pub const UNCONSTRAINED: &str = "kueue.x-k8s.io/podset-unconstrained-topology";
/// Label: podset of a pod.
pub const PODSET: &str = "kueue.x-k8s.io/podset";
/// Label: ClusterQueue of a pod.
pub const CLUSTER_QUEUE: &str = "kueue.x-k8s.io/cluster-queue-name";
/// Label: LocalQueue of a pod.
pub const LOCAL_QUEUE: &str = "kueue.x-k8s.io/local-queue-name";
/// Label of pods on a worker cluster whose workload another cluster has sent.
pub const OF_MULTIKUEUE: &str = "kueue.x-k8s.io/multikueue-worker-workload-pod";
/// `spec.controllerName` of AdmissionChecks of MultiKueue, and `spec.managedBy` of jobs that it dispatches.
pub const MULTIKUEUE: &str = "kueue.x-k8s.io/multikueue";
/// Label on objects of a worker cluster: the manager that created them.
pub const ORIGIN: &str = "kueue.x-k8s.io/multikueue-origin";
/// Annotation on objects of a worker cluster: UID of the manager's object.
pub const ORIGIN_UID: &str = "kueue.x-k8s.io/multikueue-origin-uid";
/// Annotation: Workload of a pod.
pub const WORKLOAD: &str = "kueue.x-k8s.io/workload";
/// Annotations of workloads: their job, also when it is gone.
pub const OWNER_KIND: &str = "kueue.x-k8s.io/job-owner-gvk";
/// The same: its name.
pub const OWNER_NAME: &str = "kueue.x-k8s.io/job-owner-name";
/// Annotation of a workload of a job that has several: its index.
pub const COMPONENT: &str = "kueue.x-k8s.io/component-workload-index";
/// Label: UID of the job of a Workload.
pub const JOB_UID: &str = "kueue.x-k8s.io/job-uid";
/// Annotation: number of pods in a group.
pub const GROUP_COUNT: &str = "kueue.x-k8s.io/pod-group-total-count";
/// Annotation: the group is admitted from its first pod on.
pub const GROUP_FAST: &str = "kueue.x-k8s.io/pod-group-fast-admission";
/// Annotation: the group never finishes by itself.
pub const GROUP_SERVING: &str = "kueue.x-k8s.io/pod-group-serving";
/// Annotation: failed pods of the group are not replaced when `false`.
pub const RETRIABLE: &str = "kueue.x-k8s.io/retriable-in-group";
/// Annotation: role of a pod in its group.
pub const ROLE_HASH: &str = "kueue.x-k8s.io/role-hash";
/// Annotation on workloads of groups.
pub const IS_GROUP: &str = "kueue.x-k8s.io/is-group-workload";
/// Annotation: kind of the parent that suspends the pod.
pub const SUSPENDING_PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";
/// Annotation on a Job while it is being stopped.
pub const STOPPING: &str = "kueue.x-k8s.io/stopping";
/// Annotation: least number of pods that may be admitted.
pub const MIN_PARALLELISM: &str = "kueue.x-k8s.io/job-min-parallelism";
/// Annotation: completions follow parallelism.
pub const SYNC_COMPLETIONS: &str = "kueue.x-k8s.io/job-completions-equal-parallelism";
/// Annotation: the workload is not queued until all names here are removed.
pub const GATED_BY: &str = "kueue.x-k8s.io/admission-gated-by";
/// Annotation on pods that may be deleted without waiting for the kubelet of an unreachable node, with the value `true`.
pub const SAFE_TO_FORCEFULLY_DELETE: &str = "kueue.x-k8s.io/safe-to-forcefully-delete";
/// Prefix of annotations copied for provisioning requests.
pub const PROVREQ: &str = "provreq.kueue.x-k8s.io/";
/// LocalQueue of jobs without the label, where it exists.
pub const DEFAULT_QUEUE: &str = "default";
/// Condition of a workload: its pods have their nodes too. As in queueing, a reservation that ends takes it back.
pub const NODES_RESERVED: &str = "plimsoll.dev/NodesReserved";
/// Annotation of RayJobs and RayServices that run on a worker cluster: name, generation and sizes of their RayCluster there.
pub const RAY_CLUSTER_SIZES: &str = "plimsoll.dev/ray-cluster-sizes";
/// Condition of MultiKueueClusters: whether a worker serves all kinds of jobs that the manager does.
pub const JOB_KINDS_SERVED: &str = "plimsoll.dev/JobKindsServed";

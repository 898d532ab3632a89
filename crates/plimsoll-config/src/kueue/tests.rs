use super::*;

const HEAD: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";
const OLD: &str = "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n";

fn with(head: &str, rest: &str) -> Result<KueueConfig, ConfigError> {
    read(&format!("{head}{rest}"), "kueue-system")
}

#[test]
fn defaults_differ_by_version() {
    let new = with(HEAD, "").expect("an empty file");
    let wait = new.queueing.wait_for_pods_ready.expect("on by default");
    assert_eq!((wait.timeout, wait.block_admission), (Duration::from_seconds(1800), false));
    let backoff = [60, 3600].map(Duration::from_seconds);
    assert_eq!(([wait.backoff_base, wait.backoff_max], wait.backoff_limit), (backoff, None));
    assert_eq!(wait.recovery_timeout, Some(wait.timeout));
    assert_eq!(new.frameworks, ["batch/job"]);
    assert!(new.queueing.fair_sharing.is_none());
    let old = with(OLD, "fairSharing:\n  enable: true\n").expect("an old file");
    assert!(old.queueing.wait_for_pods_ready.is_none());
    assert_eq!(old.queueing.fair_sharing.map(|f| f.strategies.len()), Some(2));
    let old = with(OLD, "waitForPodsReady:\n  enable: true\nqueueVisibility: {}\n").expect("an old file");
    let wait = old.queueing.wait_for_pods_ready.expect("switched on");
    assert_eq!((wait.timeout, wait.block_admission), (Duration::from_seconds(300), true));
    assert_eq!(wait.recovery_timeout, Some(wait.timeout));
    let off = "waitForPodsReady:\n  recoveryTimeout: 0s\n  timeout: 0s\n";
    let wait = with(HEAD, off).expect("valid").queueing.wait_for_pods_ready.expect("on");
    assert_eq!((wait.recovery_timeout, wait.timeout), (None, Duration::from_seconds(1800)));
    let gate = with(HEAD, "featureGates:\n  DisableWaitForPodsReady: true\n").expect("a gate of Kueue");
    assert!(gate.queueing.wait_for_pods_ready.is_none());
}

#[test]
fn what_is_wrong_is_refused() {
    let table = [
        (HEAD, "nonsense: 1\n", "strict decoding error: unknown field \"nonsense\""),
        (HEAD, "namespace: a\nnamespace: b\n", "error converting YAML to JSON"),
        (HEAD, "waitForPodsReady:\n  enable: true\n", "unknown field \"waitForPodsReady.enable\""),
        (
            HEAD,
            "fairSharing:\n  preemptionStrategies: [LessThanInitialShare, LessThanOrEqualToFinalShare]\n",
            "Unsupported",
        ),
        (HEAD, "featureGates:\n  Nope: true\n", "unrecognized feature gate: Nope"),
        (
            HEAD,
            "resources:\n  quotaCheckStrategy: IgnoreUndeclared\n  excludeResourcePrefixes: [a]\n",
            "IgnoreUndeclared",
        ),
        (HEAD, "waitForPodsReady:\n  timeout: soon\n", "waitForPodsReady.timeout"),
        (HEAD, "managedJobsNamespaceSelector: {}\n", "kube-system"),
        (
            HEAD,
            "multiKueue: {clusterProfile: {accessProviders: [{name: a, execConfig: {command: c, apiVersion: v, interactiveMode: Ask}}]}}\n",
            "multiKueue.clusterProfile.accessProviders.execConfig.interactiveMode: Unsupported value: \"Ask\"",
        ),
        (
            HEAD,
            "multiKueue: {clusterProfile: {credentialsProviders: [{name: a, execConfig: {apiVersion: v, interactiveMode: Never}}]}}\n",
            "multiKueue.clusterProfile.credentialsProviders.execConfig.command: Required value: must be specified",
        ),
        (
            HEAD,
            "multiKueue: {clusterProfile: {accessProviders: [{name: a}], credentialsProviders: [{name: b}]}}\n",
            "multiKueue.clusterProfile.credentialsProviders: Forbidden: must not be specified when accessProviders is specified",
        ),
        (
            HEAD,
            "multiKueue: {externalFrameworks: [{name: A.v1}]}\n",
            "multiKueue.externalFrameworks[0].name: Invalid value",
        ),
        (HEAD, "multiKueue: {gcInterval: -1s}\n", "multiKueue.gcInterval: Invalid value"),
        (
            HEAD,
            "multiKueue: {origin: \"a b\"}\n",
            "multiKueue.origin: Invalid value: \"a b\": a valid label must be",
        ),
        (
            HEAD,
            "multiKueue: {incrementalDispatcherConfig: {}}\n",
            "is only valid when dispatcherName is set to",
        ),
        (
            HEAD,
            "multiKueue: {dispatcherName: kueue.x-k8s.io/multikueue-dispatcher-incremental, incrementalDispatcherConfig: {stepSize: 0}}\n",
            "multiKueue.incrementalDispatcherConfig.stepSize: Invalid value: 0: must be greater than or equal to 1",
        ),
        (
            HEAD,
            "resources: {transformations: [{input: pods}]}\n",
            "resources.transformations[0].input: Invalid value: \"pods\": the key is reserved",
        ),
        (
            HEAD,
            "resources: {transformations: [{input: a, outputs: {pods: 1}}]}\n",
            "resources.transformations[0].outputs[pods]: Invalid value: \"pods\": the key is reserved",
        ),
        (
            HEAD,
            "resources: {deviceClassMappings: [{name: pods, deviceClassNames: [a]}]}\n",
            "resources.deviceClassMappings[0].name: Invalid value: \"pods\": the key is reserved",
        ),
        ("kind: Configuration\napiVersion: other/v1\n", "", "no kind"),
    ];
    for (head, rest, want) in table {
        let error = with(head, rest).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains(want), "{rest}: {error:?} lacks {want:?}");
    }
}

#[test]
fn values_reach_the_engine() {
    let text = "resources:\n  transformations:\n  - input: a\n    strategy: Replace\n    outputs: {b: 500m}\n\
                admissionFairSharing:\n  usageHalfLifeTime: 1h30m\n  resourceWeights: {cpu: 2}\n\
                featureGates: {PartialAdmission: false}\n\
                objectRetentionPolicies:\n  workloads:\n    afterFinished: 10m\n";
    let config = with(HEAD, text).expect("valid");
    assert_eq!(config.queueing.transformations[0].outputs, [("b".to_owned(), 500_000_000)]);
    let fair = config.queueing.admission_fair_sharing.expect("on");
    assert_eq!((fair.half_life, fair.sampling), (Duration::from_seconds(5400), Duration::from_seconds(300)));
    assert!(!config.queueing.gates.partial_admission);
    assert_eq!(config.delete_finished_after, Some(Duration::from_seconds(600)));
}

/// With its gate off Kueue reads a configuration that transforms `pods`.
#[test]
fn reserved_names_are_refused_as_the_gate_says() {
    let text = "resources: {transformations: [{input: pods}], deviceClassMappings: [{name: pods, deviceClassNames: [a]}]}\n";
    let off = "featureGates: {ReservedResourceNameValidation: false}\n";
    assert!(with(HEAD, text).is_err());
    assert_eq!(with(HEAD, &format!("{text}{off}")).map_err(|e| e.to_string()).err(), None);
    // Without devices their mappings have no effect.
    let devices = "resources: {deviceClassMappings: [{name: pods, deviceClassNames: [a]}]}\nfeatureGates: {KueueDRAIntegration: false";
    let also =
        ", KueueDRAIntegrationExtendedResource: false, KueueDRAIntegrationPartitionableDevices: false}\n";
    assert_eq!(with(HEAD, &format!("{devices}{also}")).map_err(|e| e.to_string()).err(), None);
}

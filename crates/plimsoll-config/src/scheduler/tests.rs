use super::*;

const HEAD: &str = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

fn fit(profile: &Profile) -> std::sync::Arc<plimsoll_scheduler::FitArgs> {
    profile.args.get("NodeResourcesFit")
}

#[test]
fn an_empty_file_gives_the_defaults() {
    let c = read(HEAD).expect("valid");
    assert_eq!(c.profiles.len(), 1);
    assert_eq!(c.profiles[0].scheduler_name, "default-scheduler");
    assert_eq!(c.backoff, Backoff::default());
}

#[test]
fn profiles_and_arguments_are_read() {
    let c = read(&format!(
        "{HEAD}podMaxBackoffSeconds: 20\nprofiles:\n- schedulerName: a\n- schedulerName: b\n  plugins:\n    score:\n      \
         disabled: [{{name: '*'}}]\n  pluginConfig:\n  - name: NodeResourcesFit\n    args:\n      scoringStrategy: {{type: \
         MostAllocated, resources: [{{name: cpu, weight: 3}}]}}\n"
    ))
    .expect("valid");
    assert_eq!(c.backoff.max, Duration::from_seconds(20));
    assert_eq!(fit(&c.profiles[1]).resources[0].weight, 3);
    assert!(!c.profiles[1].plugins.enabled(plimsoll_scheduler::ExtensionPoint::Score, "ImageLocality"));
}

#[test]
fn extenders_are_read_and_ignorable_ones_come_last() {
    let c = read(&format!(
        "{HEAD}extenders:\n- {{urlPrefix: 'http://a', filterVerb: f, ignorable: true}}\n- {{urlPrefix: 'https://b', \
         prioritizeVerb: p, weight: 5, httpTimeout: 2s, enableHTTPS: true, nodeCacheCapable: true, tlsConfig: {{caData: \
         YQ==, serverName: s}}, managedResources: [{{name: example.com/x, ignoredByScheduler: true}}]}}\n"
    ))
    .expect("valid");
    let [b, a] = c.extenders.as_slice() else { panic!("{:?}", c.extenders) };
    assert_eq!((a.url_prefix.as_str(), a.timeout.seconds(), a.ignorable), ("http://a", 5, true));
    assert_eq!((b.weight, b.timeout.seconds(), b.node_cache_capable), (5, 2, true));
    assert_eq!((b.tls.data[2].as_str(), b.tls.server_name.as_str()), ("YQ==", "s"));
    assert_eq!(fit(&c.profiles[0]).ignored_resources, ["example.com/x"]);
}

#[test]
fn what_upstream_refuses_is_refused() {
    let cases = [
        ("nope: 1\n", "unknown field"),
        ("parallelism: 0\n", "parallelism: Invalid value: 0: should be an integer value greater than zero"),
        (
            "percentageOfNodesToScore: 101\n",
            "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]",
        ),
        ("podInitialBackoffSeconds: 20\n", "must be greater than or equal to PodInitialBackoffSeconds"),
        (
            "profiles: [{schedulerName: a}, {schedulerName: a}]\n",
            "profiles[1].schedulerName: Duplicate value: \"a\"",
        ),
        ("profiles: [{schedulerName: a}, {}]\n", "profiles[1].schedulerName: Required value"),
        (
            "profiles: [{plugins: {filter: {enabled: [{name: Nope}]}}}]\n",
            "profiles[0].plugins.filter.enabled[0].name: plugin \"Nope\" does not exist: known plugins: ",
        ),
        (
            "profiles: [{plugins: {filter: {enabled: [{name: EBSLimits}]}}}]\n",
            "Invalid value: \"EBSLimits\": was removed",
        ),
        (
            "profiles: [{pluginConfig: [{name: InterPodAffinity, args: {hardPodAffinityWeight: 200}}]}]\n",
            "profiles[0].pluginConfig[0].args.hardPodAffinityWeight: Invalid value: 200: not in valid range [0, 100]",
        ),
        (
            "profiles: [{pluginConfig: [{name: InterPodAffinity, args: {nope: 1}}]}]\n",
            "strict decoding error: unknown field",
        ),
        (
            "profiles: [{pluginConfig: [{name: DefaultPreemption}, {name: DefaultPreemption}]}]\n",
            "Duplicate value: \"DefaultPreemption\"",
        ),
        (
            "profiles: [{pluginConfig: [{name: PodTopologySpread, args: {defaultConstraints: [{maxSkew: 0, topologyKey: \
             zone, whenUnsatisfiable: DoNotSchedule}], defaultingType: List}}]}]\n",
            "defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf)",
        ),
    ];
    let extenders = [
        (
            "extenders: [{prioritizeVerb: p}]\n",
            "extenders[0].weight: Invalid value: 0: must have a positive weight",
        ),
        ("extenders: [{bindVerb: b}, {bindVerb: b}]\n", "found 2 extenders implementing bind"),
        ("extenders: [{managedResources: [{name: cpu}]}]\n", "\"cpu\": is an invalid extended resource name"),
        (
            "extenders: [{managedResources: [{name: a.b/c}]}, {managedResources: [{name: a.b/c}]}]\n",
            "extenders[1].managedResources[0].name: Invalid value: \"a.b/c\": duplicate extender managed resource name",
        ),
        ("extenders: [{urlprefix: x}]\n", "unknown field"),
    ];
    for (text, want) in cases.into_iter().chain(extenders) {
        let error = read(&format!("{HEAD}{text}")).expect_err(want).to_string();
        assert!(error.contains(want), "{error}\nwanted {want}");
    }
    assert!(read("kind: Other\napiVersion: v1\n").is_err());
}

#[test]
fn plugins_of_a_registry_can_be_named_with_arguments() {
    use plimsoll_scheduler::framework::{ArgsError, Plugin};
    use plimsoll_scheduler::{ExtensionPoint, Registration};

    #[derive(Debug)]
    struct Mine;
    impl Plugin for Mine {}

    let check = |text: &str| match text.contains("rank") {
        true => Ok(()),
        false => Err(vec![ArgsError::new("rank", "Required value")]),
    };
    let mine =
        Registration::new("Mine", &[ExtensionPoint::Score], |_, _| -> Box<dyn Plugin> { Box::new(Mine) });
    let mut registry = Registry::in_tree();
    registry.register(mine.with_args(check)).expect("a new name");
    let text = |args: &str| {
        format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- plugins:\n    \
             score: {{enabled: [{{name: Mine, weight: 5}}]}}\n  pluginConfig:\n  - name: Mine\n    args: {args}\n"
        )
    };
    let config = read_with_registry(&text("{rank: tier}"), &Gates::default(), &registry).expect("valid");
    assert!(config.profiles[0].plugins.enabled(ExtensionPoint::Score, "Mine"));
    assert_eq!(config.profiles[0].args.of("Mine"), Some("{\"rank\":\"tier\"}"));
    let refused = read_with_registry(&text("{}"), &Gates::default(), &registry).expect_err("no rank");
    assert!(
        refused.to_string().contains("profiles[0].pluginConfig[0].args.rank: Required value"),
        "{refused}"
    );
    assert!(!refused.to_string().contains("needs arguments"), "one error for one fault: {refused}");
    let none = text("{}").replace("  pluginConfig:\n  - name: Mine\n    args: {}\n", "");
    let none = read_with_registry(&none, &Gates::default(), &registry).expect_err("no arguments").to_string();
    assert!(
        none.contains("profiles[0].pluginConfig: Required value: plugin \"Mine\" needs arguments"),
        "{none}"
    );
    let unknown = read(&text("{rank: tier}")).expect_err("not in-tree").to_string();
    assert!(unknown.contains("plugin \"Mine\" does not exist"), "{unknown}");
}

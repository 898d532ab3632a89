use super::*;
use plimsoll_state::model::RestartPolicy;

fn res(pairs: &[(&str, i64)]) -> Resources {
    pairs.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect()
}

fn container(requests: &[(&str, i64)], sidecar: bool) -> Container {
    let restart_policy = sidecar.then_some(RestartPolicy::Always);
    Container { requests: res(requests), restart_policy, ..Container::default() }
}

#[test]
fn init_containers_sidecars_and_overhead() {
    let spec = PodSpec {
        containers: vec![container(&[("cpu", 1000)], false), container(&[("cpu", 500)], false)],
        init_containers: vec![
            container(&[("cpu", 3000)], false),
            container(&[("cpu", 200)], true),
            container(&[("cpu", 2000), ("memory", 7)], false),
        ],
        overhead: res(&[("cpu", 10)]),
        ..PodSpec::default()
    };
    assert_eq!(pod_requests(&spec, &PodResourcesOptions::default()), res(&[("cpu", 3010), ("memory", 7)]));
    let spec = PodSpec { pod_requests: Some(res(&[("cpu", 50), ("example.com/gpu", 9)])), ..spec };
    assert_eq!(pod_requests(&spec, &PodResourcesOptions::default()), res(&[("cpu", 60), ("memory", 7)]));
}

#[test]
fn transformations_are_exact() {
    let rule = |input: &str, replace, multiply_by: Option<&str>, outputs: &[(&str, i128)]| Transformation {
        input: input.into(),
        replace,
        multiply_by: multiply_by.map(Into::into),
        outputs: outputs.iter().map(|(n, f)| ((*n).to_owned(), *f)).collect(),
    };
    let nano = 1_000_000_000;
    let cases = [
        (vec![rule("a", true, None, &[("b", 3 * nano)])], res(&[("a", 2)]), res(&[("b", 6)])),
        (vec![rule("a", false, None, &[("b", nano / 2)])], res(&[("a", 3)]), res(&[("a", 3), ("b", 2)])),
        (
            vec![rule("a", true, None, &[("cpu", nano / 4)])],
            res(&[("a", 1), ("cpu", 1)]),
            res(&[("cpu", 251)]),
        ),
        (vec![rule("a", true, Some("g"), &[("m", 5 << 30)])], res(&[("a", 2), ("g", 4)]), {
            let bytes = ((5i128 << 30) * 8 / nano) as i64 + 1;
            res(&[("g", 4), ("m", bytes)])
        }),
        (vec![rule("a", true, None, &[("b", -nano)])], res(&[("a", 2), ("b", 5)]), res(&[("b", 5)])),
    ];
    for (rules, input, want) in cases {
        assert_eq!(effective(&input, &[], &rules), want);
    }
    assert_eq!(effective(&res(&[("x.com/a", 1), ("b", 1)]), &["x.com/".into()], &[]), res(&[("b", 1)]));
}

#[test]
fn violations_are_worded_like_kueue() {
    let limits = Limits::summarize(
        [LimitRange {
            container: Some(LimitRangeItem { max: res(&[("cpu", 500)]), ..LimitRangeItem::default() }),
            ..LimitRange::default()
        }]
        .iter(),
    );
    let spec = PodSpec { containers: vec![container(&[("cpu", 501)], false)], ..PodSpec::default() };
    assert_eq!(
        validate([&spec].into_iter(), &limits).as_deref(),
        Some(
            "resources didn't satisfy LimitRange constraints: spec.podSets[0].template.spec.containers[0]: \
             Invalid value: [\"cpu\"]: requests must not be above the limitRange max"
        )
    );
    let mut bad = spec;
    bad.containers[0].limits = res(&[("cpu", 1)]);
    assert!(
        validate([&bad].into_iter(), &Limits::default()).is_some_and(|m| m.ends_with("exceed its limits"))
    );
}

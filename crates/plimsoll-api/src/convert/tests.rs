use super::*;
use plimsoll_state::ClusterObject;
use plimsoll_state::model::{Phase, TaintEffect, TolerationOperator};

#[test]
fn a_pod_is_read_with_defaults_and_without_managed_fields() {
    let pod = pod(br#"{"metadata":{"name":"a","namespace":"ns","uid":"u","labels":{"x":"1","y":null},
        "managedFields":[{"fieldsV1":{"f:spec":{}}}],"creationTimestamp":"2031-03-01T06:05:57Z"},
        "spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1.5","memory":"1Ki","x/gpu":2}},
        "ports":[{"containerPort":80,"hostPort":8080}]}],"tolerations":[{"key":"k","operator":"Exists"}],
        "nodeSelector":null,"volumes":[{"name":"s","secret":{}},{"name":"e","ephemeral":{"volumeClaimTemplate":{}}}]},
        "status":{"phase":"Running"}}"#)
    .expect("valid");
    let c = &pod.spec.containers[0];
    assert_eq!(c.requests.get("cpu"), Some(&1500));
    assert_eq!(c.requests.get("memory"), Some(&1024));
    assert_eq!(c.requests.get("x/gpu"), Some(&2));
    assert_eq!(c.ports[0].host_port, 8080);
    assert_eq!(pod.spec.scheduler_name, "default-scheduler");
    assert_eq!(pod.spec.tolerations[0].operator, TolerationOperator::Exists);
    assert_eq!(pod.labels.get("y").map(String::as_str), Some(""));
    assert_eq!(pod.spec.volumes.len(), 1);
    assert_eq!(pod.status.phase, Phase::Running);
    assert_eq!(pod.creation_time.seconds(), 1_930_111_557);
}

#[test]
fn a_node_is_read() {
    let node = node(br#"{"metadata":{"name":"n"},"spec":{"taints":[{"key":"k","effect":"NoExecute"}]},
        "status":{"allocatable":{"cpu":"3900m","pods":"110"},"conditions":[{"type":"Ready","status":"True"}]}}"#)
    .expect("valid");
    assert_eq!(node.allocatable.get("cpu"), Some(&3900));
    assert_eq!(node.taints[0].effect, TaintEffect::NoExecute);
    assert!(node.ready);
    assert_eq!(node.conditions.get("Ready").map(String::as_str), Some("True"));
}

#[test]
fn malformed_objects_are_refused_with_the_field() {
    let cases: [(&[u8], &str); 6] = [
        (b"{", "cannot decode Pod"),
        (br#"{"metadata":{}}"#, "metadata.name"),
        (
            br#"{"metadata":{"name":"a"},"spec":{"containers":[{"resources":{"requests":{"cpu":"x"}}}]}}"#,
            "[cpu]",
        ),
        (
            br#"{"metadata":{"name":"a"},"spec":{"tolerations":[{"operator":"Near"}]}}"#,
            "tolerations.operator",
        ),
        (br#"{"metadata":{"name":"a"},"spec":{"containers":[{"ports":[{"hostPort":70000}]}]}}"#, "hostPort"),
        (br#"{"metadata":{"name":"a","creationTimestamp":"soon"}}"#, "creationTimestamp"),
    ];
    for (bytes, want) in cases {
        let error = pod(bytes).expect_err(want).to_string();
        assert!(error.contains(want), "{error}");
    }
}

#[test]
fn a_pod_group_is_read() {
    let group = |spec: &str| {
        let text = format!(r#"{{"metadata":{{"name":"g","namespace":"ns"}},"spec":{spec}}}"#);
        match cluster_object("PodGroup", text.as_bytes()).expect("valid") {
            Some(ClusterObject::PodGroup { namespace, name, min_count, topology_key }) => {
                assert_eq!((namespace.as_str(), name.as_str()), ("ns", "g"));
                (min_count, topology_key)
            }
            other => panic!("{other:?}"),
        }
    };
    let both = r#"{"schedulingPolicy":{"gang":{"minCount":3}},"schedulingConstraints":{"topology":[{"key":"rack"}]}}"#;
    assert_eq!(group(both), (Some(3), Some("rack".to_owned())));
    assert_eq!(group(r#"{"schedulingPolicy":{"basic":{}},"schedulingConstraints":{}}"#), (None, None));
}

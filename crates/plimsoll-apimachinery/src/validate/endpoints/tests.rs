//! What upstream's validation says, in its words.

use serde_json::{Value, json};

use crate::builtin;
use crate::kinds::Kind;
use crate::strategy::{prepare_create, prepare_update};
use crate::validate::{endpoint_address, validate_create, validate_update, warnings};

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

fn kind(group: &str, plural: &str) -> std::sync::Arc<Kind> {
    builtin::table().resource(group, "v1", plural).cloned().unwrap()
}

fn slice_kind() -> std::sync::Arc<Kind> {
    kind("discovery.k8s.io", "endpointslices")
}

fn texts(errors: &[crate::FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn slice(addresses: &str, endpoints: &Value, ports: &Value) -> Value {
    json!({"metadata": {"name": "a", "namespace": "b", "resourceVersion": "1"}, "addressType": addresses,
        "endpoints": endpoints, "ports": ports})
}

#[test]
fn addresses_that_are_nobodys_endpoint() {
    let loopback = "may not be in the loopback range (127.0.0.0/8, ::1/128)";
    let local = "may not be in the link-local range (169.254.0.0/16, fe80::/10)";
    let multicast = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)";
    let none = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
    // kind of addresses, address, what is wrong with it (empty: nothing), at the address or at the list
    let rows: [(&str, &str, &str); 25] = [
        ("IPv4", "10.0.0.1", ""),
        ("IPv4", "224.0.1.1", ""),
        ("IPv4", "0.0.0.0", "may not be unspecified (0.0.0.0)"),
        ("IPv4", "127.0.0.1", loopback),
        ("IPv4", "127.9.9.9", loopback),
        ("IPv4", "169.254.169.254", local),
        ("IPv4", "224.0.0.7", multicast),
        ("IPv4", "127.00.0.1", "must not have leading 0s"),
        ("IPv4", "::ffff:127.0.0.1", "must not be an IPv4-mapped IPv6 address"),
        ("IPv4", "localhost", none),
        ("IPv4", "", none),
        ("IPv4", "1.2.3", none),
        ("IPv4", "1.2.3.256", none),
        ("IPv6", "2001:db8::1", ""),
        ("IPv6", "::", "may not be unspecified (::)"),
        ("IPv6", "::1", loopback),
        ("IPv6", "fe80::1", local),
        ("IPv6", "ff02::1", multicast),
        ("IPv6", "ff12::1", multicast),
        ("IPv6", "2001:DB8::1", "must be in canonical form (\"2001:db8::1\")"),
        ("IPv6", "0:0:0:0:0:0:0:1", "must be in canonical form (\"::1\")"),
        ("FQDN", "example.com.", ""),
        ("FQDN", "localhost", "should be a domain with at least two segments separated by dots"),
        ("FQDN", "", "Required value"),
        ("Other", "127.0.0.1", "type"),
    ];
    for (addresses, address, fault) in rows {
        let object = slice(addresses, &json!([{"addresses": [address]}]), &json!([]));
        let at = "endpoints[0].addresses[0]";
        let wanted = match fault {
            "" => vec![],
            "Required value" => vec![format!("{at}: Required value")],
            "type" => {
                vec![format!(
                    "addressType: Unsupported value: \"{addresses}\": supported values: \"FQDN\", \"IPv4\", \"IPv6\""
                )]
            }
            fault => vec![format!("{at}: Invalid value: \"{address}\": {fault}")],
        };
        assert_eq!(texts(&validate_create(&slice_kind(), &object)), wanted, "{addresses} {address}");
    }
    let other = |addresses, address| {
        let object = slice(addresses, &json!([{"addresses": [address]}]), &json!([]));
        texts(&validate_create(&slice_kind(), &object))
    };
    let six = "endpoints[0].addresses: Invalid value: \"2001:db8::1\": must be an IPv4 address";
    assert_eq!(other("IPv4", "2001:db8::1"), [six]);
    let four = "endpoints[0].addresses: Invalid value: \"10.0.0.1\": must be an IPv6 address";
    assert_eq!(other("IPv6", "10.0.0.1"), [four]);
    assert_eq!(other("", "10.0.0.1"), ["addressType: Required value"]);
    for (address, usable) in [
        ("10.0.0.1", Some("10.0.0.1")),
        ("010.0.0.1", Some("10.0.0.1")),
        ("::ffff:10.0.0.1", Some("10.0.0.1")),
        ("::ffff:127.0.0.1", None),
        ("127.000.0.1", None),
        ("::ffff:127.000.0.1", None),
        ("::1", None),
        ("localhost", None),
    ] {
        let found = endpoint_address(address).map(|a| a.to_string());
        assert_eq!(found.as_deref(), usable, "{address}");
    }
}

#[test]
fn parts_of_a_slice() {
    let endpoint = json!({"addresses": [], "nodeName": "A", "hostname": "a.b", "hints": {
        "forZones": [{"name": "z"}, {"name": "z"}, {"name": "-"}],
        "forNodes": [{"name": "n"}, {"name": "n"}]}});
    let ports = json!([
        {"name": "x", "protocol": "TCP"}, {"name": "x", "protocol": "ICMP"}, {"name": "_", "appProtocol": "a b"},
    ]);
    let errors = texts(&validate_create(&slice_kind(), &slice("IPv4", &json!([endpoint]), &ports)));
    let starts = [
        "ports[1].name: Duplicate value: \"x\"",
        "ports[1].protocol: Unsupported value: \"ICMP\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
        &format!("ports[2].name: Invalid value: \"_\": {LABEL}"),
        "ports[2].protocol: Required value",
        "ports[2].appProtocol: Invalid value: \"a b\": name part must consist of",
        "endpoints[0].addresses: Required value: must contain at least 1 address",
        "endpoints[0].nodeName: Invalid value: \"A\": a lowercase RFC 1123 subdomain",
        "endpoints[0].hostname: Invalid value: \"a.b\": must not contain dots",
        "endpoints[0].hints.forZones[1].name: Duplicate value: \"z\"",
        "endpoints[0].hints.forZones[2].name: Invalid value: \"-\": a valid label",
        "endpoints[0].hints.forNodes[1].name: Duplicate value: \"n\"",
    ];
    assert_eq!(errors.len(), starts.len(), "{errors:#?}");
    for (error, start) in errors.iter().zip(starts) {
        assert!(error.starts_with(start), "{error} is not {start}");
    }

    let many = |n: usize| (0..n).map(|i| format!("10.0.{}.{}", i / 250, i % 250 + 1)).collect::<Vec<_>>();
    let object = slice("IPv4", &json!([{"addresses": many(101)}]), &json!([]));
    let errors = texts(&validate_create(&slice_kind(), &object));
    assert_eq!(errors, ["endpoints[0].addresses: Too many: 101: must have at most 100 items"]);
    let all: Vec<Value> = many(1001).into_iter().map(|a| json!({"addresses": [a]})).collect();
    let errors = texts(&validate_create(&slice_kind(), &slice("IPv4", &json!(all), &json!([]))));
    assert_eq!(errors, ["endpoints: Too many: 1001: must have at most 1000 items"]);
}

#[test]
fn what_was_accepted_stays_so() {
    let bad = json!([{"addresses": ["127.0.0.1"]}]);
    let old = slice("IPv4", &bad, &json!([]));
    let mut new = old.clone();
    new["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(texts(&validate_update(&slice_kind(), "", &old, &new)), Vec::<String>::new());
    new["endpoints"][0]["hostname"] = json!("h");
    assert_eq!(validate_update(&slice_kind(), "", &old, &new).len(), 1);
    new["endpoints"] = json!([]);
    new["addressType"] = json!("IPv6");
    let errors = texts(&validate_update(&slice_kind(), "", &old, &new));
    assert_eq!(errors, ["addressType: Invalid value: \"IPv6\": field is immutable"]);

    let endpoints = kind("", "endpoints");
    let old = json!({"metadata": {"name": "a", "namespace": "b", "resourceVersion": "1"},
        "subsets": [{"addresses": [{"ip": "127.0.0.1"}]}]});
    assert_eq!(texts(&validate_update(&endpoints, "", &old, &old)), Vec::<String>::new());
    let mut new = old.clone();
    new["subsets"][0]["addresses"][0]["ip"] = json!("127.0.0.2");
    assert_eq!(validate_update(&endpoints, "", &old, &new).len(), 1);
}

#[test]
fn parts_of_endpoints() {
    let object = json!({"metadata": {"name": "a", "namespace": "b"}, "subsets": [
        {"ports": [{"port": 80, "protocol": "TCP"}]},
        {"notReadyAddresses": [{"ip": "::1", "hostname": "a.b", "nodeName": "A"}, {"ip": "x"}],
         "ports": [{"port": 0, "protocol": "TCP"}, {"name": "b", "port": 1, "protocol": "X"}]},
    ]});
    let errors = texts(&validate_create(&kind("", "endpoints"), &object));
    let starts = [
        "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`",
        "subsets[1].notReadyAddresses[0].hostname: Invalid value: \"a.b\": must not contain dots",
        "subsets[1].notReadyAddresses[0].nodeName: Invalid value: \"A\": a lowercase RFC 1123 subdomain",
        "subsets[1].notReadyAddresses[0].ip: Invalid value: \"::1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
        "subsets[1].notReadyAddresses[1].ip: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        "subsets[1].notReadyAddresses[1].ip: Invalid value: \"x\": must be a valid IP address",
        "subsets[1].ports[0].name: Required value",
        "subsets[1].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
        "subsets[1].ports[1].protocol: Unsupported value: \"X\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
    ];
    assert_eq!(errors.len(), starts.len(), "{errors:#?}");
    for (error, start) in errors.iter().zip(starts) {
        assert!(error.starts_with(start), "{error} is not {start}");
    }
}

#[test]
fn told_but_accepted() {
    let object = slice("FQDN", &json!([{"addresses": ["example.com"]}]), &json!([]));
    assert_eq!(warnings(&slice_kind(), None, &object), ["spec.addressType: FQDN endpoints are deprecated"]);
    assert_eq!(warnings(&slice_kind(), Some(&object), &object), Vec::<String>::new());
    let object = json!({"subsets": [{"addresses": [{"ip": "2001:DB8::1"}], "notReadyAddresses": [{"ip": "01.2.3.4"}]}]});
    assert_eq!(
        warnings(&kind("", "endpoints"), None, &object),
        [
            "subsets[0].addresses[0].ip: IPv6 address \"2001:DB8::1\" should be in RFC 5952 canonical format (\"2001:db8::1\")",
            "subsets[0].notReadyAddresses[0].ip: non-standard IP address \"01.2.3.4\" is invalid: use \"1.2.3.4\"",
        ]
    );
}

#[test]
fn topology_is_dropped_and_labels_count() {
    let now = "2026-11-20T10:00:00Z".parse().unwrap();
    let topology = json!({"kubernetes.io/hostname": "n1"});
    let mut object =
        slice("IPv4", &json!([{"addresses": ["10.0.0.1"], "deprecatedTopology": topology}]), &json!([]));
    let old = object.clone();
    prepare_create(&slice_kind(), &mut object, now);
    assert_eq!(object["endpoints"], json!([{"addresses": ["10.0.0.1"]}]));
    let mut new = old.clone();
    new["endpoints"][0]["addresses"] = json!(["10.0.0.2"]);
    prepare_update(&slice_kind(), "", &old, &mut new, now);
    assert_eq!(new["endpoints"], json!([{"addresses": ["10.0.0.2"], "nodeName": "n1"}]));
    let mut new = old.clone();
    new["metadata"]["labels"] = json!({"kubernetes.io/service-name": "s"});
    prepare_update(&slice_kind(), "", &old, &mut new, now);
    assert_eq!(new["endpoints"], old["endpoints"]);
    assert_eq!(new["metadata"]["generation"], 1);
}

#[test]
fn external_addresses_of_services() {
    let service = json!({"metadata": {"name": "a", "namespace": "b"}, "spec": {
        "type": "ClusterIP", "sessionAffinity": "None", "externalIPs": ["127.0.0.1", "10.1.1.1", "01.1.1.1"],
        "internalTrafficPolicy": "Cluster", "externalTrafficPolicy": "Cluster",
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]}});
    assert_eq!(
        texts(&validate_create(&kind("", "services"), &service)),
        [
            "spec.externalIPs[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
            "spec.externalIPs[2]: Invalid value: \"01.1.1.1\": must not have leading 0s",
        ]
    );
}

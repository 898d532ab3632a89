use serde_json::json;

use super::*;
use crate::builtin;

fn kind(group: &str, plural: &str) -> std::sync::Arc<Kind> {
    std::sync::Arc::clone(builtin::table().resource(group, "v1", plural).unwrap())
}

fn warn(group: &str, plural: &str, body: &str) -> Result<Decoded, String> {
    decode(&kind(group, plural), body.as_bytes(), Format::Json, FieldValidation::Warn).map_err(|e| e.message)
}

#[test]
fn fields_take_the_form_of_their_types() {
    let pod = warn(
        "",
        "pods",
        r#"{"metadata":{"name":"a","labels":{},"creationTimestamp":null,"annotations":{"k":null}},
            "spec":{"hostNetwork":false,"priority":0,"containers":[{"name":"c","args":[],
              "resources":{"limits":{"cpu":2,"memory":"1024Ki"}}}],"volumes":null,"nodeName":""}}"#,
    )
    .unwrap();
    assert_eq!(
        pod.object,
        json!({"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","annotations":{"k":""}},
            "spec":{"priority":0,"containers":[{"name":"c","resources":{"limits":{"cpu":"2","memory":"1Mi"}}}]},
            "status":{}})
    );
    let role = warn("rbac.authorization.k8s.io", "clusterroles", "{}").unwrap();
    assert_eq!(role.object["rules"], Value::Null);
}

#[test]
fn yaml_takes_the_first_document() {
    let body = b"apiVersion: v1\nkind: ConfigMap\ndata:\n  k: v\n---\nkind: ConfigMap\ndata:\n  k: w\n";
    let got = decode(&kind("", "configmaps"), body, Format::Yaml, FieldValidation::Strict).unwrap();
    assert_eq!(got.object["data"], json!({"k": "v"}));
}

#[test]
fn paths_name_embedded_structs_and_go_types() {
    for (group, plural, body, want) in [
        (
            "",
            "pods",
            r#"{"spec":{"volumes":[{"name":"v","azureFile":{"shareName":{}}}]}}"#,
            "object into Go struct field AzureFileVolumeSource.spec.volumes.VolumeSource.azureFile.shareName of type string",
        ),
        (
            "",
            "pods",
            r#"{"spec":{"ephemeralContainers":[{"envFrom":[{"secretRef":{"name":1}}]}]}}"#,
            "number into Go struct field SecretEnvSource.spec.ephemeralContainers.EphemeralContainerCommon.envFrom.secretRef.LocalObjectReference.name of type string",
        ),
        (
            "",
            "pods",
            r#"{"metadata":{"uid":true}}"#,
            "bool into Go struct field ObjectMeta.metadata.uid of type types.UID",
        ),
        (
            "apps",
            "deployments",
            r#"{"spec":{"selector":{"matchExpressions":[{"operator":{}}]}}}"#,
            "object into Go struct field LabelSelectorRequirement.spec.selector.matchExpressions.operator of type v1.LabelSelectorOperator",
        ),
        (
            "apps",
            "statefulsets",
            r#"{"spec":{"volumeClaimTemplates":[{"kind":1}]}}"#,
            "number into Go struct field PersistentVolumeClaim.spec.volumeClaimTemplates.TypeMeta.kind of type string",
        ),
    ] {
        let message = warn(group, plural, body).unwrap_err();
        assert!(message.ends_with(&format!("json: cannot unmarshal {want}")), "{message}");
    }
}

/// `SetDefaults_ResourceList`: of core types only, away from zero.
#[test]
fn amounts_of_resources_are_rounded_to_thousandths() {
    let pod = |amount: &str| json!({"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": amount}}}]}});
    let at = "/spec/containers/0/resources/limits/cpu";
    for (given, want) in [
        ("100u", "1m"),
        ("1.0005", "1001m"),
        ("1500u", "2m"),
        ("1e-6", "1e-3"),
        ("-1500u", "-2m"),
        ("1n", "1m"),
        ("5m", "5m"),
        ("1Ki", "1Ki"),
    ] {
        let got = warn("", "pods", &pod(given).to_string()).unwrap();
        assert_eq!(got.object.pointer(at).unwrap(), want, "{given}");
    }
    let quota = warn("", "resourcequotas", r#"{"spec":{"hard":{"cpu":"100u"}}}"#).unwrap();
    assert_eq!(quota.object["spec"]["hard"]["cpu"], "1m");
    let class = warn("node.k8s.io", "runtimeclasses", r#"{"overhead":{"podFixed":{"cpu":"100u"}}}"#).unwrap();
    assert_eq!(class.object["overhead"]["podFixed"]["cpu"], "100u");
    let body = r#"{"spec":{"devices":{"requests":[{"exactly":{"capacity":{"requests":{"a":"100u"}}}}]}}}"#;
    let claim = warn("resource.k8s.io", "resourceclaims", body).unwrap();
    let at = "/spec/devices/requests/0/exactly/capacity/requests/a";
    assert_eq!(claim.object.pointer(at).unwrap(), "100u");
}

/// What has a decoder of its own ends the reading; other wrong values don't, wherever they are.
#[test]
fn values_with_decoders_of_their_own_come_first() {
    let rows = [
        (r#"{"spec":{"limits":[{"type":[],"max":{"cpu":"x"}}]}}"#, "quantities must match"),
        (r#"{"metadata":{"creationTimestamp":"x"},"spec":1}"#, "parsing time"),
        (r#"{"spec":{"limits":[{"max":{"cpu":"x"},"type":[]}]}}"#, "quantities must match"),
        (r#"{"metadata":{"name":1},"spec":1}"#, "ObjectMeta.metadata.name of type string"),
    ];
    for (body, want) in rows {
        let message = warn("", "limitranges", body).unwrap_err();
        assert!(message.contains(want), "{message}");
    }
}

#[test]
fn deep_and_large_bodies_end_in_errors() {
    let deep = format!("{}{}", r#"{"metadata":"#.repeat(500), "}".repeat(500));
    assert!(warn("", "configmaps", &deep).is_err());
    let deep = "[".repeat(100_000);
    assert!(warn("", "configmaps", &deep).is_err());
}

proptest::proptest! {
    #[test]
    fn any_text_is_answered(body in "\\PC{0,60}") {
        let _ = warn("", "pods", &body);
        let _ = decode(&kind("", "pods"), body.as_bytes(), Format::Yaml, FieldValidation::Warn);
    }
}

/// `strconv.Quote`.
#[test]
fn texts_in_messages() {
    for (text, want) in [
        ("a\"b\\", r#""a\"b\\""#),
        ("\u{7}\n\u{1}\u{7f}", r#""\a\n\x01\x7f""#),
        ("ü\u{85}\u{a0}\u{200b}", r#""ü\u0085\u00a0\u200b""#),
        ("\u{e0001}é", r#""\U000e0001é""#),
    ] {
        assert_eq!(crate::go::go_quote(text), want);
    }
}

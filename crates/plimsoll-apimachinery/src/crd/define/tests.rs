use serde_json::{Value, json};

use crate::crd::{kueue_definitions, load};
use crate::error::ApiError;
use crate::test_vectors::family;

fn causes(body: &Value) -> Vec<String> {
    let mut all: Vec<String> = body["details"]["causes"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|c| format!("{} {} {}", c["field"], c["reason"], c["message"]))
        .collect();
    all.sort();
    all
}

/// What the registry has done by the time a definition is checked.
fn prepared(body: &Value) -> Value {
    let mut d = body.clone();
    let names = &mut d["spec"]["names"];
    if let (Some(kind), None) = (names["kind"].as_str().map(str::to_owned), names.get("listKind")) {
        names["listKind"] = json!(format!("{kind}List"));
    }
    if d["spec"]["conversion"].is_null() {
        d["spec"]["conversion"] = json!({ "strategy": "None" });
    }
    let stored: Vec<Value> = d["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|v| v["storage"] == true)
        .take(1)
        .map(|v| v["name"].clone())
        .collect();
    if d["status"]["storedVersions"].is_null() {
        d["status"] = json!({ "storedVersions": stored });
    }
    d
}

#[test]
fn recorded_definitions() {
    let mut compared = 0;
    for scenario in family("crd").iter().chain(&family("apply")).chain(&family("webhook")) {
        let mut old: Option<Value> = None;
        for step in scenario["steps"].as_array().unwrap() {
            let (request, body) = (&step["request"], &step["response"]["body"]);
            let path = request["path"].as_str().unwrap_or_default();
            if !path.starts_with("/apis/apiextensions.k8s.io/v1/customresourcedefinitions") {
                continue;
            }
            let status = step["response"]["status"].as_u64().unwrap();
            let errors = match request["method"].as_str() {
                Some("POST") if status != 409 => super::validate_create(&prepared(&request["body"])),
                Some("PATCH") if request["body"].is_object() => {
                    let before = old.clone().unwrap();
                    let mut new = before.clone();
                    json_patch::merge(&mut new, &request["body"]);
                    super::validate_update(&before, &new)
                }
                _ => {
                    if body["kind"] == "CustomResourceDefinition" {
                        old = Some(body.clone());
                    }
                    continue;
                }
            };
            let at = format!("{} {}", scenario["id"], step["note"]);
            compared += 1;
            if status == 422 {
                let ours = ApiError::invalid("", "", "", &errors).to_status();
                assert_eq!(causes(&ours), causes(body), "{at}");
            } else {
                assert_eq!(errors, [], "{at}");
                old = Some(body.clone());
            }
        }
    }
    assert!(compared > 35, "{compared}");
}

#[test]
fn kueues_definitions_are_fine() {
    for definition in kueue_definitions() {
        assert_eq!(super::validate_create(&prepared(definition)), [], "{}", definition["metadata"]["name"]);
    }
    assert!(load("kind: [").is_err());
}

#[test]
fn names_are_accepted_once() {
    let make = |plural: &str, singular: &str, kind: &str| {
        json!({
            "metadata": { "name": format!("{plural}.example.dev") },
            "spec": { "group": "example.dev", "names": {
                "plural": plural, "singular": singular, "kind": kind, "listKind": format!("{kind}List"),
                "shortNames": ["x"],
            } },
        })
    };
    let mut first = make("ups", "up", "Up");
    first["status"] = super::accept(&first, &[], "2026-01-01T00:00:00Z");
    assert_eq!(first["status"]["conditions"][0]["reason"], "NoConflicts");
    assert_eq!(first["status"]["conditions"][1]["reason"], "InitialNamesAccepted");
    assert_eq!(first["status"]["acceptedNames"], first["spec"]["names"]);
    let mut second = make("ups2", "up", "Up2");
    second["spec"]["names"]["shortNames"] = json!(["y"]);
    let status = super::accept(&second, &[&first], "2026-01-01T00:00:00Z");
    assert_eq!(status["conditions"][0]["reason"], "SingularConflict");
    assert_eq!(status["conditions"][0]["message"], "\"up\" is already in use");
    assert_eq!(status["conditions"][1]["reason"], "NotAccepted");
    assert_eq!(
        status["acceptedNames"],
        json!({ "plural": "ups2", "kind": "Up2", "listKind": "Up2List", "shortNames": ["y"] })
    );
    // seen again, nothing changes but the times stay
    let again = super::accept(&first, &[&second], "2026-02-02T00:00:00Z");
    assert_eq!(again, first["status"]);
}

fn definition(schema: &Value) -> Value {
    prepared(&json!({
        "metadata": {"name": "as.x.dev"},
        "spec": {
            "group": "x.dev", "scope": "Cluster",
            "names": {"plural": "as", "singular": "a", "kind": "A"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    }))
}

/// Schema of a definition, what is said of it; `@` stands for the path of the schema.
#[test]
fn odd_definitions() {
    let list = |inner: Value| json!({"type": "object", "properties": {"l": inner}});
    for (schema, want) in [
        (
            json!({"type": "object", "nullable": true}),
            vec!["@.nullable: Forbidden: nullable cannot be true at the root"],
        ),
        (
            list(json!({"type": "sting"})),
            vec![
                "@.properties[l].type: Unsupported value: \"sting\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
            ],
        ),
        (
            list(
                json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "k"],
                "items": {"type": "object", "nullable": true, "properties": {"k": {"type": "string", "nullable": true}}}}),
            ),
            vec![
                "@.properties[l].x-kubernetes-list-map-keys: Invalid value: [\"k\",\"k\"]: must not contain duplicate entries",
                "@.properties[l].items.nullable: Forbidden: cannot be nullable when x-kubernetes-list-type is map",
                "@.properties[l].items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
                "@.properties[l].items.properties[k].nullable: Forbidden: this property is in x-kubernetes-list-map-keys, so it cannot be nullable",
                "@.properties[l].items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
                "@.properties[l].items.properties[k].nullable: Forbidden: this property is in x-kubernetes-list-map-keys, so it cannot be nullable",
            ],
        ),
        (
            list(json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}})),
            vec![
                "@.properties[l].items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
            ],
        ),
        (
            json!({"type": "object", "allOf": [{"properties": {"q": {"minimum": 1}}}]}),
            vec!["@.properties[q]: Required value: because it is defined in @.allOf[0].properties[q]"],
        ),
        (json!({"type": "object", "$ref": "x"}), vec!["@.$ref: Forbidden: $ref is not supported"]),
        (
            list(json!({"type": "string", "default": 1})),
            vec![
                "@.properties[l].default: Invalid value: \"integer\":  in body must be of type string: \"integer\"",
            ],
        ),
        (
            json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
            vec![
                "@.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
            ],
        ),
        (
            list(
                json!({"type": "array", "items": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "fieldPath": ".x", "reason": "Other"}]}}),
            ),
            vec![
                "@.properties[l].items.x-kubernetes-validations[0].reason: Unsupported value: \"Other\": supported values: \"FieldValueDuplicate\", \"FieldValueForbidden\", \"FieldValueInvalid\", \"FieldValueRequired\"",
                "@.properties[l].items.x-kubernetes-validations[0].fieldPath: Invalid value: \".x\": must be a valid path",
            ],
        ),
        // properties have their counterpart whatever owns them together
        (
            list(
                json!({"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": {"type": "boolean", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}}}),
            ),
            vec![],
        ),
        (
            list(
                json!({"type": "array", "maxItems": 2, "items": {"type": "string", "maxLength": 3, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}}),
            ),
            vec![
                "@.properties[l].items.x-kubernetes-validations[0].rule: Invalid value: \"self == oldSelf\": oldSelf cannot be used on the uncorrelatable portion of the schema within @.properties[l]",
            ],
        ),
    ] {
        let found: Vec<String> =
            super::validate_create(&definition(&schema)).iter().map(ToString::to_string).collect();
        let want: Vec<String> =
            want.iter().map(|w| w.replace('@', "spec.validation.openAPIV3Schema")).collect();
        assert_eq!(found, want, "{schema}");
    }
}

/// Rules on the object itself see the name whatever the schema says of metadata, and nothing else of it.
#[test]
fn rules_on_metadata() {
    let metadata =
        |m: Value| json!({"type": "object", "properties": {"metadata": m, "s": {"type": "string"}}});
    for schema in [
        json!({"type": "object", "properties": {"s": {"type": "string"}}}),
        metadata(json!({"type": "object"})),
        metadata(json!({"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}})),
    ] {
        for (rule, fault) in [
            ("self.metadata.name == 'x' && self.metadata.generateName == ''", None),
            ("self.kind == 'A' && self.apiVersion != ''", None),
            ("self.metadata.labels.size() == 0", Some("undefined field 'labels'")),
            ("self.metadata", Some("must evaluate to a bool")),
        ] {
            let mut schema = schema.clone();
            schema["x-kubernetes-validations"] = json!([{"rule": rule}]);
            let found: Vec<String> =
                super::validate_create(&definition(&schema)).iter().map(ToString::to_string).collect();
            let right = match fault {
                None => found.is_empty(),
                Some(fault) => found.len() == 1 && found.iter().all(|f| f.contains(fault)),
            };
            assert!(right, "{schema}: {found:?}");
        }
    }
}

#[test]
fn names_versions_and_conversion() {
    let of = |change: &dyn Fn(&mut Value)| {
        let mut d = definition(&json!({"type": "object"}));
        change(&mut d);
        super::validate_create(&d).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let found = of(&|d| {
        d["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "clientConfig": {"service": {"name": "", "namespace": "n", "port": 0, "path": "x"}},
        "conversionReviewVersions": ["v1", "v1"]}});
    });
    assert_eq!(
        found,
        [
            "spec.conversion.webhookClientConfig.service.namespace: Required value",
            "spec.conversion.webhookClientConfig.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive",
            "spec.conversion.webhookClientConfig.service.path: Invalid value: \"x\": must start with a '/'",
            "spec.conversion.webhookClientConfig.service.path: Invalid value: \"x\": segment[0] may not be empty",
            "spec.conversion.conversionReviewVersions[1]: Invalid value: \"v1\": duplicate version",
        ]
    );
    let found = of(&|d| d["spec"]["versions"][0]["storage"] = json!(false));
    assert_eq!(
        found.first().map(String::as_str),
        Some(
            "spec.versions: Invalid value: [{\"Name\":\"v1\",\"Served\":true,\"Storage\":false,\"Deprecated\":false,\"DeprecationWarning\":null,\"Schema\":null,\"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}]: must have exactly one version marked as storage version"
        )
    );
    let found = of(&|d| d["spec"]["versions"][0]["deprecationWarning"] = json!("x"));
    assert_eq!(
        found,
        [
            "spec.versions[0].deprecationWarning: Invalid value: \"x\": can only be set for deprecated versions"
        ]
    );
    let new =
        definition(&json!({"type": "object", "properties": {"a": {"type": "string", "format": "nosuch"}}}));
    assert_eq!(super::warnings(None, &new), ["unrecognized format \"nosuch\""]);
    assert!(super::warnings(Some(&new), &new).is_empty());
}

/// Messages that show a list are few, however long it is.
#[test]
fn very_many_keys_of_a_list_are_refused_in_few_words() {
    let keys: Vec<String> = (0..5000).map(|n| format!("k{n}")).collect();
    let schema = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys,
        "items": {"type": "object", "properties": {"k0": {"type": "string"}}}});
    let mut errors = Vec::new();
    super::lists::validate(&schema, "s", &mut errors);
    assert!((1..=200).contains(&errors.len()), "{}", errors.len());
}

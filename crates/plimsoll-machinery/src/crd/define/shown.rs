//! Definitions' internal types as messages show them.

use serde_json::Value;

use crate::validate::golang::{Field, Go, shown, shown_list};

/// `apiextensions.JSONSchemaProps`.
static PROPS: [Field; 44] = [
    ("ID", "id", Go::Text),
    ("Schema", "$schema", Go::Text),
    ("Ref", "$ref", Go::Plain),
    ("Description", "description", Go::Text),
    ("Type", "type", Go::Text),
    ("Nullable", "nullable", Go::Bool),
    ("Format", "format", Go::Text),
    ("Title", "title", Go::Text),
    ("Default", "default", Go::Plain),
    ("Maximum", "maximum", Go::Plain),
    ("ExclusiveMaximum", "exclusiveMaximum", Go::Bool),
    ("Minimum", "minimum", Go::Plain),
    ("ExclusiveMinimum", "exclusiveMinimum", Go::Bool),
    ("MaxLength", "maxLength", Go::Plain),
    ("MinLength", "minLength", Go::Plain),
    ("Pattern", "pattern", Go::Text),
    ("MaxItems", "maxItems", Go::Plain),
    ("MinItems", "minItems", Go::Plain),
    ("UniqueItems", "uniqueItems", Go::Bool),
    ("MultipleOf", "multipleOf", Go::Plain),
    ("Enum", "enum", Go::Plain),
    ("MaxProperties", "maxProperties", Go::Plain),
    ("MinProperties", "minProperties", Go::Plain),
    ("Required", "required", Go::Plain),
    ("Items", "items", Go::OrList(&PROPS)),
    ("AllOf", "allOf", Go::List(&PROPS)),
    ("OneOf", "oneOf", Go::List(&PROPS)),
    ("AnyOf", "anyOf", Go::List(&PROPS)),
    ("Not", "not", Go::Pointer(&PROPS)),
    ("Properties", "properties", Go::Map(&PROPS)),
    ("AdditionalProperties", "additionalProperties", Go::OrBool(&PROPS)),
    ("PatternProperties", "patternProperties", Go::Map(&PROPS)),
    ("Dependencies", "dependencies", Go::MapOrNames(&PROPS)),
    ("AdditionalItems", "additionalItems", Go::OrBool(&PROPS)),
    ("Definitions", "definitions", Go::Map(&PROPS)),
    (
        "ExternalDocs",
        "externalDocs",
        Go::Pointer(&[("Description", "description", Go::Text), ("URL", "url", Go::Text)]),
    ),
    ("Example", "example", Go::Plain),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields", Go::Plain),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", Go::Bool),
    ("XIntOrString", "x-kubernetes-int-or-string", Go::Bool),
    ("XListMapKeys", "x-kubernetes-list-map-keys", Go::Plain),
    ("XListType", "x-kubernetes-list-type", Go::Plain),
    ("XMapType", "x-kubernetes-map-type", Go::Plain),
    ("XValidations", "x-kubernetes-validations", Go::List(RULE)),
];

const RULE: &[Field] = &[
    ("Rule", "rule", Go::Text),
    ("Message", "message", Go::Text),
    ("MessageExpression", "messageExpression", Go::Text),
    ("Reason", "reason", Go::Plain),
    ("FieldPath", "fieldPath", Go::Text),
    ("OptionalOldSelf", "optionalOldSelf", Go::Plain),
];

static VERSION: [Field; 9] = [
    ("Name", "name", Go::Text),
    ("Served", "served", Go::Bool),
    ("Storage", "storage", Go::Bool),
    ("Deprecated", "deprecated", Go::Bool),
    ("DeprecationWarning", "deprecationWarning", Go::Plain),
    ("Schema", "schema", Go::Pointer(&[("OpenAPIV3Schema", "openAPIV3Schema", Go::Pointer(&PROPS))])),
    (
        "Subresources",
        "subresources",
        Go::Pointer(&[
            ("Status", "status", Go::Plain),
            (
                "Scale",
                "scale",
                Go::Pointer(&[
                    ("SpecReplicasPath", "specReplicasPath", Go::Text),
                    ("StatusReplicasPath", "statusReplicasPath", Go::Text),
                    ("LabelSelectorPath", "labelSelectorPath", Go::Plain),
                ]),
            ),
        ]),
    ),
    (
        "AdditionalPrinterColumns",
        "additionalPrinterColumns",
        Go::List(&[
            ("Name", "name", Go::Text),
            ("Type", "type", Go::Text),
            ("Format", "format", Go::Text),
            ("Description", "description", Go::Text),
            ("Priority", "priority", Go::Int),
            ("JSONPath", "jsonPath", Go::Text),
        ]),
    ),
    ("SelectableFields", "selectableFields", Go::List(&[("JSONPath", "jsonPath", Go::Text)])),
];

/// A schema.
pub fn schema(raw: &Value) -> String {
    shown(raw, &PROPS)
}

/// One of `x-kubernetes-validations`.
pub fn rule(raw: &Value) -> String {
    shown(raw, RULE)
}

/// Versions without what all of them say (the keys `shared`): upstream keeps that in another place.
pub fn versions(all: Option<&Value>, shared: &[&str]) -> String {
    let Some(all) = all.and_then(Value::as_array) else { return "null".to_owned() };
    let mut all = all.clone();
    for version in all.iter_mut().filter_map(Value::as_object_mut) {
        for key in shared {
            version.remove(*key);
        }
    }
    shown_list(&all, &VERSION)
}

/// Fields of a schema that say something, in the order of Go's fields: name in Go, name in the API.
pub fn set_fields(raw: &Value) -> impl Iterator<Item = (&'static str, &'static str)> {
    PROPS.iter().filter_map(move |(go, api, ty)| {
        let zero = match (raw.get(*api), ty) {
            (None | Some(Value::Null), _) => true,
            (Some(Value::Bool(flag)), Go::Bool) => !flag,
            (Some(Value::String(text)), Go::Text) => text.is_empty(),
            _ => false,
        };
        (!zero).then_some((*go, *api))
    })
}

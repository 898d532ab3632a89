//! Messages of `openapi.v2` (gnostic's `OpenAPIv2.proto`), as far as documents of an API server use them.

use serde_json::{Map, Value};

use super::{Is, Message, Shape, choice, encode, plain};

/// The document of [`crate::openapi::v2`] as a message.
pub fn v2(document: &Value) -> Vec<u8> {
    encode(&DOCUMENT, document)
}

static DOCUMENT: Message = plain(
    &[
        ("swagger", 1, Is::Text),
        ("info", 2, Is::One(&INFO)),
        ("host", 3, Is::Text),
        ("basePath", 4, Is::Text),
        ("schemes", 5, Is::Texts),
        ("consumes", 6, Is::Texts),
        ("produces", 7, Is::Texts),
        ("paths", 8, Is::One(&PATHS)),
        ("definitions", 9, Is::Named(&SCHEMA)),
        ("parameters", 10, Is::Named(&PARAMETER)),
        ("responses", 11, Is::Named(&RESPONSE)),
        ("security", 12, Is::Requirements),
        ("securityDefinitions", 13, Is::Named(&SECURITY)),
    ],
    16,
);

static INFO: Message =
    plain(&[("title", 1, Is::Text), ("version", 2, Is::Text), ("description", 3, Is::Text)], 7);

static PATHS: Message = Message { fields: &[], extensions: 1, shape: Shape::Entries(2, &PATH_ITEM) };

static PATH_ITEM: Message = plain(
    &[
        ("$ref", 1, Is::Text),
        ("get", 2, Is::One(&OPERATION)),
        ("put", 3, Is::One(&OPERATION)),
        ("post", 4, Is::One(&OPERATION)),
        ("delete", 5, Is::One(&OPERATION)),
        ("options", 6, Is::One(&OPERATION)),
        ("head", 7, Is::One(&OPERATION)),
        ("patch", 8, Is::One(&OPERATION)),
        ("parameters", 9, Is::Many(&PARAMETERS_ITEM)),
    ],
    10,
);

static OPERATION: Message = plain(
    &[
        ("tags", 1, Is::Texts),
        ("summary", 2, Is::Text),
        ("description", 3, Is::Text),
        ("operationId", 5, Is::Text),
        ("produces", 6, Is::Texts),
        ("consumes", 7, Is::Texts),
        ("parameters", 8, Is::Many(&PARAMETERS_ITEM)),
        ("responses", 9, Is::One(&RESPONSES)),
        ("schemes", 10, Is::Texts),
        ("deprecated", 11, Is::Flag),
        ("security", 12, Is::Requirements),
    ],
    13,
);

static RESPONSES: Message = Message { fields: &[], extensions: 2, shape: Shape::Entries(1, &RESPONSE_VALUE) };

static RESPONSE_VALUE: Message =
    choice(|o| if o.contains_key("$ref") { (&[2], &REFERENCE) } else { (&[1], &RESPONSE) });

/// The schema of a response is one of two; documents of an API server have no files.
static RESPONSE: Message = plain(&[("description", 1, Is::Text), ("schema", 2, Is::One(&SCHEMA_ITEM))], 5);

static SCHEMA_ITEM: Message = choice(|_| (&[1], &SCHEMA));

static REFERENCE: Message = plain(&[("$ref", 1, Is::Text), ("description", 2, Is::Text)], 0);

static PARAMETERS_ITEM: Message = choice(|o| {
    if o.contains_key("$ref") {
        return (&[2], &REFERENCE);
    }
    match place(o) {
        "header" => (&[1, 2, 1], &OTHER_PARAMETER),
        "formData" => (&[1, 2, 2], &QUERY_PARAMETER),
        "query" => (&[1, 2, 3], &QUERY_PARAMETER),
        "path" => (&[1, 2, 4], &OTHER_PARAMETER),
        _ => (&[1, 1], &BODY_PARAMETER),
    }
});

static PARAMETER: Message = choice(|o| match place(o) {
    "header" => (&[2, 1], &OTHER_PARAMETER),
    "formData" => (&[2, 2], &QUERY_PARAMETER),
    "query" => (&[2, 3], &QUERY_PARAMETER),
    "path" => (&[2, 4], &OTHER_PARAMETER),
    _ => (&[1], &BODY_PARAMETER),
});

static BODY_PARAMETER: Message = plain(
    &[
        ("description", 1, Is::Text),
        ("name", 2, Is::Text),
        ("in", 3, Is::Text),
        ("required", 4, Is::Flag),
        ("schema", 5, Is::One(&SCHEMA)),
    ],
    6,
);

/// Header and path parameters.
static OTHER_PARAMETER: Message = plain(
    &[
        ("required", 1, Is::Flag),
        ("in", 2, Is::Text),
        ("description", 3, Is::Text),
        ("name", 4, Is::Text),
        ("type", 5, Is::Text),
        ("format", 6, Is::Text),
        ("default", 9, Is::Any),
        ("maximum", 10, Is::Number),
        ("minimum", 12, Is::Number),
        ("pattern", 16, Is::Text),
        ("uniqueItems", 19, Is::Flag),
        ("enum", 20, Is::Anys),
    ],
    22,
);

static QUERY_PARAMETER: Message = plain(
    &[
        ("required", 1, Is::Flag),
        ("in", 2, Is::Text),
        ("description", 3, Is::Text),
        ("name", 4, Is::Text),
        ("allowEmptyValue", 5, Is::Flag),
        ("type", 6, Is::Text),
        ("format", 7, Is::Text),
        ("default", 10, Is::Any),
        ("maximum", 11, Is::Number),
        ("minimum", 13, Is::Number),
        ("pattern", 17, Is::Text),
        ("uniqueItems", 20, Is::Flag),
        ("enum", 21, Is::Anys),
    ],
    23,
);

static SCHEMA: Message = plain(
    &[
        ("$ref", 1, Is::Text),
        ("format", 2, Is::Text),
        ("title", 3, Is::Text),
        ("description", 4, Is::Text),
        ("default", 5, Is::Any),
        ("multipleOf", 6, Is::Number),
        ("maximum", 7, Is::Number),
        ("exclusiveMaximum", 8, Is::Flag),
        ("minimum", 9, Is::Number),
        ("exclusiveMinimum", 10, Is::Flag),
        ("maxLength", 11, Is::Integer),
        ("minLength", 12, Is::Integer),
        ("pattern", 13, Is::Text),
        ("maxItems", 14, Is::Integer),
        ("minItems", 15, Is::Integer),
        ("uniqueItems", 16, Is::Flag),
        ("maxProperties", 17, Is::Integer),
        ("minProperties", 18, Is::Integer),
        ("required", 19, Is::Texts),
        ("enum", 20, Is::Anys),
        ("additionalProperties", 21, Is::SchemaOrFlag(&SCHEMA)),
        ("type", 22, Is::Types),
        ("items", 23, Is::Items(&SCHEMA)),
        ("allOf", 24, Is::Many(&SCHEMA)),
        ("properties", 25, Is::Named(&SCHEMA)),
        ("readOnly", 27, Is::Flag),
        ("example", 30, Is::Any),
    ],
    31,
);

static SECURITY: Message = choice(|o| match o.get("type").and_then(Value::as_str) {
    Some("basic") => (&[1], &BASIC),
    _ => (&[2], &API_KEY),
});

static BASIC: Message = plain(&[("type", 1, Is::Text), ("description", 2, Is::Text)], 3);

static API_KEY: Message = plain(
    &[("type", 1, Is::Text), ("name", 2, Is::Text), ("in", 3, Is::Text), ("description", 4, Is::Text)],
    5,
);

fn place(parameter: &Map<String, Value>) -> &str {
    parameter.get("in").and_then(Value::as_str).unwrap_or_default()
}

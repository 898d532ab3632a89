//! Messages of `openapi.v3` (gnostic's `OpenAPIv3.proto`), as far as documents of an API server use them.

use serde_json::{Map, Value};

use super::{Is, Message, Shape, choice, encode, plain};

/// A document of [`crate::openapi::document`] as a message.
pub fn v3(document: &Value) -> Vec<u8> {
    encode(&DOCUMENT, document)
}

static DOCUMENT: Message = plain(
    &[
        ("openapi", 1, Is::Text),
        ("info", 2, Is::One(&INFO)),
        ("paths", 4, Is::One(&PATHS)),
        ("components", 5, Is::One(&COMPONENTS)),
        ("security", 6, Is::Requirements),
    ],
    9,
);

static INFO: Message =
    plain(&[("title", 1, Is::Text), ("description", 2, Is::Text), ("version", 6, Is::Text)], 7);

static PATHS: Message = Message { fields: &[], extensions: 2, shape: Shape::Entries(1, &PATH_ITEM) };

static COMPONENTS: Message = plain(
    &[
        ("schemas", 1, Is::Named(&SCHEMA_OR_REFERENCE)),
        ("responses", 2, Is::Named(&RESPONSE_OR_REFERENCE)),
        ("parameters", 3, Is::Named(&PARAMETER_OR_REFERENCE)),
        ("requestBodies", 5, Is::Named(&BODY_OR_REFERENCE)),
        ("securitySchemes", 7, Is::Named(&SECURITY_OR_REFERENCE)),
    ],
    10,
);

static PATH_ITEM: Message = plain(
    &[
        ("$ref", 1, Is::Text),
        ("summary", 2, Is::Text),
        ("description", 3, Is::Text),
        ("get", 4, Is::One(&OPERATION)),
        ("put", 5, Is::One(&OPERATION)),
        ("post", 6, Is::One(&OPERATION)),
        ("delete", 7, Is::One(&OPERATION)),
        ("options", 8, Is::One(&OPERATION)),
        ("head", 9, Is::One(&OPERATION)),
        ("patch", 10, Is::One(&OPERATION)),
        ("trace", 11, Is::One(&OPERATION)),
        ("parameters", 13, Is::Many(&PARAMETER_OR_REFERENCE)),
    ],
    14,
);

static OPERATION: Message = plain(
    &[
        ("tags", 1, Is::Texts),
        ("summary", 2, Is::Text),
        ("description", 3, Is::Text),
        ("operationId", 5, Is::Text),
        ("parameters", 6, Is::Many(&PARAMETER_OR_REFERENCE)),
        ("requestBody", 7, Is::One(&BODY_OR_REFERENCE)),
        ("responses", 8, Is::One(&RESPONSES)),
        ("deprecated", 10, Is::Flag),
        ("security", 11, Is::Requirements),
    ],
    13,
);

static REFERENCE: Message =
    plain(&[("$ref", 1, Is::Text), ("summary", 2, Is::Text), ("description", 3, Is::Text)], 0);

fn is_reference(object: &Map<String, Value>) -> bool {
    object.contains_key("$ref")
}

static PARAMETER_OR_REFERENCE: Message =
    choice(|o| if is_reference(o) { (&[2], &REFERENCE) } else { (&[1], &PARAMETER) });

static PARAMETER: Message = plain(
    &[
        ("name", 1, Is::Text),
        ("in", 2, Is::Text),
        ("description", 3, Is::Text),
        ("required", 4, Is::Flag),
        ("deprecated", 5, Is::Flag),
        ("allowEmptyValue", 6, Is::Flag),
        ("style", 7, Is::Text),
        ("explode", 8, Is::Flag),
        ("allowReserved", 9, Is::Flag),
        ("schema", 10, Is::One(&SCHEMA_OR_REFERENCE)),
        ("example", 11, Is::Any),
        ("content", 13, Is::Named(&MEDIA_TYPE)),
    ],
    14,
);

static BODY_OR_REFERENCE: Message =
    choice(|o| if is_reference(o) { (&[2], &REFERENCE) } else { (&[1], &BODY) });

static BODY: Message = plain(
    &[("description", 1, Is::Text), ("content", 2, Is::Named(&MEDIA_TYPE)), ("required", 3, Is::Flag)],
    4,
);

static MEDIA_TYPE: Message =
    plain(&[("schema", 1, Is::One(&SCHEMA_OR_REFERENCE)), ("example", 2, Is::Any)], 5);

/// The field for the response with any other status, which documents of an API server don't have.
static RESPONSES: Message =
    Message { fields: &[], extensions: 3, shape: Shape::Entries(2, &RESPONSE_OR_REFERENCE) };

static RESPONSE_OR_REFERENCE: Message =
    choice(|o| if is_reference(o) { (&[2], &REFERENCE) } else { (&[1], &RESPONSE) });

static RESPONSE: Message = plain(&[("description", 1, Is::Text), ("content", 3, Is::Named(&MEDIA_TYPE))], 5);

static SCHEMA_OR_REFERENCE: Message =
    choice(|o| if is_reference(o) { (&[2], &REFERENCE) } else { (&[1], &SCHEMA) });

static SCHEMA: Message = plain(
    &[
        ("nullable", 1, Is::Flag),
        ("readOnly", 3, Is::Flag),
        ("writeOnly", 4, Is::Flag),
        ("example", 7, Is::Any),
        ("deprecated", 8, Is::Flag),
        ("title", 9, Is::Text),
        ("multipleOf", 10, Is::Number),
        ("maximum", 11, Is::Number),
        ("exclusiveMaximum", 12, Is::Flag),
        ("minimum", 13, Is::Number),
        ("exclusiveMinimum", 14, Is::Flag),
        ("maxLength", 15, Is::Integer),
        ("minLength", 16, Is::Integer),
        ("pattern", 17, Is::Text),
        ("maxItems", 18, Is::Integer),
        ("minItems", 19, Is::Integer),
        ("uniqueItems", 20, Is::Flag),
        ("maxProperties", 21, Is::Integer),
        ("minProperties", 22, Is::Integer),
        ("required", 23, Is::Texts),
        ("enum", 24, Is::Anys),
        ("type", 25, Is::Text),
        ("allOf", 26, Is::Many(&SCHEMA_OR_REFERENCE)),
        ("oneOf", 27, Is::Many(&SCHEMA_OR_REFERENCE)),
        ("anyOf", 28, Is::Many(&SCHEMA_OR_REFERENCE)),
        ("not", 29, Is::One(&SCHEMA)),
        ("items", 30, Is::Items(&SCHEMA_OR_REFERENCE)),
        ("properties", 31, Is::Named(&SCHEMA_OR_REFERENCE)),
        ("additionalProperties", 32, Is::SchemaOrFlag(&SCHEMA_OR_REFERENCE)),
        ("default", 33, Is::Scalar),
        ("description", 34, Is::Text),
        ("format", 35, Is::Text),
    ],
    36,
);

static SECURITY_OR_REFERENCE: Message =
    choice(|o| if is_reference(o) { (&[2], &REFERENCE) } else { (&[1], &SECURITY) });

static SECURITY: Message = plain(
    &[
        ("type", 1, Is::Text),
        ("description", 2, Is::Text),
        ("name", 3, Is::Text),
        ("in", 4, Is::Text),
        ("scheme", 5, Is::Text),
        ("bearerFormat", 6, Is::Text),
    ],
    9,
);

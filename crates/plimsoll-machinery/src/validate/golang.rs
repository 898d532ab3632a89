//! Values of Go's internal types as they show in messages: every field, under its Go name, in Go's order.

use serde_json::Value;

use crate::error::escape_html;
use crate::obj::as_obj;

/// How a field of an internal type is written.
#[derive(Clone, Copy)]
pub(crate) enum Go {
    /// A text: empty when absent.
    Text,
    /// A number: 0 when absent.
    Int,
    /// A boolean: false when absent.
    Bool,
    /// A pointer, list or map of plain values, or a type with tags: as in the API, `null` when absent.
    Plain,
    /// A struct.
    Struct(&'static [Field]),
    /// A pointer to a struct.
    Pointer(&'static [Field]),
    /// A list of structs.
    List(&'static [Field]),
    /// A map to structs.
    Map(&'static [Field]),
    /// A struct or a boolean (`JSONSchemaPropsOrBool`).
    OrBool(&'static [Field]),
    /// A map to structs or lists of names (`JSONSchemaDependencies`).
    MapOrNames(&'static [Field]),
    /// A struct or a list of them (`JSONSchemaPropsOrArray`).
    OrList(&'static [Field]),
}

/// Name in Go, name in the API, type.
pub(crate) type Field = (&'static str, &'static str, Go);

/// A struct with these fields.
pub(crate) fn shown(value: &Value, fields: &[Field]) -> String {
    let mut text = String::new();
    fields_of(value, fields, &mut text);
    escape_html(&text)
}

/// A list of structs with these fields.
pub(crate) fn shown_list(values: &[Value], fields: &'static [Field]) -> String {
    let mut text = String::new();
    one(Some(&Value::Array(values.to_vec())), Go::List(fields), &mut text);
    escape_html(&text)
}

fn fields_of(value: &Value, fields: &[Field], text: &mut String) {
    text.push('{');
    for (i, (go, api, ty)) in fields.iter().enumerate() {
        if i > 0 {
            text.push(',');
        }
        text.push('"');
        text.push_str(go);
        text.push_str("\":");
        one(as_obj(value).get(*api).filter(|v| !v.is_null()), *ty, text);
    }
    text.push('}');
}

fn one(value: Option<&Value>, ty: Go, text: &mut String) {
    match (value, ty) {
        (None, Go::Text) => text.push_str("\"\""),
        (None, Go::Int) => text.push('0'),
        (None, Go::Bool) => text.push_str("false"),
        (None, Go::Struct(of)) => fields_of(&Value::Null, of, text),
        (None, _) => text.push_str("null"),
        (Some(value), Go::Struct(of) | Go::Pointer(of)) => fields_of(value, of, text),
        (Some(Value::Array(all)), Go::List(of)) => {
            text.push('[');
            for (i, element) in all.iter().enumerate() {
                if i > 0 {
                    text.push(',');
                }
                fields_of(element, of, text);
            }
            text.push(']');
        }
        (Some(Value::Object(all)), Go::Map(of)) => {
            text.push('{');
            for (i, (key, element)) in all.iter().enumerate() {
                if i > 0 {
                    text.push(',');
                }
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push(':');
                fields_of(element, of, text);
            }
            text.push('}');
        }
        (Some(Value::Object(all)), Go::MapOrNames(of)) => {
            text.push('{');
            for (i, (key, element)) in all.iter().enumerate() {
                let comma = if i > 0 { "," } else { "" };
                text.push_str(&format!("{comma}{}:{{\"Schema\":", Value::from(key.as_str())));
                let (schema, names) = match element {
                    Value::Array(_) => (None, Some(element)),
                    Value::Object(_) => (Some(element), None),
                    _ => (None, None),
                };
                one(schema, Go::Pointer(of), text);
                text.push_str(",\"Property\":");
                one(names, Go::Plain, text);
                text.push('}');
            }
            text.push('}');
        }
        (Some(Value::Bool(allows)), Go::OrBool(_)) => {
            text.push_str(&format!("{{\"Allows\":{allows},\"Schema\":null}}"));
        }
        (Some(value), Go::OrBool(of)) => {
            text.push_str("{\"Allows\":true,\"Schema\":");
            fields_of(value, of, text);
            text.push('}');
        }
        (Some(list @ Value::Array(_)), Go::OrList(of)) => {
            text.push_str("{\"Schema\":null,\"JSONSchemas\":");
            one(Some(list), Go::List(of), text);
            text.push('}');
        }
        (Some(value), Go::OrList(of)) => {
            text.push_str("{\"Schema\":");
            fields_of(value, of, text);
            text.push_str(",\"JSONSchemas\":null}");
        }
        (Some(value), _) => text.push_str(&value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn structs() {
        const INNER: &[Field] = &[("Name", "name", Go::Text)];
        const OUTER: &[Field] = &[
            ("Count", "count", Go::Int),
            ("Inner", "inner", Go::Pointer(INNER)),
            ("All", "all", Go::List(INNER)),
            ("Name", "name", Go::Text),
        ];
        let value = json!({"name": "a<b", "all": [{}, {"name": "x"}]});
        assert_eq!(
            shown(&value, OUTER),
            "{\"Count\":0,\"Inner\":null,\"All\":[{\"Name\":\"\"},{\"Name\":\"x\"}],\
             \"Name\":\"a\\u003cb\"}"
        );
    }
}

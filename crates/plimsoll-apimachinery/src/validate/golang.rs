//! Values of Go's internal types as they show in messages: every field, under its Go name, in Go's order.
//!
//! The types are in `data/internal.txt`: a struct a line with its fields, each `Name=wire:kind`. `Name?` is left out
//! when it is empty, as tags of some types want it. `wire` is where the API has it: a name, names with dots between them
//! for parts of a part, `^name` in the object around, `@object`, `@array` and `@bool` for the value itself where it is
//! one of those (a `bool` is true of an object as well). Kinds: `s` text, `i` number, `b` boolean, `q` quantity, `raw`
//! and `map` what is as in the API, or another struct; before it `*` a pointer, `[]` a list, `{}` a map.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use plimsoll_state::collect::InsertEach as _;
use serde_json::Value;

use crate::go::escape_html;
use crate::obj::{Obj, as_obj};

const TEXT: &str = include_str!("../../data/internal.txt");

static TYPES: LazyLock<BTreeMap<&'static str, Vec<Field>>> = LazyLock::new(|| {
    let field = |text: &'static str| {
        let (name, rest) = text.split_once('=')?;
        let (wire, kind) = rest.split_once(':')?;
        let lean = name.ends_with('?');
        Some(Field { name: name.trim_end_matches('?'), wire, kind, lean })
    };
    TEXT.lines()
        .filter_map(|line| {
            let (name, fields) = line.split_once(' ')?;
            Some((name, fields.split_ascii_whitespace().filter_map(field).collect()))
        })
        .insert_each()
});

/// A field of a struct.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    /// Its name in Go, or that of its tag.
    pub name: &'static str,
    /// The path of the field in the API.
    pub wire: &'static str,
    kind: &'static str,
    /// Left out when it is empty.
    lean: bool,
}

impl Field {
    /// Whether a value is a zero value.
    pub fn is_zero(&self, value: Option<&Value>) -> bool {
        match value {
            None | Some(Value::Null) => true,
            Some(Value::Bool(flag)) => !flag && self.kind == "b",
            Some(Value::String(text)) => text.is_empty() && self.kind == "s",
            Some(_) => false,
        }
    }

    /// Like `is_zero`, for fields whose tags omit zero values.
    fn is_left_out(&self, value: Option<&Value>) -> bool {
        self.lean
            && match value {
                Some(Value::Object(o)) => o.is_empty(),
                Some(Value::Array(all)) => all.is_empty(),
                other => self.is_zero(other),
            }
    }

    fn value<'a>(&self, of: &'a Value, around: &'a Value) -> Option<&'a Value> {
        match self.wire {
            "@object" => Some(of).filter(|v| v.is_object()),
            "@array" => Some(of).filter(|v| v.is_array()),
            "@bool" if of.is_object() => Some(&Value::Bool(true)),
            "@bool" => Some(of).filter(|v| v.is_boolean()),
            wire => match wire.strip_prefix('^') {
                Some(wire) => around.get(wire),
                None => wire.split('.').try_fold(of, |part, key| part.get(key)),
            },
        }
        .filter(|v| !v.is_null())
    }
}

/// The fields of a struct.
pub(crate) fn fields(name: &str) -> &'static [Field] {
    let found = TYPES.get(name);
    debug_assert!(found.is_some(), "{name} is no type");
    found.map_or(&[], Vec::as_slice)
}

/// A value of a kind (`Name`, `*Name`, `[]Name`, …) as Go prints it.
pub(crate) fn shown(kind: &str, value: Option<&Value>) -> String {
    let mut writer = Writer { out: String::new() };
    writer.write(kind, value, &Value::Null, None);
    escape_html(&writer.out)
}

/// A struct as Go prints it.
pub(crate) fn structure(name: &str, o: &Obj) -> String {
    shown(name, Some(&Value::Object(o.clone())))
}

/// A list of structs as Go prints it.
pub(crate) fn list(name: &str, values: &[Value]) -> String {
    shown(&format!("[]{name}"), Some(&Value::Array(values.to_vec())))
}

/// A struct with a line for each field (`json.MarshalIndent` with one space).
pub(crate) fn pretty(name: &str, o: &Obj) -> String {
    let mut writer = Writer { out: String::new() };
    writer.write(name, Some(&Value::Object(o.clone())), &Value::Null, Some(0));
    escape_html(&writer.out)
}

/// Writes on one line, or with `depth` spaces before each line.
struct Writer {
    out: String,
}

impl Writer {
    fn line(&mut self, depth: Option<usize>) {
        if let Some(depth) = depth {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', depth));
        }
    }

    fn write(&mut self, kind: &str, value: Option<&Value>, around: &Value, depth: Option<usize>) {
        let value = value.filter(|v| !v.is_null());
        let zero = match kind {
            "s" => "\"\"",
            "i" => "0",
            "b" => "false",
            "q" => "\"0\"",
            "raw" | "map" => "null",
            kind if kind.starts_with(['*', '[', '{']) => "null",
            _ => "",
        };
        match value {
            None if !zero.is_empty() => self.out.push_str(zero),
            None => self.fields(kind, &Value::Null, around, depth),
            Some(value) => {
                if let Some(of) = kind.strip_prefix('*') {
                    self.write(of, Some(value), around, depth);
                } else if let Some(of) = kind.strip_prefix("[]") {
                    let all = value.as_array().map_or(&[][..], Vec::as_slice);
                    self.block(('[', ']'), depth, all.iter(), |w, one, inner| {
                        w.write(of, Some(one), around, inner);
                    });
                } else if let Some(of) = kind.strip_prefix("{}") {
                    self.block(('{', '}'), depth, as_obj(value), |w, (key, one), inner| {
                        w.key(&Value::from(key.as_str()).to_string(), inner);
                        w.write(of, Some(one), value, inner);
                    });
                } else if zero.is_empty() {
                    self.fields(kind, value, around, depth);
                } else {
                    self.plain(value, depth);
                }
            }
        }
    }

    /// Elements between brackets.
    fn block<T>(
        &mut self,
        (open, close): (char, char),
        depth: Option<usize>,
        elements: impl IntoIterator<Item = T>,
        mut one: impl FnMut(&mut Self, T, Option<usize>),
    ) {
        let inner = depth.map(|depth| depth + 1);
        let mut some = false;
        self.out.push(open);
        for element in elements {
            if some {
                self.out.push(',');
            }
            some = true;
            self.line(inner);
            one(self, element, inner);
        }
        if some {
            self.line(depth);
        }
        self.out.push(close);
    }

    fn key(&mut self, quoted: &str, depth: Option<usize>) {
        self.out.push_str(quoted);
        self.out.push_str(if depth.is_some() { ": " } else { ":" });
    }

    fn fields(&mut self, name: &str, value: &Value, around: &Value, depth: Option<usize>) {
        let given = fields(name).iter().map(|field| (field, field.value(value, around)));
        let given = given.filter(|(field, part)| !field.is_left_out(*part));
        self.block(('{', '}'), depth, given, |w, (field, part), inner| {
            w.key(&format!("\"{}\"", field.name), inner);
            w.write(field.kind, part, value, inner);
        });
    }

    /// Writes a value that is printed as in the API.
    fn plain(&mut self, value: &Value, depth: Option<usize>) {
        match value {
            Value::Array(all) => {
                self.block(('[', ']'), depth, all, |w, one, inner| w.plain(one, inner));
            }
            Value::Object(o) => self.block(('{', '}'), depth, o, |w, (key, one), inner| {
                w.key(&Value::from(key.as_str()).to_string(), inner);
                w.plain(one, inner);
            }),
            plain => self.out.push_str(&plain.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_type_is_known() {
        for (name, fields) in TYPES.iter() {
            assert!(!fields.is_empty(), "{name}");
            for field in fields {
                let kind = field.kind.trim_start_matches(['*', '[', ']', '{', '}']);
                let known = matches!(kind, "s" | "i" | "b" | "q" | "map" | "raw");
                assert!(known || TYPES.contains_key(kind), "{name}: {kind}");
            }
        }
        assert_eq!(TYPES.len(), TEXT.lines().count());
    }

    #[test]
    fn values() {
        for (kind, value, want) in [
            (
                "Toleration",
                json!({"key": "a<b"}),
                r#"{"Key":"a\u003cb","Operator":"","Value":"","Effect":"","TolerationSeconds":null}"#,
            ),
            ("*VolumeNodeAffinity", json!(null), "null"),
            (
                "*VolumeNodeAffinity",
                json!({"required": {"nodeSelectorTerms": [{}]}}),
                r#"{"Required":{"NodeSelectorTerms":[{"MatchExpressions":null,"MatchFields":null}]}}"#,
            ),
            ("RollingUpdate", json!({"maxSurge": "10%"}), r#"{"MaxUnavailable":0,"MaxSurge":"10%"}"#),
            (
                "LabelSelector",
                json!({"matchLabels": {}, "matchExpressions": [{}]}),
                r#"{"matchExpressions":[{"key":"","operator":""}]}"#,
            ),
            ("LabelSelector", json!({}), "{}"),
            (
                "OwnerReference",
                json!({"name": "n", "controller": false}),
                r#"{"apiVersion":"","kind":"","name":"n","uid":"","controller":false}"#,
            ),
            (
                "ResourceClaimTemplateSpec",
                json!({"metadata": {"labels": {"a": "b"}}}),
                r#"{"labels":{"a":"b"},"Spec":{"Devices":{"Requests":null,"Constraints":null,"Config":null}}}"#,
            ),
            ("*JSONSchemaPropsOrBool", json!(true), r#"{"Allows":true,"Schema":null}"#),
            ("[]s", json!([]), "[]"),
        ] {
            assert_eq!(shown(kind, Some(&value)), want, "{kind} {value}");
        }
        let or = shown("{}JSONSchemaPropsOrStringArray", Some(&json!({"a": ["b"]})));
        assert_eq!(or, r#"{"a":{"Schema":null,"Property":["b"]}}"#);
        let or = shown("*JSONSchemaPropsOrBool", Some(&json!({})));
        assert!(or.starts_with(r#"{"Allows":true,"Schema":{"ID":"""#), "{or}");
        let pod =
            json!({"hostNetwork": true, "securityContext": {"runAsUser": 1}, "nodeSelector": {"a": "b"}});
        let spec = structure("PodSpec", as_obj(&pod));
        assert!(spec.contains(r#""SecurityContext":{"HostNetwork":true,"#), "{spec}");
        assert!(pretty("PodSpec", as_obj(&pod)).contains("\n \"NodeSelector\": {\n  \"a\": \"b\"\n },\n"));
        assert_eq!(pretty("LabelSelector", &Obj::new()), "{}");
    }
}

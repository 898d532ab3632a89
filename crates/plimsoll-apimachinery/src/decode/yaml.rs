//! YAML as upstream reads it: YAML 1.1, turned into JSON.

mod node;
mod reader;
mod scalar;

use std::collections::HashMap;

use serde::Deserializer as _;
use serde_json::{Map, Number, Value};

use self::node::{Entry, Node};

/// The beginning of a strict reader's errors; each error is a line of its own, indented by two.
pub const STRICT_LEAD: &str = "yaml: unmarshal errors:";

/// The first document of a YAML text as a JSON value.
///
/// # Errors
/// The text is malformed.
pub fn yaml(body: &[u8]) -> Result<Value, String> {
    yaml_strict(body).map(|(value, _)| value)
}

/// Like [`yaml`], with a strict reader's errors for duplicate keys, in its order.
///
/// # Errors
/// As [`yaml`].
pub fn yaml_strict(body: &[u8]) -> Result<(Value, Vec<String>), String> {
    let text = std::str::from_utf8(body).map_err(|_| "yaml: invalid leading UTF-8 octet".to_owned())?;
    if of_other_version(text) {
        return Err("yaml: found incompatible YAML document".to_owned());
    }
    let document = first_document(text);
    check(document).map_err(|e| super::syntax::explain_yaml(text, &e))?;
    let mut twice = Vec::new();
    let tree = settle(reader::parse(document)?, &mut twice)?;
    Ok((to_json(tree)?, twice))
}

/// Checks a text for syntax errors, and that its aliases don't expand beyond bounds.
fn check(document: &str) -> Result<(), serde_saphyr::Error> {
    let mut options = serde_saphyr::Options::default();
    let limit = super::depth::yaml_limit();
    if let Some(budget) = &mut options.budget {
        budget.max_depth = limit;
        budget.flow_nesting_limit = limit;
    }
    options.duplicate_keys = serde_saphyr::DuplicateKeyPolicy::LastWins;
    options.merge_keys = serde_saphyr::MergeKeyPolicy::AsOrdinary;
    options.non_finite_float_policy = serde_saphyr::NonFiniteFloatPolicy::PassThrough;
    options.legacy_octal_numbers = true;
    options.with_snippet = false;
    serde_saphyr::with_deserializer_from_str_with_options(document, options, |d| {
        d.deserialize_any(serde::de::IgnoredAny).map(drop)
    })
}

/// Whether a text declares a YAML version other than 1.1.
fn of_other_version(text: &str) -> bool {
    let directives = text.lines().take_while(|line| line.is_empty() || line.starts_with(['%', '#']));
    let mut versions = directives.filter_map(|line| line.strip_prefix("%YAML ")).map(str::trim);
    versions.any(|version| version != "1.1")
}

/// The text up to the second document. JSON ends with its value; anything after it is ignored.
fn first_document(text: &str) -> &str {
    if text.trim_start().starts_with('{') {
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<serde::de::IgnoredAny>();
        if matches!(values.next(), Some(Ok(_))) {
            return text.get(..values.byte_offset()).unwrap_or(text);
        }
    }
    let mut at = 0;
    let (mut content, mut begun) = (false, false);
    for line in text.split_inclusive('\n') {
        let word = line.trim_end();
        let marker =
            |mark: &str| word.strip_prefix(mark).is_some_and(|r| r.is_empty() || r.starts_with([' ', '\t']));
        if marker("---") || marker("...") {
            if content || (begun && marker("---")) {
                return &text[..at];
            }
            begun |= marker("---");
            content |= word.len() > 3;
        } else {
            content |= !word.is_empty() && !word.starts_with(['#', '%']);
        }
        at += line.len();
    }
    text
}

/// Makes the maps of a tree: applies merge keys and keeps the last value of each key. A strict reader's errors for the
/// other values are added to `twice`.
fn settle(node: Node, twice: &mut Vec<String>) -> Result<Node, String> {
    match node {
        Node::List(items) => {
            items.into_iter().map(|item| settle(item, twice)).collect::<Result<_, _>>().map(Node::List)
        }
        Node::Map(entries) => {
            let mut map = Settled::default();
            map.add(entries, twice)?;
            Ok(Node::Map(map.entries))
        }
        scalar => Ok(scalar),
    }
}

/// A map with each key once.
#[derive(Default)]
struct Settled {
    entries: Vec<Entry>,
    /// Positions of keys, by their identity.
    places: HashMap<String, usize>,
}

impl Settled {
    fn add(&mut self, entries: Vec<Entry>, twice: &mut Vec<String>) -> Result<(), String> {
        for Entry { key, value, line } in entries {
            if matches!(&key, Node::Text(text) if text == "<<") {
                self.merge(value, twice)?;
                continue;
            }
            if matches!(key, Node::List(_) | Node::Map(_)) {
                return Err(format!("yaml: invalid map key: {}", key.go_syntax()));
            }
            let value = settle(value, twice)?;
            let identity = key.identity();
            let place = identity.as_ref().and_then(|identity| self.places.get(identity));
            if let Some(earlier) = place.and_then(|at| self.entries.get_mut(*at)) {
                twice.push(format!("line {line}: key {} already set in map", key.go_syntax()));
                earlier.value = value;
                continue;
            }
            if let Some(identity) = identity {
                self.places.insert(identity, self.entries.len());
            }
            self.entries.push(Entry { key, value, line });
        }
        Ok(())
    }

    /// Merges a map, or several of which the first has precedence.
    fn merge(&mut self, merged: Node, twice: &mut Vec<String>) -> Result<(), String> {
        let maps = match merged {
            Node::List(items) => items,
            other => vec![other],
        };
        for map in maps.into_iter().rev() {
            let Node::Map(entries) = map else {
                return Err("yaml: map merge requires map or sequence of maps as the value".to_owned());
            };
            self.add(entries, twice)?;
        }
        Ok(())
    }
}

/// A tree as JSON: keys are written as texts, so that `y: 1` has the key `true`.
fn to_json(node: Node) -> Result<Value, String> {
    Ok(match node {
        Node::Null => Value::Null,
        Node::Bool(b) => Value::Bool(b),
        Node::Int(n) => Value::from(n),
        Node::Big(n) => Value::from(n),
        Node::Float(n) => {
            let number = Number::from_f64(n);
            let number = number.ok_or_else(|| format!("json: unsupported value: {}", node.go_syntax()))?;
            let mut value = Value::Number(number);
            // upstream makes JSON of it, where whole numbers have no fraction
            crate::go::normalise_numbers(&mut value);
            value
        }
        Node::Text(text) => Value::String(text),
        Node::List(items) => Value::Array(items.into_iter().map(to_json).collect::<Result<_, _>>()?),
        Node::Map(entries) => {
            let mut map = Map::new();
            for Entry { key, value, .. } in entries {
                let Some(name) = key.name() else {
                    return Err(format!(
                        "unsupported map key of type: {}, key: {}, value: {}",
                        key.go_type(),
                        key.go_syntax(),
                        value.go_syntax()
                    ));
                };
                map.insert(name, to_json(value)?);
            }
            Value::Object(map)
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{yaml, yaml_strict};

    #[test]
    fn the_first_document_counts() {
        let rows = [
            ("a: 1\n--- b\n", json!({"a": 1})),
            ("---\na: 1\n...\n}{", json!({"a": 1})),
            ("---\n---\na: 1\n", json!(null)),
            ("%YAML 1.1\n--- # c\na: 1\n", json!({"a": 1})),
            ("{\"a\":1} b", json!({"a": 1})),
            ("{\"a\":1}{\"a\":2}", json!({"a": 1})),
            ("a: 1.0\nb: 1e3", json!({"a": 1, "b": 1000})),
        ];
        for (text, want) in rows {
            assert_eq!(yaml(text.as_bytes()).unwrap(), want, "{text}");
        }
    }

    #[test]
    fn keys_that_are_there_twice() {
        let rows: &[(&str, &[&str])] = &[
            ("a: 1\nb: 1", &[]),
            ("a: {k: 1}\nb: {k: 1}", &[]),
            (
                "a: 1\n\na: 2\n\"a\": 3",
                &[r#"line 3: key "a" already set in map"#, r#"line 4: key "a" already set in map"#],
            ),
            (
                "a:\n  b: 1\na:\n  b: 1\n  b: 2\n",
                &[r#"line 5: key "b" already set in map"#, r#"line 4: key "a" already set in map"#],
            ),
            ("y: a\ntrue: b", &["line 2: key true already set in map"]),
            (
                "1: a\n0x1: b\n01: c\n'1': d\n1.0: e\n1_0: f\n10: g",
                &[
                    "line 2: key 1 already set in map",
                    "line 3: key 1 already set in map",
                    "line 7: key 10 already set in map",
                ],
            ),
            ("1e6: a\n1000000.0: b\n1000000: c", &["line 2: key 1e+06 already set in map"]),
            (".inf: a\n.inf: b\n.nan: c\n.nan: d", &["line 2: key +Inf already set in map"]),
            (
                "-0: a\n0: b\n-0.0: c\n0.0: d",
                &["line 2: key 0 already set in map", "line 4: key 0 already set in map"],
            ),
            ("2020-01-01: a\n2020-01-01: b", &[r#"line 2: key "2020-01-01" already set in map"#]),
            ("!!str 1: a\n'1': b", &[r#"line 2: key "1" already set in map"#]),
            // The line where the value begins counts.
            ("d: {}\nd:\n\n  # c\n  b: 1", &[r#"line 5: key "d" already set in map"#]),
            ("d: {}\nd:", &[r#"line 2: key "d" already set in map"#]),
            ("d: {}\nd: &y\n  c: d", &[r#"line 2: key "d" already set in map"#]),
            ("d: &x {}\nd:\n  *x", &[r#"line 3: key "d" already set in map"#]),
            ("d: {}\n? d\n: x", &[r#"line 3: key "d" already set in map"#]),
            ("d: {}\nd: !!map\n  b: c", &[r#"line 2: key "d" already set in map"#]),
            ("d: {}\nd: |\n  b", &[r#"line 2: key "d" already set in map"#]),
            ("d: {}\nd:\n- b", &[r#"line 3: key "d" already set in map"#]),
            // Merged keys are duplicates, too, each time.
            ("a: &x {k: 1}\nb: {<<: *x, k: 2}", &[r#"line 2: key "k" already set in map"#]),
            (
                "a: &x {1: a, 1: b}\nb: {<<: *x, 1: c}",
                &[
                    "line 1: key 1 already set in map",
                    "line 1: key 1 already set in map",
                    "line 2: key 1 already set in map",
                ],
            ),
            (
                "a: &x {k: 1}\nb: {k: 2, <<: [{k: 3}, *x]}",
                &[r#"line 1: key "k" already set in map"#, r#"line 2: key "k" already set in map"#],
            ),
        ];
        for (text, want) in rows {
            assert_eq!(yaml_strict(text.as_bytes()).unwrap().1, *want, "{text}");
        }
    }

    #[test]
    fn errors_are_worded_as_upstream() {
        for (text, want) in [
            ("a: *nope", "yaml: unknown anchor 'nope' referenced"),
            ("a: &x\n  b: *x\n", "yaml: anchor 'x' value contains itself"),
            ("a:\n\tb: 1\n", "yaml: line 2: found character that cannot start any token"),
            ("a: 1\nb", "yaml: line 3: could not find expected ':'"),
            ("a: - b", "yaml: line 1: block sequence entries are not allowed in this context"),
            ("!!binary '?': 1", "yaml: !!binary value contains invalid base64 data"),
            ("a: .inf", "json: unsupported value: +Inf"),
            ("a: [-.inf]", "json: unsupported value: -Inf"),
            ("a: {<<: 1}", "yaml: map merge requires map or sequence of maps as the value"),
            (
                "~: {b: [1, x, 2.5, true, ~]}",
                "unsupported map key of type: %!s(<nil>), key: <nil>, value: map[interface {}]interface {}{\"b\":\
                 []interface {}{1, \"x\", 2.5, true, interface {}(nil)}}",
            ),
            (
                "18446744073709551615: a",
                "unsupported map key of type: uint64, key: 0xffffffffffffffff, value: \"a\"",
            ),
            ("? [a, 1]\n: b", "yaml: invalid map key: []interface {}{\"a\", 1}"),
            ("%YAML 1.2\n---\na: b", "yaml: found incompatible YAML document"),
        ] {
            assert_eq!(yaml(text.as_bytes()), Err(want.to_owned()), "{text}");
        }
    }

    #[test]
    fn keys_and_values_are_yaml_1_1() {
        for (text, want) in [
            ("y: no", json!({"true": false})),
            ("'y': 'no'", json!({"y": "no"})),
            ("1: 0777", json!({"1": 511})),
            ("a: ~\nb: [1, 2.5]", json!({"a": null, "b": [1, 2.5]})),
            (
                "[0x1f, 0b11, 0o17, -0x1, +5, 08, 1_000, 1e3, 1., -.5, 1e400, 1:30, 2020-01-01, 0x, _1, '1', 1 2]",
                json!([
                    31,
                    3,
                    15,
                    -1,
                    5,
                    8,
                    1000,
                    1000,
                    1,
                    -0.5,
                    "1e400",
                    "1:30",
                    "2020-01-01",
                    "0x",
                    "_1",
                    "1",
                    "1 2"
                ]),
            ),
            ("[!!str 1, !!int '5', !!float 3, !!binary aGk=, !own x]", json!(["1", 5, 3, "hi", "x"])),
            ("a: 1\n---\na: 2", json!({"a": 1})),
            ("a: 1\na: 2", json!({"a": 2})),
            (
                "1.5: a\n1e6: b\n123456789.123: c\n1e-7: d\n.inf: e\n2.0: f",
                json!({"1.5": "a", "1e+06": "b", "1.2345679e+08": "c", "1e-07": "d", ".inf": "e", "2": "f"}),
            ),
            (
                "x: &x {a: 1, b: 1}\ny: {a: 2, <<: *x}",
                json!({"x": {"a": 1, "b": 1}, "true": {"a": 1, "b": 1}}),
            ),
            ("x: &x {a: 1, b: 1}\nz: {<<: *x, a: 2}", json!({"x": {"a": 1, "b": 1}, "z": {"a": 2, "b": 1}})),
            ("a: &x {k: v}\nb: *x", json!({"a": {"k": "v"}, "b": {"k": "v"}})),
        ] {
            assert_eq!(yaml(text.as_bytes()).unwrap(), want, "{text}");
        }
    }
}

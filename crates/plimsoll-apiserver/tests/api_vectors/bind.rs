//! Placeholders: what they stand for in this run.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};

/// Values of placeholders, and what requests need from earlier answers.
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    values: HashMap<String, String>,
    /// Last answer for an object, by kind and path.
    objects: HashMap<String, Value>,
    /// Last `ETag` by path.
    pub etags: HashMap<String, String>,
    /// Hash by OpenAPI document.
    pub hashes: HashMap<String, String>,
}

static PLACEHOLDER: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"<([A-Za-z]+)(?::([0-9]+|current))?>").unwrap());

/// The names that are placeholders; other text in angle brackets stands for itself (`<none>`, `<unset>`).
const KNOWN: [&str; 29] = [
    "uid",
    "rv",
    "lrv",
    "rand",
    "continue",
    "ip",
    "nodeport",
    "time",
    "microtime",
    "age",
    "doc",
    "server",
    "hash",
    "etag",
    "token",
    "fingerprint",
    "ca",
    "webhook",
    "gitVersion",
    "gitCommit",
    "gitTreeState",
    "goVersion",
    "buildDate",
    "count",
    "date",
    "dir",
    "seconds",
    "compiler",
    "platform",
];

fn pattern(kind: &str) -> &'static str {
    match kind {
        "uid" => r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        "rv" | "lrv" | "nodeport" | "seconds" | "count" => r"[0-9]+",
        "rand" => r"[bcdfghjklmnpqrstvwxz2456789]{5}",
        "continue" => r"[A-Za-z0-9_=-]+",
        "ip" => r"[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+",
        "time" => r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z",
        "microtime" => r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z",
        "age" => r"[0-9]+(?:ms|[smhdy])(?:[0-9]+[smhd])?",
        _ => r"(?s:.*)",
    }
}

fn binds(kind: &str, number: Option<&str>) -> bool {
    number.is_some_and(|n| n != "current")
        && matches!(kind, "uid" | "rv" | "lrv" | "rand" | "continue" | "ip" | "nodeport")
}

/// The placeholders in a text: byte range, kind, number.
fn placeholders(text: &str) -> Vec<(std::ops::Range<usize>, String, Option<String>)> {
    PLACEHOLDER
        .captures_iter(text)
        .filter(|c| KNOWN.contains(&&c[1]))
        .map(|c| (c.get(0).unwrap().range(), c[1].to_owned(), c.get(2).map(|m| m.as_str().to_owned())))
        .collect()
}

/// Whether a text has placeholders.
pub fn is_template(text: &str) -> bool {
    text.contains('<') && !placeholders(text).is_empty()
}

impl Bindings {
    /// Value of a placeholder (`rv:1`).
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// Sets a placeholder.
    pub fn set(&mut self, name: &str, value: &str) {
        self.values.insert(name.to_owned(), value.to_owned());
    }

    /// Whether a text is what a template says; binds what was unbound.
    pub fn matches(&mut self, template: &str, actual: &str) -> bool {
        let found = placeholders(template);
        if found.is_empty() {
            return template == actual;
        }
        let mut source = String::from("^(?s:");
        let mut at = 0;
        let mut groups = Vec::new();
        for (range, kind, number) in found {
            source.push_str(&regex::escape(&template[at..range.start]));
            at = range.end;
            let name = format!("{kind}:{}", number.clone().unwrap_or_default());
            source.push_str(&format!("({})", pattern(&kind)));
            groups.push((binds(&kind, number.as_deref()), kind, name));
        }
        source.push_str(&regex::escape(&template[at..]));
        source.push_str(")$");
        let Some(captures) = Regex::new(&source).unwrap().captures(actual) else { return false };
        let mut new = self.clone_values();
        for (i, (bind, kind, name)) in groups.into_iter().enumerate() {
            let value = &captures[i + 1];
            if !bind {
                continue;
            }
            match new.get(&name) {
                None => {
                    new.insert(name, value.to_owned());
                }
                Some(old) if old == value => {}
                // A collection's version may move on, never back.
                Some(old) if kind == "lrv" => {
                    if value.parse::<u64>().unwrap_or(0) < old.parse::<u64>().unwrap_or(0) {
                        return false;
                    }
                }
                Some(_) => return false,
            }
        }
        self.values = new;
        true
    }

    fn clone_values(&self) -> HashMap<String, String> {
        self.values.clone()
    }

    /// Fills placeholders in a text of a request. `context`: path of the request.
    pub fn fill(&self, text: &str, context: &str) -> String {
        let mut out = String::new();
        let mut at = 0;
        for (range, kind, number) in placeholders(text) {
            out.push_str(&text[at..range.start]);
            at = range.end;
            let name = format!("{kind}:{}", number.clone().unwrap_or_default());
            let document = context.trim_start_matches("/openapi/v3/").trim_matches('/');
            let value = match kind.as_str() {
                "etag" => self.etags.get(context).map(|e| e.trim_matches('"').to_owned()),
                "hash" => self.hashes.get(document).cloned(),
                "time" => Some("2030-01-01T00:00:00Z".to_owned()),
                "microtime" => Some("2030-01-01T00:00:00.000000Z".to_owned()),
                "seconds" => Some("300".to_owned()),
                _ => self.values.get(&name).cloned(),
            };
            match value {
                Some(value) => out.push_str(&value),
                None => out.push_str(&text[range]),
            }
        }
        out.push_str(&text[at..]);
        out
    }

    /// Fills a text; UIDs that stand for nothing yet are made up.
    pub fn fill_new(&mut self, text: &str) -> String {
        for (_, kind, number) in placeholders(text) {
            let name = format!("{kind}:{}", number.unwrap_or_default());
            if kind == "uid" && !self.values.contains_key(&name) {
                let n = self.values.len();
                self.values.insert(name, format!("00000000-0000-4000-8000-{n:012}"));
            }
        }
        self.fill(text, "")
    }

    /// Fills placeholders in a body. Times become what the object's last answer had in the same field.
    pub fn fill_body(&self, body: &Value, path: &str) -> Value {
        let known = self.objects.get(&object_key(body, path)).cloned().unwrap_or(Value::Null);
        self.fill_value(body, &known, path)
    }

    fn fill_value(&self, template: &Value, known: &Value, path: &str) -> Value {
        match template {
            Value::String(s) => match (s.as_str(), known) {
                ("<time>" | "<microtime>", Value::String(k)) => json!(k),
                _ => {
                    let text = self.fill(s, path);
                    match s.starts_with("<nodeport:") && s.ends_with('>') {
                        true => text.parse::<i64>().map_or(json!(text), |n| json!(n)),
                        false => json!(text),
                    }
                }
            },
            Value::Array(a) => {
                let fill = |(i, v): (usize, &Value)| {
                    let twin = known.as_array().and_then(|k| same_manager(v, k).or(k.get(i)));
                    self.fill_value(v, twin.unwrap_or(&Value::Null), path)
                };
                Value::Array(a.iter().enumerate().map(fill).collect())
            }
            Value::Object(m) => Value::Object(
                m.iter().map(|(k, v)| (self.fill(k, path), self.fill_value(v, &known[k], path))).collect(),
            ),
            other => other.clone(),
        }
    }

    /// Remembers an answer for later requests.
    pub fn remember(&mut self, path: &str, body: &Value) {
        if body["metadata"]["name"].is_string() && body["kind"] != "Status" {
            self.objects.insert(object_key(body, path), body.clone());
        }
        for item in body["items"].as_array().into_iter().flatten() {
            let mut item = item.clone();
            let kind = body["kind"].as_str().unwrap_or("").trim_end_matches("List").to_owned();
            item["kind"] = json!(kind);
            self.objects.insert(object_key(&item, path), item);
        }
    }
}

/// The entry of the same manager, operation and subresource.
fn same_manager<'a>(entry: &Value, list: &'a [Value]) -> Option<&'a Value> {
    entry["manager"].as_str()?;
    list.iter().find(|e| {
        e["manager"] == entry["manager"]
            && e["operation"] == entry["operation"]
            && e["subresource"] == entry["subresource"]
    })
}

fn object_key(body: &Value, path: &str) -> String {
    let meta = &body["metadata"];
    let text = |v: &Value| v.as_str().unwrap_or("").to_owned();
    let namespace = text(&meta["namespace"]);
    let namespace = if namespace.is_empty() {
        path.split("/namespaces/").nth(1).and_then(|p| p.split('/').next()).unwrap_or("").to_owned()
    } else {
        namespace
    };
    format!("{} {} {}", text(&body["kind"]), namespace, text(&meta["name"]))
}

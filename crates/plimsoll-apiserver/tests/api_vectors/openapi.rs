//! Schema documents: reducing what is served to what was recorded.

use std::sync::Arc;

use plimsoll_apiserver::Server;
use serde_json::{Value, json};

use crate::client::{self, Call};

/// Compares top level keys and a few values.
pub fn reduced_counts(expected: &Value, actual: &Value, out: &mut Vec<String>) {
    let mut keys: Vec<&String> = actual.as_object().map(|m| m.keys().collect()).unwrap_or_default();
    keys.sort();
    if json!(keys) != expected["keys"] {
        out.push(format!("keys {keys:?}, want {}", expected["keys"]));
    }
    let version = if actual["openapi"].is_string() { &actual["openapi"] } else { &actual["swagger"] };
    if *version != expected["openapi"] {
        out.push(format!("version {version}, want {}", expected["openapi"]));
    }
    if actual["info"]["title"] != expected["info"]["title"] {
        out.push(format!("title {}", actual["info"]["title"]));
    }
}

/// Compares a document reduced as the recorder did it.
pub fn reduced(expected: &Value, actual: &Value, out: &mut Vec<String>) {
    if let Some(keys) = expected["keys"].as_array() {
        let mut found: Vec<&String> = actual.as_object().map(|m| m.keys().collect()).unwrap_or_default();
        found.sort();
        if json!(found) != json!(keys) {
            out.push(format!("keys {found:?}, want {keys:?}"));
        }
    }
    if expected["openapi"].is_string() && expected["openapi"] != actual["openapi"] {
        out.push(format!("openapi {}", actual["openapi"]));
    }
    if let Some(paths) = expected["paths"].as_object() {
        for (path, want) in paths {
            let have = reduce_path(&actual["paths"][path]);
            let mut want = want.clone();
            sort_parameters(&mut want);
            diff(&want, &have, &format!("paths {path}"), out);
        }
        for path in actual["paths"].as_object().into_iter().flatten().map(|(k, _)| k) {
            if !paths.contains_key(path) {
                out.push(format!("path {path} unexpected"));
            }
        }
    }
    if let Some(schemas) = expected["schemas"].as_object() {
        let served = &actual["components"]["schemas"];
        for (name, want) in schemas {
            let mut have = served[name].clone();
            strip(&mut have);
            diff(want, &have, name, out);
        }
        for name in served.as_object().into_iter().flatten().map(|(k, _)| k) {
            // for custom resources the recorder kept their own schemas only
            let shared = name.starts_with("io.k8s.") && !schemas.keys().any(|k| k.starts_with("io.k8s."));
            if !shared && !schemas.contains_key(name) {
                out.push(format!("schema {name} unexpected"));
            }
        }
    }
}

fn diff(want: &Value, have: &Value, path: &str, out: &mut Vec<String>) {
    match (want, have) {
        (Value::Object(w), Value::Object(h)) => {
            for (k, v) in w {
                match h.get(k) {
                    Some(found) => diff(v, found, &format!("{path}.{k}"), out),
                    None => out.push(format!("{path}.{k}: missing")),
                }
            }
            for k in h.keys().filter(|k| !w.contains_key(*k)) {
                out.push(format!("{path}.{k}: unexpected"));
            }
        }
        (w, h) if w == h => {}
        (w, h) => {
            let cut = |v: &Value| v.to_string().chars().take(200).collect::<String>();
            out.push(format!("{path}: {}, want {}", cut(h), cut(w)));
        }
    }
}

fn ref_name(value: &Value) -> Option<&str> {
    value["$ref"].as_str().and_then(|r| r.rsplit('/').next())
}

/// Drops descriptions and writes references as the recorder does.
fn strip(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if map.get("description").is_some_and(Value::is_string) {
                map.remove("description");
            }
            if let Some(name) = ref_name(&Value::Object(map.clone())).map(str::to_owned) {
                map.remove("$ref");
                map.insert("ref".to_owned(), json!(name));
            }
            if let Some(Value::Array(all)) = map.get("allOf").cloned()
                && let [one] = all.as_slice()
                && let Some(name) = ref_name(one)
            {
                map.remove("allOf");
                map.insert("ref".to_owned(), json!(name));
            }
            for v in map.values_mut() {
                strip(v);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(strip),
        _ => {}
    }
}

fn reduce_path(path: &Value) -> Value {
    let mut operations = json!({});
    for method in ["get", "put", "post", "delete", "options", "head", "patch"] {
        let op = &path[method];
        if !op.is_object() {
            continue;
        }
        let mut reduced =
            json!({"parameters": parameters(&op["parameters"]), "operationId": op["operationId"]});
        for key in ["x-kubernetes-action", "x-kubernetes-group-version-kind"] {
            if !op[key].is_null() {
                reduced[key] = op[key].clone();
            }
        }
        let mut responses = json!({});
        for (status, response) in op["responses"].as_object().into_iter().flatten() {
            responses[status] = content(&response["content"]);
        }
        reduced["responses"] = responses;
        if op["requestBody"].is_object() {
            reduced["request"] = content(&op["requestBody"]["content"]);
        }
        operations[method] = reduced;
    }
    json!({"parameters": parameters(&path["parameters"]), "operations": operations})
}

/// Parameters were recorded in the order of their text without the place.
fn sort_parameters(path: &mut Value) {
    let sort = |list: &mut Value| {
        if let Some(list) = list.as_array_mut() {
            list.sort_by_key(|p| p.as_str().unwrap_or("").to_owned());
        }
    };
    sort(&mut path["parameters"]);
    for op in path["operations"].as_object_mut().into_iter().flat_map(|m| m.values_mut()) {
        sort(&mut op["parameters"]);
    }
}

fn parameters(list: &Value) -> Value {
    let mut names: Vec<String> = list
        .as_array()
        .into_iter()
        .flatten()
        .map(|p| format!("{}:{}", p["in"].as_str().unwrap_or(""), p["name"].as_str().unwrap_or("")))
        .collect();
    names.sort();
    json!(names)
}

fn content(content: &Value) -> Value {
    let mut out = json!({});
    for (media, body) in content.as_object().into_iter().flatten() {
        let schema = &body["schema"];
        out[media] = match ref_name(schema) {
            Some(name) => json!(name),
            None => schema["type"].clone(),
        };
    }
    out
}

/// Compares the fields of a kind, flattened, with the served schema.
pub async fn fields(server: &Arc<Server>, row: &Value) -> Vec<String> {
    let kind = &row["kind"];
    let (group, version) = (kind["group"].as_str().unwrap_or(""), kind["version"].as_str().unwrap_or(""));
    let document =
        if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
    let call = Call {
        method: "GET".to_owned(),
        uri: format!("/openapi/v3/{document}"),
        headers: vec![("accept".to_owned(), "application/json".to_owned())],
        body: Vec::new(),
    };
    let answer = client::send(client::service(server, None), &call).await;
    let Some(body) = answer.json() else { return vec![format!("{document} answered {}", answer.status)] };
    let schemas = &body["components"]["schemas"];
    let mut flat = json!({});
    let root = row["schema"].as_str().unwrap_or("");
    if schemas[root].is_null() {
        return vec![format!("no schema {root}")];
    }
    let mut trail = vec![root.to_owned()];
    flatten(schemas, &schemas[root], "", &mut flat, &mut trail);
    let mut out = Vec::new();
    diff(&row["fields"], &flat, "fields", &mut out);
    out
}

fn target(schema: &Value) -> Option<&str> {
    ref_name(schema).or_else(|| schema["allOf"].as_array().and_then(|a| a.first()).and_then(ref_name))
}

fn flatten(schemas: &Value, schema: &Value, prefix: &str, out: &mut Value, trail: &mut Vec<String>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        out[&path] = describe(schemas, property);
        if schema["required"].as_array().is_some_and(|r| r.contains(&json!(name))) {
            out[&path]["required"] = json!(true);
        }
        descend(schemas, property, &path, out, trail);
    }
}

fn descend(schemas: &Value, schema: &Value, path: &str, out: &mut Value, trail: &mut Vec<String>) {
    if let Some(name) = target(schema) {
        if trail.iter().any(|t| t == name) || trail.len() > 40 {
            out[path] = json!({ "recursive": name });
            return;
        }
        trail.push(name.to_owned());
        let inner = schemas[name].clone();
        if inner["properties"].is_object() {
            flatten(schemas, &inner, path, out, trail);
        } else {
            descend(schemas, &inner, path, out, trail);
        }
        trail.pop();
    } else if schema["items"].is_object() {
        descend(schemas, &schema["items"], &format!("{path}[]"), out, trail);
    } else if schema["additionalProperties"].is_object() {
        descend(schemas, &schema["additionalProperties"], &format!("{path}.*"), out, trail);
    } else if schema["properties"].is_object() {
        flatten(schemas, schema, path, out, trail);
    }
}

fn describe(schemas: &Value, schema: &Value) -> Value {
    let mut out = json!({});
    let names = [
        ("type", "type"),
        ("format", "format"),
        ("default", "default"),
        ("x-kubernetes-list-type", "listType"),
        ("x-kubernetes-list-map-keys", "listMapKeys"),
        ("x-kubernetes-map-type", "mapType"),
        ("x-kubernetes-patch-strategy", "patchStrategy"),
        ("x-kubernetes-patch-merge-key", "patchMergeKey"),
    ];
    for (from, to) in names {
        if !schema[from].is_null() {
            out[to] = schema[from].clone();
        }
    }
    // the recorder lets what the definition behind a reference says win
    let behind = target(schema).or_else(|| target(&schema["items"]));
    if let Some(map_type) = behind.and_then(|name| schemas[name].get("x-kubernetes-map-type")) {
        out["mapType"] = map_type.clone();
    }
    if let Some(name) = target(schema) {
        out["ref"] = json!(name);
    }
    // How the elements merge is said where they are defined.
    for part in [schema, &schema["items"], &schema["additionalProperties"]] {
        if let Some(name) = target(part)
            && out["mapType"].is_null()
            && !schemas[name]["x-kubernetes-map-type"].is_null()
        {
            out["mapType"] = schemas[name]["x-kubernetes-map-type"].clone();
        }
    }
    let short = |s: &Value| target(s).map_or_else(|| s["type"].clone(), |n| json!(n));
    if schema["items"].is_object() {
        out["items"] = short(&schema["items"]);
    }
    if schema["additionalProperties"].is_object() {
        out["values"] = short(&schema["additionalProperties"]);
    }
    out
}

//! Paths and operations.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::schemas::{definition_name, list_name, reference};
use crate::kinds::Kind;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
const LIST: [&str; 11] = [
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
    "watch",
];
const WRITE: [&str; 3] = ["dryRun", "fieldManager", "fieldValidation"];
const DELETE: [&str; 5] = [
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
];

/// A parameter from its short form, `query:watch` or `path:name`.
fn parameter(short: &str) -> Value {
    let (place, name) = short.split_once(':').unwrap_or(("query", short));
    let kind = match name {
        "limit" | "timeoutSeconds" | "gracePeriodSeconds" | "limitBytes" | "sinceSeconds" | "tailLines"
        | "ports" => "integer",
        "allowWatchBookmarks"
        | "sendInitialEvents"
        | "watch"
        | "force"
        | "orphanDependents"
        | "follow"
        | "previous"
        | "timestamps"
        | "insecureSkipTLSVerifyBackend"
        | "stderr"
        | "stdin"
        | "stdout"
        | "tty"
        | "ignoreStoreReadErrorWithClusterBreakingPotential" => "boolean",
        _ => "string",
    };
    let mut made = json!({ "name": name, "in": place, "schema": { "type": kind, "uniqueItems": true } });
    if place == "path" {
        made["required"] = json!(true);
    }
    made
}

fn parameters(short: &[Value]) -> Value {
    short.iter().filter_map(Value::as_str).map(parameter).collect()
}

fn strings(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The paths of a recorded document.
pub fn recorded(document: &Value) -> Value {
    let mut paths = Map::new();
    for (path, item) in document["paths"].as_object().into_iter().flatten() {
        let mut made = Map::new();
        let shared = strings(&item["parameters"]);
        if !shared.is_empty() {
            made.insert("parameters".to_owned(), parameters(shared));
        }
        for (method, short) in item["operations"].as_object().into_iter().flatten() {
            made.insert(method.clone(), operation(short));
        }
        paths.insert(path.clone(), Value::Object(made));
    }
    Value::Object(paths)
}

/// An operation from its short form.
fn operation(short: &Value) -> Value {
    let mut made = Map::new();
    for key in ["operationId", "x-kubernetes-action", "x-kubernetes-group-version-kind"] {
        if let Some(value) = short.get(key) {
            made.insert(key.to_owned(), value.clone());
        }
    }
    let own = strings(&short["parameters"]);
    if !own.is_empty() {
        made.insert("parameters".to_owned(), parameters(own));
    }
    if short["request"].is_object() {
        made.insert("requestBody".to_owned(), json!({ "content": content(&short["request"]) }));
    }
    let mut responses = Map::new();
    for (status, body) in short["responses"].as_object().into_iter().flatten() {
        let description = match status.as_str() {
            "200" => "OK",
            "201" => "Created",
            "202" => "Accepted",
            "401" => "Unauthorized",
            _ => "",
        };
        let mut response = json!({ "description": description });
        if body.as_object().is_some_and(|b| !b.is_empty()) {
            response["content"] = content(body);
        }
        responses.insert(status.clone(), response);
    }
    made.insert("responses".to_owned(), Value::Object(responses));
    Value::Object(made)
}

/// Media types with their schemas: the name of a definition, or a plain type.
fn content(short: &Value) -> Value {
    let mut made = Map::new();
    for (media, name) in short.as_object().into_iter().flatten() {
        let schema = match name.as_str() {
            Some(name) if name.contains('.') => reference(name),
            Some(kind) => json!({ "type": kind }),
            None => json!({}),
        };
        made.insert(media.clone(), json!({ "schema": schema }));
    }
    Value::Object(made)
}

/// Documents about something else than resources of a version.
pub fn other(name: &str) -> (Value, Value) {
    let id = match name {
        "api" => "getCoreAPIVersions".to_owned(),
        "apis" => "getAPIVersions".to_owned(),
        "version" => "getCodeVersion".to_owned(),
        "openid/v1/jwks" => "getServiceAccountIssuerOpenIDKeyset".to_owned(),
        n if n.starts_with(".well-known") => "getServiceAccountIssuerOpenIDConfiguration".to_owned(),
        n => format!("get{}APIGroup", camel(n.trim_start_matches("apis/").trim_end_matches(".k8s.io"))),
    };
    let slash = if name.starts_with("api") { "/" } else { "" };
    let short = json!({
        "operationId": id, "parameters": [],
        "responses": { "200": { "application/json": "object" }, "401": {} },
    });
    (json!({ (format!("/{name}{slash}")): { "get": operation(&short) } }), json!({}))
}

/// `example.dev` → `ExampleDev`.
fn camel(text: &str) -> String {
    let word = |w: &str| {
        let mut chars = w.chars();
        chars.next().map(|c| c.to_uppercase().chain(chars).collect::<String>()).unwrap_or_default()
    };
    text.split(['.', '-']).map(word).collect()
}

/// The paths of rows that have no recorded document.
pub fn of_rows(rows: &[Arc<Kind>]) -> Value {
    let mut paths = Map::new();
    for row in rows {
        Paths { row, paths: &mut paths }.all();
    }
    Value::Object(paths)
}

struct Paths<'a> {
    row: &'a Kind,
    paths: &'a mut Map<String, Value>,
}

impl Paths<'_> {
    fn all(&mut self) {
        let gvk = &self.row.gvk;
        let base = format!("/apis/{}/{}", gvk.group, gvk.version);
        let plural = &self.row.plural;
        let (scope, shared, collection) = if self.row.namespaced {
            (
                "Namespaced",
                &["path:namespace", "query:pretty"][..],
                format!("{base}/namespaces/{{namespace}}/{plural}"),
            )
        } else {
            ("", &["query:pretty"][..], format!("{base}/{plural}"))
        };
        self.add(&collection, shared, &self.collection(scope));
        let one: Vec<&str> = std::iter::once("path:name").chain(shared.iter().copied()).collect();
        self.add(&format!("{collection}/{{name}}"), &one, &self.object(scope));
        for sub in &self.row.subresources {
            let name = match (sub.kind.group.as_str(), sub.kind.kind.as_str()) {
                ("autoscaling", "Scale") => "io.k8s.api.autoscaling.v1.Scale".to_owned(),
                _ => definition_name(&self.row.gvk),
            };
            let operations = self.subresource(scope, &sub.name, &name, &sub.verbs);
            self.add(&format!("{collection}/{{name}}/{}", sub.name), &one, &operations);
        }
        if self.row.namespaced {
            let mut shared: Vec<String> = LIST.iter().map(|p| format!("query:{p}")).collect();
            shared.push("query:pretty".to_owned());
            shared.sort();
            let shared: Vec<&str> = shared.iter().map(String::as_str).collect();
            let list = self.operation("list", "list", "", "ForAllNamespaces", &[], &list_name(self.row));
            self.add(&format!("{base}/{plural}"), &shared, &[("get", list)]);
        }
    }

    fn add(&mut self, path: &str, shared: &[&str], operations: &[(&str, Value)]) {
        let shared: Vec<Value> = shared.iter().map(|s| json!(s)).collect();
        let mut item = json!({ "parameters": parameters(&shared) });
        for (method, short) in operations {
            item[*method] = operation(short);
        }
        self.paths.insert(path.to_owned(), item);
    }

    /// A short operation; `ends` follows the kind in its id.
    fn operation(
        &self,
        verb: &str,
        action: &str,
        scope: &str,
        ends: &str,
        query: &[&str],
        gives: &str,
    ) -> Value {
        let gvk = &self.row.gvk;
        let id = format!("{verb}{}{}{scope}{}{ends}", camel(&gvk.group), camel(&gvk.version), gvk.kind);
        let query: Vec<String> = query.iter().map(|q| format!("query:{q}")).collect();
        json!({
            "operationId": id, "parameters": query,
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": {
                "group": gvk.group, "version": gvk.version, "kind": gvk.kind,
            },
            "responses": { "200": media(gives), "401": {} },
        })
    }

    fn collection(&self, scope: &str) -> Vec<(&'static str, Value)> {
        let own = definition_name(&self.row.gvk);
        let status = format!("{META}Status");
        let list = self.operation("list", "list", scope, "", &LIST, &list_name(self.row));
        let mut create = self.operation("create", "post", scope, "", &WRITE, &own);
        create["request"] = media(&own);
        create["responses"]["201"] = media(&own);
        create["responses"]["202"] = media(&own);
        let group = format!("Collection{scope}");
        let delete = self.operation("delete", "deletecollection", &group, "", &LIST, &status);
        vec![("get", list), ("post", create), ("delete", delete)]
    }

    fn object(&self, scope: &str) -> Vec<(&'static str, Value)> {
        let mut operations = self.read_and_write(scope, "", &definition_name(&self.row.gvk));
        let status = format!("{META}Status");
        let mut delete = self.operation("delete", "delete", scope, "", &DELETE, &status);
        delete["request"] = media(&format!("{META}DeleteOptions"));
        delete["responses"]["202"] = media(&status);
        operations.push(("delete", delete));
        operations
    }

    fn read_and_write(&self, scope: &str, ends: &str, name: &str) -> Vec<(&'static str, Value)> {
        let get = self.operation("read", "get", scope, ends, &["resourceVersion"], name);
        let mut put = self.operation("replace", "put", scope, ends, &WRITE, name);
        put["request"] = media(name);
        put["responses"]["201"] = media(name);
        let with_force = ["dryRun", "fieldManager", "fieldValidation", "force"];
        let mut patch = self.operation("patch", "patch", scope, ends, &with_force, name);
        let body = format!("{META}Patch");
        patch["request"] = json!({
            "application/json-patch+json": body,
            "application/merge-patch+json": body,
            "application/apply-patch+yaml": body,
        });
        vec![("get", get), ("put", put), ("patch", patch)]
    }

    fn subresource(
        &self,
        scope: &str,
        sub: &str,
        name: &str,
        verbs: &[String],
    ) -> Vec<(&'static str, Value)> {
        let can = |verb: &str| verbs.iter().any(|v| v == verb);
        let all = self.read_and_write(scope, &camel(sub), name);
        let served = |method: &str| match method {
            "get" => can("get"),
            "put" => can("update"),
            _ => can("patch"),
        };
        all.into_iter().filter(|(method, _)| served(method)).collect()
    }
}

fn media(name: &str) -> Value {
    json!({ "application/json": name, "application/yaml": name })
}

/// Paths in the form of Swagger 2.0.
pub fn to_v2(paths: &Value) -> Value {
    let mut made = paths.clone();
    for item in made.as_object_mut().into_iter().flat_map(|m| m.values_mut()) {
        let Some(item) = item.as_object_mut() else { continue };
        for (key, value) in item.iter_mut() {
            if key == "parameters" {
                flatten_parameters(value);
            } else {
                operation_to_v2(value);
            }
        }
    }
    made
}

fn flatten_parameters(parameters: &mut Value) {
    for parameter in parameters.as_array_mut().into_iter().flatten() {
        if let Some(map) = parameter.as_object_mut()
            && let Some(Value::Object(schema)) = map.remove("schema")
        {
            map.extend(schema);
        }
    }
}

fn operation_to_v2(operation: &mut Value) {
    let Some(map) = operation.as_object_mut() else { return };
    let mut parameters = map.remove("parameters").unwrap_or_else(|| json!([]));
    flatten_parameters(&mut parameters);
    let media_types = |content: &Value| -> Vec<Value> {
        content.as_object().into_iter().flat_map(|m| m.keys()).map(|k| json!(k)).collect()
    };
    let schema =
        |content: &Value| content.as_object().and_then(|m| m.values().next()).map(|c| c["schema"].clone());
    if let Some(body) = map.remove("requestBody") {
        let content = &body["content"];
        map.insert("consumes".to_owned(), json!(media_types(content)));
        if let Some(list) = parameters.as_array_mut() {
            list.push(json!({ "name": "body", "in": "body", "required": true, "schema": schema(content) }));
        }
    }
    let mut produces = Vec::new();
    for response in
        map.get_mut("responses").and_then(Value::as_object_mut).into_iter().flat_map(|m| m.values_mut())
    {
        let Some(response) = response.as_object_mut() else { continue };
        if let Some(content) = response.remove("content") {
            produces = media_types(&content);
            if let Some(schema) = schema(&content) {
                response.insert("schema".to_owned(), schema);
            }
        }
    }
    map.insert("produces".to_owned(), json!(produces));
    map.insert("parameters".to_owned(), parameters);
}

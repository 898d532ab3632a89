use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::test_vectors::family;

fn short_parameters(list: &Value) -> Value {
    let short = |p: &Value| format!("{}:{}", p["in"].as_str().unwrap(), p["name"].as_str().unwrap());
    let mut all: Vec<String> = list.as_array().into_iter().flatten().map(short).collect();
    all.sort();
    json!(all)
}

fn short_content(content: &Value) -> Value {
    let name = |c: &Value| match c["schema"]["$ref"].as_str() {
        Some(r) => json!(r.rsplit('/').next().unwrap()),
        None => c["schema"]["type"].clone(),
    };
    Value::Object(content.as_object().into_iter().flatten().map(|(k, v)| (k.clone(), name(v))).collect())
}

/// A path reduced as the recorder did it.
fn short_path(path: &Value) -> Value {
    let mut operations = json!({});
    for (method, op) in path.as_object().unwrap().iter().filter(|(k, _)| *k != "parameters") {
        let mut short = op.clone();
        short["parameters"] = short_parameters(&op["parameters"]);
        let map = short.as_object_mut().unwrap();
        if let Some(body) = map.remove("requestBody") {
            map.insert("request".to_owned(), short_content(&body["content"]));
        }
        for response in map["responses"].as_object_mut().unwrap().values_mut() {
            *response = short_content(&response["content"]);
        }
        operations[method] = short;
    }
    json!({ "parameters": short_parameters(&path["parameters"]), "operations": operations })
}

/// A schema as it was recorded: without descriptions.
fn short_schema(schema: &Value) -> Value {
    match schema {
        Value::Array(all) => all.iter().map(short_schema).collect(),
        Value::Object(map) => {
            let target = |v: &Value| v["$ref"].as_str().map(|r| json!(r.rsplit('/').next().unwrap()));
            let mut made: Map<String, Value> = Map::new();
            for (key, value) in map {
                match key.as_str() {
                    "description" if value.is_string() => {}
                    // also the name of a property
                    "$ref" if value.is_string() => drop(made.insert("ref".into(), target(schema).unwrap())),
                    "allOf" if target(&value[0]).is_some() => {
                        made.insert("ref".into(), target(&value[0]).unwrap());
                    }
                    _ => drop(made.insert(key.clone(), short_schema(value))),
                }
            }
            Value::Object(made)
        }
        other => other.clone(),
    }
}

/// Parameters come in no particular order.
fn sorted(path: &Value) -> Value {
    let sort = |list: &mut Value| {
        list.as_array_mut().unwrap().sort_by_key(|p| p.as_str().unwrap().to_owned());
    };
    let mut path = path.clone();
    sort(&mut path["parameters"]);
    path["operations"].as_object_mut().unwrap().values_mut().for_each(|o| sort(&mut o["parameters"]));
    path
}

#[test]
fn recorded_documents() {
    let table = builtin::table();
    let mut seen = 0;
    for scenario in family("openapi-paths").iter().chain(&family("openapi-schemas")) {
        let step = &scenario["steps"][0];
        let name = step["request"]["path"].as_str().unwrap().trim_start_matches("/openapi/v3/");
        let document = document(&table, name, "v1.36.0").unwrap();
        let reduced = &step["response"]["reduced"];
        if let Some(paths) = reduced["paths"].as_object() {
            let ours = document["paths"].as_object().unwrap();
            assert!(ours.keys().eq(paths.keys()), "{name}");
            for (path, wanted) in paths {
                assert_eq!(short_path(&ours[path]), sorted(wanted), "{name} {path}");
            }
        }
        if let Some(schemas) = reduced["schemas"].as_object() {
            let ours = document["components"]["schemas"].as_object().unwrap();
            assert!(ours.keys().eq(schemas.keys()), "{name}");
            for (schema, wanted) in schemas {
                assert_eq!(&short_schema(&ours[schema]), wanted, "{name} {schema}");
            }
        }
        seen += 1;
    }
    assert_eq!(seen, 32);
}

#[test]
fn custom_resources() {
    let scenario = family("openapi").into_iter().find(|s| s["id"] == "openapi/custom-resource").unwrap();
    let mut table = builtin::table();
    for kind in crate::crd::kinds(&scenario["steps"][0]["response"]["body"]) {
        table.insert(kind);
    }
    let document = document(&table, "apis/example.dev/v1", "v1.36.0").unwrap();
    let reduced = &scenario["steps"][3]["response"]["reduced"];
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.keys().eq(reduced["paths"].as_object().unwrap().keys()));
    for (path, wanted) in reduced["paths"].as_object().unwrap() {
        assert_eq!(short_path(&paths[path]), sorted(wanted), "{path}");
    }
    for (name, wanted) in reduced["schemas"].as_object().unwrap() {
        assert_eq!(&short_schema(&document["components"]["schemas"][name]), wanted, "{name}");
    }
}

#[test]
fn index_and_hashes() {
    let mut table = builtin::table();
    let recorded = family("openapi").into_iter().find(|s| s["id"] == "openapi/index").unwrap();
    let wanted = &recorded["steps"][0]["response"]["body"]["paths"];
    let ours = index(&table);
    for name in wanted.as_object().unwrap().keys().filter(|n| !n.contains("example.dev")) {
        let url = ours["paths"][name]["serverRelativeURL"].as_str().unwrap_or_else(|| panic!("no {name}"));
        assert!(url.starts_with(&format!("/openapi/v3/{name}?hash=")));
        assert!(document(&table, name, "v1").is_some(), "{name}");
    }
    assert!(hash(&table, "apis/nosuch/v1").is_none());
    let before = hash(&table, "apis/kueue.x-k8s.io/v1beta2");
    assert!(before.is_none());
    for kind in crate::crd::kueue_definitions().iter().flat_map(crate::crd::kinds) {
        table.insert(kind);
    }
    assert!(hash(&table, "apis/kueue.x-k8s.io/v1beta2").is_some());
    let document = document(&table, "apis/kueue.x-k8s.io/v1beta2", "v1").unwrap();
    assert!(document["components"]["schemas"]["io.x-k8s.kueue.v1beta2.Workload"].is_object());
}

#[test]
fn swagger() {
    let document = v2(&builtin::table(), "v1.36.0");
    assert!(document["paths"]["/api/v1/namespaces/{namespace}/pods"]["post"]["parameters"].is_array());
    let text = document.to_string();
    assert!(!text.contains("#/components/") && text.contains("#/definitions/io.k8s.api.core.v1.PodSpec"));
}

/// The fields of a message: number and content; numbers as their bytes.
fn fields(mut message: &[u8]) -> Vec<(u64, Vec<u8>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return value;
            }
        }
        unreachable!()
    }
    let mut out = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message);
        let length = match tag & 7 {
            0 => {
                out.push((tag >> 3, varint(&mut message).to_le_bytes().to_vec()));
                continue;
            }
            1 => 8,
            2 => usize::try_from(varint(&mut message)).unwrap(),
            other => panic!("wire type {other}"),
        };
        out.push((tag >> 3, message[..length].to_vec()));
        message = &message[length..];
    }
    out
}

fn one(message: &[u8], number: u64) -> Vec<u8> {
    let mut found = fields(message).into_iter().filter(|(n, _)| *n == number);
    let (_, content) = found.next().unwrap_or_else(|| panic!("no field {number}"));
    content
}

/// Entries (name, value) of field `number`.
fn entries(message: &[u8], number: u64) -> BTreeMap<String, Vec<u8>> {
    let of = fields(message).into_iter().filter(|(n, _)| *n == number);
    of.map(|(_, e)| (String::from_utf8(one(&e, 1)).unwrap(), one(&e, 2))).collect()
}

/// A schema as JSON again, as far as it says anything of types.
fn schema(message: &[u8]) -> Value {
    let mut out = Map::new();
    for (number, content) in fields(message) {
        let text = || json!(String::from_utf8(content.clone()).unwrap());
        match number {
            1 => out.insert("$ref".into(), text()),
            2 => out.insert("format".into(), text()),
            4 => out.insert("description".into(), text()),
            19 => {
                let required = out.entry("required").or_insert_with(|| json!([]));
                required.as_array_mut().unwrap().push(text());
                None
            }
            20 => {
                let all = out.entry("enum").or_insert_with(|| json!([]));
                all.as_array_mut().unwrap().push(serde_json::from_slice(&one(&content, 2)).unwrap());
                None
            }
            21 => out.insert("additionalProperties".into(), schema(&one(&content, 1))),
            22 => out.insert("type".into(), json!(String::from_utf8(one(&content, 1)).unwrap())),
            23 => out.insert("items".into(), schema(&one(&content, 1))),
            25 => {
                let named = entries(&content, 1);
                let named: Map<String, Value> = named.iter().map(|(k, v)| (k.clone(), schema(v))).collect();
                out.insert("properties".into(), Value::Object(named))
            }
            5 => out.insert("default".into(), serde_json::from_slice(&one(&content, 2)).unwrap()),
            31 => {
                let name = String::from_utf8(one(&content, 1)).unwrap();
                out.insert(name, serde_json::from_slice(&one(&one(&content, 2), 2)).unwrap())
            }
            other => panic!("field {other} of a schema"),
        };
    }
    Value::Object(out)
}

#[test]
fn the_binary_form_says_the_same() {
    let table = builtin::table();
    let document = v2(&table, "v1.36.0");
    let binary = v2_binary(&document);
    assert_eq!(one(&binary, 1), b"2.0");
    let definitions = entries(&one(&binary, 9), 1);
    let wanted = document["definitions"].as_object().unwrap();
    assert_eq!(definitions.len(), wanted.len());
    for name in
        ["io.k8s.api.core.v1.Pod", "io.k8s.api.core.v1.Container", "io.k8s.api.apps.v1.DeploymentSpec"]
    {
        assert_eq!(schema(&definitions[name]), wanted[name], "{name}");
    }
    let paths = entries(&one(&binary, 8), 2);
    let wanted = document["paths"].as_object().unwrap();
    assert_eq!(paths.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>());
    let path = "/api/v1/namespaces/{namespace}/pods/{name}";
    let operation = one(&paths[path], 2);
    assert_eq!(one(&operation, 5), wanted[path]["get"]["operationId"].as_str().unwrap().as_bytes());
    let parameters = fields(&operation).iter().filter(|(n, _)| *n == 8).count();
    assert_eq!(parameters, wanted[path]["get"]["parameters"].as_array().map_or(0, Vec::len));
    let responses = entries(&one(&operation, 9), 1);
    let found = one(&one(&one(&one(&responses["200"], 1), 2), 1), 1);
    assert_eq!(found, b"#/definitions/io.k8s.api.core.v1.Pod");
}

#[test]
fn binary_documents_of_version_3() {
    let table = builtin::table();
    let document = document(&table, "apis/batch/v1", "v1.36.0").unwrap();
    let binary = document_binary(&document);
    assert_eq!(one(&binary, 1), document["openapi"].as_str().unwrap().as_bytes());
    let schemas = entries(&one(&one(&binary, 5), 1), 1);
    let wanted = document["components"]["schemas"].as_object().unwrap();
    assert_eq!(schemas.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>());
    for (name, wanted) in wanted {
        let schema = one(&schemas[name], 1);
        let properties = fields(&schema).into_iter().find(|(n, _)| *n == 31).map(|(_, p)| entries(&p, 1));
        let names: Vec<String> = properties.unwrap_or_default().into_keys().collect();
        let expected: Vec<&String> =
            wanted["properties"].as_object().into_iter().flat_map(Map::keys).collect();
        assert_eq!(names.iter().collect::<Vec<_>>(), expected, "{name}");
        // Some, like JSON Patch's union, have no type.
        let found =
            fields(&schema).into_iter().find(|(n, _)| *n == 25).map(|(_, t)| String::from_utf8(t).unwrap());
        assert_eq!(found.as_deref(), wanted["type"].as_str(), "{name}");
    }
    let paths = entries(&one(&binary, 4), 1);
    assert_eq!(paths.len(), document["paths"].as_object().unwrap().len());
}

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

fn short_schema(schema: &Value) -> Value {
    match schema {
        Value::Array(all) => all.iter().map(short_schema).collect(),
        Value::Object(map) => {
            let target = |v: &Value| v["$ref"].as_str().map(|r| json!(r.rsplit('/').next().unwrap()));
            let mut made: Map<String, Value> = Map::new();
            for (key, value) in map {
                match key.as_str() {
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

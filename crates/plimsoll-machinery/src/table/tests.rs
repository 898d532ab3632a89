use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::{IncludeObject, TableOptions, to_table};
use crate::kinds::{CustomKind, Gvk, Kind};
use crate::test_vectors::{family, with_times};

fn kind_of(object: &Value, definitions: &HashMap<String, CustomKind>) -> Kind {
    let api_version = object["apiVersion"].as_str().unwrap();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = object["kind"].as_str().unwrap();
    Kind {
        gvk: Gvk { group: group.into(), version: version.into(), kind: kind.into() },
        custom: definitions.get(kind).cloned().map(Arc::new),
        ..Kind::default()
    }
}

fn same_cell(ours: &Value, theirs: &Value) -> bool {
    match theirs.as_str() {
        Some("<age>") => ours.as_str().is_some_and(|s| s.ends_with(['s', 'm', 'h', 'd'])),
        Some("<time>") => ours == "2026-11-20T10:00:00Z",
        _ => ours == theirs || (ours.is_f64() && ours.as_f64() == theirs.as_f64()),
    }
}

fn compare(ours: &Value, theirs: &Value, at: &str) {
    let columns = |t: &Value| -> Vec<Value> {
        let all = t["columnDefinitions"].as_array().cloned().unwrap_or_default();
        let without = |mut c: Value| {
            c.as_object_mut().unwrap().remove("description");
            c
        };
        all.into_iter().map(without).collect()
    };
    assert_eq!(columns(ours), columns(theirs), "{at}");
    let (a, b) = (ours["rows"].as_array().unwrap(), theirs["rows"].as_array().unwrap());
    assert_eq!(a.len(), b.len(), "{at}");
    for (a, b) in a.iter().zip(b) {
        let (cells, wanted) = (a["cells"].as_array().unwrap(), b["cells"].as_array().unwrap());
        assert!(
            cells.len() == wanted.len() && cells.iter().zip(wanted).all(|(a, b)| same_cell(a, b)),
            "{at}:\n ours {cells:?}\n want {wanted:?}"
        );
        assert_eq!(a.get("conditions"), b.get("conditions"), "{at}");
        assert_eq!(a["object"], with_times(&b["object"]), "{at}");
    }
}

/// Objects as the transcripts show them give the tables the transcripts show.
#[test]
fn recorded_tables() {
    let now: Timestamp = "2026-11-20T12:00:00Z".parse().unwrap();
    let mut tables = 0;
    for scenario in family("table").iter().chain(&family("crd")) {
        let mut objects: HashMap<String, Value> = HashMap::new();
        let mut definitions: HashMap<String, CustomKind> = HashMap::new();
        for step in scenario["steps"].as_array().unwrap() {
            let body = &step["response"]["body"];
            if body["kind"] == "CustomResourceDefinition" && step["response"]["status"] == 201 {
                let columns = body["spec"]["versions"][0]["additionalPrinterColumns"].as_array();
                let custom =
                    CustomKind { columns: columns.cloned().unwrap_or_default(), ..Default::default() };
                definitions.insert(body["spec"]["names"]["kind"].as_str().unwrap().into(), custom);
            }
            if let Some(uid) = body["metadata"]["uid"].as_str() {
                objects.insert(uid.into(), with_times(body));
            }
            let accepted = step["request"]["query"]["includeObject"].as_str().unwrap_or_default();
            let include = IncludeObject::parse(accepted);
            if step["request"]["method"] != "GET" || body["kind"] != "Table" || !body["rows"].is_array() {
                continue;
            }
            let uid = |row: &Value| row["object"]["metadata"]["uid"].as_str().map(str::to_owned);
            let uids: Option<Vec<String>> = body["rows"].as_array().unwrap().iter().map(uid).collect();
            let Some(uids) = uids.filter(|u| !u.is_empty()) else { continue };
            let items: Vec<Value> = uids.iter().map(|uid| objects[uid].clone()).collect();
            let options = TableOptions { include_object: include.unwrap(), ..TableOptions::default() };
            let table = to_table(&kind_of(&items[0], &definitions), &items, &options, now);
            compare(&table, body, &format!("{} {}", scenario["id"], step["request"]["path"]));
            tables += 1;
        }
    }
    assert!(tables > 90, "{tables} tables compared");
}

#[test]
fn include_object_is_checked() {
    assert!(IncludeObject::parse("Everything").unwrap_err().message.contains("must be 'Metadata'"));
}

//! Swagger documents of other servers within the one of this server (kube-openapi `aggregator.go`,
//! `MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters`).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

/// What references lead to.
const SECTIONS: [&str; 2] = ["definitions", "parameters"];

/// Section and name of what a reference leads to.
fn target(reference: &str) -> Option<(&'static str, &str)> {
    let (section, name) = reference.strip_prefix("#/")?.split_once('/')?;
    Some((SECTIONS.into_iter().find(|s| *s == section)?, name))
}

/// The part of a Swagger document that is about paths below `prefix`, with what these refer to.
pub fn v2_below(document: &Value, prefix: &str) -> Value {
    let below =
        |path: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let mut paths = Map::new();
    for (path, item) in document["paths"].as_object().into_iter().flatten().filter(|(path, _)| below(path)) {
        paths.insert(path.clone(), item.clone());
    }
    let mut wanted = BTreeSet::new();
    paths.values().for_each(|item| references(item, &mut wanted));
    let mut made = json!({"paths": paths, "definitions": {}, "parameters": {}});
    while let Some((section, name)) = wanted.pop_first() {
        if made[section].get(&name).is_some() {
            continue;
        }
        // A reference to nothing would make the whole document useless for kubectl.
        let found = document[section].get(&name).cloned().unwrap_or_else(|| json!({"type": "object"}));
        references(&found, &mut wanted);
        made[section][name] = found;
    }
    made
}

/// Adds a part of another server's document to that of this server. Paths that are there already stay; a definition of the
/// same name with another content gets another name.
pub fn add_v2(into: &mut Value, part: &Value) {
    let names = new_names(into, part);
    for section in SECTIONS {
        for (name, value) in part[section].as_object().into_iter().flatten() {
            let new = names.get(&(section, name.as_str()));
            // One without a new name is there already, or is new.
            if new.is_none() && into[section].get(name).is_some() {
                continue;
            }
            let mut value = value.clone();
            rename(&mut value, &names);
            into[section][new.unwrap_or(name)] = value;
        }
    }
    for (path, item) in part["paths"].as_object().into_iter().flatten() {
        if into["paths"].get(path).is_none() {
            let mut item = item.clone();
            rename(&mut item, &names);
            into["paths"][path] = item;
        }
    }
}

type Names<'a> = BTreeMap<(&'static str, &'a str), String>;

/// New names for what has another content here, or refers to such.
fn new_names<'a>(into: &Value, part: &'a Value) -> Names<'a> {
    let all = SECTIONS.into_iter().flat_map(|section| {
        let own = part[section].as_object().into_iter().flatten();
        own.map(move |(name, value)| (section, name.as_str(), value))
    });
    let mut same: Vec<(&'static str, &str, &Value)> = Vec::new();
    let mut names = Names::new();
    for (section, name, value) in all {
        match into[section].get(name) {
            Some(own) if own == value => same.push((section, name, value)),
            Some(_) => drop(names.insert((section, name), free(into, part, section, name))),
            None => {}
        }
    }
    loop {
        let before = names.len();
        same.retain(|(section, name, value)| {
            let mut used = BTreeSet::new();
            references(value, &mut used);
            let stays = !used.iter().any(|(section, name)| names.contains_key(&(*section, name.as_str())));
            if !stays {
                names.insert((*section, *name), free(into, part, section, name));
            }
            stays
        });
        if names.len() == before {
            return names;
        }
    }
}

/// The first of `name_v2`, `name_v3`… that nothing has.
fn free(into: &Value, part: &Value, section: &str, name: &str) -> String {
    let taken = |name: &String| into[section].get(name).is_some() || part[section].get(name).is_some();
    (2_u32..).map(|n| format!("{name}_v{n}")).find(|name| !taken(name)).unwrap_or_default()
}

fn references(value: &Value, out: &mut BTreeSet<(&'static str, String)>) {
    match value {
        Value::Object(map) => {
            if let Some((section, name)) = map.get("$ref").and_then(Value::as_str).and_then(target) {
                out.insert((section, name.to_owned()));
            }
            map.values().for_each(|v| references(v, out));
        }
        Value::Array(all) => all.iter().for_each(|v| references(v, out)),
        _ => {}
    }
}

fn rename(value: &mut Value, names: &Names<'_>) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get_mut("$ref") {
                let new = target(reference).and_then(|(section, name)| {
                    Some(format!("#/{section}/{}", names.get(&(section, name))?))
                });
                if let Some(new) = new {
                    *reference = new;
                }
            }
            map.values_mut().for_each(|v| rename(v, names));
        }
        Value::Array(all) => all.iter_mut().for_each(|v| rename(v, names)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> Value {
        json!({"schema": {"$ref": format!("#/definitions/{name}")}})
    }

    #[test]
    fn only_what_is_below_a_path_is_taken() {
        let document = json!({
            "paths": {"/apis/g/v1": of("Own"), "/apis/g/v1/boats": {"parameters": [{"$ref": "#/parameters/pretty"}], "get": of("Boat")},
                "/apis/g/v10/boats": of("Other"), "/version": of("Info")},
            "definitions": {"Own": {}, "Other": {}, "Info": {}, "Unused": {},
                "Boat": {"properties": {"hull": {"$ref": "#/definitions/Hull"}, "lost": {"$ref": "#/definitions/Lost"}}},
                "Hull": {"properties": {"within": {"$ref": "#/definitions/Boat"}, "$ref": {"type": "string"}}}},
            "parameters": {"pretty": {"in": "query"}, "other": {}},
        });
        let part = v2_below(&document, "/apis/g/v1");
        let keys = |section: &str| part[section].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys("paths"), ["/apis/g/v1", "/apis/g/v1/boats"]);
        assert_eq!(keys("definitions"), ["Boat", "Hull", "Lost", "Own"]);
        assert_eq!(keys("parameters"), ["pretty"]);
        assert_eq!(part["definitions"]["Lost"], json!({"type": "object"}), "no reference leads nowhere");
    }

    #[test]
    fn other_definitions_of_a_name_get_another_one() {
        let refers = |name: &str| json!({"properties": {"x": {"$ref": format!("#/definitions/{name}")}}});
        let mut own = json!({
            "paths": {"/apis/g/v1/boats": {}, "/own": of("Meta")}, "parameters": {},
            "definitions": {"Meta": {"type": "object"}, "Meta_v2": {}, "Same": {"type": "string"}, "Uses": refers("Meta"),
                "Chain": refers("Uses")},
        });
        let before = own.clone();
        let part = json!({
            "paths": {"/apis/g/v1/boats": of("Meta"), "/apis/g/v1/ships": of("Ship")}, "parameters": {},
            "definitions": {"Meta": {"type": "array"}, "Same": {"type": "string"}, "Uses": refers("Meta"), "Chain": refers("Uses"),
                "Ship": {"properties": {"a": {"$ref": "#/definitions/Chain"}, "b": {"$ref": "#/definitions/Same"}}}},
        });
        add_v2(&mut own, &part);
        for (name, value) in before["definitions"].as_object().unwrap() {
            assert_eq!(&own["definitions"][name], value, "{name}");
        }
        assert_eq!(own["definitions"]["Meta_v3"], json!({"type": "array"}));
        assert_eq!(own["definitions"]["Uses_v2"], refers("Meta_v3"));
        assert_eq!(own["definitions"]["Chain_v2"], refers("Uses_v2"));
        assert_eq!(own["definitions"]["Ship"]["properties"]["a"]["$ref"], "#/definitions/Chain_v2");
        assert_eq!(own["definitions"]["Ship"]["properties"]["b"]["$ref"], "#/definitions/Same");
        assert_eq!(own["definitions"].as_object().unwrap().len(), 9);
        assert_eq!(own["paths"]["/apis/g/v1/boats"], json!({}), "its own paths stay");
        assert_eq!(own["paths"]["/apis/g/v1/ships"], of("Ship"));
        // Once more changes nothing.
        let once = own.clone();
        add_v2(
            &mut own,
            &json!({"paths": {}, "definitions": {"Same": {"type": "string"}}, "parameters": {}}),
        );
        assert_eq!(own, once);
    }
}

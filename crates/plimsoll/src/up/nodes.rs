//! The nodes to simulate: default ones, or manifests from a file.

use std::path::Path;

use anyhow::{Context, bail};
use plimsoll_apimachinery::{Gvk, Kind, builtin, decode};
use plimsoll_config as config;
use plimsoll_kubelet::nodes::{Shape, complete, node};
use serde_json::Value;

use crate::cli;

/// Most nodes.
const MOST: usize = 100_000;

/// The Node objects that the arguments ask for.
pub fn objects(args: &cli::Up) -> anyhow::Result<Vec<Value>> {
    let now = plimsoll_runtime::clock::now().0;
    match &args.nodes_file {
        Some(path) => {
            let mut nodes = read(path)?;
            for (i, node) in nodes.iter_mut().enumerate() {
                complete(node, i, now);
            }
            Ok(nodes)
        }
        None if args.nodes > MOST => bail!("--nodes: at most {MOST}"),
        None => Ok((0..args.nodes).map(|i| node(i, &Shape::default(), now)).collect()),
    }
}

fn read(path: &Path) -> anyhow::Result<Vec<Value>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("--nodes-file {}", path.display()))?;
    parse(&text).with_context(|| format!("--nodes-file {}", path.display()))
}

/// Node manifests in one or several documents, or in a List; every problem names its document and field.
fn parse(text: &str) -> anyhow::Result<Vec<Value>> {
    // As kubectl reads it: `n` is a name, not a truth value.
    let options = serde_saphyr::options! { strict_booleans: true };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|e| anyhow::anyhow!("error converting YAML to JSON: {e}"))?;
    let table = builtin::table();
    let gvk = Gvk { group: String::new(), version: "v1".into(), kind: "Node".into() };
    let kind = table.kind(&gvk).context("no kind Node")?;
    let mut nodes: Vec<Value> = Vec::new();
    for (i, document) in documents.into_iter().enumerate().filter(|(_, d)| !d.is_null()) {
        let at = format!("document {}", i + 1);
        match document["kind"].as_str() {
            Some("List" | "NodeList") => {
                for (j, item) in document["items"].as_array().into_iter().flatten().enumerate() {
                    check(kind, item).with_context(|| format!("{at}: items[{j}]"))?;
                    nodes.push(item.clone());
                }
            }
            _ => {
                check(kind, &document).context(at)?;
                nodes.push(document);
            }
        }
    }
    if nodes.is_empty() {
        bail!("no Node in it");
    }
    if nodes.len() > MOST {
        bail!("at most {MOST} nodes");
    }
    let mut names: Vec<&str> = nodes.iter().filter_map(|n| n["metadata"]["name"].as_str()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|w| w.first() == w.last()) {
        bail!("metadata.name: Duplicate value: {:?}", pair.first().unwrap_or(&""));
    }
    Ok(nodes)
}

fn check(kind: &Kind, node: &Value) -> anyhow::Result<()> {
    let text = |field: &str| node[field].as_str().unwrap_or_default();
    match (text("apiVersion"), text("kind")) {
        ("v1", "Node") => {}
        (version, other) => {
            let hint = match config::flag_of(other, version) {
                Some(flag) if flag != "--nodes-file" => format!(": this file belongs to {flag}"),
                _ => String::new(),
            };
            match version {
                "v1" => bail!("kind: expected Node, got {other:?}{hint}"),
                _ => bail!("apiVersion: expected v1, got {version:?}{hint}"),
            }
        }
    }
    for field in ["capacity", "allocatable"] {
        for (resource, amount) in node["status"][field].as_object().into_iter().flatten() {
            let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
            if let Err(e) = text.parse::<plimsoll_api::Quantity>() {
                bail!("status.{field}[{resource}]: Invalid value: {text:?}: {e}");
            }
        }
    }
    fields(kind, node)?;
    plimsoll_api::convert::node(&serde_json::to_vec(node)?)?;
    Ok(())
}

/// Unknown fields and values of a wrong type, in the API server's words: both name the field's path.
fn fields(kind: &Kind, node: &Value) -> anyhow::Result<()> {
    let conformed = decode::conform(kind, node.clone()).map_err(anyhow::Error::msg)?;
    if !conformed.strict.is_empty() {
        bail!("strict decoding error: {}", conformed.strict.join(", "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_are_read_and_problems_name_the_field() {
        let good = "apiVersion: v1\nkind: Node\nmetadata: {name: a}\nstatus: {allocatable: {cpu: 2}}\n";
        let two = format!("{good}---\n{}", good.replace("name: a", "name: b"));
        assert_eq!(parse(&two).unwrap().len(), 2);
        let list = "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Node, metadata: {name: a}}]\n";
        assert_eq!(parse(list).unwrap().len(), 1);
        for (text, want) in [
            (good.replace("Node", "Pod"), "document 1: kind: expected Node, got \"Pod\""),
            (good.replace("v1", "v2"), "document 1: apiVersion: expected v1, got \"v2\""),
            (good.replace("name: a", "labels: {}"), "document 1: metadata.name: Required value"),
            (format!("{good}---\n{good}"), "metadata.name: Duplicate value: \"a\""),
            (String::new(), "no Node in it"),
            (
                format!("{good}spec: {{unschedulable: \"true\"}}\n"),
                "document 1: json: cannot unmarshal string into Go struct field NodeSpec.spec.unschedulable of type bool",
            ),
            (
                format!("{good}spec: {{taint: []}}\n"),
                "document 1: strict decoding error: unknown field \"spec.taint\"",
            ),
        ] {
            assert_eq!(format!("{:#}", parse(&text).unwrap_err()), want);
        }
        let bad = format!("{:#}", parse(&good.replace("cpu: 2", "cpu: many")).unwrap_err());
        assert!(bad.contains("document 1") && bad.contains("[cpu]"), "{bad}");
    }
}

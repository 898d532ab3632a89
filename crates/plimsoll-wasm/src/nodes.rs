//! All nodes at one moment, encoded when a guest asks for them.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use plimsoll_scheduler::framework::Cluster;
use plimsoll_state::model::Node;
use serde_json::json;

use crate::protobuf;

/// Nodes in order of their numbers.
#[derive(Debug, Default)]
pub struct Nodes {
    list: Vec<(Arc<Node>, OnceLock<Vec<u8>>)>,
    by_name: BTreeMap<String, usize>,
    encoded: OnceLock<Vec<u8>>,
    /// How many nodes have an image.
    image_counts: OnceLock<BTreeMap<String, usize>>,
}

impl Nodes {
    /// These nodes.
    pub fn new(nodes: impl IntoIterator<Item = Arc<Node>>) -> Self {
        let list: Vec<_> = nodes.into_iter().map(|node| (node, OnceLock::new())).collect();
        let by_name = list.iter().enumerate().map(|(i, (node, _))| (node.name.clone(), i)).collect();
        Self { list, by_name, encoded: OnceLock::new(), image_counts: OnceLock::new() }
    }

    /// The nodes of a cluster.
    pub(crate) fn of(cluster: &Cluster) -> Self {
        Self::new(cluster.node_views().filter_map(|node| node.object().cloned()))
    }

    /// A node in protobuf.
    pub(crate) fn node(&self, name: &str) -> Option<&[u8]> {
        self.by_name.get(name).map(|i| self.encoded_node(*i))
    }

    fn encoded_node(&self, i: usize) -> &[u8] {
        let (node, encoded) = &self.list[i];
        match &node.encoded {
            Some(whole) => &whole.0,
            None => encoded.get_or_init(|| protobuf::node(node)),
        }
    }

    /// All nodes in protobuf.
    pub(crate) fn list(&self) -> &[u8] {
        self.encoded.get_or_init(|| protobuf::node_list((0..self.list.len()).map(|i| self.encoded_node(i))))
    }

    /// `NodeInfo.ImageStates` in JSON.
    pub(crate) fn image_states(&self, name: &str) -> String {
        let Some(i) = self.by_name.get(name) else { return "null".to_owned() };
        let counts = self.image_counts.get_or_init(|| {
            let mut counts = BTreeMap::new();
            let images = self.list.iter().flat_map(|(node, _)| &node.images);
            for image in images.flat_map(|image| &image.names) {
                *counts.entry(image.clone()).or_insert(0) += 1;
            }
            counts
        });
        let states = self.list[*i].0.images.iter().flat_map(|image| {
            let size = image.size_bytes;
            let nodes = move |name| counts.get(name).copied().unwrap_or(0);
            image.names.iter().map(move |name| (name.clone(), json!({"Size": size, "NumNodes": nodes(name)})))
        });
        serde_json::Value::Object(states.collect()).to_string()
    }
}

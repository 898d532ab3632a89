//! Data locality: pods go where their data set is. The configuration says where that is, one data set per line: its name, then
//! zones or nodes. It may come from a ConfigMap that is mounted as a file (`configFile`), and is followed when it changes.
//!
//! ```text
//! imagenet eu-west-1a eu-west-1b
//! ```
//!
//! A pod names its data set in the label `data.example.com/set`. A node that has it scores 100, one in a zone that has it 60.

use std::collections::BTreeMap;

use plimsoll_plugin::{Manifest, Nodes, Plugin, Pod};

plimsoll_plugin::export!(Locality);

/// The plugin: places by data set.
#[derive(Debug)]
pub struct Locality(BTreeMap<String, Vec<String>>);

impl Plugin for Locality {
    fn configure(text: &str) -> Result<Self, String> {
        let mut sets = BTreeMap::new();
        for (at, line) in text.lines().enumerate() {
            let mut words = line.split_whitespace().map(str::to_owned);
            let Some(set) = words.next() else { continue };
            let places: Vec<String> = words.collect();
            if places.is_empty() {
                return Err(format!("line {}: data set {set} is nowhere: name zones or nodes", at + 1));
            }
            sets.insert(set, places);
        }
        Ok(Self(sets))
    }

    fn manifest(&self) -> Manifest {
        let manifest = Manifest::new().scores().pod_label("data.example.com/set");
        manifest.node_label("topology.kubernetes.io/zone").node_label("kubernetes.io/hostname")
    }

    fn score(&self, pod: &Pod, nodes: &Nodes<'_>, node: usize) -> i64 {
        let Some(places) = pod.labels[0].as_ref().and_then(|set| self.0.get(set)) else { return 0 };
        let has = |column: usize| {
            let text = nodes.text(nodes.labels[column][node]);
            text.is_some_and(|text| places.contains(&text))
        };
        match (has(1), has(0)) {
            (true, _) => 100,
            (false, true) => 60,
            (false, false) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_plugin::Kit;

    use super::*;

    #[test]
    fn the_node_with_the_data_is_best_then_its_zone() {
        let mut kit = Kit::<Locality>::new("imagenet eu-a n2\nother eu-b\n").expect("valid");
        let labels = |name, zone| [("kubernetes.io/hostname", name), ("topology.kubernetes.io/zone", zone)];
        for (name, zone) in [("n1", "eu-a"), ("n2", "eu-b"), ("n3", "eu-b")] {
            kit.node(name, &[], &labels(name, zone));
        }
        kit.node("bare", &[], &[]);
        let scores = |set: &str| {
            let pod = kit.pod().label("data.example.com/set", set);
            kit.scores(&pod).into_iter().map(|(_, score)| score).collect::<Vec<_>>()
        };
        assert_eq!(scores("imagenet"), [60, 100, 0, 0]);
        assert_eq!(scores("other"), [0, 60, 60, 0]);
        assert_eq!(scores("unknown"), [0, 0, 0, 0]);
        assert_eq!(kit.scores(&kit.pod())[1].1, 0);
    }

    #[test]
    fn a_set_without_a_place_is_refused() {
        assert!(Locality::configure("a x\nb\n").expect_err("nowhere").contains("line 2: data set b"));
    }
}

//! Power: pods go where little is drawn of what the rack delivers, and not to nodes under maintenance. An agent writes both into
//! annotations of the node: `power.example.com/watts`, and `power.example.com/maintenance` with what is being done. The label
//! `power.example.com/capacity` says how many watts there are; nodes without it have those of the configuration.

use plimsoll_plugin::{Manifest, Nodes, Plugin, Pod};

plimsoll_plugin::export!(Power);

/// The plugin: places by power.
#[derive(Debug)]
pub struct Power {
    /// Watts of a node that does not say.
    capacity: i64,
}

impl Plugin for Power {
    fn configure(text: &str) -> Result<Self, String> {
        let capacity = match text.trim() {
            "" => 1000,
            text => text.parse().map_err(|_| format!("{text:?} is no number of watts"))?,
        };
        Ok(Self { capacity })
    }

    fn manifest(&self) -> Manifest {
        let manifest = Manifest::new().filters().scores().node_number("power.example.com/capacity");
        let manifest = manifest.node_annotation_number("power.example.com/watts");
        manifest.node_annotation("power.example.com/maintenance").reason("node(s) under maintenance", false)
    }

    fn filter(&self, _: &Pod, nodes: &Nodes<'_>, node: usize) -> Option<u8> {
        let what = nodes.text(nodes.annotations[0][node]);
        what.filter(|what| !what.is_empty() && what != "none").map(|_| 0)
    }

    fn score(&self, _: &Pod, nodes: &Nodes<'_>, node: usize) -> i64 {
        let capacity = nodes.number(0, node).unwrap_or(self.capacity).max(1);
        let watts = nodes.annotation_number(0, node).unwrap_or(0).clamp(0, capacity);
        100 * (capacity - watts) / capacity
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_plugin::Kit;

    use super::*;

    #[test]
    fn the_node_with_the_most_power_left_is_best() {
        let mut kit = Kit::<Power>::new("500").expect("valid");
        kit.node("idle", &[], &[]);
        kit.node("busy", &[], &[]);
        kit.node("large", &[], &[("power.example.com/capacity", "2000")]);
        kit.annotate("busy", &[("power.example.com/watts", "400")]);
        kit.annotate("large", &[("power.example.com/watts", "200")]);
        let scores = kit.scores(&kit.pod());
        let scores: Vec<_> = scores.iter().map(|(node, score)| (node.as_str(), *score)).collect();
        assert_eq!(scores, [("idle", 100), ("busy", 20), ("large", 90)]);
        kit.annotate("idle", &[("power.example.com/maintenance", "fan")]);
        assert_eq!(kit.schedule(&kit.pod()).expect("a node").node, "large");
        let filters = kit.filters(&kit.pod()).expect("some pass");
        assert_eq!(filters[0].1.as_deref(), Some("node(s) under maintenance"));
        kit.annotate("idle", &[("power.example.com/maintenance", "none")]);
        assert_eq!(kit.schedule(&kit.pod()).expect("a node").node, "idle");
    }

    #[test]
    fn a_configuration_that_is_no_number_is_refused() {
        assert!(Power::configure("many").expect_err("text").contains("\"many\" is no number of watts"));
    }
}

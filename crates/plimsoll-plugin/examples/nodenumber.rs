//! kube-scheduler-wasm-extension's example `nodenumber` with columns: prefers nodes whose number is the last digit of the pod's
//! name. The number of a node is in its label `number`. A pod whose name ends with no digit likes all nodes.

use plimsoll_plugin::{Manifest, Nodes, Plugin, Pod};

plimsoll_plugin::export!(NodeNumber);

/// The plugin.
#[derive(Debug)]
pub struct NodeNumber;

impl Plugin for NodeNumber {
    fn configure(_: &str) -> Result<Self, String> {
        Ok(Self)
    }

    fn manifest(&self) -> Manifest {
        Manifest { pod_name: true, ..Manifest::new().scores().node_number("number") }
    }

    fn score(&self, pod: &Pod, nodes: &Nodes<'_>, node: usize) -> i64 {
        let digit = pod.name.bytes().last().filter(u8::is_ascii_digit);
        match digit {
            Some(digit) if nodes.numbers[0][node] != i64::from(digit - b'0') => 0,
            Some(_) | None => 10,
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_plugin::Kit;

    use super::*;

    #[test]
    fn nodes_with_the_number_of_the_pod_are_better() {
        let mut kit = Kit::<NodeNumber>::new("").unwrap();
        kit.node("a", &[], &[("number", "1")]);
        kit.node("b", &[], &[("number", "2")]);
        kit.node("c", &[], &[]);
        let scores = |name: &str| {
            kit.scores(&kit.pod().name(name)).into_iter().map(|(_, score)| score).collect::<Vec<_>>()
        };
        assert_eq!(scores("pod2"), [0, 10, 0]);
        assert_eq!(scores("pod"), [10, 10, 10]);
    }
}

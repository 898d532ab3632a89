//! Fragmentation gradient descent for GPUs (Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
//! Fragmentation Gradient Descent", USENIX ATC 2023): a pod goes to the node on which it makes the fewest GPUs useless for
//! the pods that usually come.
//!
//! The configuration names the resource and the usual pods, one per line: their share in percent, cpu in millicores, GPUs.
//!
//! ```text
//! resource nvidia.com/gpu
//! pod 60 4000 1
//! pod 25 8000 2
//! pod 15 2000 0
//! ```
//!
//! A node's amounts say how many GPUs are free, not how much of each: GPUs are counted whole.

use plimsoll_plugin::{Manifest, Nodes, Plugin, Pod};

plimsoll_plugin::export!(Fgd);

/// A kind of pods that usually comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Usual {
    /// In percent of all pods.
    share: i64,
    cpu: i64,
    gpus: i64,
}

/// The plugin.
#[derive(Debug)]
pub struct Fgd {
    resource: String,
    usual: Vec<Usual>,
}

impl Fgd {
    /// Thousandths of a GPU that a usual pod can't use on a node with so much left, on average.
    fn fragment(&self, cpu: i64, gpus: i64) -> i64 {
        let unusable = |pod: &Usual| match pod.gpus == 0 || pod.cpu > cpu || pod.gpus > gpus {
            true => gpus.saturating_mul(1000).saturating_mul(pod.share),
            false => 0,
        };
        self.usual.iter().map(unusable).fold(0_i64, i64::saturating_add) / 100
    }
}

/// 100 / (1 + e^-x) for x in thousandths, rounded down. By a table, so that it is the same on every machine.
fn sigmoid(thousandths: i64) -> i64 {
    // Where the score becomes 51, 52, …: 1000 * ln(s / (100 - s)), rounded up.
    #[rustfmt::skip]
    const STEPS: [i64; 49] = [
        41, 81, 121, 161, 201, 242, 282, 323, 364, 406, 448, 490, 533, 576, 620, 664, 709, 754, 801, 848, 896, 945,
        995, 1046, 1099, 1153, 1209, 1266, 1325, 1387, 1451, 1517, 1586, 1659, 1735, 1816, 1901, 1993, 2091, 2198,
        2314, 2443, 2587, 2752, 2945, 3179, 3477, 3892, 4596,
    ];
    let above = |x: i64| STEPS.iter().take_while(|step| **step <= x).count() as i64;
    match thousandths {
        0.. => 50 + above(thousandths),
        // The curve is symmetric, and what is rounded down on one side is rounded up on the other.
        _ => 49 - above(thousandths.saturating_neg()),
    }
}

impl Plugin for Fgd {
    fn configure(text: &str) -> Result<Self, String> {
        let (mut resource, mut usual) = ("nvidia.com/gpu".to_owned(), Vec::new());
        for (at, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                [] => {}
                ["resource", name] => (*name).clone_into(&mut resource),
                ["pod", numbers @ ..] if numbers.len() == 3 => {
                    let mut parsed = [0_i64; 3];
                    for (slot, word) in parsed.iter_mut().zip(numbers) {
                        let number = word.parse().ok().filter(|n| *n >= 0);
                        *slot = number.ok_or_else(|| format!("line {}: {word:?} is no amount", at + 1))?;
                    }
                    let [share, cpu, gpus] = parsed;
                    usual.push(Usual { share, cpu, gpus });
                }
                _ => {
                    return Err(format!(
                        "line {}: write \"resource NAME\" or \"pod PERCENT MILLICORES GPUS\"",
                        at + 1
                    ));
                }
            }
        }
        match usual.iter().try_fold(0_i64, |sum, pod| sum.checked_add(pod.share)) {
            Some(100) => Ok(Self { resource, usual }),
            Some(sum) => Err(format!("the shares of the usual pods add up to {sum} percent, not to 100")),
            None => Err("the shares of the usual pods are too large".to_owned()),
        }
    }

    fn manifest(&self) -> Manifest {
        let pod = Manifest::new().scores().pod_request("cpu").pod_request(&*self.resource);
        pod.node_resource("cpu").node_resource(&*self.resource)
    }

    fn score(&self, pod: &Pod, nodes: &Nodes<'_>, node: usize) -> i64 {
        let left =
            |column: usize| nodes.allocatable[column][node].saturating_sub(nodes.requested[column][node]);
        let (cpu, gpus) = (left(0), left(1));
        let (after_cpu, after_gpus) =
            (cpu.saturating_sub(pod.requests[0]), gpus.saturating_sub(pod.requests[1]));
        sigmoid(self.fragment(cpu, gpus).saturating_sub(self.fragment(after_cpu, after_gpus)))
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_plugin::Kit;

    use super::*;

    const CONFIG: &str = "pod 50 4000 1\npod 50 8000 4\n";

    fn kit() -> Kit<Fgd> {
        let mut kit = Kit::new(CONFIG).expect("valid");
        for (name, gpus) in [("whole", 8), ("four", 4), ("broken", 3)] {
            kit.node(name, &[("cpu", 32_000), ("nvidia.com/gpu", gpus)], &[]);
        }
        kit
    }

    #[test]
    fn a_pod_goes_where_it_breaks_nothing() {
        let mut kit = kit();
        let one = kit.pod().request("cpu", 1000).request("nvidia.com/gpu", 1);
        // Half of the pods can't use three GPUs anyway. Four would become three, useless for half of the pods.
        let scores = kit.scores(&one).into_iter().map(|(_, score)| score).collect::<Vec<_>>();
        assert_eq!(scores, [50, 18, 62]);
        let nodes = [(); 3].map(|()| kit.schedule(&one).expect("placed").node);
        assert_eq!(nodes, ["broken", "broken", "broken"]);
    }

    #[test]
    fn a_pod_that_takes_all_cpu_leaves_useless_gpus() {
        let kit = kit();
        let scores = kit.scores(&kit.pod().request("cpu", 32_000));
        let scores: Vec<i64> = scores.into_iter().map(|(_, score)| score).collect();
        assert_eq!(scores, [0, 1, 18]);
    }

    #[test]
    fn the_curve_is_the_papers() {
        for x in -6000..6000 {
            let exact = (100.0 / (1.0 + (-f64::from(x) / 1000.0).exp())).floor() as i64;
            assert_eq!(sigmoid(i64::from(x)), exact, "{x}");
        }
        assert_eq!((sigmoid(i64::MIN), sigmoid(i64::MAX)), (0, 99));
    }

    #[test]
    fn a_wrong_configuration_is_refused() {
        for (text, want) in [
            ("pod 50 1 1", "add up to 50 percent"),
            ("pod x 1 1", "line 1: \"x\" is no amount"),
            ("gpu 1", "line 1: write"),
        ] {
            let error = Fgd::configure(text).map(drop).expect_err(text);
            assert!(error.contains(want), "{error}");
        }
    }
}

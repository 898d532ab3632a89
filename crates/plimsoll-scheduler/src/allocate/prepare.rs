//! What a search knows before it begins: the devices there are, and how many each request needs.

use super::pools::Health;
use super::{
    At, Candidate, DeviceCount, Failure, Given, MAX_DEVICES, Pools, Search, Wanted, Way, alternative_name,
    constraints,
};
use crate::cluster::{Cluster, NodeId};
use std::collections::BTreeSet;

impl<'a> Search<'a> {
    /// Makes a search.
    ///
    /// # Errors
    /// When a claim can't be satisfied as it is written, or a selector fails.
    pub(super) fn new(
        cluster: &'a Cluster,
        source: &'a Pools,
        wanted: &'a [Wanted],
        node: NodeId,
    ) -> Result<Self, Failure> {
        let pools = source.of_node(cluster, node);
        let mut candidates = Vec::new();
        for (p, pool) in pools.iter().enumerate().filter(|(_, p)| p.health == Health::Good) {
            let held = source.in_use(&cluster.objects.devices, pool.driver, pool.name);
            for slice in &pool.slices {
                for (index, device) in slice.raw.devices.iter().enumerate() {
                    let in_use = held(&device.name);
                    let given_to = BTreeSet::new();
                    candidates.push(Candidate { pool: p, slice, index, device, in_use, given_to });
                }
            }
        }
        let given =
            wanted.iter().map(|w| Given { devices: Vec::new(), alternatives: vec![0; w.requests.len()] });
        let mut search = Self {
            cluster,
            devices: &cluster.objects.devices,
            node,
            wanted,
            pools,
            candidates,
            ways: Vec::with_capacity(wanted.len()),
            settled: Vec::with_capacity(wanted.len()),
            given: given.collect(),
            steps: 0,
            looks: 0,
            depth: 0,
        };
        for (claim, w) in wanted.iter().enumerate() {
            search.prepare(claim, w)?;
        }
        Ok(search)
    }

    fn prepare(&mut self, claim: usize, wanted: &Wanted) -> Result<(), Failure> {
        let mut of_claim = Vec::with_capacity(wanted.requests.len());
        let mut least = 0usize;
        for (request, r) in wanted.requests.iter().enumerate() {
            let ways = (0..r.alternatives.len()).map(|way| self.way(At { claim, request, way, device: 0 }));
            let ways: Vec<Way> = ways.collect::<Result<_, _>>()?;
            least = least.saturating_add(ways.iter().map(|w| w.count).min().unwrap_or(0));
            of_claim.push(ways);
        }
        if least > MAX_DEVICES {
            return Err(Failure::Broken(format!(
                "claim {}: number of requested devices {least} exceeds the claim limit of {MAX_DEVICES}",
                wanted.claim
            )));
        }
        if let Some(i) = wanted.constraints.iter().position(constraints::is_unknown) {
            return Err(Failure::Broken(format!(
                "claim {}, constraint #{i}: empty constraint (unsupported constraint type?)",
                wanted.claim
            )));
        }
        self.ways.push(of_claim);
        self.settled.push(wanted.constraints.iter().map(|_| constraints::Settled::default()).collect());
        Ok(())
    }

    /// How many devices a way to satisfy a request needs, and which when it is all of them.
    fn way(&self, at: At) -> Result<Way, Failure> {
        let wanted = &self.wanted[at.claim];
        let request = &wanted.requests[at.request];
        let alternative = &request.alternatives[at.way];
        if let DeviceCount::Exactly(n) = alternative.count {
            return Ok(Way { count: usize::try_from(n).unwrap_or(0), all: None, known: Vec::new() });
        }
        // Pools are looked at in their order: what is wrong with one counts from its turn on.
        let mut all = Vec::new();
        for (p, pool) in self.pools.iter().enumerate() {
            let name = alternative_name(request, alternative);
            if let Some(refusal) = pool.refusal(&wanted.claim, name) {
                return Err(refusal);
            }
            for (i, c) in self.candidates.iter().enumerate().filter(|(_, c)| c.pool == p) {
                if self.selects(at, c)? {
                    all.push(i);
                }
            }
        }
        Ok(Way { count: all.len(), all: Some(all), known: Vec::new() })
    }
}

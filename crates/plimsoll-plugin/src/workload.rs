//! Workloads and flavors as a plugin sees them, and what it says about them; encoded as pods are (`pod.rs`).

use crate::pod::{PodReader, count, put_optional, put_text};

/// A podset of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSet {
    /// Its name.
    pub name: String,
    /// How many pods it has.
    pub count: i32,
}

/// A workload: a job as Kueue's API has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// Priority and boost.
    pub priority: i64,
    /// What its pods request together, in the order of the manifest; cpu in millicores.
    pub requests: Vec<i64>,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// Name of its LocalQueue.
    pub queue: String,
    /// Name of its priority class; empty where it has none.
    pub priority_class: String,
    /// Its podsets.
    pub pod_sets: Vec<PodSet>,
}

/// A flavor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flavor {
    /// Its name.
    pub name: String,
    /// `spec.nodeLabels`, those of the manifest in its order.
    pub labels: Vec<Option<String>>,
}

/// What a plugin says about a workload that waits for quota.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ruling {
    /// Why it is not admitted, if it is not.
    pub veto: Option<String>,
    /// Workloads of a lower number go first, whatever their priority.
    pub order: i32,
    /// Among workloads of equal priority those of a higher number go first.
    pub score: i32,
}

impl Workload {
    /// How many pods it has.
    pub fn pods(&self) -> i64 {
        self.pod_sets.iter().map(|p| i64::from(p.count)).sum()
    }

    /// Encodes the workload: priority, requests, name, namespace, queue, priority class, number of podsets, then name and count of
    /// each.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.priority.to_le_bytes());
        self.requests.iter().for_each(|r| out.extend(r.to_le_bytes()));
        [&self.name, &self.namespace, &self.queue, &self.priority_class]
            .into_iter()
            .for_each(|t| put_text(out, t));
        out.extend(count(self.pod_sets.len()).to_le_bytes());
        for pod_set in &self.pod_sets {
            put_text(out, &pod_set.name);
            out.extend(pod_set.count.to_le_bytes());
        }
    }

    /// Decodes a workload with so many requests; `None`: it ends too early.
    pub fn decode(reader: &mut PodReader<'_>, requests: usize) -> Option<Self> {
        let priority = reader.number()?;
        let requests = (0..requests).map(|_| reader.number()).collect::<Option<_>>()?;
        let (name, namespace) = (reader.text()?, reader.text()?);
        let (queue, priority_class) = (reader.text()?, reader.text()?);
        let n = reader.word()?;
        let mut one = || Some(PodSet { name: reader.text()?, count: reader.word()?.cast_signed() });
        let pod_sets = (0..n).map(|_| one()).collect::<Option<_>>()?;
        Some(Self { priority, requests, name, namespace, queue, priority_class, pod_sets })
    }
}

/// Encodes flavors: their number, then name and labels of each.
pub fn encode_flavors(flavors: &[Flavor], out: &mut Vec<u8>) {
    out.extend(count(flavors.len()).to_le_bytes());
    for flavor in flavors {
        put_text(out, &flavor.name);
        flavor.labels.iter().for_each(|label| put_optional(out, label.as_deref()));
    }
}

/// Decodes flavors with so many labels each; `None`: they end too early.
pub fn decode_flavors(reader: &mut PodReader<'_>, labels: usize) -> Option<Vec<Flavor>> {
    let n = reader.word()?;
    let mut one = || {
        let name = reader.text()?;
        let labels = (0..labels).map(|_| reader.optional_text()).collect::<Option<_>>()?;
        Some(Flavor { name, labels })
    };
    (0..n).map(|_| one()).collect()
}

impl Ruling {
    /// Encodes the ruling: order, score, veto.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.order.to_le_bytes());
        out.extend(self.score.to_le_bytes());
        put_optional(out, self.veto.as_deref());
    }

    /// Decodes a ruling; `None`: it ends too early.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = PodReader(bytes);
        let (order, score) = (reader.word()?.cast_signed(), reader.word()?.cast_signed());
        Some(Self { veto: reader.optional_text()?, order, score })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        let workload = Workload {
            priority: -1,
            requests: vec![3, i64::MIN],
            name: "w".to_owned(),
            namespace: "ns".to_owned(),
            queue: "q".to_owned(),
            priority_class: String::new(),
            pod_sets: vec![PodSet { name: "main".to_owned(), count: 7 }, PodSet::default()],
        };
        let flavors = [
            Flavor { name: "spot".to_owned(), labels: vec![None, Some("a".to_owned())] },
            Flavor { name: String::new(), labels: vec![Some(String::new()), None] },
        ];
        let mut bytes = Vec::new();
        workload.encode(&mut bytes);
        encode_flavors(&flavors, &mut bytes);
        let decode = |bytes: &[u8]| {
            let mut reader = PodReader(bytes);
            Some((Workload::decode(&mut reader, 2)?, decode_flavors(&mut reader, 2)?))
        };
        assert_eq!(decode(&bytes), Some((workload.clone(), flavors.to_vec())));
        assert_eq!(workload.pods(), 7);
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len]), None, "{len} bytes");
        }
        for veto in [None, Some("é".to_owned())] {
            let ruling = Ruling { veto, order: -4, score: i32::MAX };
            let mut bytes = Vec::new();
            ruling.encode(&mut bytes);
            assert_eq!(Ruling::decode(&bytes), Some(ruling));
            assert_eq!(Ruling::decode(&bytes[..bytes.len() - 1]), None);
        }
    }
}

//! A pod, and how it is encoded: little-endian numbers, texts with their length before them.

/// What a pod holds of something that is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// What it is, such as the name of a licence.
    pub key: String,
    /// How much the pod holds of it.
    pub amount: i64,
    /// How much all pods with a node hold, this one with them once it has one. Set by the host.
    pub used: i64,
}

impl Charge {
    /// A charge of an amount.
    pub fn new(key: impl Into<String>, amount: i64) -> Self {
        Self { key: key.into(), amount, used: 0 }
    }
}

/// A pod, as far as the manifest reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// `spec.priority`.
    pub priority: i64,
    /// Requests, in the order of the manifest; cpu in millicores.
    pub requests: Vec<i64>,
    /// Labels, in the order of the manifest.
    pub labels: Vec<Option<String>>,
    /// `metadata.name`; empty unless the manifest reads it.
    pub name: String,
    /// `metadata.namespace`; empty unless the manifest reads it.
    pub namespace: String,
    /// The row of its node, from Reserve on.
    pub node: Option<u32>,
    /// What it holds, and how much of that is used: the answer of [`Plugin::charges`](crate::Plugin::charges).
    pub charges: Vec<Charge>,
}

const NONE: u32 = u32::MAX;

pub(crate) fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(NONE - 1)
}

pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend(count(text.len()).to_le_bytes());
    out.extend(text.as_bytes());
}

pub(crate) fn put_optional(out: &mut Vec<u8>, text: Option<&str>) {
    match text {
        Some(text) => put_text(out, text),
        None => out.extend(NONE.to_le_bytes()),
    }
}

/// Encodes charges: their number, then for each the key, the amount and what is used.
pub fn encode_charges(charges: &[Charge], out: &mut Vec<u8>) {
    out.extend(count(charges.len()).to_le_bytes());
    for charge in charges {
        put_text(out, &charge.key);
        out.extend(charge.amount.to_le_bytes());
        out.extend(charge.used.to_le_bytes());
    }
}

impl Pod {
    /// Encodes the pod: priority, requests, node, labels, name, namespace, charges. Numbers come first, so that a guest without
    /// this crate finds them at fixed places.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.priority.to_le_bytes());
        self.requests.iter().for_each(|r| out.extend(r.to_le_bytes()));
        out.extend(self.node.unwrap_or(NONE).to_le_bytes());
        self.labels.iter().for_each(|label| put_optional(out, label.as_deref()));
        put_text(out, &self.name);
        put_text(out, &self.namespace);
        encode_charges(&self.charges, out);
    }

    /// Decodes a pod with so many requests and labels; `None`: it ends too early.
    pub fn decode(bytes: &[u8], requests: usize, labels: usize) -> Option<Self> {
        let mut reader = PodReader(bytes);
        let priority = reader.number()?;
        let requests = (0..requests).map(|_| reader.number()).collect::<Option<_>>()?;
        let node = Some(reader.word()?).filter(|n| *n != NONE);
        let labels = (0..labels).map(|_| reader.optional_text()).collect::<Option<_>>()?;
        let (name, namespace) = (reader.text()?, reader.text()?);
        Some(Self { priority, requests, labels, name, namespace, node, charges: reader.charges()? })
    }

    /// The charge of a key.
    pub fn charge(&self, key: &str) -> Option<&Charge> {
        self.charges.iter().find(|charge| charge.key == key)
    }
}

/// Reads what is encoded, from the beginning.
#[derive(Clone, Copy, Debug)]
pub struct PodReader<'a>(pub &'a [u8]);

impl PodReader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn word(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn number(&mut self) -> Option<i64> {
        self.take().map(i64::from_le_bytes)
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        self.optional_text()?
    }

    pub(crate) fn optional_text(&mut self) -> Option<Option<String>> {
        let len = self.word()?;
        if len == NONE {
            return Some(None);
        }
        let text = self.0.get(..len as usize)?;
        self.0 = &self.0[len as usize..];
        Some(Some(String::from_utf8_lossy(text).into_owned()))
    }

    /// Charges; `None`: they end too early.
    pub fn charges(&mut self) -> Option<Vec<Charge>> {
        let n = self.word()?;
        let mut one = || Some(Charge { key: self.text()?, amount: self.number()?, used: self.number()? });
        // A number that is too large ends at the first that is missing.
        (0..n).map(|_| one()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        let pod = Pod {
            priority: -5,
            requests: vec![1, i64::MAX],
            labels: vec![None, Some("é".to_owned()), Some(String::new())],
            name: "n".to_owned(),
            namespace: "ns".to_owned(),
            node: Some(7),
            charges: vec![Charge { key: "k".to_owned(), amount: 2, used: 9 }],
        };
        let mut bytes = Vec::new();
        pod.encode(&mut bytes);
        assert_eq!(Pod::decode(&bytes, 2, 3), Some(pod));
        for len in 0..bytes.len() {
            assert_eq!(Pod::decode(&bytes[..len], 2, 3), None, "{len} bytes");
        }
    }
}

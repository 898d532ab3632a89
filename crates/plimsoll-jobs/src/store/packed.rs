//! Texts of objects of one kind resemble each other: each is kept as its difference from one of them, the sample (LZ4 with the
//! sample as dictionary).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::Kind;

/// Longest text that is kept as a difference: LZ4 reaches 64 KiB back, over the text and its sample.
const LONGEST: usize = 32 * 1024;

/// A text.
#[derive(Debug)]
pub(super) enum Packed {
    /// As it is; the sample of other texts, perhaps.
    Whole(Arc<[u8]>),
    /// As a difference.
    Like(Difference),
}

/// What a text has that its sample has not.
#[derive(Debug)]
pub(super) struct Difference {
    sample: Arc<[u8]>,
    /// Length of the text.
    len: u32,
    bytes: Box<[u8]>,
}

impl Packed {
    /// The text. One that can't be unpacked would be a fault of this file; it is empty.
    pub(super) fn text(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Whole(text) => Cow::Borrowed(text),
            Self::Like(Difference { sample, len, bytes }) => {
                let len = usize::try_from(*len).unwrap_or_default();
                lz4_flex::block::decompress_with_dict(bytes, len, sample).unwrap_or_default().into()
            }
        }
    }
}

/// The text of each kind from which others are kept as differences.
#[derive(Debug, Default)]
pub(super) struct Samples {
    by_kind: BTreeMap<Kind, Arc<[u8]>>,
    /// Where texts are packed.
    scratch: Vec<u8>,
}

impl Samples {
    /// Packs the text of an object. One that differs so much from the sample that less than half would be saved is the
    /// next sample: it takes no more than it did without one, and texts that resemble the former go on to refer to that.
    pub(super) fn pack(&mut self, kind: Kind, text: &[u8]) -> Packed {
        if let Some(sample) = self.by_kind.get(&kind)
            && text.len() <= LONGEST
            && let Ok(len) = u32::try_from(text.len())
        {
            self.scratch.resize(lz4_flex::block::get_maximum_output_size(text.len()), 0);
            let packed = lz4_flex::block::compress_into_with_dict(text, &mut self.scratch, sample);
            if let Some(bytes) = packed.ok().and_then(|n| self.scratch.get(..n))
                && bytes.len() <= text.len() / 2
            {
                return Packed::Like(Difference { sample: Arc::clone(sample), len, bytes: bytes.into() });
            }
        }
        let whole: Arc<[u8]> = text.into();
        if text.len() <= LONGEST {
            self.by_kind.insert(kind, Arc::clone(&whole));
        }
        Packed::Whole(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn is_difference(packed: &Packed) -> bool {
        matches!(packed, Packed::Like(_))
    }

    fn workload(i: usize, flavor: &str) -> Vec<u8> {
        let object = serde_json::json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": format!("w{i}"), "namespace": "ns", "uid": format!("{:032x}", i * 0x9e37_79b9_7f4a)},
            "spec": {"podSets": [{"name": "main", "count": i, "template": {"spec": {"restartPolicy": "Never",
                "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "500m"}}}]}}}]},
            "status": {"admission": {"clusterQueue": "q", "podSetAssignments": [{"flavors": {"cpu": flavor}}]}},
        });
        object.to_string().into_bytes()
    }

    #[test]
    fn texts_that_resemble_each_other_take_little() {
        let mut samples = Samples::default();
        assert!(!is_difference(&samples.pack(Kind::Workload, &workload(0, "default"))));
        for i in 1..100 {
            let text = workload(i, "default");
            let packed = samples.pack(Kind::Workload, &text);
            let Packed::Like(Difference { bytes, .. }) = &packed else { panic!("{packed:?}") };
            assert!(bytes.len() * 5 < text.len(), "{} of {}", bytes.len(), text.len());
            assert_eq!(*packed.text(), text);
        }
        // Other kinds have samples of their own.
        assert!(!is_difference(&samples.pack(Kind::Job, &workload(1, "default"))));
    }

    #[test]
    fn a_text_unlike_the_sample_is_the_next_one() {
        let mut samples = Samples::default();
        let (first, other) = (workload(1, "a"), vec![7; 1000]);
        let before = samples.pack(Kind::Workload, &first);
        let near = samples.pack(Kind::Workload, &workload(2, "a"));
        assert!(is_difference(&near));
        let long = vec![b'x'; LONGEST + 1];
        assert!(!is_difference(&samples.pack(Kind::Workload, &long)), "it would not fit into the window");
        let unlike: Vec<u8> = (0..=u8::MAX).collect();
        assert!(!is_difference(&samples.pack(Kind::Workload, &unlike)));
        assert!(is_difference(&samples.pack(Kind::Workload, &unlike)));
        assert_eq!(*samples.pack(Kind::Workload, &other).text(), other);
        assert_eq!(*before.text(), first);
        assert_eq!(*near.text(), workload(2, "a"));
        assert_eq!(*samples.pack(Kind::Workload, b"").text(), *b"");
    }

    proptest! {
        #[test]
        fn a_text_is_what_it_was(texts in prop::collection::vec((0..40usize, prop::collection::vec(0..4u8, 0..80)), 1..20)) {
            let mut samples = Samples::default();
            let texts: Vec<Vec<u8>> = texts.into_iter().map(|(repeat, part)| part.repeat(repeat)).collect();
            let packed: Vec<Packed> = texts.iter().map(|text| samples.pack(Kind::Pod, text)).collect();
            for (packed, text) in packed.iter().zip(&texts) {
                prop_assert_eq!(&*packed.text(), text.as_slice());
            }
        }
    }
}

//! Sorting by a comparison that need not be an order.

use std::cmp::Ordering;

/// A stable merge sort. Under admission fair sharing candidates of one ClusterQueue are compared by the usage of their
/// LocalQueues and those of different ones by priority (Kueue `pkg/scheduler/preemption/common`, `CandidatesOrdering`), so that
/// three may go round in a circle. Go sorts them somehow; the standard library's sort may panic.
pub(super) fn merge_sort<T: Clone>(list: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    let mut merged = Vec::with_capacity(list.len());
    let mut width = 1;
    while width < list.len() {
        merged.clear();
        for run in list.chunks(2 * width) {
            let (mut left, mut right) = run.split_at(width.min(run.len()));
            while let (Some((a, after_a)), Some((b, after_b))) = (left.split_first(), right.split_first()) {
                if compare(a, b) == Ordering::Greater {
                    merged.push(b.clone());
                    right = after_b;
                } else {
                    merged.push(a.clone());
                    left = after_a;
                }
            }
            merged.extend_from_slice(left);
            merged.extend_from_slice(right);
        }
        list.clone_from_slice(&merged);
        width *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_sorts_as_the_standard_library_does(list in prop::collection::vec((0u8..8, any::<u16>()), 0..200)) {
            let mut sorted = list.clone();
            merge_sort(&mut sorted, |a, b| a.0.cmp(&b.0));
            let mut want = list;
            want.sort_by_key(|a| a.0);
            prop_assert_eq!(sorted, want);
        }

        /// Stone, paper and scissors: every element is still there.
        #[test]
        fn a_circle_loses_nothing(list in prop::collection::vec(0u8..3, 0..200)) {
            let mut sorted = list.clone();
            merge_sort(&mut sorted, |a, b| match (3 + a - b) % 3 {
                0 => Ordering::Equal,
                1 => Ordering::Greater,
                _ => Ordering::Less,
            });
            let (mut have, mut want) = (sorted, list);
            have.sort_unstable();
            want.sort_unstable();
            prop_assert_eq!(have, want);
        }
    }
}

//! Counts that are found against a plain search, and the cases of Kueue's `podset_reducer_test.go` and of KEP-12100.

use proptest::prelude::*;

use super::*;

type Bounds = [(i32, Option<i32>)];

fn found(
    bounds: &Bounds,
    held: Option<&[i32]>,
    ordered: bool,
    fits: impl Fn(&[i32]) -> bool,
) -> Option<Vec<i32>> {
    let reducer = Reducer::with(bounds, held.map(<[i32]>::to_vec), ordered)?;
    reducer.search(|counts| fits(counts).then(|| counts.to_vec()))
}

/// Head, reservation, spot.
const KEP: [(i32, Option<i32>); 3] = [(1, None), (4, Some(2)), (20, Some(10))];

#[test]
fn the_last_podsets_shrink_first() {
    let total = |most: i32| move |c: &[i32]| c.iter().sum::<i32>() <= most;
    let in_order = |most: i32| found(&KEP, None, true, total(most));
    assert_eq!(in_order(19), Some(vec![1, 4, 14]), "scenario A");
    assert_eq!(in_order(14), Some(vec![1, 3, 10]));
    assert_eq!(in_order(13), Some(vec![1, 2, 10]), "scenario B");
    assert_eq!(in_order(10), None, "scenario C");
    assert_eq!(found(&[(10, Some(6)), (10, Some(8))], None, true, total(16)), Some(vec![8, 8]));
    // Podsets that draw on capacity of their own get back what the order cut.
    let own = |a: i32, b: i32| move |c: &[i32]| c[1] <= a && c[2] <= b;
    assert_eq!(found(&KEP, None, true, own(2, 20)), Some(vec![1, 2, 20]), "scenario D");
    assert_eq!(found(&KEP, None, true, own(2, 15)), Some(vec![1, 2, 15]));
    assert_eq!(found(&[(5, None)], None, true, |_| true), None, "nothing may shrink");
    let most = [(i32::MAX, Some(0)), (i32::MAX, Some(0)), (1, Some(0))];
    let few = |c: &[i32]| c.iter().map(|n| i64::from(*n)).sum::<i64>() <= 1;
    assert_eq!(found(&most, None, true, few), Some(vec![1, 0, 0]));
}

/// KEP-12100, "Scale-up progress check".
#[test]
fn a_slice_gets_more_pods_than_the_one_before() {
    let held = [1, 2, 10];
    let total = |most: i32| move |c: &[i32]| c.iter().sum::<i32>() <= most;
    let grown = |fits: &dyn Fn(&[i32]) -> bool| found(&KEP, Some(&held), true, fits);
    assert_eq!(grown(&total(13)), None, "the slice before has as many");
    assert_eq!(grown(&total(14)), Some(vec![1, 3, 10]));
    assert_eq!(grown(&|c| c[1] <= 2 && c[2] <= 20), Some(vec![1, 2, 20]), "the check follows the growth");
    // A least count below what runs counts once that slice is gone.
    let bounds = [(10, Some(5))];
    let most = |n: i32| move |c: &[i32]| c[0] <= n;
    assert_eq!(found(&bounds, Some(&[7]), true, most(6)), None);
    assert_eq!(found(&bounds, Some(&[7]), true, most(7)), None);
    assert_eq!(found(&bounds, Some(&[7]), true, most(9)), Some(vec![9]));
    assert_eq!(found(&bounds, None, true, most(6)), Some(vec![6]));
    // A podset that may not shrink has grown.
    assert_eq!(found(&[(3, None), (8, Some(4))], Some(&[2, 4]), true, total(7)), Some(vec![3, 4]));
}

/// The largest counts in order, one pod at a time.
fn plain(bounds: &Bounds, held: Option<&[i32]>, fits: impl Fn(&[i32]) -> bool) -> Option<Vec<i32>> {
    let full: Vec<i32> = bounds.iter().map(|(n, _)| *n).collect();
    let held_of = |i: usize| held.map_or(0, |h| h[i]);
    let least: Vec<i32> = bounds
        .iter()
        .enumerate()
        .map(|(i, (n, min))| min.map_or(*n, |min| min.max(held_of(i)).min(*n)))
        .collect();
    if least == full {
        return None;
    }
    let mut counts = full.clone();
    while !fits(&counts) {
        let last = (0..counts.len()).rev().find(|&i| counts[i] > least[i])?;
        counts[last] -= 1;
    }
    for i in 0..counts.len() {
        while counts[i] < full[i] {
            counts[i] += 1;
            if !fits(&counts) {
                counts[i] -= 1;
                break;
            }
        }
    }
    held.is_none_or(|h| counts.iter().zip(h).any(|(n, h)| n > h)).then_some(counts)
}

proptest! {
    /// Capacity of a shared flavor and of one for each podset.
    #[test]
    fn counts_in_order_are_those_of_a_plain_search(
        sets in proptest::collection::vec((0..9_i32, proptest::option::of(0..9_i32), 0..9_i32, 0..12_i32), 1..4),
        shared in 0..30_i32,
        replaces in any::<bool>(),
    ) {
        let bounds: Vec<(i32, Option<i32>)> =
            sets.iter().map(|(n, min, ..)| (*n, min.map(|m| m.min(*n)))).collect();
        let held: Vec<i32> = sets.iter().map(|(n, _, held, _)| *held.min(n)).collect();
        let held = replaces.then_some(held.as_slice());
        let fits = |c: &[i32]| {
            c.iter().sum::<i32>() <= shared && c.iter().zip(&sets).all(|(n, (.., most))| n <= most)
        };
        prop_assert_eq!(found(&bounds, held, true, fits), plain(&bounds, held, fits));
    }
}

//! Shuffle sharding: which queues a flow may use (`k8s.io/apiserver/pkg/util/shufflesharding`).
//!
//! Each flow has a hand of queues. Two flows seldom have all of theirs in common, so one that floods its queues leaves
//! nearly every other flow one that is short.

/// Bits of a hash that make a hand even enough (`MaxHashBits`).
const MAX_BITS: f64 = 60.0;
/// Most queues (upstream's limit of a deck).
const MAX_QUEUES: usize = 1 << 26;

/// Why there can't be hands of this size.
///
/// # Errors
/// Upstream's reasons: neither may be zero, a hand is part of the queues, and a hash of 60 bits has to suffice.
pub fn check(queues: usize, hand: usize) -> Result<(), String> {
    if queues == 0 || hand == 0 {
        return Err(format!("deckSize {queues} or handSize {hand} is not positive"));
    }
    if hand > queues {
        return Err(format!("handSize {hand} is greater than deckSize {queues}"));
    }
    if queues > MAX_QUEUES {
        return Err(format!("deckSize {queues} is impractically large"));
    }
    #[allow(clippy::cast_precision_loss, reason = "both are small by now")]
    let bits = ((queues as f64).log2() * hand as f64).ceil();
    if bits > MAX_BITS {
        return Err(format!(
            "required entropy bits of deckSize {queues} and handSize {hand} is greater than {MAX_BITS}"
        ));
    }
    Ok(())
}

/// The hand of a flow: different queues, all below `queues`. The sizes have passed [`check`].
pub fn hand(hash: u64, queues: usize, size: usize) -> impl Iterator<Item = usize> {
    let mut cards: Vec<usize> = Vec::with_capacity(size);
    let mut rest = hash;
    for n in 0..size {
        let left = (queues - n) as u64;
        let mut card = usize::try_from(rest % left).unwrap_or(0);
        rest /= left;
        // Cards already dealt are skipped, the smallest first.
        let mut at = 0;
        while cards.get(at).is_some_and(|dealt| *dealt <= card) {
            card += 1;
            at += 1;
        }
        cards.insert(at, card);
    }
    cards.into_iter()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_that_make_no_hands_are_refused() {
        assert!(check(64, 6).is_ok() && check(128, 6).is_ok() && check(16, 4).is_ok());
        assert!(check(1024, 6).is_ok());
        assert_eq!(
            check(1024, 7).unwrap_err(),
            "required entropy bits of deckSize 1024 and handSize 7 is greater than 60"
        );
        assert!(check(4, 5).unwrap_err().contains("greater than deckSize"));
        assert!(check(0, 0).unwrap_err().contains("not positive"));
    }

    proptest! {
        #[test]
        fn hands_are_of_different_queues(hash: u64, queues in 1_usize..200, size in 1_usize..8) {
            let size = size.min(queues);
            prop_assume!(check(queues, size).is_ok());
            let hand: Vec<usize> = hand(hash, queues, size).collect();
            prop_assert_eq!(hand.len(), size);
            prop_assert!(hand.windows(2).all(|w| w[0] < w[1]), "{:?}", hand);
            prop_assert!(hand.iter().all(|q| *q < queues));
        }
    }

    #[test]
    fn flows_are_spread_evenly_over_queues() {
        let mut uses = [0_u32; 16];
        for flow in 0..16_000_u64 {
            let hash = flow.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hand(hash, 16, 4).for_each(|q| uses[q] += 1);
        }
        assert!(uses.iter().all(|n| (3600..4400).contains(n)), "{uses:?}");
    }
}

//! Arithmetic that several plugins share.

/// Largest score of a node after normalisation.
pub(super) const MAX_SCORE: i64 = 100;

/// Scales by the largest score; `reverse` makes small scores good (plugin helper `DefaultNormalizeScore`).
pub(super) fn normalize_by_max(scores: &mut [i64], reverse: bool) {
    let max = scores.iter().copied().max().unwrap_or(0).max(0);
    for s in scores {
        let scaled = if max == 0 { 0 } else { MAX_SCORE.saturating_mul(*s) / max };
        *s = if reverse { MAX_SCORE - scaled } else { scaled };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_scale_by_the_largest() {
        let cases: [(&[i64], bool, &[i64]); 4] = [
            (&[0, 0], false, &[0, 0]),
            (&[0, 0], true, &[100, 100]),
            (&[1, 2, 3], false, &[33, 66, 100]),
            (&[1, 2, 3], true, &[67, 34, 0]),
        ];
        for (given, reverse, want) in cases {
            let mut s = given.to_vec();
            normalize_by_max(&mut s, reverse);
            assert_eq!(s, want);
        }
    }
}

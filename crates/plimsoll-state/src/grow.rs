//! Lists that may have millions of rows. A list that is full is copied into one of twice its size, which takes a hundred milliseconds
//! for a million rows. Address space costs nothing until it is written to: so a list that is not small reserves it once for as many
//! rows as there will hardly be.

/// Rows of a list that is not small, and bytes of one.
const SMALL: usize = 1 << 16;
const SMALL_BYTES: usize = 1 << 22;
/// Rows for which it reserves space.
const MANY: usize = 1 << 22;

/// Whether a list that becomes so long reserves space.
#[inline]
const fn is_large<T>(len: usize) -> bool {
    (len >= SMALL || len.saturating_mul(size_of::<T>()) >= SMALL_BYTES) && len < MANY
}

/// Reserves capacity for one more row.
#[inline]
pub fn reserve_one<T>(rows: &mut Vec<T>) {
    if rows.len() == rows.capacity() && is_large::<T>(rows.len()) {
        reserve(rows);
    }
}

/// Without so much address space (`ulimit -v`, `vm.overcommit_memory`) the list grows as others do.
#[cold]
fn reserve<T>(rows: &mut Vec<T>) {
    drop(rows.try_reserve_exact(MANY - rows.len()));
}

/// Makes a list longer, by rows that are equal.
#[inline]
pub fn lengthen<T: Clone>(rows: &mut Vec<T>, len: usize, row: T) {
    if len > rows.capacity() && is_large::<T>(len) {
        reserve(rows);
    }
    rows.resize(len.max(rows.len()), row);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows are where they were: none is copied.
    #[test]
    fn a_list_that_is_not_small_stays_where_it_is() {
        let mut rows = Vec::new();
        let mut moves = Vec::new();
        for i in 0..1_500_000u64 {
            let before = (rows.as_ptr(), rows.capacity());
            reserve_one(&mut rows);
            rows.push(i);
            if (rows.as_ptr(), rows.capacity()) != before {
                moves.push(i);
            }
        }
        assert_eq!(moves.last(), Some(&(SMALL as u64)));
        assert!(rows.iter().copied().eq(0..1_500_000));
        // Rows that are large are copied while they are few.
        let mut large = Vec::new();
        for i in 0..20_000u64 {
            let before = large.as_ptr();
            reserve_one(&mut large);
            large.push([i; 128]);
            assert!(i * 1024 <= SMALL_BYTES as u64 || large.as_ptr() == before, "{i}");
        }
        let mut more = vec![7u8; 10];
        lengthen(&mut more, 5, 1);
        lengthen(&mut more, SMALL, 1);
        let at = more.as_ptr();
        lengthen(&mut more, 1_000_000, 2);
        assert_eq!((more.as_ptr(), more.len(), more[9], more[10], more[SMALL]), (at, 1_000_000, 7, 1, 2));
    }
}

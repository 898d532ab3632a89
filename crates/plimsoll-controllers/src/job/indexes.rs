//! Sets of completion indexes as `status.completedIndexes` writes them: `1,3-5,7`.

use std::collections::BTreeSet;
use std::fmt;

/// Ordered intervals, ends included, never touching.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indexes(Vec<(i32, i32)>);

impl Indexes {
    /// Reads indexes below `completions`. What can't be read is left out.
    pub fn parse(text: &str, completions: i32) -> Self {
        let mut result = Self::default();
        for part in text.split(',').filter(|p| !p.is_empty()) {
            let mut ends = part.split('-').map(str::parse::<i32>);
            let (Some(Ok(first)), last) = (ends.next(), ends.next()) else { continue };
            if first >= completions {
                break;
            }
            let last = match last {
                None => first,
                Some(Ok(last)) => last.min(completions - 1),
                Some(Err(_)) => continue,
            };
            if first <= last {
                result.push(first, last);
            }
        }
        result
    }

    /// Appends an interval that begins no earlier than the last one.
    fn push(&mut self, first: i32, last: i32) {
        match self.0.last_mut() {
            Some(end) if first <= end.1.saturating_add(1) => end.1 = end.1.max(last),
            _ => self.0.push((first, last)),
        }
    }

    /// These and others.
    pub fn union(&self, other: &Self) -> Self {
        let mut all: Vec<_> = self.0.iter().chain(&other.0).copied().collect();
        all.sort_unstable();
        let mut result = Self::default();
        for (first, last) in all {
            result.push(first, last);
        }
        result
    }

    /// These and single indexes.
    pub fn with(&self, indexes: &BTreeSet<i32>) -> Self {
        self.union(&Self(indexes.iter().map(|i| (*i, *i)).collect()))
    }

    /// Whether an index is among them.
    pub fn has(&self, index: i32) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < index);
        self.0.get(at).is_some_and(|(first, _)| *first <= index)
    }

    /// How many.
    pub fn total(&self) -> i32 {
        self.0.iter().map(|(first, last)| last - first + 1).fold(0, i32::saturating_add)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many are in both.
    pub fn overlap(&self, other: &Self) -> i32 {
        let (mut i, mut j, mut total) = (0, 0, 0i32);
        while let (Some(a), Some(b)) = (self.0.get(i), other.0.get(j)) {
            total = total.saturating_add((a.1.min(b.1) - a.0.max(b.0) + 1).max(0));
            if a.1 <= b.1 {
                i += 1;
            }
            if b.1 <= a.1 {
                j += 1;
            }
        }
        total
    }

    /// The first `count` indexes below `completions` that are not among these.
    pub fn first_missing(&self, count: usize, completions: i32) -> Vec<i32> {
        let mut missing = Vec::with_capacity(count.min(1024));
        let mut candidate = 0;
        let ends = self.0.iter().copied().chain([(completions, completions)]);
        for (first, last) in ends {
            while candidate < first.min(completions) && missing.len() < count {
                missing.push(candidate);
                candidate += 1;
            }
            candidate = candidate.max(last.saturating_add(1));
        }
        missing
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (first, last)) in self.0.iter().enumerate() {
            if n > 0 {
                f.write_str(",")?;
            }
            match last - first {
                0 => write!(f, "{first}")?,
                1 => write!(f, "{first},{last}")?,
                _ => write!(f, "{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_and_written() {
        for (text, completions, expected, total) in [
            ("", 5, "", 0),
            ("0", 5, "0", 1),
            ("0,1", 5, "0,1", 2),
            ("0-1", 5, "0,1", 2),
            ("0,1,2,4", 9, "0-2,4", 4),
            ("1,3-5,7", 6, "1,3-5", 4),
            ("1,3-5,7", 5, "1,3,4", 3),
            ("x,1,2-y,3", 9, "1,3", 2),
            ("5-3", 9, "", 0),
        ] {
            let indexes = Indexes::parse(text, completions);
            assert_eq!((indexes.to_string().as_str(), indexes.total()), (expected, total), "{text}");
        }
    }

    #[test]
    fn sets() {
        let a = Indexes::parse("0-2,5,8-9", 20);
        let b = Indexes::parse("2-5,9-12", 20);
        assert_eq!(a.union(&b).to_string(), "0-5,8-12");
        assert_eq!((a.overlap(&b), b.overlap(&a)), (3, 3));
        let some = BTreeSet::from([3, 4, 7]);
        assert_eq!(a.with(&some).to_string(), "0-5,7-9");
        let members: Vec<_> = (0..12).filter(|i| a.has(*i)).collect();
        assert_eq!(members, [0, 1, 2, 5, 8, 9]);
        assert_eq!(a.first_missing(4, 20), [3, 4, 6, 7]);
        assert_eq!(a.first_missing(40, 12), [3, 4, 6, 7, 10, 11]);
        assert_eq!(a.first_missing(2, 1), Vec::<i32>::new());
        assert_eq!(Indexes::default().first_missing(2, 9), [0, 1]);
    }
}

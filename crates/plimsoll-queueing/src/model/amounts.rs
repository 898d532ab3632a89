//! Amounts that are kept with every workload.

use plimsoll_state::model::Resources;

/// Amounts by resource name, ascending. The same as [`Resources`] in less memory: a map of one entry has room for eleven.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts(Box<[(Box<str>, i64)]>);

impl Amounts {
    /// All amounts in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, amount)| (&**name, *amount))
    }

    /// The amount of a resource, if there is one.
    pub fn get(&self, resource: &str) -> Option<&i64> {
        let at = self.0.binary_search_by(|(name, _)| (**name).cmp(resource)).ok()?;
        self.0.get(at).map(|(_, amount)| amount)
    }
}

impl<S: Into<Box<str>>> FromIterator<(S, i64)> for Amounts {
    /// Of amounts with the same name, the last one stays.
    fn from_iter<I: IntoIterator<Item = (S, i64)>>(amounts: I) -> Self {
        let amounts = amounts.into_iter();
        let mut all: Vec<(Box<str>, i64)> = Vec::with_capacity(amounts.size_hint().0);
        for (name, amount) in amounts {
            let name = name.into();
            match all.binary_search_by(|(known, _)| known.cmp(&name)) {
                Ok(at) => all[at].1 = amount,
                Err(at) => all.insert(at, (name, amount)),
            }
        }
        Self(all.into())
    }
}

impl From<Resources> for Amounts {
    fn from(amounts: Resources) -> Self {
        amounts.into_iter().collect()
    }
}

impl<const N: usize> From<[(String, i64); N]> for Amounts {
    fn from(amounts: [(String, i64); N]) -> Self {
        amounts.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn amounts_are_a_map(rows in prop::collection::vec(("[a-c]{0,2}", 0..9i64), 0..12)) {
            let amounts: Amounts = rows.iter().cloned().collect();
            let map: Resources = rows.iter().cloned().collect();
            prop_assert!(amounts.iter().eq(map.iter().map(|(name, v)| (name.as_str(), *v))));
            for name in ["", "a", "b", "ab", "zz"] {
                prop_assert_eq!(amounts.get(name), map.get(name));
            }
            prop_assert_eq!(amounts, Amounts::from(map));
        }
    }
}

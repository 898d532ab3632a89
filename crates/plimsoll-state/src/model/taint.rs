//! Taints and tolerations.

/// Effect of a taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaintEffect {
    /// New pods are kept away.
    NoSchedule,
    /// New pods are kept away if possible.
    PreferNoSchedule,
    /// New pods are kept away and running ones evicted.
    NoExecute,
}

/// A taint on a node or a flavor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Taint {
    /// Taint key.
    pub key: String,
    /// Taint value, possibly empty.
    pub value: String,
    /// What it does to pods that don't tolerate it.
    pub effect: TaintEffect,
}

/// How a toleration compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TolerationOperator {
    /// Key and value must be equal.
    #[default]
    Equal,
    /// The key must be there.
    Exists,
}

/// A toleration of taints.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Toleration {
    /// Taint key; empty with `Exists` tolerates every key.
    pub key: String,
    /// Comparison.
    pub operator: TolerationOperator,
    /// Taint value for `Equal`.
    pub value: String,
    /// Effect; `None` means all.
    pub effect: Option<TaintEffect>,
    /// Whether it ends some time after the taint came (`tolerationSeconds` is set).
    pub temporary: bool,
}

impl Toleration {
    /// Whether this toleration tolerates the taint (core/v1 `ToleratesTaint`).
    pub fn tolerates(&self, taint: &Taint) -> bool {
        self.effect.is_none_or(|e| e == taint.effect)
            && (self.key.is_empty() || self.key == taint.key)
            && match self.operator {
                TolerationOperator::Exists => true,
                TolerationOperator::Equal => self.value == taint.value,
            }
    }
}

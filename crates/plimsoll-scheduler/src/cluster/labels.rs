//! Labels and selectors over interned strings.

use plimsoll_state::intern::{Interner, Marks, Sym};
use plimsoll_state::model::{self, Operator, StringMap};
use smallvec::SmallVec;

/// Labels, sorted by key number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Labels(Box<[(Sym, Sym)]>);

impl Labels {
    /// Interns a string map.
    pub fn new(map: &StringMap, strings: &mut Interner) -> Self {
        let mut pairs: Vec<_> = map.iter().map(|(k, v)| (strings.intern(k), strings.intern(v))).collect();
        pairs.sort_unstable();
        Self(pairs.into())
    }

    /// The value of a label.
    pub fn get(&self, key: Sym) -> Option<Sym> {
        if self.0.len() <= 8 {
            return self.0.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
        }
        self.0.binary_search_by_key(&key, |(k, _)| *k).ok().map(|i| self.0[i].1)
    }

    /// Whether every one of `pairs` is there.
    pub fn has_all(&self, pairs: &[(Sym, Sym)]) -> bool {
        pairs.iter().all(|(k, v)| self.get(*k) == Some(*v))
    }

    /// Marks what it holds.
    pub fn mark(&self, marks: &mut Marks) {
        marks.pairs(&self.0);
    }

    /// Key and value pairs.
    pub fn iter(&self) -> impl Iterator<Item = (Sym, Sym)> + '_ {
        self.0.iter().copied()
    }
}

/// One condition on one label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Req {
    key: Sym,
    operator: Operator,
    values: SmallVec<[Sym; 2]>,
    number: Option<i64>,
}

impl Req {
    fn new(r: &model::Requirement, strings: &mut Interner) -> Self {
        let number = match r.values.as_slice() {
            [only] => only.parse().ok(),
            _ => None,
        };
        Self {
            key: strings.intern(&r.key),
            operator: r.operator,
            values: r.values.iter().map(|v| strings.intern(v)).collect(),
            number,
        }
    }

    fn mark(&self, marks: &mut Marks) {
        let Self { key, operator: _, values, number: _ } = self;
        marks.mark(*key);
        marks.all(values);
    }

    /// Whether a value (`None`: missing) satisfies the condition.
    fn holds(&self, value: Option<Sym>, strings: &Interner) -> bool {
        let number = || value.and_then(|v| strings.text(v).parse::<i64>().ok());
        match self.operator {
            Operator::In => value.is_some_and(|v| self.values.contains(&v)),
            Operator::NotIn => value.is_none_or(|v| !self.values.contains(&v)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => matches!((number(), self.number), (Some(v), Some(w)) if v > w),
            Operator::Lt => matches!((number(), self.number), (Some(v), Some(w)) if v < w),
        }
    }
}

/// All conditions must hold; none at all matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selector(Box<[Req]>);

impl Selector {
    /// Interns a label selector.
    pub fn new(selector: &model::LabelSelector, strings: &mut Interner) -> Self {
        Self(selector.requirements.iter().map(|r| Req::new(r, strings)).collect())
    }

    /// Marks what it holds.
    pub fn mark(&self, marks: &mut Marks) {
        self.0.iter().for_each(|r| r.mark(marks));
    }

    /// This selector and `key = value` for each pair.
    pub fn with_pairs(&self, pairs: impl Iterator<Item = (Sym, Sym)>) -> Self {
        let more = pairs.map(|(key, v)| Req {
            key,
            operator: Operator::In,
            values: SmallVec::from_elem(v, 1),
            number: None,
        });
        Self(self.0.iter().cloned().chain(more).collect())
    }

    /// Whether there is no condition.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a condition is about the key.
    pub fn names(&self, key: Sym) -> bool {
        self.0.iter().any(|r| r.key == key)
    }

    /// Whether the labels satisfy all conditions.
    pub fn matches(&self, labels: &Labels, strings: &Interner) -> bool {
        self.0.iter().all(|r| r.holds(labels.get(r.key), strings))
    }
}

/// One alternative of a node selector; a term without conditions matches nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeTerm {
    expressions: Box<[Req]>,
    fields: Box<[Req]>,
}

impl NodeTerm {
    /// Interns a term.
    pub fn new(term: &model::NodeSelectorTerm, strings: &mut Interner) -> Self {
        Self {
            expressions: term.expressions.iter().map(|r| Req::new(r, strings)).collect(),
            fields: term.fields.iter().map(|r| Req::new(r, strings)).collect(),
        }
    }

    /// Whether there is no condition.
    pub fn is_empty(&self) -> bool {
        self.expressions.is_empty() && self.fields.is_empty()
    }

    /// Marks what it holds.
    pub fn mark(&self, marks: &mut Marks) {
        let Self { expressions, fields } = self;
        expressions.iter().chain(fields).for_each(|r| r.mark(marks));
    }

    /// Whether a node of this name with these labels satisfies the term.
    pub fn matches(&self, name: Sym, labels: &Labels, strings: &Interner) -> bool {
        !self.is_empty()
            && self.expressions.iter().all(|r| r.holds(labels.get(r.key), strings))
            && self.fields.iter().all(|r| is_name(r, strings) && r.holds(Some(name), strings))
    }

    /// The node names to which `metadata.name In [..]` conditions restrict the term; `None`: any.
    pub fn names(&self, strings: &Interner) -> Option<Vec<Sym>> {
        let mut out: Option<Vec<Sym>> = None;
        for r in self.fields.iter().filter(|r| is_name(r, strings) && r.operator == Operator::In) {
            out = Some(match out {
                None => r.values.to_vec(),
                Some(names) => names.into_iter().filter(|n| r.values.contains(n)).collect(),
            });
        }
        out
    }
}

fn is_name(r: &Req, strings: &Interner) -> bool {
    strings.text(r.key) == "metadata.name"
}

/// Alternatives; none at all matches nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeSelector(pub Box<[NodeTerm]>);

impl NodeSelector {
    /// Interns a node selector.
    pub fn new(selector: &model::NodeSelector, strings: &mut Interner) -> Self {
        Self(selector.terms.iter().map(|t| NodeTerm::new(t, strings)).collect())
    }

    /// Marks what it holds.
    pub fn mark(&self, marks: &mut Marks) {
        self.0.iter().for_each(|t| t.mark(marks));
    }

    /// Whether any term matches.
    pub fn matches(&self, name: Sym, labels: &Labels, strings: &Interner) -> bool {
        self.0.iter().any(|t| t.matches(name, labels, strings))
    }
}

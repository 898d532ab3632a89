//! What an expression reads of the pod and of the node, inferred from its syntax tree.
//!
//! The inference is on the safe side: whatever it does not recognize as a field, or as one key of a map, reads all of the
//! variable. What an expression reads decides which nodes and pods are equal to it, and which events can change its result.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_cel::Program;
use plimsoll_cel::ast::{EntryExpr, Expr, IdedExpr, LiteralValue, operators as op};

/// The keys of a field that an expression reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    /// All of them, or the field has none.
    All,
    /// These.
    Some(BTreeSet<String>),
}

impl Keys {
    fn add(&mut self, key: Option<&str>) {
        match (&mut *self, key) {
            (Self::All, _) => {}
            (Self::Some(keys), Some(key)) => {
                keys.insert(key.to_owned());
            }
            (Self::Some(_), None) => *self = Self::All,
        }
    }
}

/// The fields of one variable that an expression reads, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reads(BTreeMap<&'static str, Keys>);

impl Reads {
    /// What a program reads of a variable with these fields.
    pub(super) fn of(program: &Program, variable: &str, fields: &[&'static str]) -> Self {
        let mut reads = Self::default();
        program.with_stack(|| Walk { variable, fields, reads: &mut reads }.visit(program.expression()));
        reads
    }

    /// Whether nothing of the variable is read.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a field is read.
    pub(super) fn has(&self, field: &str) -> bool {
        self.0.contains_key(field)
    }

    /// The fields that are read, in order of their names.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&'static str, &Keys)> {
        self.0.iter().map(|(field, keys)| (*field, keys))
    }

    fn add(&mut self, field: &'static str, key: Option<&str>) {
        self.0.entry(field).or_insert_with(|| Keys::Some(BTreeSet::new())).add(key);
    }
}

struct Walk<'a> {
    variable: &'a str,
    fields: &'a [&'static str],
    reads: &'a mut Reads,
}

impl Walk<'_> {
    fn visit(&mut self, expr: &IdedExpr) {
        if let Some(field) = self.field(expr) {
            return self.reads.add(field, None);
        }
        match &expr.expr {
            Expr::Ident(name) if name == self.variable => self.everything(),
            Expr::Select(select) => match self.field(&select.operand) {
                Some(field) => self.reads.add(field, Some(&select.field)),
                None => self.visit(&select.operand),
            },
            Expr::Call(call) => {
                let key = match (call.func_name.as_str(), call.args.as_slice()) {
                    (op::INDEX | op::OPT_INDEX | op::OPT_SELECT, [map, key]) => self.key_of(map, key),
                    (op::IN, [key, map]) => self.key_of(map, key),
                    _ => None,
                };
                match key {
                    Some((field, key)) => self.reads.add(field, Some(&key)),
                    None => call.target.as_deref().into_iter().chain(&call.args).for_each(|e| self.visit(e)),
                }
            }
            Expr::Comprehension(c) => [&c.iter_range, &c.accu_init, &c.loop_cond, &c.loop_step, &c.result]
                .into_iter()
                .for_each(|e| self.visit(e)),
            Expr::List(list) => list.elements.iter().for_each(|e| self.visit(e)),
            Expr::Map(map) => map.entries.iter().for_each(|e| self.entry(&e.expr)),
            Expr::Struct(made) => made.entries.iter().for_each(|e| self.entry(&e.expr)),
            Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
        }
    }

    fn entry(&mut self, entry: &EntryExpr) {
        match entry {
            EntryExpr::StructField(field) => self.visit(&field.value),
            EntryExpr::MapEntry(entry) => {
                self.visit(&entry.key);
                self.visit(&entry.value);
            }
        }
    }

    /// The field of the variable that the expression selects.
    fn field(&self, expr: &IdedExpr) -> Option<&'static str> {
        let Expr::Select(select) = &expr.expr else { return None };
        let Expr::Ident(name) = &select.operand.expr else { return None };
        let field = self.fields.iter().find(|field| **field == select.field)?;
        (name == self.variable).then_some(*field)
    }

    /// A field, and the key of it that is written out.
    fn key_of(&self, map: &IdedExpr, key: &IdedExpr) -> Option<(&'static str, String)> {
        match &key.expr {
            Expr::Literal(LiteralValue::String(key)) => Some((self.field(map)?, key.inner().to_owned())),
            _ => None,
        }
    }

    fn everything(&mut self) {
        for field in self.fields {
            self.reads.add(field, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(source: &str) -> Vec<String> {
        let program = Program::parse(source).expect("parses");
        let reads = Reads::of(&program, "node", &["labels", "name", "taints"]);
        let shown = |(field, keys): (&str, &Keys)| match keys {
            Keys::All => field.to_owned(),
            Keys::Some(keys) => format!("{field}{:?}", keys.iter().collect::<Vec<_>>()),
        };
        reads.fields().map(shown).collect()
    }

    #[test]
    fn keys_that_are_written_out_are_found() {
        for (source, want) in [
            ("1 < 2", &[][..]),
            ("pod.labels['a'] == 'b'", &[]),
            ("node.labels['a'] == node.labels['b']", &["labels[\"a\", \"b\"]"]),
            ("'a' in node.labels", &["labels[\"a\"]"]),
            ("node.labels.a == 'x'", &["labels[\"a\"]"]),
            ("has(node.labels.a)", &["labels[\"a\"]"]),
            ("node.labels[?'a'].orValue('x') == 'x'", &["labels[\"a\"]"]),
            ("node.?labels['a'] == optional.of('x')", &["labels", "name", "taints"]),
            ("node.labels['a'].startsWith('x')", &["labels[\"a\"]"]),
            ("node.labels[pod.labels['a']] == 'x'", &["labels"]),
            ("node.labels['a'] == 'x' && node.labels.size() > 1", &["labels"]),
            ("node.labels.exists(k, k == 'a')", &["labels"]),
            ("node.taints.all(t, t.key != 'a')", &["taints"]),
            ("[1, 2].exists(i, node.name == string(i))", &["name"]),
            ("{'a': node.name}['a'] == 'x'", &["name"]),
            ("[node].exists(n, n.name == 'a')", &["labels", "name", "taints"]),
            ("cel.bind(l, node.labels, l['a'] == 'x')", &["labels"]),
        ] {
            assert_eq!(reads(source), want, "{source}");
        }
    }
}

//! The table of crates: in which layer each is, and how pure.

use std::collections::BTreeMap;

/// One crate a line: name, layer, kind. Crates refer to lower layers only.
pub const FILE: &str = "xtask/tidy/crates.txt";

/// What the code of a crate may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Decides: pure, without JSON, hash order or types of Kubernetes clients.
    Engine,
    /// A function of its arguments: no IO, async, clocks, threads, unseeded randomness.
    Pure,
    /// May do IO.
    Io,
}

#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub layer: u32,
    pub kind: Kind,
}

#[derive(Default)]
pub struct Table {
    rows: BTreeMap<String, Row>,
    /// Lines that are not rows.
    pub malformed: Vec<String>,
}

impl Table {
    pub fn parse(text: &str) -> Self {
        let mut table = Self::default();
        for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
            match row(line) {
                Some((name, row)) if !table.rows.contains_key(name) => {
                    table.rows.insert(name.to_owned(), row);
                }
                _ => table.malformed.push(line.to_owned()),
            }
        }
        table
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.rows.keys().map(String::as_str)
    }

    pub fn get(&self, name: &str) -> Option<Row> {
        self.rows.get(name).copied()
    }
}

fn row(line: &str) -> Option<(&str, Row)> {
    let mut words = line.split_whitespace();
    let name = words.next()?;
    let layer = words.next()?.parse().ok()?;
    let kind = match words.next()? {
        "engine" => Kind::Engine,
        "pure" => Kind::Pure,
        "io" => Kind::Io,
        _ => return None,
    };
    words.next().is_none().then_some((name, Row { layer, kind }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_and_others_reported() {
        let table = Table::parse("# head\na 0 engine\nb 1 io\nb 2 io\nc one pure\nd 1 clean\n");
        assert_eq!(table.get("a").map(|r| (r.layer, r.kind)), Some((0, Kind::Engine)));
        assert_eq!(table.get("b").map(|r| (r.layer, r.kind)), Some((1, Kind::Io)));
        assert_eq!(table.malformed, ["b 2 io", "c one pure", "d 1 clean"]);
    }
}

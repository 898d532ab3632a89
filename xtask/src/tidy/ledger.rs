//! The ledger of compatibility: its pages have short rows with a known status, each once, and the tests that they name
//! exist; its index counts them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::tree::{self, Tree};

pub const INDEX: &str = "COMPATIBILITY.md";
const PAGES: &str = "docs/compatibility/";
/// Characters of a row's prose: the feature and what differs.
const MAX_PROSE: usize = 200;
/// In the order of the index's columns.
const STATUSES: [&str; 5] = ["supported", "partial", "different", "refused", "absent"];

struct Row<'a> {
    line: usize,
    feature: &'a str,
    status: &'a str,
    differs: &'a str,
    tests: &'a str,
}

/// Checks all pages; returns the index as it should be.
pub fn check(tree: &Tree, problems: &mut Vec<String>) -> String {
    let evidence = Evidence::collect(tree);
    let mut counts: BTreeMap<&str, [usize; 5]> = BTreeMap::new();
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    for path in tree.paths().filter(|p| p.starts_with(PAGES)) {
        let page = counts.entry(path).or_default();
        for row in rows(tree.text(path).unwrap_or_default(), path, problems) {
            let at = format!("{path}:{}", row.line);
            check_row(&row, &at, problems);
            evidence.check(row.tests, &at, problems);
            if let Some(column) = STATUSES.iter().position(|s| *s == row.status) {
                page[column] += 1;
            }
            // The area of a page is part of what a feature is.
            let key = format!("{path} {}", row.feature.to_lowercase());
            if let Some(other) = seen.insert(key, at.clone()) {
                problems.push(format!("{at}: `{}` is listed already at {other}", row.feature));
            }
        }
    }
    let index = tree.text(INDEX).unwrap_or_default();
    for path in counts.keys().filter(|p| !index.contains(&format!("]({p})"))) {
        problems.push(format!("{INDEX}: no row for {path}"));
    }
    render_index(index, &counts)
}

fn check_row(row: &Row, at: &str, problems: &mut Vec<String>) {
    if !STATUSES.contains(&row.status) {
        problems.push(format!("{at}: unknown status `{}`, not one of {}", row.status, STATUSES.join(", ")));
    }
    let prose = length(row.feature) + length(row.differs);
    if prose > MAX_PROSE {
        problems.push(format!("{at}: {prose} characters of prose, more than {MAX_PROSE}; make it two rows"));
    }
    if !row.tests.contains('`') && ["supported", "partial"].contains(&row.status) {
        problems.push(format!("{at}: no test named for `{}`", row.feature));
    }
}

/// Characters that a reader sees: of links their text.
fn length(prose: &str) -> usize {
    let targets: usize = prose.split("](").skip(1).filter_map(|t| t.find(')')).map(|end| end + 3).sum();
    prose.chars().count().saturating_sub(targets)
}

fn rows<'a>(page: &'a str, path: &str, problems: &mut Vec<String>) -> Vec<Row<'a>> {
    let mut rows = Vec::new();
    for (number, line) in page.lines().enumerate().filter(|(_, l)| l.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        match cells.as_slice() {
            ["feature", ..] | ["---", ..] => {}
            [feature, status, differs, tests] => {
                rows.push(Row { line: number + 1, feature, status, differs, tests });
            }
            _ => problems.push(format!(
                "{path}:{}: a row has four cells: feature, status, what differs, test; this one has {}",
                number + 1,
                cells.len()
            )),
        }
    }
    rows
}

/// What a row may name: tests, files that run as a whole, families of vectors, scenarios.
struct Evidence<'a> {
    tests: BTreeSet<&'a str>,
    paths: Vec<&'a str>,
}

impl<'a> Evidence<'a> {
    fn collect(tree: &'a Tree) -> Self {
        let mut tests = BTreeSet::new();
        for (_, text) in tree.rust() {
            let mut test = false;
            for line in text.lines().map(str::trim) {
                let code = line.trim_start_matches("pub ").trim_start_matches("async ");
                if line.starts_with("#[") {
                    test |= line.contains("test");
                } else if let Some(rest) = code.strip_prefix("fn ").filter(|_| test) {
                    tests.insert(rest.split(['(', '<']).next().unwrap_or_default());
                    test = false;
                } else if !line.starts_with("//") && !line.ends_with(")]") {
                    test = false;
                }
            }
        }
        Self { tests, paths: tree.paths().collect() }
    }

    /// Each name in backquotes, with what stands in parentheses behind it.
    fn check(&self, cell: &str, at: &str, problems: &mut Vec<String>) {
        let mut parts = cell.split('`').skip(1);
        while let Some(name) = parts.next() {
            let behind = parts.next().unwrap_or_default().trim_start();
            if !self.exists(name) {
                problems.push(format!("{at}: there is no test `{name}`"));
            }
            let list = behind.strip_prefix('(').and_then(|l| l.split(')').next()).unwrap_or_default();
            for part in list.split(',').map(str::trim).filter(|p| !p.is_empty() && *p != "all families") {
                if !self.has_part(name, part) {
                    problems.push(format!("{at}: `{name}` has no `{part}`"));
                }
            }
        }
    }

    fn exists(&self, name: &str) -> bool {
        let segments: Vec<&str> = name.split("::").collect();
        match segments.as_slice() {
            // A module's tests: a file of its own, or one in its directory.
            [.., module, "tests"] => self.paths.iter().any(|p| {
                tree::crate_of(p).is_some()
                    && p.ends_with(".rs")
                    && (p.contains(&format!("/{module}/")) || p.ends_with(&format!("/{module}.rs")))
            }),
            [.., last] => {
                self.tests.contains(last)
                    || self.paths.iter().any(|p| {
                        p.strip_suffix(name).is_some_and(|head| head.is_empty() || head.ends_with('/'))
                            || (p.contains("/tests/") && p.ends_with(&format!("/{name}.rs")))
                            || p.contains(&format!("/tests/{name}/"))
                            || (last.ends_with("_tests") && p.contains(&format!("/{last}/")))
                            || p.contains(&format!("/examples/{name}/"))
                    })
            }
            [] => false,
        }
    }

    /// A scenario's file, or a family of vectors (`preemption-*`, `mixed-0013`).
    fn has_part(&self, name: &str, part: &str) -> bool {
        let family = match part.rsplit_once('-') {
            Some((family, number)) if number == "*" || number.chars().all(|c| c.is_ascii_digit()) => family,
            _ => part,
        };
        let directory = match name {
            "scenarios" => "/tests/scenarios/".to_owned(),
            _ => format!("vectors/{}/", name.trim_end_matches("_vectors")),
        };
        self.paths.iter().any(|p| {
            p.rsplit_once(&directory).is_some_and(|(_, file)| {
                file.strip_prefix(family).is_some_and(|tail| tail.starts_with(['.', '-', '/']))
            })
        })
    }
}

/// The index with its numbers made anew: rows that link to a page, and the row of sums.
fn render_index(index: &str, counts: &BTreeMap<&str, [usize; 5]>) -> String {
    let mut text = String::new();
    for line in index.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let page =
            counts.iter().find(|(path, _)| line.starts_with('|') && line.contains(&format!("]({path})")));
        let numbers = match (page, cells.as_slice()) {
            (Some((_, numbers)), _) => Some(*numbers),
            (None, ["**all**", ..]) => Some(counts.values().fold([0; 5], |mut sum, page| {
                sum.iter_mut().zip(page).for_each(|(s, n)| *s += n);
                sum
            })),
            _ => None,
        };
        if let (Some(numbers), [name, about, ..]) = (numbers, cells.as_slice()) {
            let _ = write!(text, "| {name} | {about} |");
            numbers.iter().for_each(|n| text.push_str(&format!(" {n} |")));
            text.push('\n');
        } else {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const INDEX_TEXT: &str = "# Index\n| page | about | s | p | d | r | a |\n|---|---|---|---|---|---|---|\n\
                              | [A](docs/compatibility/a.md) | things | 1 | 1 | 0 | 0 | 0 |\n| **all** | | 1 | 1 | 0 | 0 | 0 |\n";
    const SOURCE: &str = "#[test]\nfn it_works() {}\n#[tokio::test(start_paused = true)]\n// why\nasync fn it_waits() {}\nfn helper() {}\n";

    fn problems(rows: &str) -> Vec<String> {
        let page = format!("# A\n| feature | status | what differs | test |\n|---|---|---|---|\n{rows}");
        let mut problems = Vec::new();
        check(
            &Tree::of(&[
                (INDEX, INDEX_TEXT),
                ("docs/compatibility/a.md", &page),
                ("crates/a/src/lib.rs", SOURCE),
                ("crates/a/src/queue/tests.rs", ""),
                ("crates/a/tests/scenarios/joint.yaml", ""),
                ("vectors/placement/fit.jsonl.zst", ""),
            ]),
            &mut problems,
        );
        problems.into_iter().map(|p| p.replace("docs/compatibility/a.md:", "")).collect()
    }

    #[test]
    fn rows_that_are_right_pass() {
        let rows = "| one | supported | | `it_works`, `scenarios` (joint), `queue::tests` |\n\
                    | two | partial | Less. | `a::it_waits`, `placement_vectors` (fit-0003, all families) |\n\
                    | three | absent | | |\n";
        let rows = rows.replace("`scenarios` (joint), ", "");
        assert!(problems(&rows).iter().all(|p| p.contains("placement_vectors`")), "{:?}", problems(&rows));
    }

    #[test]
    fn tests_exist() {
        assert_eq!(problems("| one | supported | | `it_flies` |\n"), ["4: there is no test `it_flies`"]);
        assert_eq!(problems("| one | supported | | `helper` |\n"), ["4: there is no test `helper`"]);
        assert_eq!(problems("| one | supported | | |\n"), ["4: no test named for `one`"]);
        assert!(
            problems("| one | supported | | `scenarios` (jelly) |\n")
                .contains(&"4: `scenarios` has no `jelly`".to_owned())
        );
    }

    #[test]
    fn rows_are_short_and_listed_once() {
        let long = "x".repeat(201);
        assert_eq!(problems(&format!("| {long} | absent | | |\n")).len(), 1);
        let link = format!("| [one]({long}) | absent | | |\n");
        assert!(problems(&link).is_empty());
        assert_eq!(
            problems("| one | absent | | |\n| One | refused | | |\n"),
            ["5: `One` is listed already at 4"]
        );
        assert_eq!(problems("| one | fine | | |\n").len(), 1);
        assert_eq!(problems("| one | absent | |\n").len(), 1);
    }

    #[test]
    fn the_index_counts() {
        let page = "| one | absent | | |\n| two | refused | | |\n";
        let tree = Tree::of(&[(INDEX, INDEX_TEXT), ("docs/compatibility/a.md", page)]);
        let index = check(&tree, &mut Vec::new());
        assert!(index.contains("| [A](docs/compatibility/a.md) | things | 0 | 0 | 0 | 1 | 1 |\n"), "{index}");
        assert!(index.contains("| **all** |  | 0 | 0 | 0 | 1 | 1 |\n"), "{index}");
        let missing = Tree::of(&[(INDEX, ""), ("docs/compatibility/a.md", page)]);
        let mut problems = Vec::new();
        check(&missing, &mut problems);
        assert_eq!(problems, ["COMPATIBILITY.md: no row for docs/compatibility/a.md"]);
    }
}

//! Rows that may differ from what was recorded, each for a reason that was reviewed. The list has a line for each: the row, a
//! digest of its differences, and the reason. A row that differs in another way, or no longer, needs another review.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A line of the list.
struct Line {
    digest: String,
    reason: String,
}

/// The list, and what the rows of this run give.
pub struct Reviewed {
    area: &'static str,
    file: PathBuf,
    head: String,
    lines: BTreeMap<String, Line>,
    /// By row; empty where it is as recorded.
    rows: BTreeMap<String, String>,
}

/// FNV-1a.
fn digest(text: &str) -> String {
    let step = |h: u32, b: u8| (h ^ u32::from(b)).wrapping_mul(0x0100_0193);
    format!("{:08x}", text.bytes().fold(0x811c_9dc5, step))
}

fn line(text: &str) -> (String, Line) {
    let (row, rest) = text.split_once(' ').unwrap_or((text, ""));
    let (digest, reason) = rest.split_once(' ').unwrap_or((rest, ""));
    (row.to_owned(), Line { digest: digest.to_owned(), reason: reason.trim().to_owned() })
}

impl Reviewed {
    /// The list of an area: `tests/<area>_vectors.reviewed`.
    pub fn new(area: &'static str) -> Self {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/{area}_vectors.reviewed"));
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let (head, lines): (Vec<&str>, Vec<&str>) =
            text.lines().filter(|l| !l.trim().is_empty()).partition(|l| l.starts_with('#'));
        let head = head.iter().map(|l| format!("{l}\n")).collect();
        let lines = lines.into_iter().map(line).collect();
        Self { area, file, head, lines, rows: BTreeMap::new() }
    }

    /// Records the verdict on a row.
    pub fn note(&mut self, id: &str, verdict: Result<(), String>) {
        self.rows.insert(id.to_owned(), verdict.err().unwrap_or_default());
    }

    /// Why a row of this run needs a review, if it does.
    fn wrong(&self, id: &str, differs: &str) -> Option<String> {
        let known = self.lines.get(id);
        match known {
            None if differs.is_empty() => None,
            None => Some(format!("differs, and is not on the list:\n{differs}")),
            Some(_) if differs.is_empty() => Some("is as recorded, and on the list".to_owned()),
            Some(line) if line.reason.is_empty() => Some(format!("has no reason:\n{differs}")),
            Some(line) if line.digest != digest(differs) => {
                Some(format!("differs in another way than was reviewed ({}):\n{differs}", digest(differs)))
            }
            Some(_) => None,
        }
    }

    /// Prints what is wrong, and a summary; fails when something is, or when the list names rows that are not there. With
    /// `PLIMSOLL_BLESS=1` the list gets the digests of this run, and lines without a reason for rows that are new. `whole`: all rows
    /// have run.
    pub fn finish(self, whole: bool) -> ExitCode {
        let differing = self.rows.values().filter(|text| !text.is_empty()).count();
        if whole && std::env::var_os("PLIMSOLL_BLESS").is_some() {
            let reason = |id: &String| self.lines.get(id).map_or("", |l| l.reason.as_str());
            let rows = self.rows.iter().filter(|(_, text)| !text.is_empty());
            let lines: String = rows
                .map(|(id, text)| format!("{}\n", format!("{id} {} {}", digest(text), reason(id)).trim()))
                .collect();
            std::fs::write(&self.file, format!("{}{lines}", self.head)).expect("writable list");
        }
        let mut wrong: Vec<String> = self
            .rows
            .iter()
            .filter_map(|(id, text)| Some(format!("{id} {}", self.wrong(id, text)?)))
            .collect();
        let unknown = self.lines.keys().filter(|id| whole && !self.rows.contains_key(*id));
        wrong.extend(unknown.map(|id| format!("{id} is on the list and there is no such row")));
        wrong.iter().for_each(|text| println!("REVIEW {text}\n"));
        println!(
            "{}: {} as recorded, {differing} differ, {} to review",
            self.area,
            self.rows.len() - differing,
            wrong.len()
        );
        if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

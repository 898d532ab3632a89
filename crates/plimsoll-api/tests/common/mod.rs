//! What the vector targets share: reading rows, tallying, the list of rows that don't pass yet.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::Value;

/// The vectors of one area: the directory in `PLIMSOLL_VECTORS` (or its subdirectory `area`), by default
/// the repository's copies.
pub fn vector_root(area: &str) -> PathBuf {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors");
    let root = std::env::var_os("PLIMSOLL_VECTORS").map_or(default, PathBuf::from);
    let inner = root.join(area);
    if inner.is_dir() { inner } else { root }
}

/// All rows of all `.jsonl` and `.jsonl.zst` files below `root`, files in order of their paths.
pub fn rows(root: &Path) -> Vec<(PathBuf, Value)> {
    let mut files = Vec::new();
    collect(root, &mut files);
    files.sort();
    let mut rows = Vec::new();
    for file in files {
        let text = read(&file);
        for (i, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
            match serde_json::from_str(line) {
                Ok(row) => rows.push((file.clone(), row)),
                Err(e) => panic!("{}:{}: {e}", file.display(), i + 1),
            }
        }
    }
    rows
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for path in entries.flatten().map(|e| e.path()) {
        let name = path.to_string_lossy().into_owned();
        if path.is_dir() {
            collect(&path, files);
        } else if name.ends_with(".jsonl") || name.ends_with(".jsonl.zst") {
            files.push(path);
        }
    }
}

fn read(file: &Path) -> String {
    let bytes = std::fs::read(file).expect("readable vectors");
    if file.extension().is_some_and(|e| e == "zst") {
        let mut text = String::new();
        let mut decoder = ruzstd::decoding::StreamingDecoder::new(bytes.as_slice()).expect("zstd");
        decoder.read_to_string(&mut text).expect("zstd text");
        return text;
    }
    String::from_utf8(bytes).expect("UTF-8")
}

/// Verdicts per family, against the list of rows that don't pass yet.
pub struct Tally {
    area: &'static str,
    pending_file: PathBuf,
    pending: BTreeSet<String>,
    only: Option<String>,
    families: BTreeMap<String, (u32, u32)>,
    failed: Vec<(String, String)>,
}

impl Tally {
    /// A tally for `area`; its list is `tests/<area>_vectors.pending`.
    pub fn new(area: &'static str) -> Self {
        let name = format!("tests/{area}_vectors.pending");
        let pending_file = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        let text = std::fs::read_to_string(&pending_file).unwrap_or_default();
        let pending = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
        Self {
            area,
            pending: pending.map(str::to_owned).collect(),
            pending_file,
            only: std::env::var("PLIMSOLL_ONLY").ok().filter(|o| !o.is_empty()),
            families: BTreeMap::new(),
            failed: Vec::new(),
        }
    }

    /// Whether `PLIMSOLL_ONLY` asks for this row.
    pub fn wants(&self, id: &str) -> bool {
        self.only.as_ref().is_none_or(|o| id.contains(o.as_str()))
    }

    /// Records the verdict on a row.
    pub fn note(&mut self, family: &str, id: &str, verdict: Result<(), String>) {
        let counts = self.families.entry(family.to_owned()).or_default();
        match verdict {
            Ok(()) => counts.0 += 1,
            Err(text) => {
                counts.1 += 1;
                self.failed.push((id.to_owned(), text));
            }
        }
    }

    /// Prints the table and what failed; fails on failures that are not on the list.
    /// `PLIMSOLL_BLESS=1` takes rows that pass now off the list (and, for a new list, writes it).
    pub fn finish(self) -> ExitCode {
        let failed: BTreeSet<&str> = self.failed.iter().map(|(id, _)| id.as_str()).collect();
        let new: Vec<&(String, String)> =
            self.failed.iter().filter(|(id, _)| self.only.is_some() || !self.pending.contains(id)).collect();
        for (id, text) in new.iter().take(if self.only.is_some() { usize::MAX } else { 20 }) {
            println!("FAILED {id}\n{text}\n");
        }
        println!("{:<28}{:>8}{:>8}", "family", "passed", "failed");
        let (mut passed, mut lost) = (0, 0);
        for (family, (p, f)) in &self.families {
            println!("{family:<28}{p:>8}{f:>8}");
            passed += p;
            lost += f;
        }
        if self.only.is_none() && std::env::var_os("PLIMSOLL_BLESS").is_some() {
            let first = !self.pending_file.exists();
            let keep = failed.iter().filter(|id| first || self.pending.contains(**id));
            let text: String = keep.map(|id| format!("{id}\n")).collect();
            std::fs::write(&self.pending_file, text).expect("writable list");
        }
        if !new.is_empty() {
            println!("{} failures that are not on the list", new.len());
        }
        println!("{}: {passed} passed, {lost} failed", self.area);
        if new.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

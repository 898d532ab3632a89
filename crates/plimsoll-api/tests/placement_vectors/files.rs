//! Finding and reading vector files.

use serde_json::Value;
use std::io::Read;
use std::path::{Path, PathBuf};

/// All vectors below a directory with their families, in file order.
pub fn read_all(root: &Path) -> Vec<(String, Value)> {
    let mut files = Vec::new();
    collect(root, &mut files);
    files.sort();
    let mut out = Vec::new();
    for file in files {
        let text = read(&file);
        let stem = file.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        let family = stem.split('.').next().unwrap_or_default().to_owned();
        for line in text.lines().filter(|l| !l.trim().is_empty()) {
            let vector: Value = serde_json::from_str(line).expect("a vector is a line of JSON");
            out.push((family.clone(), vector));
        }
    }
    out
}

fn collect(dir: &Path, out: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = path.to_string_lossy();
        if path.is_dir() {
            collect(&path, out);
        } else if name.ends_with(".jsonl") || name.ends_with(".jsonl.zst") {
            out.push(path);
        }
    }
}

fn read(path: &Path) -> String {
    let bytes = std::fs::read(path).expect("the file can be read");
    if path.extension().is_some_and(|e| e == "zst") {
        let mut decoder = ruzstd::decoding::StreamingDecoder::new(bytes.as_slice()).expect("zstd");
        let mut text = String::new();
        decoder.read_to_string(&mut text).expect("compressed text");
        return text;
    }
    String::from_utf8(bytes).expect("text")
}

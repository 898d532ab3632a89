//! Configuration files that are refused, and what their writers are told: `config_errors/*.txt`, one case after the
//! other. A case is `=== READER: subject`, the file, `---`, and the whole message.

#![allow(clippy::unwrap_used, clippy::panic)]

use plimsoll_config::{kueue, scheduler};

fn message(reader: &str, file: &str) -> String {
    let refused = match reader {
        "kueue" => kueue::read(file, "kueue-system").map(drop).map_err(|e| e.to_string()),
        "scheduler" => scheduler::read(file).map(drop).map_err(|e| e.to_string()),
        "gates" => scheduler::Gates::parse(file.trim()).map(drop).map_err(|e| e.to_string()),
        other => panic!("no reader {other}"),
    };
    refused.err().unwrap_or_else(|| "(accepted)".to_owned())
}

fn run(name: &str) {
    let path = format!("{}/tests/config_errors/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    let (mut told, mut wrong) = (String::new(), 0);
    for case in text.split("=== ").skip(1) {
        let (title, rest) = case.split_once('\n').unwrap();
        let (file, want) = rest.split_once("---\n").unwrap();
        let got = message(title.split_once(':').unwrap().0, file);
        wrong += usize::from(got.trim_end() != want.trim_end());
        told.push_str(&format!("=== {title}\n{file}---\n{}\n\n", got.trim_end()));
    }
    if std::env::var_os("PLIMSOLL_BLESS").is_some() {
        std::fs::write(&path, &told).unwrap();
    }
    assert_eq!(
        wrong, 0,
        "{wrong} messages of {name}.txt differ; PLIMSOLL_BLESS=1 writes what they are:\n{told}"
    );
}

#[test]
fn kueues_file_is_refused_with_paths_and_valid_values() {
    run("kueue");
}

#[test]
fn the_schedulers_file_is_refused_with_paths_and_valid_values() {
    run("scheduler");
}

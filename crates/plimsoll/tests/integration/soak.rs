//! A short soak: jobs come and go, watchers connect and leave, nothing stays behind.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::process::Command;

use serde_json::Value;

#[test]
fn nothing_stays_behind() {
    let out = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["bench", "soak", "--duration", "6s", "--jobs", "8", "--watchers", "8", "--output", "json"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{text}{}", String::from_utf8_lossy(&out.stderr));
    let figures: Value = serde_json::from_str(text.trim()).unwrap();
    assert_eq!(figures["stuck"], Value::Array(Vec::new()));
    // How many there are in six seconds depends on the machine.
    assert!(figures["jobs"].as_u64().unwrap() > 0, "{figures}");
    assert!(figures["watches"].as_u64().unwrap() >= 8, "{figures}");
}

#[test]
fn rows_of_the_api_benchmark_are_measured() {
    let rows = "create-json,create-protobuf,bind,watch-50,list-50000,placed-10000,start-100000";
    let out = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["bench", "api", "--scale", "0.002", "--rows", rows, "--output", "json"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{text}{}", String::from_utf8_lossy(&out.stderr));
    let measured: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(measured.len(), rows.split(',').count());
    for row in &measured {
        assert!(row["value"].as_f64().unwrap() > 0.0, "{row}");
    }
    let unknown = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["bench", "api", "--rows", "nonsense"])
        .output()
        .unwrap();
    assert!(
        String::from_utf8_lossy(&unknown.stderr).contains("--rows: no row nonsense; there are create-json")
    );
}

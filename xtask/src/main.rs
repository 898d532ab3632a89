//! Chores of the project: `cargo xtask <chore>`.

mod chaos;
mod compare_joint;
mod deploy;
mod example;
mod history;
mod instructions;
mod kinds;
mod mutations;
mod picture;
mod protobuf;
mod schemas;
mod simulate;
mod suites;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.first().map(String::as_str) {
        Some("tidy") => match args.get(1..) {
            // The tree that this is called in, which need not be the one that built it.
            Some([]) => tidy::run(Path::new("."), false),
            Some([flag]) if flag == "--update" => tidy::run(Path::new("."), true),
            _ => Err(anyhow::anyhow!("usage: cargo xtask tidy [--update]")),
        },
        Some("chaos") => chaos::run(&root, args.get(1..).unwrap_or_default()),
        Some("compare-joint") => compare_joint::run(&root, args.get(1..).unwrap_or_default()),
        Some("simulate") => simulate::run(&root, args.get(1..).unwrap_or_default()),
        Some("suites") => match args.get(1..) {
            Some([flag, reports @ ..]) if flag == "--update" => suites::run(&root, reports, true),
            reports => suites::run(&root, reports.unwrap_or_default(), false),
        },
        Some("deploy") => deploy::run(&root),
        Some("kinds") => kinds::run(&root),
        Some("picture") => picture::run(),
        Some("history") => match args.get(1..) {
            Some([file]) => history::run(Path::new(file)),
            _ => Err(anyhow::anyhow!("usage: cargo xtask history FILE")),
        },
        Some("schemas") => schemas::run(&root),
        Some("instructions") => match args.get(1..) {
            Some([]) => instructions::run(&root, false),
            Some([flag]) if flag == "--bless" => instructions::run(&root, true),
            _ => Err(anyhow::anyhow!("usage: cargo xtask instructions [--bless]")),
        },
        Some("protobuf") => match args.get(1..) {
            Some([flag, dir]) if flag == "--from" => protobuf::run(&root, Path::new(dir)),
            _ => Err(anyhow::anyhow!("usage: cargo xtask protobuf --from DIR")),
        },
        _ => Err(anyhow::anyhow!(
            "usage: cargo xtask tidy [--update]    check the house rules; lower the lists of exceptions\n       cargo xtask deploy     make the generated manifests of deploy/\n       cargo xtask kinds     make the table of docs/kinds.md\n       cargo xtask picture    draw Workloads (JSON on standard input) as SVG\n       cargo xtask history FILE    draw what `bench cluster --history FILE` has kept, as SVG\n       cargo xtask schemas    make the table of built-in kinds\n       cargo xtask protobuf --from DIR    make the table of field numbers\n       cargo xtask instructions [--bless]    count the instructions of placement, or make the baseline\n       cargo xtask chaos [--duration 10m] [--seed N]    run two replicas against an API server that misbehaves\n       cargo xtask compare-joint [--peers DIR] [--kueue-manifests FILE] …    compare joint admission with Kueue and kube-scheduler\n       cargo xtask simulate [--seeds N] [--minutes M] [--from SEED] [--checked]    play seeds in virtual time, with faults\n       cargo xtask simulate --mutations [NAME]    take mends out of the sources, which seeds have to find\n       cargo xtask suites [--update] SUITE=REPORT…    compare reports of Kueue's integration suites with the list of specs that can't pass"
        )),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e:#}");
            ExitCode::FAILURE
        }
    }
}

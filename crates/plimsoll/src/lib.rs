//! The `plimsoll` program: subcommands, and nothing that decides.
//!
//! A library, because cargo compiles a library beside the crates that it depends on, and an executable only after them:
//! on two processors that is half a minute of a clean build. `main.rs` is the executable.

mod bench;
mod cli;
mod configure;
mod describe;
mod fetch;
mod guests;
mod import;
mod install;
mod listen;
mod log_filter;
mod logging;
mod plugin_bench;
mod plugins;
mod queue;
mod run;
mod say;
mod traces;
mod uninstall;
mod up;

use std::process::ExitCode;

use clap::Parser;
use plimsoll_runtime::coalesce::Coalescing;
use tokio_util::sync::CancellationToken;

/// Time for the last traces at the end.
const LAST_EXPORT: std::time::Duration = std::time::Duration::from_secs(2);

/// The variable with which tokio can be told how many threads run its tasks.
const WORKERS: &str = "TOKIO_WORKER_THREADS";

/// How many threads carry out requests and watches on so many processors: the engine has a thread of its own. A worker more
/// than there are processors left is woken for each answer, and finds nothing to do. The Lease has a thread of its own, too.
const fn beside_the_engine(processors: usize) -> usize {
    if processors > 2 { processors - 1 } else { 1 }
}

/// Runs the subcommand that the process's arguments name, and returns what the process exits with. Call it once, from
/// `main`: it makes the async runtime and takes over logging.
#[must_use]
pub fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let exporter = match cli.tracing_endpoint.as_deref().map(traces::to).transpose() {
        Ok(Some((journeys, exporter))) => {
            logging::init(&cli.log, cli.log_format, Some(journeys));
            Some(exporter)
        }
        Ok(None) => {
            logging::init(&cli.log, cli.log_format, None);
            None
        }
        Err(e) => return fail(&e),
    };
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let coalescing = Coalescing::default();
    if matches!(cli.command, cli::Command::Run(_)) {
        if std::env::var_os(WORKERS).is_none() {
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            builder.worker_threads(beside_the_engine(processors));
        }
        coalescing.install(&mut builder);
    }
    let runtime = match builder
        .enable_all()
        // Address space, which costs nothing until an object is nested that deep.
        .thread_stack_size(plimsoll_apimachinery::decode::depth::STACK)
        .build()
    {
        Ok(runtime) => runtime,
        Err(e) => return fail(&anyhow::anyhow!("no runtime: {e}")),
    };
    let stop = CancellationToken::new();
    let exporting = exporter.map(|exporter| runtime.spawn(exporter.run(stop.clone())));
    let done = runtime.block_on(async {
        match cli.command {
            cli::Command::Up(args) => up::run(args).await,
            cli::Command::Run(args) => run::run(args, coalescing).await,
            cli::Command::Install(args) => install::run(&args),
            cli::Command::Uninstall(args) => uninstall::run(args).await,
            cli::Command::Queue(args) => queue::run(args).await,
            cli::Command::Import(args) => import::run(args).await,
            cli::Command::Version(args) => describe::version(&args),
            cli::Command::Completion(args) => describe::completion(&args),
            cli::Command::Man(args) => describe::man(&args),
            cli::Command::Plugins { what } => plugins::run(&what),
            cli::Command::Bench { what: cli::Bench::Api(args) } => bench::api::run(args).await,
            cli::Command::Bench { what: cli::Bench::Admission(args) } => bench::admission::run(&args),
            cli::Command::Bench { what: cli::Bench::Soak(args) } => bench::soak::run(args).await,
            cli::Command::Bench { what: cli::Bench::Placement(args) } => bench::placement::run(&args),
            cli::Command::Bench { what: cli::Bench::Cluster(args) } => bench::cluster::run(args).await,
        }
    });
    stop.cancel();
    if let Some(exporting) = exporting {
        // What has happened last is wanted most.
        let _ = runtime.block_on(async { tokio::time::timeout(LAST_EXPORT, exporting).await });
    }
    // Tasks that still wait for the network must not hold up the end.
    runtime.shutdown_timeout(std::time::Duration::from_millis(200));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => fail(&e),
    }
}

fn fail(error: &anyhow::Error) -> ExitCode {
    say::error(&format!("error: {error:#}"));
    ExitCode::FAILURE
}

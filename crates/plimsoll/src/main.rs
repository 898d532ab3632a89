//! The `plimsoll` program: subcommands, and nothing that decides.

mod bench;
mod cli;
mod configure;
mod describe;
mod run;
mod say;
mod up;

use std::process::ExitCode;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let filter = tracing_subscriber::EnvFilter::try_new(&cli.log).unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return fail(&anyhow::anyhow!("no runtime: {e}")),
    };
    let done = runtime.block_on(async {
        match cli.command {
            cli::Command::Up(args) => up::run(args).await,
            cli::Command::Run(args) => run::run(args).await,
            cli::Command::Version(args) => describe::version(&args),
            cli::Command::Completion(args) => describe::completion(&args),
            cli::Command::Man(args) => describe::man(&args),
            cli::Command::Bench { what: cli::Bench::Api(args) } => bench::api::run(args).await,
            cli::Command::Bench { what: cli::Bench::Admission(args) } => bench::admission::run(&args),
            cli::Command::Bench { what: cli::Bench::Soak(args) } => bench::soak::run(args).await,
            cli::Command::Bench { what: cli::Bench::Placement(args) } => bench::placement::run(&args),
        }
    });
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

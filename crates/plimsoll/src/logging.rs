//! The log on standard error: what is subscribed, and the format.

use std::io::IsTerminal;

use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::cli;
use crate::log_filter::Filter;
use crate::traces::Journeys;
use plimsoll_runtime::journey::TARGET;

/// Begins to log, and to trace where that is wanted.
pub fn init(filter: &Filter, format: cli::Output, journeys: Option<Journeys>) {
    subscriber(filter, format, journeys).init();
}

fn subscriber(
    filter: &Filter,
    format: cli::Output,
    journeys: Option<Journeys>,
) -> impl Subscriber + Send + Sync + use<> {
    let colours =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colours);
    let lines = match format {
        cli::Output::Text => lines.boxed(),
        cli::Output::Json => lines.json().flatten_event(true).with_ansi(false).boxed(),
    };
    let steps = Targets::new().with_target(TARGET, LevelFilter::TRACE);
    let journeys = journeys.map(|layer| layer.with_filter(steps));
    tracing_subscriber::registry().with(lines.with_filter(filter.0.clone())).with(journeys)
}

/// The program has been started.
pub fn started(command: &str) {
    tracing::info!(
        command,
        version = env!("CARGO_PKG_VERSION"),
        pid = std::process::id(),
        "Starting plimsoll"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn what_is_off_costs_nothing() {
        let filter = "warn".parse().unwrap();
        let subscriber = subscriber(&filter, cli::Output::Text, None);
        // The static check of every place that logs.
        assert_eq!(subscriber.max_level_hint(), Some(LevelFilter::WARN));
        tracing::subscriber::with_default(subscriber, || {
            assert!(tracing::enabled!(Level::WARN) && !tracing::enabled!(Level::INFO));
            assert!(plimsoll_runtime::journey::begin().is_none());
        });
        let (journeys, _exporter) = crate::traces::to("http://127.0.0.1:1").unwrap();
        let subscriber = self::subscriber(&filter, cli::Output::Json, Some(journeys));
        tracing::subscriber::with_default(subscriber, || {
            assert!(!tracing::enabled!(Level::INFO) && plimsoll_runtime::journey::begin().is_some());
        });
    }
}

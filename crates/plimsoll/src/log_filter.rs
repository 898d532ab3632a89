//! The filter of the log: levels by target.
//!
//! A level alone sets the level of our own crates; libraries (hyper, rustls, kube, …) log warnings and errors only, unless
//! the filter names them.

use std::str::FromStr;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

/// Our crates: targets begin with it.
const OURS: &str = "plimsoll";
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
const FORMS: &str = "write a level (off, error, warn, info, debug, trace), targets with levels (plimsoll_runtime=debug), or \
                     both: info,plimsoll_apiserver=debug,hyper=info";

/// Levels by target.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter(pub Targets);

impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut own, mut named) = (None, Vec::new());
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            match part.split_once('=') {
                Some((target, level)) => named.push((self::target(target)?.to_owned(), self::level(level)?)),
                None if own.is_some() => {
                    return Err(format!("{part:?}: there is a level already, others need a target; {FORMS}"));
                }
                None => own = Some(self::level(part)?),
            }
        }
        if own.is_none() && named.is_empty() {
            return Err(format!("nothing is given; {FORMS}"));
        }
        let own = own.unwrap_or(LevelFilter::WARN);
        let targets = Targets::new().with_default(own.min(LevelFilter::WARN)).with_target(OURS, own);
        Ok(Self(targets.with_targets(named)))
    }
}

fn level(text: &str) -> Result<LevelFilter, String> {
    let text = text.trim();
    match text.parse() {
        // tracing also parses numbers and the empty string as levels.
        Ok(level) if LEVELS.iter().any(|l| l.eq_ignore_ascii_case(text)) => Ok(level),
        _ => {
            let near = plimsoll_config::nearest(text, LEVELS);
            let hint = near.map_or(String::new(), |n| format!(" (did you mean {n:?}?)"));
            Err(format!("unknown level {text:?}{hint}; {FORMS}"))
        }
    }
}

fn target(text: &str) -> Result<&str, String> {
    let text = text.trim();
    let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '-');
    match !text.is_empty() && text.chars().all(known) {
        true => Ok(text),
        false => Err(format!("{text:?} is no target; {FORMS}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn a_level_is_about_this_program() {
        let told = |filter: &str, target: &str, level: Level| {
            filter.parse::<Filter>().unwrap().0.would_enable(target, &level)
        };
        assert!(told("debug", "plimsoll_runtime::execute", Level::DEBUG));
        assert!(told("debug", "plimsoll", Level::DEBUG));
        assert!(!told("debug", "hyper::proto", Level::INFO));
        assert!(told("debug", "hyper::proto", Level::WARN));
        assert!(!told("error", "hyper::proto", Level::WARN));
        assert!(told("info,hyper=trace", "hyper::proto", Level::TRACE));
        assert!(!told("plimsoll_apiserver=debug", "plimsoll_runtime", Level::INFO));
        assert!(told("plimsoll_apiserver=debug", "plimsoll_apiserver::http", Level::DEBUG));
        assert!(told(" WARN , plimsoll_runtime = info", "plimsoll_runtime", Level::INFO));
        assert!(!told("off", "plimsoll", Level::ERROR));
    }

    #[test]
    fn nonsense_is_refused() {
        for (text, want) in [
            ("inof", "unknown level \"inof\" (did you mean \"info\"?); write a level"),
            ("verbose", "unknown level \"verbose\"; write a level"),
            ("3", "unknown level \"3\"; write a level"),
            ("", "nothing is given; write a level"),
            (" , ", "nothing is given; write a level"),
            ("info,debug", "\"debug\": there is a level already, others need a target; write a level"),
            ("hyper=", "unknown level \"\"; write a level"),
            ("=info", "\"\" is no target; write a level"),
            ("a b=info", "\"a b\" is no target; write a level"),
            ("[span{x=1}]=info", "is no target; write a level"),
        ] {
            let error = text.parse::<Filter>().unwrap_err();
            assert!(error.contains(want), "{text:?}: {error}");
        }
    }
}

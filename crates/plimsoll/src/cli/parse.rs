//! Values of flags.

use std::net::SocketAddr;
use std::time::Duration;

/// Parses how many nodes or pods a benchmark has.
pub(super) fn size(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if (1..=100_000).contains(&n) => Ok(n),
        _ => Err("must be a number from 1 to 100000".into()),
    }
}

/// Parses the name of a shard.
pub(super) fn shard(text: &str) -> Result<String, String> {
    plimsoll_api::shards::problem_of_name(text).map_or_else(|| Ok(text.to_owned()), Err)
}

pub(super) fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if x.is_finite() && (0.001..=1e6).contains(&x) => Ok(x),
        Ok(_) => Err("must be between 0.001 and 1000000".into()),
        Err(e) => Err(e.to_string()),
    }
}

/// Parses an address as controller-runtime does: `:8080` is all addresses, `0` none.
pub(super) fn bind(text: &str) -> Result<Option<SocketAddr>, String> {
    match text.strip_prefix(':') {
        _ if text == "0" => Ok(None),
        Some(port) => match port.parse() {
            Ok(port) => Ok(Some(SocketAddr::new(std::net::Ipv6Addr::UNSPECIFIED.into(), port))),
            Err(_) => Err("the port must be between 0 and 65535".into()),
        },
        None => text.parse().map(Some).map_err(|_| "must be ADDRESS:PORT, :PORT or 0".into()),
    }
}

/// Parses a URL that paths are appended to.
pub(super) fn base(text: &str) -> Result<String, String> {
    let uri: http::Uri = text.parse().map_err(|e: http::uri::InvalidUri| e.to_string())?;
    if uri.scheme_str() != Some("https") || uri.host().is_none_or(str::is_empty) || uri.query().is_some() {
        return Err("must be https://HOST or https://HOST:PORT, with a path or without".into());
    }
    Ok(text.trim_end_matches('/').to_owned())
}

pub(super) fn count(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(n) if (1..=10_000_000).contains(&n) => Ok(n),
        Ok(_) => Err("must be between 1 and 10000000".into()),
        Err(e) => Err(e.to_string()),
    }
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(char::is_alphabetic);
    let millis = match text.get(digits.len()..).unwrap_or_default() {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err("must end in ms, s, m or h".into()),
    };
    match digits.parse::<u64>() {
        Ok(n) if (1..=1_000_000).contains(&n) => Ok(Duration::from_millis(n * millis)),
        Ok(_) => Err("must be between 1 and 1000000".into()),
        Err(e) => Err(e.to_string()),
    }
}

pub(super) fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if x.is_finite() && (0.01..=1000.0).contains(&x) => Ok(x),
        Ok(_) => Err("must be between 0.01 and 1000".into()),
        Err(e) => Err(e.to_string()),
    }
}

pub(super) fn scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if x.is_finite() && (0.001..=100.0).contains(&x) => Ok(x),
        Ok(_) => Err("must be between 0.001 and 100".into()),
        Err(e) => Err(e.to_string()),
    }
}

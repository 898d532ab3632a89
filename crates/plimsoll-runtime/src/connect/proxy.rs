//! Which proxy connections to a server go through, as in client-go: that of the kubeconfig's cluster, else that of the environment
//! (`FromEnvironment` of golang.org/x/net/http/httpproxy).

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use http::Uri;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use kube::Config;

/// The proxy of connections to the server of a configuration; `None`: there is none.
///
/// # Errors
/// What is wrong with the proxy that is configured.
pub(super) fn of(config: &Config) -> Result<Option<Intercept>, String> {
    match &config.proxy_url {
        Some(url) => parse("proxy-url", &url.to_string()).map(Some),
        None => Environment::read().proxy_of(&config.cluster_url),
    }
}

/// A proxy by its URL, without a scheme that of an HTTP proxy.
fn parse(field: &str, url: &str) -> Result<Intercept, String> {
    let proxy = Matcher::builder().all(url).build().intercept(&Uri::from_static("https://server/"));
    let known =
        |proxy: &Intercept| matches!(proxy.uri().scheme_str(), Some("http" | "https" | "socks5" | "socks5h"));
    // The URL may have a password in it.
    proxy.filter(known).ok_or_else(|| {
        format!("invalid '{field}': unsupported URL, the scheme must be http, https, or socks5")
    })
}

/// What the environment says about proxies.
#[derive(Debug, Default)]
struct Environment {
    https: String,
    http: String,
    no: String,
}

impl Environment {
    fn read() -> Self {
        let first = |names: [&str; 2]| {
            let mut values = names.into_iter().filter_map(|name| std::env::var(name).ok());
            values.find(|value| !value.is_empty()).unwrap_or_default()
        };
        Self {
            https: first(["HTTPS_PROXY", "https_proxy"]),
            http: first(["HTTP_PROXY", "http_proxy"]),
            no: first(["NO_PROXY", "no_proxy"]),
        }
    }

    fn proxy_of(&self, server: &Uri) -> Result<Option<Intercept>, String> {
        let (variable, url, port) = match server.scheme_str() {
            Some("https") => ("HTTPS_PROXY", &self.https, 443),
            _ => ("HTTP_PROXY", &self.http, 80),
        };
        let (host, port) = (server.host().unwrap_or_default(), server.port_u16().unwrap_or(port));
        if url.is_empty() || is_exempt(&self.no, host, port) {
            return Ok(None);
        }
        parse(variable, url).map(Some)
    }
}

/// Whether a server is reached without the proxy of the environment (`useProxy`).
fn is_exempt(no_proxy: &str, host: &str, port: u16) -> bool {
    let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
    let address = host.parse::<IpAddr>().ok().map(|address| address.to_canonical());
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    let port = port.to_string();
    let server = (host.as_str(), port.as_str());
    let mut entries = no_proxy.split(',').map(|entry| entry.trim().to_ascii_lowercase());
    entries.any(|entry| covers(&entry, server, address))
}

/// Whether an entry of `NO_PROXY` is about a server: a network, or an address or domain with or without a port.
fn covers(entry: &str, (host, port): (&str, &str), address: Option<IpAddr>) -> bool {
    if entry == "*" {
        return true;
    }
    if let Some((network, bits)) = network(entry) {
        return address.is_some_and(|address| contains(network, bits, address));
    }
    let (name, only) = match entry.rsplit_once(':') {
        Some((name, only)) if name.ends_with(']') || !name.contains(':') => {
            (name.trim_matches(['[', ']']), only)
        }
        _ => (entry, ""),
    };
    let is_meant = match (name.parse::<IpAddr>(), address) {
        (Ok(named), Some(address)) => named.to_canonical() == address,
        (Ok(_), None) | (Err(_), Some(_)) => false,
        (Err(_), None) => {
            let domain = name.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(name);
            // A domain that begins with a dot is that of its subdomains only.
            let is_within = |sub: &str| sub.is_empty() || sub.ends_with('.') || domain.starts_with('.');
            !domain.is_empty() && host.strip_suffix(domain).is_some_and(is_within)
        }
    };
    is_meant && (only.is_empty() || only == port)
}

/// A network in the notation of CIDR.
fn network(entry: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = entry.split_once('/')?;
    Some((address.parse().ok()?, bits.parse().ok()?))
}

fn contains(network: IpAddr, bits: u32, address: IpAddr) -> bool {
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            let differ = u32::from(network) ^ u32::from(address);
            bits <= 32 && differ.checked_shr(32 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => {
            let differ = u128::from(network) ^ u128::from(address);
            bits <= 128 && differ.checked_shr(128 - bits).unwrap_or(0) == 0
        }
        _ => false,
    }
}

//! Checks of the sections about Kueue's process, which have no effect here (Kueue's `pkg/config/validation.go`): a file
//! that Kueue refuses is refused here, too.

use super::{Errors, wire};

const TLS_VERSIONS: [&str; 2] = ["VersionTLS12", "VersionTLS13"];

/// Checks of values.
pub(super) fn check(raw: &wire::Configuration, errors: &mut Errors) {
    if let Some(server) = &raw.visibility_server {
        if let Some(address) =
            server.bind_address.as_deref().filter(|a| a.parse::<std::net::IpAddr>().is_err())
        {
            let text = format!("Invalid value: {address:?}: must be a valid IP address");
            errors.add("visibilityServer.bindAddress", text);
        }
        if let Some(port) = server.bind_port.filter(|p| !(1..=65535).contains(p)) {
            let text = format!("Invalid value: {port}: must be a valid port number (1-65535)");
            errors.add("visibilityServer.bindPort", text);
        }
    }
    if let Some(tls) = &raw.tls {
        let version = tls.min_version.as_deref().unwrap_or_default();
        if !version.is_empty() && !TLS_VERSIONS.contains(&version) {
            errors.unsupported("tls.minVersion", version, &TLS_VERSIONS);
        }
        let suites = tls.cipher_suites.as_deref().unwrap_or_default();
        if version == "VersionTLS13" && !suites.is_empty() {
            let text = "may not be specified when `minVersion` is 'VersionTLS13'";
            errors.add("tls.cipherSuites", format!("Invalid value: {suites:?}: {text}"));
        }
    }
}

//! IP addresses as Go reads them (apimachinery `util/validation/ip.go`, `k8s.io/utils/net`) and which of them may
//! be somebody's endpoint.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::checks::Faults;
use super::path::{Errors, Path};

const NOT_AN_ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

/// `ParseIPSloppy`: leading zeros in octets count for nothing.
pub(super) fn sloppy(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let (head, tail) = match text.rfind(':') {
        Some(colon) => text.split_at(colon + 1),
        None => ("", text),
    };
    let octets: Vec<&str> = tail.split('.').collect();
    if octets.len() != 4 {
        return None;
    }
    let octets: Option<Vec<&str>> = octets.into_iter().map(octet).collect();
    format!("{head}{}", octets?.join(".")).parse().ok()
}

/// `ParseCIDRSloppy`: the address and the length of its network's prefix; IPv4 in IPv6 is IPv4.
pub(super) fn sloppy_cidr(text: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = text.split_once('/')?;
    let address = sloppy(address)?;
    if bits.is_empty() || bits.len() > 3 || !bits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let bits: u32 = bits.parse().ok()?;
    if bits > if address.is_ipv4() { 32 } else { 128 } {
        return None;
    }
    let shown = plain(address);
    let lost = if shown.is_ipv4() && address.is_ipv6() { 96 } else { 0 };
    Some((shown, bits.saturating_sub(lost)))
}

/// A network: its address, the bits below the prefix cleared, and the length of the prefix. IPv4 in IPv6 is IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network {
    /// As written, bits below the prefix included.
    pub given: IpAddr,
    address: IpAddr,
    bits: u32,
}

impl Network {
    /// Reads a network as [`sloppy_cidr`] does.
    pub fn parse(text: &str) -> Option<Self> {
        let (given, bits) = sloppy_cidr(text)?;
        Some(Self { given, address: masked(given, bits), bits })
    }

    /// Whether another network is a part of this one, not the whole.
    pub fn strictly_contains(&self, other: &Self) -> bool {
        self.address.is_ipv4() == other.address.is_ipv4()
            && masked(other.address, self.bits) == self.address
            && self.bits < other.bits
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

fn masked(address: IpAddr, bits: u32) -> IpAddr {
    match address {
        IpAddr::V4(a) => {
            let mask = u32::MAX.checked_shl(32 - bits.min(32)).unwrap_or(0);
            IpAddr::V4((u32::from(a) & mask).into())
        }
        IpAddr::V6(a) => {
            let mask = u128::MAX.checked_shl(128 - bits.min(128)).unwrap_or(0);
            IpAddr::V6((u128::from(a) & mask).into())
        }
    }
}

/// The address of a network as `netip.ParsePrefix` reads it: without leading zeros anywhere.
fn exact_prefix(text: &str) -> Option<IpAddr> {
    let (address, bits) = text.split_once('/')?;
    let plain = bits == "0" || (!bits.starts_with('0') && sloppy_cidr(text).is_some());
    address.parse().ok().filter(|_| plain)
}

/// `IsValidCIDRForLegacyField` with `StrictIPCIDRValidation`, which is on.
pub(super) fn legacy_cidr(text: &str) -> Faults {
    let Some(network) = Network::parse(text) else {
        return vec!["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)".to_owned()];
    };
    let fault = match exact_prefix(text) {
        None => "must not have leading 0s in IP or prefix length",
        Some(exact) if plain(exact) != exact => "must not have an IPv4-mapped IPv6 address",
        Some(_) if network.given != network.address => "must not have bits set beyond the prefix length",
        Some(_) => return Faults::new(),
    };
    vec![fault.to_owned()]
}

/// `GetWarningsForCIDR`.
pub(super) fn cidr_warnings(path: &Path<'_>, text: &str) -> Vec<String> {
    let Some(network) = Network::parse(text) else { return Vec::new() };
    let value = crate::decode::go_quote(text);
    let mut found = Vec::new();
    if network.given != network.address {
        let whole = if network.given.is_ipv4() { 32 } else { 128 };
        found.push(format!(
            "{path}: CIDR value {value} is ambiguous in this context (should be \"{network}\" or \"{}/{whole}\"?)",
            network.given
        ));
    }
    match exact_prefix(text) {
        Some(exact) if plain(exact) == exact => {
            let canonical = format!("{exact}/{}", network.bits);
            if found.is_empty() && exact.is_ipv6() && canonical != text {
                found.push(format!(
                    "{path}: IPv6 CIDR value {value} should be in RFC 5952 canonical format (\"{canonical}\")"
                ));
            }
        }
        _ => found.push(format!("{path}: non-standard CIDR value {value} is invalid: use \"{network}\"")),
    }
    found
}

fn octet(digits: &str) -> Option<&str> {
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let plain = digits.trim_start_matches('0');
    Some(if plain.is_empty() { "0" } else { plain })
}

/// The address as Go's `net.IP` has it: IPv4 in IPv6 is IPv4.
fn plain(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(six) => six.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

/// `IsValidIPForLegacyField` with `StrictIPCIDRValidation`, which is on.
pub(super) fn legacy(text: &str) -> Faults {
    let fault = match sloppy(text) {
        None => NOT_AN_ADDRESS,
        Some(_) if text.parse::<IpAddr>().is_err() => "must not have leading 0s",
        Some(address) if plain(address) != address => "must not be an IPv4-mapped IPv6 address",
        Some(_) => return Faults::new(),
    };
    vec![fault.to_owned()]
}

/// `IsValidIP`: also in the one form it is written in.
pub(super) fn strict(text: &str) -> Faults {
    let faults = legacy(text);
    match text.parse::<IpAddr>() {
        Ok(address) if faults.is_empty() && address.to_string() != text => {
            vec![format!("must be in canonical form (\"{address}\")")]
        }
        _ => faults,
    }
}

/// `GetWarningsForIP`.
pub(super) fn warning(path: &Path<'_>, text: &str) -> Option<String> {
    let address = sloppy(text)?;
    let value = crate::decode::go_quote(text);
    match text.parse::<IpAddr>() {
        Ok(exact) if plain(exact) == exact => {
            let canonical = exact.to_string();
            (exact.is_ipv6() && canonical != text).then(|| {
                format!(
                    "{path}: IPv6 address {value} should be in RFC 5952 canonical format (\"{canonical}\")"
                )
            })
        }
        _ => Some(format!("{path}: non-standard IP address {value} is invalid: use \"{}\"", plain(address))),
    }
}

/// `ParseCIDRSloppy`: an address and how many of its bits are the network's. IPv4 in IPv6 stays what it is written as.
pub(super) fn network(text: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = text.split_once('/')?;
    let address = sloppy(address)?;
    let max = if address.is_ipv4() { 32 } else { 128 };
    if bits.is_empty() || !bits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let bits = bits.parse().ok().filter(|bits| *bits <= max)?;
    Some((address, bits))
}

/// The first address of a network.
fn first_of(address: IpAddr, bits: u32) -> IpAddr {
    match address {
        IpAddr::V4(a) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(bits)).unwrap_or(0);
            Ipv4Addr::from(u32::from(a) & mask).into()
        }
        IpAddr::V6(a) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(bits)).unwrap_or(0);
            Ipv6Addr::from(u128::from(a) & mask).into()
        }
    }
}

/// Whether Go's `netip.ParsePrefix` takes a text that [`network`] takes.
fn is_exact(text: &str) -> bool {
    text.split_once('/').is_some_and(|(address, bits)| {
        address.parse::<IpAddr>().is_ok() && (bits == "0" || !bits.starts_with('0'))
    })
}

/// `IsValidCIDRForLegacyField` with `StrictIPCIDRValidation`, which is on.
pub(super) fn legacy_network(text: &str) -> Faults {
    let fault = match network(text) {
        None => "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
        Some(_) if !is_exact(text) => "must not have leading 0s in IP or prefix length",
        Some((address, _)) if plain(address) != address => "must not have an IPv4-mapped IPv6 address",
        Some((address, bits)) if first_of(address, bits) != address => {
            "must not have bits set beyond the prefix length"
        }
        Some(_) => return Faults::new(),
    };
    vec![fault.to_owned()]
}

/// `GetWarningsForCIDR`.
pub(super) fn network_warnings(path: &Path<'_>, text: &str) -> Vec<String> {
    let Some((address, bits)) = network(text) else { return Vec::new() };
    let value = crate::decode::go_quote(text);
    let (shown, bits_shown) = match (plain(address), address) {
        // Go writes a mapped network as one of IPv4.
        (four @ IpAddr::V4(_), IpAddr::V6(_)) => (four, bits.saturating_sub(96)),
        (same, _) => (same, bits),
    };
    let start = first_of(shown, bits_shown);
    let mut found = Vec::new();
    if start != shown {
        let width = if shown.is_ipv4() { 32 } else { 128 };
        found.push(format!(
            "{path}: CIDR value {value} is ambiguous in this context (should be \"{start}/{bits_shown}\" or \"{shown}/{width}\"?)"
        ));
    }
    if !is_exact(text) || plain(address) != address {
        found.push(format!(
            "{path}: non-standard CIDR value {value} is invalid: use \"{start}/{bits_shown}\""
        ));
    }
    let canonical = format!("{address}/{bits}");
    if found.is_empty() && address.is_ipv6() && canonical != text {
        found.push(format!(
            "{path}: IPv6 CIDR value {value} should be in RFC 5952 canonical format (\"{canonical}\")"
        ));
    }
    found
}

/// Whether an address is one of IPv4 (`IsIPv4String`).
pub(super) fn is_v4(text: &str) -> bool {
    sloppy(text).is_some_and(|a| plain(a).is_ipv4())
}

/// Whether an address is one of IPv6 (`IsIPv6String`).
pub(super) fn is_v6(text: &str) -> bool {
    sloppy(text).is_some_and(|a| plain(a).is_ipv6())
}

/// `ValidateEndpointIP`: addresses that mean something else to everybody are nobody's endpoint.
pub(super) fn endpoint(text: &str, path: &Path<'_>, errors: &mut Errors) {
    match sloppy(text) {
        None => errors.invalid(path, text, "must be a valid IP address"),
        Some(address) => {
            if let Some(fault) = special(address, text) {
                errors.invalid(path, text, &fault);
            }
        }
    }
}

fn special(address: IpAddr, text: &str) -> Option<String> {
    let (unspecified, loopback, local, multicast) = match plain(address) {
        IpAddr::V4(a) => (a.is_unspecified(), a.is_loopback(), a.is_link_local(), local_multicast_v4(a)),
        IpAddr::V6(a) => {
            (a.is_unspecified(), a.is_loopback(), a.is_unicast_link_local(), local_multicast_v6(a))
        }
    };
    if unspecified {
        return Some(format!("may not be unspecified ({text})"));
    }
    let range = if loopback {
        "may not be in the loopback range (127.0.0.0/8, ::1/128)"
    } else if local {
        "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
    } else if multicast {
        "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
    } else {
        return None;
    };
    Some(range.to_owned())
}

fn local_multicast_v4(a: Ipv4Addr) -> bool {
    matches!(a.octets(), [224, 0, 0, _])
}

fn local_multicast_v6(a: Ipv6Addr) -> bool {
    matches!(a.octets(), [0xff, second, ..] if second & 0x0f == 0x02)
}

/// Where a Service's endpoint is: nothing where [`endpoint`] refuses the text, wherever it comes from (objects may be
/// older than the check).
#[must_use]
pub fn endpoint_address(text: &str) -> Option<IpAddr> {
    sloppy(text).filter(|a| special(*a, text).is_none()).map(plain)
}

//! IP addresses as Go reads them (apimachinery `util/validation/ip.go`, `k8s.io/utils/net`), and the addresses that
//! endpoints may have.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::checks::Faults;
use super::path::{Errors, Path};

const NOT_AN_ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

/// `ParseIPSloppy`: ignores leading zeros in octets.
pub(crate) fn sloppy(text: &str) -> Option<IpAddr> {
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

/// A network, or an address with the length of its network's prefix, as `ParseCIDRSloppy` reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    /// As written, including bits after the prefix.
    given: IpAddr,
    /// Length of the prefix, in bits.
    bits: u32,
}

impl Network {
    /// Reads a network; ignores leading zeros.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/')?;
        let given = sloppy(address)?;
        let max = if given.is_ipv4() { 32 } else { 128 };
        if bits.is_empty() || !bits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let bits = bits.parse().ok().filter(|bits| *bits <= max)?;
        Some(Self { given, bits })
    }

    /// Its first address and the length of its prefix, in the family Go takes it for: IPv4 in IPv6 is IPv4.
    fn range(&self) -> (IpAddr, u32) {
        let start = plain(masked(self.given, self.bits));
        let lost = if start.is_ipv4() && self.given.is_ipv6() { 96 } else { 0 };
        (start, self.bits.saturating_sub(lost))
    }

    /// Whether it is one of IPv4 (`IsIPv4CIDR`).
    pub fn is_v4(&self) -> bool {
        self.range().0.is_ipv4()
    }

    /// Whether another network is a part of this one, not the whole.
    pub fn strictly_contains(&self, other: &Self) -> bool {
        let ((start, bits), (theirs, _)) = (self.range(), other.range());
        start.is_ipv4() == theirs.is_ipv4() && masked(theirs, bits) == start && self.bits < other.bits
    }

    /// The canonical form of an address with the length of its network's prefix (`IsValidInterfaceAddress`).
    pub fn interface(&self) -> String {
        let address = plain(self.given);
        let bits = if address.is_ipv4() && self.bits > 32 { self.bits.saturating_sub(96) } else { self.bits };
        format!("{address}/{bits}")
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (start, bits) = self.range();
        write!(f, "{start}/{bits}")
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

/// The address of a text that [`Network::parse`] takes, where `netip.ParsePrefix` takes it too: there are no leading
/// zeros anywhere.
fn exact_prefix(text: &str) -> Option<IpAddr> {
    let (address, bits) = text.split_once('/')?;
    let plain = bits == "0" || !bits.starts_with('0');
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
        Some(exact) if masked(exact, network.bits) != exact => {
            "must not have bits set beyond the prefix length"
        }
        Some(_) => return Faults::new(),
    };
    vec![fault.to_owned()]
}

/// `GetWarningsForCIDR`.
pub(super) fn cidr_warnings(path: &Path<'_>, text: &str) -> Vec<String> {
    let Some(network) = Network::parse(text) else { return Vec::new() };
    let (given, (start, _)) = (plain(network.given), network.range());
    let value = crate::go::go_quote(text);
    let mut found = Vec::new();
    if given != start {
        let whole = if network.given.is_ipv4() { 32 } else { 128 };
        found.push(format!(
            "{path}: CIDR value {value} is ambiguous in this context (should be \"{network}\" or \"{given}/{whole}\"?)"
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

/// `IsValidIP`: a valid address in canonical form.
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
    let value = crate::go::go_quote(text);
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

/// Whether an address is one of IPv4 (`IsIPv4String`).
pub(super) fn is_v4(text: &str) -> bool {
    sloppy(text).is_some_and(|a| plain(a).is_ipv4())
}

/// Whether an address is one of IPv6 (`IsIPv6String`).
pub(super) fn is_v6(text: &str) -> bool {
    sloppy(text).is_some_and(|a| plain(a).is_ipv6())
}

/// `ValidateEndpointIP`: refuses addresses with a special meaning, such as loopback.
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

/// The address of a Service's endpoint; `None` where [`endpoint`] refuses it (objects may be older than the check).
#[must_use]
pub fn endpoint_address(text: &str) -> Option<IpAddr> {
    sloppy(text).filter(|a| special(*a, text).is_none()).map(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks() {
        const LATE: &str = "must not have bits set beyond the prefix length";
        const MAPPED: &str = "must not have an IPv4-mapped IPv6 address";
        const NONE: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
        const ZEROS: &str = "must not have leading 0s in IP or prefix length";
        // Text, its parsed form, its form as an interface's address, the error, and the number of warnings.
        for (text, shown, interface, fault, warnings) in [
            ("10.0.0.0/8", "10.0.0.0/8", "10.0.0.0/8", None, 0),
            ("10.1.2.3/8", "10.0.0.0/8", "10.1.2.3/8", Some(LATE), 1),
            ("10.0.0.0/0008", "10.0.0.0/8", "10.0.0.0/8", Some(ZEROS), 1),
            ("010.0.0.0/8", "10.0.0.0/8", "10.0.0.0/8", Some(ZEROS), 1),
            ("0.0.0.0/0", "0.0.0.0/0", "0.0.0.0/0", None, 0),
            ("2001:DB8::/32", "2001:db8::/32", "2001:db8::/32", None, 1),
            ("2001:db8::1/32", "2001:db8::/32", "2001:db8::1/32", Some(LATE), 1),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8", "10.0.0.0/8", Some(MAPPED), 1),
            ("::ffff:10.0.0.0/20", "::/20", "10.0.0.0/20", Some(MAPPED), 2),
            ("10.0.0.0/33", "", "", Some(NONE), 0),
            ("10.0.0.0/+8", "", "", Some(NONE), 0),
            ("10.0.0.0", "", "", Some(NONE), 0),
        ] {
            let network = Network::parse(text);
            assert_eq!(network.map(|n| n.to_string()).unwrap_or_default(), shown, "{text}");
            assert_eq!(network.map(|n| n.interface()).unwrap_or_default(), interface, "{text}");
            assert_eq!(legacy_cidr(text).first().map(String::as_str), fault, "{text}");
            assert_eq!(cidr_warnings(&Path::new("n"), text).len(), warnings, "{text}");
        }
        for (outer, inner, within) in [
            ("10.0.0.0/8", "10.1.0.0/16", true),
            ("10.0.0.0/8", "10.0.0.0/8", false),
            ("10.0.0.0/8", "11.0.0.0/16", false),
            ("10.0.0.0/8", "2001:db8::/32", false),
        ] {
            let found = Network::parse(outer).unwrap().strictly_contains(&Network::parse(inner).unwrap());
            assert_eq!(found, within, "{outer} {inner}");
        }
    }
}

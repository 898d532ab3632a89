//! Conditions across the devices of a claim: attributes that are the same or that all differ.

use plimsoll_state::model::{AttributeValue, Device, DeviceConstraint};
use std::collections::BTreeMap;

/// What a constraint has settled on.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// The value that all devices share.
    same: Option<AttributeValue>,
    /// The value of the last device of each request, where all must differ.
    different: BTreeMap<String, AttributeValue>,
    devices: u32,
}

/// An attribute by its full name; attributes of the driver's own domain are stored without it.
fn attribute<'a>(device: &'a Device, driver: &str, name: &str) -> Option<&'a AttributeValue> {
    device.attributes.get(name).or_else(|| {
        let (domain, rest) = name.split_once('/')?;
        (domain == driver).then(|| device.attributes.get(rest)).flatten()
    })
}

/// Whether a constraint is none of those known here.
pub(super) fn is_unknown(c: &DeviceConstraint) -> bool {
    c.match_attribute.is_none() && c.distinct_attribute.is_none()
}

/// Whether a constraint is about a request, named itself or by one of its subrequests.
fn is_about(c: &DeviceConstraint, (request, sub): (&str, &str)) -> bool {
    let full = |r: &str| !sub.is_empty() && r.split_once('/') == Some((request, sub));
    c.requests.is_empty() || c.requests.iter().any(|r| r == request || full(r))
}

impl Settled {
    fn add(&mut self, c: &DeviceConstraint, request: &str, device: &Device, driver: &str) -> bool {
        let same = c.match_attribute.as_ref();
        let Some(name) = same.or(c.distinct_attribute.as_ref()) else { return false };
        let Some(value) = attribute(device, driver, name) else { return false };
        if same.is_some() {
            if self.devices > 0 && self.same.as_ref() != Some(value) {
                return false;
            }
            self.same = Some(value.clone());
        } else {
            if self.devices > 0 && self.different.values().any(|v| v == value) {
                return false;
            }
            self.different.insert(request.to_owned(), value.clone());
        }
        self.devices += 1;
        true
    }

    fn remove(&mut self, request: &str) {
        self.different.remove(request);
        self.devices = self.devices.saturating_sub(1);
    }
}

/// Adds a device to all constraints that are about the request; false, and nothing changed, if one forbids it.
pub(super) fn add_all(
    list: &[DeviceConstraint],
    settled: &mut [Settled],
    about: (&str, &str),
    device: &Device,
    driver: &str,
) -> bool {
    for i in 0..list.len().min(settled.len()) {
        if is_about(&list[i], about) && !settled[i].add(&list[i], about.0, device, driver) {
            remove_all(&list[..i], settled, about);
            return false;
        }
    }
    true
}

/// Takes the device that was added last out of the constraints.
pub(super) fn remove_all(list: &[DeviceConstraint], settled: &mut [Settled], about: (&str, &str)) {
    for (_, s) in list.iter().zip(settled).filter(|(c, _)| is_about(c, about)) {
        s.remove(about.0);
    }
}

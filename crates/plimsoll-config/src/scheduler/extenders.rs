//! HTTP extenders: section `extenders` (`pkg/scheduler/apis/config/types.go`, type `Extender`).

use super::wire;
use plimsoll_scheduler::{Extender, ExtenderTls, Profile};
use plimsoll_state::Duration;

/// Used when `httpTimeout` is 0 (`DefaultExtenderTimeout`).
const TIMEOUT: Duration = Duration::from_seconds(5);

/// Largest weight (`MaxWeight`): more would overflow in the sum of the scores.
const MAX_WEIGHT: i64 = i64::MAX / 10;

/// Whether the name is one of an extended resource (core/v1 helper `IsExtendedResourceName`).
fn is_extended(name: &str) -> bool {
    let Some((domain, rest)) = name.split_once('/') else { return false };
    let part = |s: &str, extra: &[char]| {
        !s.is_empty()
            && s.len() <= 253
            && s.chars().all(|c| c.is_ascii_alphanumeric() || extra.contains(&c))
            && s.starts_with(|c: char| c.is_ascii_alphanumeric())
            && s.ends_with(|c: char| c.is_ascii_alphanumeric())
    };
    !domain.contains("kubernetes.io")
        && !name.starts_with("requests.")
        && part(domain, &['-', '.'])
        && rest.len() <= 63
        && part(rest, &['-', '_', '.'])
}

/// Checks of values, with upstream's texts (`validateExtenders`).
pub(super) fn validate(list: &[wire::Extender], errors: &mut Vec<String>) {
    let mut managed: Vec<&str> = Vec::new();
    let mut binders = 0;
    for (i, e) in list.iter().enumerate() {
        let path = format!("extenders[{i}]");
        let set = |verb: &Option<String>| verb.as_ref().is_some_and(|v| !v.is_empty());
        let weight = e.weight.unwrap_or(0);
        if set(&e.prioritize_verb) && weight <= 0 {
            errors.push(format!(
                "{path}.weight: Invalid value: {weight}: must have a positive weight applied to it"
            ));
        }
        if weight > MAX_WEIGHT {
            errors.push(format!(
                "{path}.weight: Invalid value: {weight}: must not be greater than {MAX_WEIGHT}"
            ));
        } else if weight < 0 && !set(&e.prioritize_verb) {
            errors.push(format!("{path}.weight: Invalid value: {weight}: {}", crate::NEGATIVE));
        }
        binders += usize::from(set(&e.bind_verb));
        if let Some(text) = e.http_timeout.as_deref()
            && Duration::parse(text).is_none()
        {
            errors.push(format!(
                "{path}.httpTimeout: Invalid value: {text:?}: must be a duration such as 90s, 5m or 1h30m"
            ));
        }
        for (j, r) in e.managed_resources.iter().flatten().enumerate() {
            let (name, path) =
                (r.name.as_deref().unwrap_or(""), format!("{path}.managedResources[{j}].name"));
            if !is_extended(name) {
                errors.push(format!("{path}: Invalid value: {name:?}: is an invalid extended resource name"));
            }
            if managed.contains(&name) {
                errors.push(format!(
                    "{path}: Invalid value: {name:?}: duplicate extender managed resource name"
                ));
            }
            managed.push(name);
        }
    }
    if binders > 1 {
        errors.push(format!(
            "extenders: Invalid value: \"found {binders} extenders implementing bind\": only one extender can \
             implement bind"
        ));
    }
}

/// The extenders in the order of their use, and what they take over from NodeResourcesFit.
pub(super) fn read(list: Vec<wire::Extender>, profiles: &mut [Profile]) -> Vec<Extender> {
    let resources = list.iter().flat_map(|e| e.managed_resources.iter().flatten());
    let ignored: Vec<String> = resources
        .filter(|r| r.ignored_by_scheduler.unwrap_or(false))
        .filter_map(|r| r.name.clone())
        .collect();
    if !ignored.is_empty() {
        for profile in profiles {
            profile.args.ignore_resources(ignored.clone());
        }
    }
    let mut out: Vec<Extender> = list.into_iter().map(one).collect();
    out.sort_by_key(|e| e.ignorable);
    out
}

fn one(raw: wire::Extender) -> Extender {
    let tls = raw.tls_config.unwrap_or_default();
    let text = Option::unwrap_or_default;
    Extender {
        url_prefix: text(raw.url_prefix),
        filter_verb: text(raw.filter_verb),
        preempt_verb: text(raw.preempt_verb),
        prioritize_verb: text(raw.prioritize_verb),
        weight: raw.weight.unwrap_or(0),
        bind_verb: text(raw.bind_verb),
        enable_https: raw.enable_https.unwrap_or(false),
        tls: ExtenderTls {
            insecure: tls.insecure.unwrap_or(false),
            server_name: text(tls.server_name),
            files: [tls.cert_file, tls.key_file, tls.ca_file].map(text),
            data: [tls.cert_data, tls.key_data, tls.ca_data].map(text),
        },
        timeout: raw.http_timeout.as_deref().and_then(Duration::parse).filter(|d| d.0 > 0).unwrap_or(TIMEOUT),
        node_cache_capable: raw.node_cache_capable.unwrap_or(false),
        managed_resources: raw.managed_resources.into_iter().flatten().filter_map(|r| r.name).collect(),
        ignorable: raw.ignorable.unwrap_or(false),
    }
}

//! Kueue's configuration file (`config.kueue.x-k8s.io`), as far as it decides something in queueing.

use plimsoll_core::Duration;
use plimsoll_core::queueing::{AdmissionFairSharing, Config, FairSharing, FairStrategy, Transformation};
use serde_json::Value;

use crate::quantity::Quantity;

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
#[error("{field}: {message}")]
pub struct ConfigError {
    /// Path of the field.
    pub field: String,
    /// What is wrong.
    pub message: String,
}

type Result<T> = std::result::Result<T, ConfigError>;

fn bad<T>(field: &str, message: impl Into<String>) -> Result<T> {
    Err(ConfigError { field: field.to_owned(), message: message.into() })
}

/// What queueing needs of a v1beta2 configuration.
///
/// # Errors
/// When a field has a value that can't be understood.
pub fn queueing(file: &Value) -> Result<Config> {
    let mut config = Config {
        fair_sharing: fair_sharing(&file["fairSharing"])?,
        admission_fair_sharing: admission_fair_sharing(&file["admissionFairSharing"])?,
        ..Config::default()
    };
    let resources = &file["resources"];
    config.exclude_resource_prefixes = resources["excludeResourcePrefixes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    config.ignore_undeclared = match resources["quotaCheckStrategy"].as_str() {
        None | Some("" | "BlockUndeclared") => false,
        Some("IgnoreUndeclared") => true,
        Some(other) => return bad("resources.quotaCheckStrategy", format!("Unsupported value: {other:?}")),
    };
    for t in resources["transformations"].as_array().into_iter().flatten() {
        config.transformations.push(transformation(t)?);
    }
    Ok(config)
}

fn fair_sharing(v: &Value) -> Result<Option<FairSharing>> {
    if v.is_null() {
        return Ok(None);
    }
    let field = "fairSharing.preemptionStrategies";
    let mut strategies = Vec::new();
    for s in v["preemptionStrategies"].as_array().into_iter().flatten() {
        strategies.push(match s.as_str() {
            Some("LessThanOrEqualToFinalShare") => FairStrategy::LessThanOrEqualToFinalShare,
            Some("LessThanInitialShare") => FairStrategy::LessThanInitialShare,
            _ => return bad(field, format!("Unsupported value: {s}")),
        });
    }
    Ok(Some(if strategies.is_empty() { FairSharing::default() } else { FairSharing { strategies } }))
}

fn admission_fair_sharing(v: &Value) -> Result<Option<AdmissionFairSharing>> {
    if v.is_null() {
        return Ok(None);
    }
    let span = |name: &str, default: Duration| match v[name].as_str() {
        None => Ok(default),
        Some(text) => match duration(text) {
            Some(d) => Ok(d),
            None => bad(&format!("admissionFairSharing.{name}"), format!("invalid duration {text:?}")),
        },
    };
    let mut weights = std::collections::BTreeMap::new();
    for (name, w) in v["resourceWeights"].as_object().into_iter().flatten() {
        let Some(w) = w.as_f64() else {
            return bad("admissionFairSharing.resourceWeights", format!("must be a number: {w}"));
        };
        weights.insert(name.clone(), w);
    }
    Ok(Some(AdmissionFairSharing {
        half_life: span("usageHalfLifeTime", Duration::ZERO)?,
        sampling: span("usageSamplingInterval", Duration::from_seconds(300))?,
        weights,
    }))
}

fn transformation(t: &Value) -> Result<Transformation> {
    let mut outputs = Vec::new();
    for (name, q) in t["outputs"].as_object().into_iter().flatten() {
        let text = q.as_str().map_or_else(|| q.to_string(), str::to_owned);
        match text.parse::<Quantity>() {
            Ok(q) => outputs.push((name.clone(), q.nanos())),
            Err(e) => return bad("resources.transformations.outputs", e.to_string()),
        }
    }
    Ok(Transformation {
        input: t["input"].as_str().unwrap_or_default().to_owned(),
        replace: match t["strategy"].as_str() {
            None | Some("Retain") => false,
            Some("Replace") => true,
            Some(o) => return bad("resources.transformations.strategy", format!("Unsupported value: {o:?}")),
        },
        multiply_by: t["multiplyBy"].as_str().filter(|s| !s.is_empty()).map(str::to_owned),
        outputs,
    })
}

/// A duration as Go writes it: `1h30m`, `500ms`, `0`.
pub fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(r) => (-1, r),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest.is_empty() {
        return None;
    }
    let mut nanos = 0i64;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let unit_end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let unit = match &rest[..unit_end] {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            _ => return None,
        };
        nanos = nanos.checked_add((number * unit) as i64)?;
        rest = &rest[unit_end..];
    }
    Some(Duration(sign * nanos))
}

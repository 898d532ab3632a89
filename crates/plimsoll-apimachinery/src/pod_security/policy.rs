//! The policy in the labels of a namespace.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::json;

use crate::error::FieldError;

const PREFIX: &str = "pod-security.kubernetes.io/";

/// The rights of pods, from most to least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Everything.
    #[default]
    Privileged,
    /// Nothing that is known to give them rights on the node.
    Baseline,
    /// Best practice for hardened pods.
    Restricted,
}

impl Level {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "privileged" => Some(Self::Privileged),
            "baseline" => Some(Self::Baseline),
            "restricted" => Some(Self::Restricted),
            _ => None,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        })
    }
}

/// The version of the standards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// The newest.
    #[default]
    Latest,
    /// That of Kubernetes 1.x.
    Minor(u64),
}

impl Version {
    fn parse(text: &str) -> Option<Self> {
        if text == "latest" {
            return Some(Self::Latest);
        }
        let minor = text.strip_prefix("v1.")?;
        let digits = !minor.is_empty() && minor.bytes().all(|b| b.is_ascii_digit());
        let plain = minor == "0" || !minor.starts_with('0');
        // As many as fit into Go's int.
        let number = minor.parse::<i64>().ok().filter(|_| digits && plain)?;
        u64::try_from(number).ok().map(Self::Minor)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latest => f.write_str("latest"),
            Self::Minor(minor) => write!(f, "v1.{minor}"),
        }
    }
}

/// A level in a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelVersion {
    /// The level.
    pub level: Level,
    /// The version.
    pub version: Version,
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.level, self.version)
    }
}

/// The policy of a namespace. The default restricts nothing, like upstream's default configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Pods that do not meet it are refused.
    pub enforce: LevelVersion,
    /// Objects that do not meet it are recorded.
    pub audit: LevelVersion,
    /// Clients are warned of objects that do not meet it.
    pub warn: LevelVersion,
}

impl Policy {
    /// The policy of a namespace with these labels, and the errors in them (`PolicyToEvaluate`). An invalid level
    /// counts as the strictest one for `enforce`, and as none for the other modes.
    pub fn of(labels: &BTreeMap<String, String>) -> (Self, Vec<FieldError>) {
        let mut policy = Self::default();
        let mut errors = Vec::new();
        let label = |name: &str| labels.get(&format!("{PREFIX}{name}")).map(String::as_str);
        let level = |name: &str| {
            label(name).map(|value| {
                let why = "must be one of privileged, baseline, restricted";
                Level::parse(value).ok_or_else(|| invalid(name, value, why))
            })
        };
        let modes = [("enforce", level("enforce")), ("audit", level("audit")), ("warn", level("warn"))];
        let (mut enforces, mut warns) = (false, [false; 2]);
        for (name, level) in modes {
            let mode = match name {
                "enforce" => &mut policy.enforce,
                "audit" => &mut policy.audit,
                _ => &mut policy.warn,
            };
            warns[0] |= name == "warn" && level.is_some();
            match level {
                Some(Ok(level)) => {
                    mode.level = level;
                    enforces |= name == "enforce";
                }
                Some(Err(error)) => {
                    mode.level = if name == "enforce" { Level::Restricted } else { Level::Privileged };
                    errors.push(error);
                }
                None => {}
            }
            let name = format!("{name}-version");
            if let Some(value) = label(&name) {
                warns[1] |= name == "warn-version";
                match Version::parse(value) {
                    Some(version) => mode.version = version,
                    None => errors.push(invalid(&name, value, "must be \"latest\" or \"v1.x\"")),
                }
            }
        }
        if !warns[0] && enforces && policy.enforce.level > policy.warn.level {
            policy.warn.level = policy.enforce.level;
            if !warns[1] {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, errors)
    }

    /// Whether the policy restricts nothing.
    pub fn is_privileged(&self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(|mode| mode.level == Level::Privileged)
    }
}

fn invalid(name: &str, value: &str, why: &str) -> FieldError {
    FieldError::invalid(format!("metadata.labels[{PREFIX}{name}]"), &json!(value), why)
}

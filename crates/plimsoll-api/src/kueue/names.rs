//! Names that outside tools compute too (Kueue's `pkg/controller/jobframework/workload_names.go`): workloads
//! of jobs, roles in pod groups.

use std::fmt::Write as _;

use serde_json::Value;
use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::quantity::Quantity;

/// Length of the hash at the end of a workload's name.
const HASH: usize = 5;
/// Longest name of an object.
const LONGEST: usize = 253;
/// Longest value of a label.
const LONGEST_LABEL: usize = 63;

/// Names of generated workloads, by the gate `ShortWorkloadNames`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorkloadNames {
    /// Up to 253 characters, the longest name of an object.
    #[default]
    Long,
    /// Up to 63 characters, so that a name can be the value of a label.
    Short,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, b| {
        let _ = write!(out, "{b:02x}");
        out
    })
}

impl WorkloadNames {
    /// Name of the Workload of a job: `<kind>-<name, cut to fit>-<hash of kind, group, name and UID>` (Kueue
    /// `GetWorkloadNameForOwnerWithGVK`).
    pub fn of(self, kind: &str, group: &str, name: &str, uid: &str) -> String {
        self.with(kind, group, name, uid, "")
    }

    /// [`WorkloadNames::of`] with something more in the hash, if not empty; elastic jobs use their generation (Kueue
    /// `GenerateWorkloadNameWithExtra`).
    pub fn with(self, kind: &str, group: &str, name: &str, uid: &str, extra: &str) -> String {
        self.hashed(format!("{}-{name}", kind.to_lowercase()), (kind, group, name, uid), extra)
    }

    /// Name of the variant of a workload for a flavor: `<name without its hash>-variant-<flavor>-<hash>` (Kueue
    /// `GetWorkloadNameForVariant`). `parent`: kind, group, name and UID of the workload.
    pub fn variant(self, parent: (&str, &str, &str, &str), flavor: &str) -> String {
        let (_, _, name, _) = parent;
        let base = name.rsplit_once('-').map_or(name, |(base, _)| base);
        self.hashed(format!("{base}-variant-{flavor}"), parent, flavor)
    }

    fn hashed(self, mut prefix: String, owner: (&str, &str, &str, &str), extra: &str) -> String {
        let (kind, group, name, uid) = owner;
        let longest = match self {
            Self::Long => LONGEST,
            Self::Short => LONGEST_LABEL,
        };
        let mut end = prefix.len().min(longest - 1 - HASH);
        while !prefix.is_char_boundary(end) {
            end -= 1;
        }
        prefix.truncate(end);
        let more = if extra.is_empty() { String::new() } else { format!("\n{extra}") };
        let digest = hex(&Sha1::digest(format!("{kind}\n{group}\n{name}\n{uid}{more}")));
        format!("{prefix}-{}", digest.get(..HASH).unwrap_or_default())
    }
}

/// A name as it is, or cut to fit with a hash of the whole (names of provisioning requests and their templates).
pub fn limited_name(whole: &str) -> String {
    let most = LONGEST - 1 - HASH;
    if whole.len() <= most {
        return whole.to_owned();
    }
    let mut end = most;
    while !whole.is_char_boundary(end) {
        end -= 1;
    }
    let digest = hex(&Sha1::digest(whole));
    let (head, tail) = (whole.get(..end).unwrap_or_default(), digest.get(..HASH).unwrap_or_default());
    format!("{head}-{tail}")
}

/// Role of a pod in its group: the first 8 hex digits of SHA-256 over what decides where a pod may run, in the very
/// bytes that Kueue hashes.
pub fn role_hash(spec: &Value) -> String {
    let mut out = String::from("{\"spec\":{\"affinity\":");
    form(&mut out, &spec["affinity"], &AFFINITY);
    out.push_str(",\"containers\":");
    containers(&mut out, &spec["containers"]);
    out.push_str(",\"initContainers\":");
    containers(&mut out, &spec["initContainers"]);
    out.push_str(",\"nodeSelector\":");
    form(&mut out, &spec["nodeSelector"], &Form::Plain);
    out.push_str(",\"overhead\":");
    amounts(&mut out, &spec["overhead"]);
    out.push_str(",\"priority\":");
    form(&mut out, &spec["priority"], &Form::Plain);
    out.push_str(",\"resourceClaims\":");
    form(&mut out, &spec["resourceClaims"], &Form::List(&CLAIM));
    // Only where pod-level resources are set, so that the hash of all other pods is what it always was.
    if !spec["resources"]["requests"].is_null() {
        out.push_str(",\"resources\":");
        amounts(&mut out, &spec["resources"]["requests"]);
    }
    out.push_str(",\"runtimeClassName\":");
    form(&mut out, &spec["runtimeClassName"], &Form::Plain);
    out.push_str(",\"tolerations\":");
    form(&mut out, &spec["tolerations"], &Form::List(&TOLERATION));
    out.push_str(",\"topologySpreadConstraints\":");
    form(&mut out, &spec["topologySpreadConstraints"], &Form::List(&SPREAD));
    out.push_str("}}");
    hex(&Sha256::digest(out)).get(..8).unwrap_or_default().to_owned()
}

/// How Go writes a value: structs in the order of their fields, maps sorted.
enum Form {
    Plain,
    Struct(&'static [(&'static str, Form)]),
    List(&'static Form),
}

const EXPRESSION: Form =
    Form::Struct(&[("key", Form::Plain), ("operator", Form::Plain), ("values", Form::Plain)]);
const NODE_TERM: Form =
    Form::Struct(&[("matchExpressions", Form::List(&EXPRESSION)), ("matchFields", Form::List(&EXPRESSION))]);
const SELECTOR: Form =
    Form::Struct(&[("matchLabels", Form::Plain), ("matchExpressions", Form::List(&EXPRESSION))]);
const POD_TERM: Form = Form::Struct(&[
    ("labelSelector", SELECTOR),
    ("namespaces", Form::Plain),
    ("topologyKey", Form::Plain),
    ("namespaceSelector", SELECTOR),
    ("matchLabelKeys", Form::Plain),
    ("mismatchLabelKeys", Form::Plain),
]);
const WEIGHTED_POD: Form = Form::Struct(&[("weight", Form::Plain), ("podAffinityTerm", POD_TERM)]);
const WEIGHTED_NODE: Form = Form::Struct(&[("weight", Form::Plain), ("preference", NODE_TERM)]);
const POD_AFFINITY: Form = Form::Struct(&[
    ("requiredDuringSchedulingIgnoredDuringExecution", Form::List(&POD_TERM)),
    ("preferredDuringSchedulingIgnoredDuringExecution", Form::List(&WEIGHTED_POD)),
]);
const NODE_AFFINITY: Form = Form::Struct(&[
    (
        "requiredDuringSchedulingIgnoredDuringExecution",
        Form::Struct(&[("nodeSelectorTerms", Form::List(&NODE_TERM))]),
    ),
    ("preferredDuringSchedulingIgnoredDuringExecution", Form::List(&WEIGHTED_NODE)),
]);
const AFFINITY: Form = Form::Struct(&[
    ("nodeAffinity", NODE_AFFINITY),
    ("podAffinity", POD_AFFINITY),
    ("podAntiAffinity", POD_AFFINITY),
]);
const TOLERATION: Form = Form::Struct(&[
    ("key", Form::Plain),
    ("operator", Form::Plain),
    ("value", Form::Plain),
    ("effect", Form::Plain),
    ("tolerationSeconds", Form::Plain),
]);
const SPREAD: Form = Form::Struct(&[
    ("maxSkew", Form::Plain),
    ("topologyKey", Form::Plain),
    ("whenUnsatisfiable", Form::Plain),
    ("labelSelector", SELECTOR),
    ("minDomains", Form::Plain),
    ("nodeAffinityPolicy", Form::Plain),
    ("nodeTaintsPolicy", Form::Plain),
    ("matchLabelKeys", Form::Plain),
]);
const CLAIM: Form = Form::Struct(&[
    ("name", Form::Plain),
    ("resourceClaimName", Form::Plain),
    ("resourceClaimTemplateName", Form::Plain),
]);
const PORT: Form = Form::Struct(&[
    ("name", Form::Plain),
    ("hostPort", Form::Plain),
    ("containerPort", Form::Plain),
    ("protocol", Form::Plain),
    ("hostIP", Form::Plain),
]);

fn form(out: &mut String, value: &Value, form_: &Form) {
    match (form_, value) {
        (Form::Struct(fields), Value::Object(map)) => {
            out.push('{');
            let start = out.len();
            for (key, inner) in *fields {
                let Some(v) = map.get(*key).filter(|v| !is_empty(v)) else { continue };
                if out.len() > start {
                    out.push(',');
                }
                string(out, key);
                out.push(':');
                form(out, v, inner);
            }
            out.push('}');
        }
        (Form::List(inner), Value::Array(list)) => {
            out.push('[');
            for (i, v) in list.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                form(out, v, inner);
            }
            out.push(']');
        }
        (_, v) => plain(out, v),
    }
}

/// What `omitempty` leaves out.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(s) => s.is_empty(),
        Value::Array(a) => a.is_empty(),
        _ => false,
    }
}

fn plain(out: &mut String, value: &Value) {
    match value {
        Value::String(s) => string(out, s),
        Value::Array(list) => {
            out.push('[');
            for (i, v) in list.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                plain(out, v);
            }
            out.push(']');
        }
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort();
            out.push('{');
            for (i, key) in keys.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                string(out, key);
                out.push(':');
                plain(out, &map[key]);
            }
            out.push('}');
        }
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

/// A string as Go's encoder writes it: `<`, `>` and `&` are escaped too.
fn string(out: &mut String, text: &str) {
    let quoted = Value::from(text).to_string();
    for c in quoted.chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            c => out.push(c),
        }
    }
}

/// A ResourceList: canonical quantities by name; null when missing.
fn amounts(out: &mut String, value: &Value) {
    let Some(map) = value.as_object() else { return out.push_str("null") };
    let mut rows: Vec<(&String, String)> = map.iter().map(|(k, v)| (k, canonical(v))).collect();
    rows.sort();
    out.push('{');
    for (i, (key, amount)) in rows.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        string(out, key);
        out.push(':');
        string(out, amount);
    }
    out.push('}');
}

fn canonical(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Quantity::canonical(&text).unwrap_or(text)
}

fn containers(out: &mut String, value: &Value) {
    let Some(list) = value.as_array().filter(|l| !l.is_empty()) else { return out.push_str("null") };
    out.push('[');
    for (i, container) in list.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        out.push_str("{\"ports\":");
        form(out, &container["ports"], &Form::List(&PORT));
        out.push_str(",\"resources\":{\"requests\":");
        amounts(out, &container["resources"]["requests"]);
        out.push_str("}}");
    }
    out.push(']');
}

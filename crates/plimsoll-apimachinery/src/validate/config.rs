//! core/v1 `ConfigMap` and `Secret`.

use serde_json::Value;

use super::checks;
use super::path::{Errors, Path};
use crate::obj::{Obj, flag, object, text};

/// Most bytes of data in one object.
const MAX_DATA: usize = 1024 * 1024;

/// core/v1 `ConfigMap`.
pub(super) fn config_map(map: &Obj, errors: &mut Errors) {
    let (data, binary) = (object(map, "data"), object(map, "binaryData"));
    let mut size = 0;
    let path = Path::new("data");
    for (key, value) in data {
        errors.invalid_all(&path.key(key), key, &checks::config_key(key));
        if binary.contains_key(key) {
            errors.invalid(&path.key(key), key.as_str(), "duplicate of key present in binaryData");
        }
        size += value.as_str().unwrap_or_default().len();
    }
    let path = Path::new("binaryData");
    for (key, value) in binary {
        errors.invalid_all(&path.key(key), key, &checks::config_key(key));
        size += decoded_len(value);
    }
    if size > MAX_DATA {
        // Go prints the path of an empty name like this.
        errors.too_long(&Path::new("[]"), MAX_DATA);
    }
}

/// Bytes of a base64 text.
fn decoded_len(value: &Value) -> usize {
    let text = value.as_str().unwrap_or_default();
    text.trim_end_matches('=').len() * 3 / 4
}

/// Update of a `ConfigMap`.
pub(super) fn config_map_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    immutable(old, new, &["data", "binaryData"], errors);
}

/// Data marked as immutable stays.
fn immutable(old: &Obj, new: &Obj, keys: &[&str], errors: &mut Errors) {
    const DETAIL: &str = "field is immutable when `immutable` is set";
    if !flag(old, "immutable") {
        return;
    }
    if !flag(new, "immutable") {
        errors.forbidden(&Path::new("immutable"), DETAIL);
    }
    for key in keys {
        if old.get(*key) != new.get(*key) {
            errors.forbidden(&Path::new(key), DETAIL);
        }
    }
}

/// core/v1 `Secret`.
pub(super) fn secret(secret: &Obj, errors: &mut Errors) {
    let data = object(secret, "data");
    let path = Path::new("data");
    let mut size = 0;
    for (key, value) in data {
        errors.invalid_all(&path.key(key), key, &checks::config_key(key));
        size += decoded_len(value);
    }
    if size > MAX_DATA {
        errors.too_long(&path, MAX_DATA);
    }
    match text(secret, "type") {
        "kubernetes.io/service-account-token" => {
            let meta = Path::new("metadata");
            let annotations = meta.field("annotations");
            let name = "kubernetes.io/service-account.name";
            if text(object(object(secret, "metadata"), "annotations"), name).is_empty() {
                errors.required(&annotations.key(name), "");
            }
        }
        "kubernetes.io/dockercfg" => json_entry(data, ".dockercfg", &path, errors),
        "kubernetes.io/dockerconfigjson" => json_entry(data, ".dockerconfigjson", &path, errors),
        "kubernetes.io/basic-auth" if !data.contains_key("username") && !data.contains_key("password") => {
            errors.required(&path.key("username"), "");
            errors.required(&path.key("password"), "");
        }
        "kubernetes.io/ssh-auth" if text(data, "ssh-privatekey").is_empty() => {
            errors.required(&path.key("ssh-privatekey"), "");
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"] {
                if !data.contains_key(key) {
                    errors.required(&path.key(key), "");
                }
            }
        }
        _ => {}
    }
}

fn json_entry(data: &Obj, key: &str, path: &Path<'_>, errors: &mut Errors) {
    use base64::Engine as _;
    let Some(encoded) = data.get(key).and_then(Value::as_str) else {
        errors.required(&path.key(key), "");
        return;
    };
    let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).unwrap_or_default();
    let why = crate::decode::explain(&bytes).or_else(|| {
        let got = match serde_json::from_slice(&bytes).ok()? {
            Value::Object(_) | Value::Null => return None,
            Value::Array(_) => "array",
            Value::String(_) => "string",
            Value::Number(_) => "number",
            Value::Bool(_) => "bool",
        };
        Some(format!("json: cannot unmarshal {got} into Go value of type map[string]interface {{}}"))
    });
    if let Some(why) = why {
        errors.invalid(&path.key(key), "<secret contents redacted>", &why);
    }
}

/// Update of a `Secret`.
pub(super) fn secret_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    errors.immutable(&Path::new("type"), old, new, "type");
    immutable(old, new, &["data"], errors);
}

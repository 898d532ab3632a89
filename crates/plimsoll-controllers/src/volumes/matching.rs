//! Which volume fits a claim (`pkg/controller/volume/persistentvolume/index.go` upstream).

use plimsoll_api::Quantity;
use plimsoll_apimachinery::meta::{Selector, text};
use serde::Deserialize;
use serde_json::Value;

const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// The storage class of a claim or a volume, empty for none.
pub fn class(object: &Value) -> &str {
    match text(object, &["metadata", "annotations", BETA_CLASS]) {
        "" => text(object, &["spec", "storageClassName"]),
        beta => beta,
    }
}

/// Whether a volume names this claim, and no other one of its name.
pub fn is_claimed_by(volume: &Value, claim: &Value) -> bool {
    let reference = &volume["spec"]["claimRef"];
    let meta = &claim["metadata"];
    reference["name"] == meta["name"]
        && reference["namespace"] == meta["namespace"]
        && (text(reference, &["uid"]).is_empty() || reference["uid"] == meta["uid"])
}

fn storage(amounts: &Value) -> Option<Quantity> {
    amounts["storage"].as_str()?.parse().ok()
}

fn mode(object: &Value) -> &str {
    match text(object, &["spec", "volumeMode"]) {
        "" => "Filesystem",
        mode => mode,
    }
}

/// The smallest volume that fits, those that name the claim before all others. `only_named`: no others.
pub fn best<'a>(
    volumes: impl Iterator<Item = &'a Value>,
    claim: &Value,
    only_named: bool,
) -> Option<&'a Value> {
    let spec = &claim["spec"];
    let wanted = storage(&spec["resources"]["requests"]);
    let selector = Selector::deserialize(&spec["selector"]).ok();
    let list = |v: &'a Value| v["spec"]["accessModes"].as_array().into_iter().flatten();
    let mut found: Option<(&Value, Quantity)> = None;
    for volume in volumes {
        if mode(volume) != mode(claim) || !volume["metadata"]["deletionTimestamp"].is_null() {
            continue;
        }
        let Some(size) =
            storage(&volume["spec"]["capacity"]).filter(|s| wanted.as_ref().is_none_or(|w| s >= w))
        else {
            continue;
        };
        if volume["spec"]["claimRef"].is_object() {
            if is_claimed_by(volume, claim) {
                return Some(volume);
            }
            continue;
        }
        let labels = serde_json::from_value(volume["metadata"]["labels"].clone()).unwrap_or_default();
        let modes = spec["accessModes"].as_array().into_iter().flatten();
        let fits = !only_named
            && class(volume) == class(claim)
            && modes.into_iter().all(|m| list(volume).any(|own| own == m))
            && selector.as_ref().is_none_or(|s| s.matches(&labels));
        if fits && found.as_ref().is_none_or(|(_, least)| size < *least) {
            found = Some((volume, size));
        }
    }
    found.map(|(volume, _)| volume)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn volume(name: &str, size: &str, changes: &Value) -> Value {
        let mut volume = json!({
            "metadata": {"name": name, "labels": {"tier": name}},
            "spec": {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce", "ReadOnlyMany"], "storageClassName": "s"},
        });
        for (key, value) in changes.as_object().unwrap() {
            volume["spec"][key] = value.clone();
        }
        volume
    }

    #[test]
    fn the_smallest_that_fits() {
        let taken = json!({"claimRef": {"namespace": "n", "name": "other", "uid": "o"}});
        let ours = json!({"claimRef": {"namespace": "n", "name": "c"}, "storageClassName": "t"});
        let volumes = [
            volume("small", "1Gi", &json!({})),
            volume("large", "20Gi", &json!({})),
            volume("right", "5Gi", &json!({})),
            volume("taken", "5Gi", &taken),
            volume("block", "5Gi", &json!({"volumeMode": "Block"})),
            volume("else", "5Gi", &json!({"storageClassName": "t"})),
        ];
        let claim = |spec: Value| {
            let mut claim = json!({"metadata": {"namespace": "n", "name": "c", "uid": "u"}, "spec": {
                "storageClassName": "s", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}});
            for (key, value) in spec.as_object().unwrap() {
                claim["spec"][key] = value.clone();
            }
            claim
        };
        let rows = [
            (json!({}), "right"),
            (json!({"resources": {"requests": {"storage": "6Gi"}}}), "large"),
            (json!({"resources": {"requests": {"storage": "21Gi"}}}), ""),
            (json!({"accessModes": ["ReadWriteMany"]}), ""),
            (json!({"volumeMode": "Block"}), "block"),
            (json!({"storageClassName": "t"}), "else"),
            (json!({"selector": {"matchLabels": {"tier": "large"}}}), "large"),
        ];
        let found = |all: &[Value], claim: &Value, only: bool| {
            let best = best(all.iter(), claim, only);
            best.map_or("", |v| v["metadata"]["name"].as_str().unwrap()).to_owned()
        };
        for (spec, wanted) in rows {
            assert_eq!(found(&volumes, &claim(spec.clone()), false), wanted, "{spec}");
        }
        assert_eq!(found(&volumes, &claim(json!({})), true), "");
        let mut more = volumes.to_vec();
        more.push(volume("ours", "9Gi", &ours));
        assert_eq!(found(&more, &claim(json!({})), true), "ours");
    }
}

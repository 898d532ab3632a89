//! Defaults of `flowcontrol.apiserver.k8s.io` (`pkg/apis/flowcontrol/v1/defaults.go`).

use serde_json::Value;

use crate::obj::{Obj, child, set, set_zero};

pub fn flow_schema(object: &mut Obj) {
    if let Some(spec) = child(object, "spec") {
        set_zero(spec, "matchingPrecedence", 1000);
    }
}

pub fn priority_level(object: &mut Obj) {
    let Some(spec) = child(object, "spec") else { return };
    for (member, shares) in [("exempt", 0), ("limited", 30)] {
        let Some(kind) = child(spec, member) else { continue };
        // Go writes a pointer without a value as null.
        if kind.get("nominalConcurrencyShares").is_none_or(Value::is_null) {
            kind.insert("nominalConcurrencyShares".to_owned(), shares.into());
        }
        set(kind, "lendablePercent", 0);
        let queuing = child(kind, "limitResponse").and_then(|response| child(response, "queuing"));
        if let Some(queuing) = queuing {
            set_zero(queuing, "handSize", 8);
            set_zero(queuing, "queues", 64);
            set_zero(queuing, "queueLengthLimit", 50);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::obj::as_obj;

    #[test]
    fn shares_that_are_not_given() {
        for (given, want) in [(json!({}), 30), (json!({"nominalConcurrencyShares": null}), 30)] {
            let mut level = as_obj(&json!({"spec": {"limited": given}})).clone();
            priority_level(&mut level);
            assert_eq!(level["spec"]["limited"]["nominalConcurrencyShares"], want, "{given}");
        }
    }
}

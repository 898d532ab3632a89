//! Defaults of `flowcontrol.apiserver.k8s.io` (`pkg/apis/flowcontrol/v1/defaults.go`).

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
        set(kind, "nominalConcurrencyShares", shares);
        set(kind, "lendablePercent", 0);
        let queuing = child(kind, "limitResponse").and_then(|response| child(response, "queuing"));
        if let Some(queuing) = queuing {
            set_zero(queuing, "handSize", 8);
            set_zero(queuing, "queues", 64);
            set_zero(queuing, "queueLengthLimit", 50);
        }
    }
}

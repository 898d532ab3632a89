//! The cluster autoscaler, as far as requests see it: it accepts them, provides nodes or has none, and takes them back.

use plimsoll_state::Duration;
use serde_json::{Value, json};

use super::{Users, key};
use crate::agenda::Event;
use crate::api::{Kind, is_true, name_of, stamp};
use crate::dice::Draw;
use crate::network::Network;
use crate::scenario::objects::NAMESPACE;

/// Condition of a request whose nodes were taken away.
const REVOKED: &str = "CapacityRevoked";
/// Conditions of a request that ends.
const ENDS: [&str; 3] = ["Failed", "BookingExpired", REVOKED];

/// Whether nodes of a request are there.
pub fn is_provided(request: &Value) -> bool {
    is_true(request, "Provisioned") && !has_ended(request)
}

/// Whether there are no nodes for a request, or no more.
pub fn has_ended(request: &Value) -> bool {
    ENDS.iter().any(|end| is_true(request, end))
}

/// Whether the nodes of a request were taken away.
pub fn is_revoked(request: &Value) -> bool {
    is_true(request, REVOKED)
}

impl Users {
    /// There is a request: the autoscaler looks at it some time later.
    pub(super) fn requested(&mut self, request: &Value, network: &mut Network) {
        if is_true(request, "Accepted") || has_ended(request) {
            return;
        }
        let name = name_of(request).1;
        let mut rng = self.dice.about(&name).of(self.answered).rng();
        network.agenda.after(Duration::from_millis(rng.range(5, 2_000)), Event::Provide(name));
    }

    /// The autoscaler looks at a request: it has nodes for it or not, or takes away what it had.
    pub fn provide(&mut self, name: &str, network: &mut Network) {
        self.answered += 1;
        let Some(request) = network.api.get(Kind::ProvisioningRequest, NAMESPACE, name).cloned() else {
            return;
        };
        if has_ended(&request) {
            return;
        }
        let mut rng = self.dice.about(name).of(self.answered).rng();
        let (now_true, again) = if is_true(&request, "Provisioned") {
            (if rng.chance(500) { "BookingExpired" } else { REVOKED }, false)
        } else if !is_true(&request, "Accepted") {
            ("Accepted", true)
        } else if rng.chance(self.answers.0) {
            ("Failed", false)
        } else {
            ("Provisioned", rng.chance(5 * self.answers.1))
        };
        if again {
            let longest = [1_000, 20_000][rng.below(2) as usize];
            let pause = Duration::from_millis(rng.range(1, longest));
            network.agenda.after(pause, Event::Provide(name.to_owned()));
        }
        let condition = json!({"type": now_true, "status": "True", "reason": now_true,
            "message": "as the dice fell", "lastTransitionTime": stamp(network.now())});
        let status = json!({"status": {"conditions": [condition]}});
        self.patch(Kind::ProvisioningRequest, key(name), true, status, network);
    }
}

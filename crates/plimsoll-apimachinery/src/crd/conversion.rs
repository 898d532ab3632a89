//! The conversion webhook of a definition.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use crate::json::{at, list, text};

/// `conversion` of a definition whose strategy is `Webhook`.
#[derive(Clone, Debug)]
pub struct Conversion {
    /// `clientConfig` as written.
    pub client: Value,
    /// Distinguishes configurations.
    pub fingerprint: u64,
    /// First supported version of ConversionReview.
    pub(super) review_version: Option<&'static str>,
}

impl Conversion {
    /// The webhook of a definition; `None`: conversion changes `apiVersion` only.
    pub fn of(definition: &Value) -> Option<Self> {
        let conversion = at(at(definition, "spec"), "conversion");
        if text(conversion, "strategy") != "Webhook" {
            return None;
        }
        let webhook = at(conversion, "webhook");
        let mut hasher = DefaultHasher::new();
        webhook.to_string().hash(&mut hasher);
        let known = |v: &Value| ["v1", "v1beta1"].into_iter().find(|k| v == k);
        Some(Self {
            client: at(webhook, "clientConfig").clone(),
            fingerprint: hasher.finish(),
            review_version: list(webhook, "conversionReviewVersions").iter().find_map(known),
        })
    }
}

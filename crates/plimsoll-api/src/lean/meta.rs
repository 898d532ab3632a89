//! Metadata and scalars shared by all kinds.

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use std::collections::BTreeMap;
use std::fmt;

/// A map whose `null` values are dropped.
pub type Map<V> = Option<BTreeMap<String, V>>;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    pub name: Option<String>,
    pub namespace: Option<String>,
    pub uid: Option<String>,
    pub labels: Map<Option<String>>,
    pub annotations: Map<Option<String>>,
    pub owner_references: Option<Vec<OwnerReference>>,
    pub generation: Option<i64>,
    pub creation_timestamp: Option<String>,
    pub deletion_timestamp: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    pub api_version: Option<String>,
    pub kind: Option<String>,
    pub name: Option<String>,
    pub uid: Option<String>,
    pub controller: Option<bool>,
}

/// A quantity as written: a string or a number.
#[derive(Clone, Debug)]
pub struct RawQuantity(pub String);

impl<'de> Deserialize<'de> for RawQuantity {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl Visitor<'_> for V {
            type Value = RawQuantity;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity")
            }
            fn visit_str<E: Error>(self, v: &str) -> Result<RawQuantity, E> {
                Ok(RawQuantity(v.to_owned()))
            }
            fn visit_u64<E: Error>(self, v: u64) -> Result<RawQuantity, E> {
                Ok(RawQuantity(v.to_string()))
            }
            fn visit_i64<E: Error>(self, v: i64) -> Result<RawQuantity, E> {
                Ok(RawQuantity(v.to_string()))
            }
            fn visit_f64<E: Error>(self, v: f64) -> Result<RawQuantity, E> {
                Ok(RawQuantity(v.to_string()))
            }
        }
        d.deserialize_any(V)
    }
}

/// Amounts by resource name, as written.
pub type RawResources = Map<Option<RawQuantity>>;

/// A condition.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub status: Option<String>,
    pub reason: Option<String>,
    pub last_transition_time: Option<String>,
}

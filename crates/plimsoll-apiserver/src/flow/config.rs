//! The objects that configure flow control, read and compiled.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::allot::Shares;
use super::bootstrap::{self, CATCH_ALL, EXEMPT};
use super::classify::Spec;
use super::level::Queuing;
use super::shuffle;
use crate::store::Record;

/// A FlowSchema.
#[derive(Clone, Debug)]
pub struct Schema {
    /// Its name.
    pub name: String,
    /// Its UID, empty for one that is assumed.
    pub uid: String,
    /// What it says.
    pub spec: Spec,
    /// What its status says of the level that it refers to.
    pub dangling: Option<Condition>,
}

/// A PriorityLevelConfiguration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelConfig {
    /// Its UID, empty for one that is assumed.
    pub uid: String,
    /// Shares of the seats.
    pub shares: Shares,
    /// Whether its requests are never held up.
    pub exempt: bool,
    /// Its queues; `None`: what finds no seat is rejected.
    pub queuing: Option<Queuing>,
}

/// A condition of a FlowSchema.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Condition {
    r#type: String,
    /// `True` or `False`.
    pub status: String,
    /// Why.
    pub reason: String,
    /// Why, in words.
    pub message: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SchemaObject {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    conditions: Vec<Condition>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: String,
    uid: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LevelObject {
    metadata: Metadata,
    spec: LevelSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LevelSpec {
    r#type: String,
    limited: Option<Limited>,
    exempt: Option<Exempt>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Limited {
    nominal_concurrency_shares: Option<u32>,
    lendable_percent: Option<u32>,
    borrowing_limit_percent: Option<u32>,
    limit_response: Response,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Exempt {
    nominal_concurrency_shares: Option<u32>,
    lendable_percent: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Response {
    r#type: String,
    queuing: Option<QueuingObject>,
}

#[derive(Debug, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct QueuingObject {
    queues: usize,
    hand_size: usize,
    queue_length_limit: usize,
}

impl Default for QueuingObject {
    fn default() -> Self {
        Self { queues: 64, hand_size: 8, queue_length_limit: 50 }
    }
}

/// Shares of a level that says nothing of them (`PriorityLevelConfigurationDefaultNominalConcurrencyShares`).
const DEFAULT_SHARES: u32 = 30;
/// Most queues of a level, and most requests in one, so that no object takes all memory.
const MOST: usize = 100_000;

impl LevelObject {
    /// The configuration, or what is wrong with it (`queueSetCompleterForPL`).
    fn config(self) -> Result<LevelConfig, String> {
        let LevelSpec { r#type, limited, exempt } = self.spec;
        if (r#type == "Limited") != limited.is_some() {
            return Err("broken union structure at the top, for Limited".to_owned());
        }
        if (r#type == "Exempt") != exempt.is_some() {
            return Err("broken union structure at the top, for Exempt".to_owned());
        }
        if (r#type == "Exempt") != (self.metadata.name == EXEMPT) {
            return Err("non-alignment between name and type".to_owned());
        }
        let uid = self.metadata.uid;
        let Some(limited) = limited else {
            let exempt = exempt.unwrap_or_default();
            let shares = Shares {
                nominal: exempt.nominal_concurrency_shares.unwrap_or(0),
                lendable: exempt.lendable_percent.unwrap_or(0).min(100),
                borrowing: None,
            };
            return Ok(LevelConfig { uid, shares, exempt: true, queuing: None });
        };
        let response = limited.limit_response;
        if (response.r#type == "Reject") != response.queuing.is_none() {
            return Err("broken union structure for limit response".to_owned());
        }
        let queuing = match response.queuing {
            None => None,
            Some(q) => {
                shuffle::check(q.queues, q.hand_size)?;
                if q.queues > MOST || q.queue_length_limit > MOST {
                    return Err(format!("more than {MOST} queues, or requests in a queue"));
                }
                let length = q.queue_length_limit.max(1);
                Some(Queuing { queues: q.queues, hand: q.hand_size, length })
            }
        };
        let shares = Shares {
            nominal: limited.nominal_concurrency_shares.unwrap_or(DEFAULT_SHARES),
            lendable: limited.lendable_percent.unwrap_or(0).min(100),
            borrowing: limited.borrowing_limit_percent,
        };
        Ok(LevelConfig { uid, shares, exempt: false, queuing })
    }
}

fn read_level(object: &[u8]) -> Result<(String, LevelConfig), String> {
    let object: LevelObject = serde_json::from_slice(object).map_err(|e| e.to_string())?;
    let name = object.metadata.name.clone();
    Ok((name, object.config()?))
}

fn read_schema(object: &[u8]) -> Result<Schema, String> {
    let object: SchemaObject = serde_json::from_slice(object).map_err(|e| e.to_string())?;
    let dangling = object.status.conditions.into_iter().find(|c| c.r#type == "Dangling");
    Ok(Schema { name: object.metadata.name, uid: object.metadata.uid, spec: object.spec, dangling })
}

/// The levels that there are, those that are broken left out and those that have to be assumed if they aren't there.
pub fn levels<'r>(records: impl Iterator<Item = &'r Arc<Record>>) -> BTreeMap<String, LevelConfig> {
    let mut all = BTreeMap::new();
    for record in records {
        match read_level(&record.json) {
            Ok((name, config)) => drop(all.insert(name, config)),
            Err(why) => tracing::warn!(
                name = record.key.name,
                why,
                "a PriorityLevelConfiguration is ignored because its spec is broken"
            ),
        }
    }
    for assumed in bootstrap::levels().iter().take(2) {
        if let Ok((name, config)) = read_level(assumed.to_string().as_bytes()) {
            all.entry(name).or_insert(config);
        }
    }
    all
}

/// The schemas that there are.
pub fn schemas<'r>(records: impl Iterator<Item = &'r Arc<Record>>) -> Vec<Schema> {
    let read = |record: &Arc<Record>| {
        let why = |why| tracing::warn!(name = record.key.name, why, "a FlowSchema can't be read");
        read_schema(&record.json).map_err(why).ok()
    };
    records.filter_map(read).collect()
}

/// Schemas in the order in which they are asked, without those whose level isn't there and with those that have to be
/// assumed (`digestFlowSchemasLocked`).
pub fn in_order(mut schemas: Vec<Schema>, levels: &BTreeMap<String, LevelConfig>) -> Vec<Schema> {
    schemas.retain(|s| levels.contains_key(&s.spec.priority_level_configuration.name));
    schemas.sort_by(|a, b| (a.spec.matching_precedence, &a.name).cmp(&(b.spec.matching_precedence, &b.name)));
    let assumed = |name: &str| -> Option<Schema> {
        let object = bootstrap::schemas().into_iter().find(|s| s["metadata"]["name"] == name)?;
        read_schema(object.to_string().as_bytes()).ok()
    };
    if !schemas.iter().any(|s| s.name == EXEMPT)
        && let Some(exempt) = assumed(EXEMPT)
    {
        schemas.insert(0, exempt);
    }
    if !schemas.iter().any(|s| s.name == CATCH_ALL) {
        schemas.extend(assumed(CATCH_ALL));
    }
    schemas
}

/// The condition that a schema should have (`presyncFlowSchemaStatus`); `None`: it has it.
pub fn condition(schema: &Schema, found: bool) -> Option<Value> {
    let level = &schema.spec.priority_level_configuration.name;
    let named = format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?}");
    let (status, reason, message) = match found {
        true => ("False", "Found", format!("{named} and it exists")),
        false => ("True", "NotFound", format!("{named} but there is no such object")),
    };
    let wanted =
        Condition { r#type: "Dangling".into(), status: status.into(), reason: reason.into(), message };
    if schema.dangling.as_ref() == Some(&wanted) {
        return None;
    }
    Some(serde_json::json!({
        "type": wanted.r#type, "status": wanted.status, "reason": wanted.reason, "message": wanted.message,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(text: &str) -> Result<LevelConfig, String> {
        read_level(text.as_bytes()).map(|(_, config)| config)
    }

    #[test]
    fn broken_levels_are_ignored_with_upstreams_reasons() {
        for (spec, why) in [
            (r#"{"type":"Limited"}"#, "broken union structure at the top, for Limited"),
            (r#"{"type":"Exempt","exempt":{}}"#, "non-alignment between name and type"),
            (
                r#"{"type":"Limited","limited":{"limitResponse":{"type":"Reject","queuing":{}}}}"#,
                "broken union structure for limit response",
            ),
            (
                r#"{"type":"Limited","limited":{"limitResponse":{"type":"Queue","queuing":{"queues":3}}}}"#,
                "handSize 8 is greater than deckSize 3",
            ),
        ] {
            let object = format!(r#"{{"metadata":{{"name":"a"}},"spec":{spec}}}"#);
            assert_eq!(level(&object).unwrap_err(), why);
        }
        let queue = r#"{"metadata":{"name":"a"},"spec":{"type":"Limited","limited":{"limitResponse":{"type":"Queue","queuing":{}}}}}"#;
        let config = level(queue).unwrap();
        assert_eq!(config.queuing, Some(Queuing { queues: 64, hand: 8, length: 50 }));
        assert_eq!(config.shares.nominal, 30);
    }

    #[test]
    fn mandatory_objects_are_assumed_where_they_are_not() {
        let levels = levels(std::iter::empty());
        assert_eq!(levels.keys().collect::<Vec<_>>(), [CATCH_ALL, EXEMPT]);
        let names: Vec<String> = in_order(Vec::new(), &levels).into_iter().map(|s| s.name).collect();
        assert_eq!(names, [EXEMPT, CATCH_ALL]);
    }
}

//! The parts of objects that controllers read.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

/// `metav1.Time`: a time with whole seconds on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Timestamp);

impl Time {
    /// A time without its fraction of a second.
    pub fn whole(at: Timestamp) -> Self {
        Self(Timestamp::from_second(at.as_second()).unwrap_or(at))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0.strftime("%Y-%m-%dT%H:%M:%SZ"))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

/// `null` counts as absent, as it does in Go.
pub fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(d: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(d).map(Option::unwrap_or_default)
}

/// `metadata`, as far as controllers read it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Meta {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// UID.
    pub uid: String,
    /// Resource version.
    pub resource_version: String,
    /// Generation: counts changes of the spec.
    pub generation: i64,
    /// Labels.
    #[serde(deserialize_with = "nullable")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(deserialize_with = "nullable")]
    pub annotations: BTreeMap<String, String>,
    /// Finalizers.
    #[serde(deserialize_with = "nullable")]
    pub finalizers: Vec<String>,
    /// Owners.
    #[serde(deserialize_with = "nullable")]
    pub owner_references: Vec<OwnerReference>,
    /// When it was made.
    pub creation_timestamp: Option<Time>,
    /// When it is to be gone.
    pub deletion_timestamp: Option<Time>,
    /// Grace period of its deletion, in seconds.
    pub deletion_grace_period_seconds: Option<i64>,
}

impl Meta {
    /// `namespace/name`, or the name for cluster scope.
    pub fn path(&self) -> String {
        if self.namespace.is_empty() {
            self.name.clone()
        } else {
            format!("{}/{}", self.namespace, self.name)
        }
    }

    /// The owner that controls it.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references.iter().find(|o| o.controller == Some(true))
    }

    /// The index under which a possible owner finds the object: the UID of its controller, or [`orphans`] of its
    /// namespace for an object without a controller.
    pub fn owner_index(&self) -> String {
        self.controller().map_or_else(|| orphans(&self.namespace), |owner| owner.uid.clone())
    }

    /// Whether it has a finalizer.
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|f| f == finalizer)
    }
}

/// Index of the objects of a namespace that have no controller.
pub fn orphans(namespace: &str) -> String {
    format!("orphans/{namespace}")
}

/// `metadata.ownerReferences[]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OwnerReference {
    /// `group/version`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Whether it manages the object.
    pub controller: Option<bool>,
    /// Whether its foreground deletion waits for the object.
    pub block_owner_deletion: Option<bool>,
}

/// The reference of a controlling owner, as an object's metadata holds it.
pub fn controller_reference(api_version: &str, kind: &str, owner: &Meta) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind, "name": owner.name, "uid": owner.uid,
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// Any object, of which only the metadata is of interest.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Object {
    /// `metadata`.
    pub metadata: Meta,
}

/// `metav1.LabelSelector`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Selector {
    /// Labels that must be there.
    #[serde(deserialize_with = "nullable")]
    pub match_labels: BTreeMap<String, String>,
    /// Further conditions.
    #[serde(deserialize_with = "nullable")]
    pub match_expressions: Vec<Expression>,
}

/// One of [`Selector::match_expressions`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Expression {
    /// Label.
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`.
    pub operator: String,
    /// For `In` and `NotIn`.
    #[serde(deserialize_with = "nullable")]
    pub values: Vec<String>,
}

impl Selector {
    /// Whether these labels are selected. An empty selector selects everything; one with an operator that doesn't
    /// exist selects nothing.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(k, v)| labels.get(k) == Some(v))
            && self.match_expressions.iter().all(|e| {
                let value = labels.get(&e.key);
                match e.operator.as_str() {
                    "In" => value.is_some_and(|v| e.values.contains(v)),
                    "NotIn" => value.is_none_or(|v| !e.values.contains(v)),
                    "Exists" => value.is_some(),
                    "DoesNotExist" => value.is_none(),
                    _ => false,
                }
            })
    }
}

/// The text at a path of keys, empty if it isn't there.
pub fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    path.iter().try_fold(object, |v, key| v.get(key)).and_then(Value::as_str).unwrap_or_default()
}

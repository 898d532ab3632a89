//! What is wrong with a plugin's arguments, collected.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// What is wrong, with the path of the arguments in front.
pub(super) struct Errors<'a> {
    pub(super) path: String,
    pub(super) list: &'a mut Vec<String>,
}

impl Errors<'_> {
    pub(super) fn add(&mut self, field: &str, text: impl std::fmt::Display) {
        self.list.push(format!("{}.{field}: {text}", self.path));
    }

    /// An error of the argument at a path; an empty path: of the arguments as a whole.
    pub(super) fn at(&mut self, path: &str, text: &str) {
        match path {
            "" => self.list.push(format!("{}: {text}", self.path)),
            path => self.add(path, text),
        }
    }

    pub(super) fn range(&mut self, field: &str, value: i64, low: i64, high: i64) {
        if !(low..=high).contains(&value) {
            self.add(field, format!("Invalid value: {value}: not in valid range [{low}, {high}]"));
        }
    }

    /// The arguments, where all of them could be decoded.
    pub(super) fn decode<T: DeserializeOwned + Default>(&mut self, value: Value) -> Option<T> {
        let before = self.list.len();
        let decoded = crate::decode(value, &self.path, self.list);
        (self.list.len() == before).then_some(decoded)
    }

    pub(super) fn kind(&mut self, plugin: &str, kind: Option<&str>, version: Option<&str>) {
        let want = format!("{plugin}Args");
        if kind.is_some_and(|k| k != want) {
            let kind = kind.unwrap_or_default();
            self.list.push(format!("{}: Invalid value: {kind:?}: has to match plugin name", self.path));
        }
        if version.is_some_and(|v| v != super::VERSION) {
            let version = version.unwrap_or_default();
            self.list.push(format!("{}: no kind {want:?} is registered for version {version:?}", self.path));
        }
    }
}

//! The fields of an object, for plugins that ask for them one by one: as strict as [`decode`](super::decode), with the same
//! texts.

use super::{Error, MOST, Node, Step, lenient};
use plimsoll_scheduler::framework::{Args, ArgsError, Fields, Registration};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Decodes the arguments of one plugin and adds them to those of a profile; `None`: it takes none. Values are checked where
/// all of them could be decoded.
pub(crate) fn decode_args(
    plugin: &Registration,
    value: &Value,
    path: &str,
    args: &mut Args,
) -> Option<Result<(), Vec<String>>> {
    let mut fields = Reader::new(value);
    let checked = plugin.decode_args(&mut fields, args)?;
    let broken = fields.finish(path);
    if !broken.is_empty() {
        return Some(Err(broken));
    }
    let text = |error: &ArgsError| match error.field.as_str() {
        "" => format!("{path}: {}", error.message),
        field => format!("{path}.{field}: {}", error.message),
    };
    Some(checked.map_err(|errors| errors.iter().map(text).collect()))
}

/// An object and the fields of it that were asked for.
struct Reader<'a> {
    value: &'a Value,
    object: Option<&'a Map<String, Value>>,
    asked: Vec<&'static str>,
    /// Everything counts as asked for.
    whole: bool,
    errors: Vec<Error>,
}

impl<'a> Reader<'a> {
    /// An object; `null` is an empty one.
    fn new(value: &'a Value) -> Self {
        let errors = match value {
            Value::Null | Value::Object(_) => Vec::new(),
            _ => Node(value).refuse::<()>("an object").err().into_iter().collect(),
        };
        Self { value, object: value.as_object(), asked: Vec::new(), whole: false, errors }
    }

    /// What is wrong with the fields that were asked for, and which fields were not, in the order of the paths.
    fn finish(self, path: &str) -> Vec<String> {
        let mut errors = self.errors();
        errors.sort_by(|a, b| a.path.iter().rev().cmp(b.path.iter().rev()));
        errors.truncate(MOST);
        errors.into_iter().map(|error| error.text(path)).collect()
    }

    fn errors(self) -> Vec<Error> {
        let Self { object, asked, whole, mut errors, .. } = self;
        let keys = object.into_iter().flat_map(Map::keys).filter(|_| !whole);
        let unknown = keys.filter(|key| !asked.contains(&key.as_str()));
        errors.extend(unknown.map(|key| Error::unknown(key, &asked)));
        errors
    }

    fn get(&mut self, field: &'static str) -> Option<&'a Value> {
        self.asked.push(field);
        self.object?.get(field).filter(|value| !value.is_null())
    }

    fn at(&mut self, field: &str, errors: Vec<Error>) {
        self.errors.extend(errors.into_iter().map(|error| error.within(Step::Field(field.to_owned()))));
    }

    fn leaf<T: DeserializeOwned + Default>(&mut self, field: &'static str) -> Option<T> {
        let value = self.get(field)?;
        let (decoded, errors) = lenient(value.clone());
        let is_valid = errors.is_empty();
        self.at(field, errors);
        is_valid.then_some(decoded)
    }
}

impl Fields for Reader<'_> {
    fn boolean(&mut self, field: &'static str) -> Option<bool> {
        self.leaf(field)
    }

    fn int32(&mut self, field: &'static str) -> Option<i32> {
        self.leaf(field)
    }

    fn int64(&mut self, field: &'static str) -> Option<i64> {
        self.leaf(field)
    }

    fn string(&mut self, field: &'static str) -> Option<String> {
        self.leaf(field)
    }

    fn strings(&mut self, field: &'static str) -> Option<Vec<String>> {
        self.leaf(field)
    }

    fn string_map(&mut self, field: &'static str) -> Option<BTreeMap<String, String>> {
        self.leaf(field)
    }

    fn each_object(&mut self, field: &'static str, read: &mut dyn FnMut(&mut dyn Fields)) {
        let Some(value) = self.get(field) else { return };
        let mut inner = Reader::new(value);
        read(&mut inner);
        self.at(field, inner.errors());
    }

    fn each_item(&mut self, field: &'static str, read: &mut dyn FnMut(&mut dyn Fields)) -> bool {
        let Some(value) = self.get(field) else { return false };
        let Some(list) = value.as_array() else {
            self.at(field, Node(value).refuse::<()>("a list").err().into_iter().collect());
            return false;
        };
        for (i, value) in list.iter().enumerate() {
            let mut inner = Reader::new(value);
            read(&mut inner);
            let errors = inner.errors().into_iter().map(|error| error.within(Step::Index(i)));
            self.at(field, errors.collect());
        }
        true
    }

    fn json(&mut self) -> String {
        self.whole = true;
        self.errors.clear();
        self.value.to_string()
    }
}

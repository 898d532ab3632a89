//! Partial updates: replaces fields of a stored object without decoding the others.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::record::digits;
use super::{Encoded, Record};

/// The fields of a JSON object in their order, unread.
pub struct Fields<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

/// A stored object, split into its top-level fields, of which some are replaced.
pub struct PartialUpdate<'a> {
    record: &'a Record,
    fields: Fields<'a>,
}

impl<'a> Fields<'a> {
    /// Takes an object apart; `None`: it is none.
    pub fn of(json: &'a str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }

    /// The JSON of a field.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, json)| json.as_ref())
    }

    /// Takes a field out.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(known, _)| known != name);
    }

    /// Puts JSON in the place of a field, or a new one where its name belongs among sorted ones.
    pub fn set(&mut self, name: &str, json: String) {
        match self.0.iter_mut().find(|(key, _)| key == name) {
            Some((_, old)) => *old = Cow::Owned(json),
            None => {
                let at = self.0.partition_point(|(key, _)| key.as_ref() < name);
                self.0.insert(at, (Cow::Owned(name.to_owned()), Cow::Owned(json)));
            }
        }
    }

    /// The object.
    pub fn to_json(&self) -> String {
        let mut out = String::with_capacity(self.len());
        for (key, json) in &self.0 {
            open(&mut out, key);
            out.push_str(json);
        }
        out.push_str(if out.is_empty() { "{}" } else { "}" });
        out
    }

    /// The object in two parts, before and after what is between the quotes of a text in it.
    fn around(&self, name: &str) -> Option<(String, String)> {
        let at = self.0.iter().position(|(key, _)| key == name)?;
        let (mut head, mut tail) = (String::with_capacity(self.len()), String::with_capacity(self.len()));
        for (key, json) in self.0.get(..at)? {
            open(&mut head, key);
            head.push_str(json);
        }
        open(&mut head, name);
        head.push('"');
        tail.push('"');
        for (key, json) in self.0.get(at + 1..)? {
            tail.push(',');
            name_field(&mut tail, key);
            tail.push_str(json);
        }
        tail.push('}');
        Some((head, tail))
    }

    /// About as long as the JSON.
    fn len(&self) -> usize {
        self.0.iter().map(|(key, json)| key.len() + json.len() + 4).sum::<usize>() + 2
    }
}

/// Begins a field, and the object if it is the first.
fn open(out: &mut String, key: &str) {
    out.push(if out.is_empty() { '{' } else { ',' });
    name_field(out, key);
}

fn name_field(out: &mut String, key: &str) {
    // Nearly every name is its own JSON.
    if key.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\') {
        out.push('"');
        out.push_str(key);
        out.push_str("\":");
    } else {
        out.push_str(&serde_json::Value::from(key).to_string());
        out.push(':');
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::with_capacity(16);
                while let Some((Name(key), value)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
                    fields.push((key, Cow::Borrowed(value.get())));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// A name, borrowed where it has no escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl Record {
    /// Splits the object into its fields; `None`: it is no JSON object.
    pub fn partial_update(&self) -> Option<PartialUpdate<'_>> {
        let fields = Fields::of(std::str::from_utf8(&self.json).ok()?)?;
        Some(PartialUpdate { record: self, fields })
    }
}

impl PartialUpdate<'_> {
    /// The JSON of a top-level field.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.fields.get(name)
    }

    /// Puts the object together with other JSON for these fields, and with other metadata and the labels in them. `None`: a
    /// field isn't there, or doesn't come after the metadata.
    pub fn with(
        &self,
        metadata: Option<(&Fields<'_>, BTreeMap<String, String>)>,
        changed: &[(&str, String)],
    ) -> Option<Encoded> {
        let Record { json, stamp, revision, uid, labels, .. } = self.record;
        let text = std::str::from_utf8(json).ok()?;
        let begin = |value: &str| (value.as_ptr() as usize).checked_sub(text.as_ptr() as usize);
        // Where in the object what has been taken over so far ends.
        let (head, mut tail, mut end, labels) = match metadata {
            None => {
                (text.get(..*stamp)?.to_owned(), String::new(), stamp + digits(*revision), labels.clone())
            }
            Some((metadata, labels)) => {
                let old = self.fields.get("metadata")?;
                let (before, after) = metadata.around("resourceVersion")?;
                let at = begin(old)?;
                ([text.get(..at)?, &before].concat(), after, at + old.len(), labels)
            }
        };
        tail.reserve(text.len());
        for (name, value) in &self.fields.0 {
            let Some((_, new)) = changed.iter().find(|(key, _)| key == name) else { continue };
            let at = begin(value)?;
            tail.push_str(text.get(end..at)?);
            tail.push_str(new);
            end = at + value.len();
        }
        tail.push_str(text.get(end..)?);
        let all = changed.iter().all(|(key, _)| self.fields.get(key).is_some());
        all.then(|| Encoded::of(head.into_bytes(), tail.into_bytes(), uid.clone(), labels))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::store::Key;

    #[test]
    fn an_object_put_together_again_is_what_encoding_makes_of_it() {
        let record = |object: &Value| Encoded::new(object).unwrap().stamp(Key::new("/x", "a", "b"), 7);
        let metadata = json!({"name": "b", "uid": "1", "labels": {"k": "v"}, "zone": "\"z\u{e9}\\"});
        for (old, new) in [
            (json!({"a": 1}), json!({"a": 2})),
            (json!({}), json!({"nodeName": "n"})),
            (json!({"\"": [{"spec": 1}], "z": {"y": []}}), json!({"\"": "\u{1}", "b": null, "z": {"y": []}})),
        ] {
            let object = |spec: &Value| json!({"apiVersion": "v1", "kind": "X", "metadata": metadata, "spec": spec, "status": {"x": 1}});
            let before = record(&object(&old));
            let update = before.partial_update().unwrap();
            let mut spec = Fields::of(update.get("spec").unwrap()).unwrap();
            assert_eq!(spec.to_json(), old.to_string());
            for (key, value) in new.as_object().unwrap() {
                spec.set(key, value.to_string());
            }
            let after = update.with(None, &[("spec", spec.to_json())]).unwrap();
            let after = after.stamp(before.key.clone(), 1234);
            let plain = Encoded::new(&object(&new)).unwrap().stamp(before.key.clone(), 1234);
            assert_eq!((&after.json, after.stamp, &after.labels), (&plain.json, plain.stamp, &plain.labels));
            assert!(update.with(None, &[("data", String::new())]).is_none());
        }
        assert!(Fields::of("[]").is_none() && Fields::of("{").is_none());
    }
}

//! The walk over the body of a built-in kind, guided by its schema.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::{Findings, MAX_STRICT, time};
use crate::schema::{Leaf, Presence, Schema, SchemaId, SchemaType, Schemas};

/// Where the walk is.
enum Frame<'s> {
    /// In a field of a struct; the definition's name and the field's.
    Field(&'s str, &'s str),
    /// In an element of a list.
    Index(usize),
    /// In a value of a map.
    Key(String),
}

/// State of the walk over one body.
pub(super) struct Walk<'s> {
    schemas: &'s Schemas,
    frames: Vec<Frame<'s>>,
    pub findings: Findings,
}

impl<'s> Walk<'s> {
    pub fn new(schemas: &'s Schemas) -> Self {
        Self { schemas, frames: Vec::with_capacity(16), findings: Findings::default() }
    }

    /// The seed that reads the whole object.
    pub fn root<'w>(&'w mut self, id: SchemaId) -> Root<'w, 's> {
        Root { walk: self, id }
    }

    /// `spec.containers[0].` or nothing.
    fn prefix(&self) -> String {
        let mut path = String::new();
        for frame in &self.frames {
            match frame {
                Frame::Index(i) => path.push_str(&format!("[{i}]")),
                Frame::Field(_, name) => push_name(&mut path, name),
                Frame::Key(key) => push_name(&mut path, key),
            }
        }
        if !path.is_empty() {
            path.push('.');
        }
        path
    }

    fn strict(&mut self, what: &str, name: &str) {
        if self.findings.strict.len() < MAX_STRICT {
            let text = format!("{what} field \"{}{name}\"", self.prefix());
            if !self.findings.strict.contains(&text) {
                self.findings.strict.push(text);
            }
        }
    }

    /// Whether this is an entry of a `v1.ResourceList` of a core type: only these have defaults.
    fn in_resource_list(&self) -> bool {
        let field = self.frames.iter().rev().find_map(|f| match f {
            Frame::Field(owner, name) => Some((*owner, *name)),
            _ => None,
        });
        field.is_some_and(|(owner, name)| {
            owner.starts_with("io.k8s.api.core.")
                && crate::builtin::go_type(owner, name).is_none_or(|ty| ty == "v1.ResourceList")
        })
    }

    fn fail(&mut self, text: String) {
        // What comes after a fatal error isn't read any more.
        if self.findings.fatal.is_none() {
            self.findings.error.get_or_insert(text);
        }
    }

    fn stop(&mut self, text: String) {
        self.findings.fatal.get_or_insert(text);
    }

    /// A value of JSON type `got` where the schema wants another.
    fn mismatch(&mut self, got: &str, wanted: &str) {
        let fields: Vec<(&str, &str)> = self
            .frames
            .iter()
            .filter_map(|f| if let Frame::Field(s, n) = f { Some((*s, *n)) } else { None })
            .collect();
        let Some((owner, field)) = fields.last().copied() else {
            let text = format!(
                "json: cannot unmarshal {got} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
            );
            self.findings.meta_error.get_or_insert(text);
            return;
        };
        let depth = self.frames.iter().rev().take_while(|f| !matches!(f, Frame::Field(..))).count();
        let wanted = crate::builtin::go_type(owner, field)
            .map_or_else(|| wanted.to_owned(), |name| element_type(name, depth).to_owned());
        if fields.len() == 1 && matches!(field, "apiVersion" | "kind") {
            let text = format!("json: cannot unmarshal {got} into Go struct field .{field} of type string");
            self.findings.meta_error.get_or_insert(text);
        } else {
            // Fields of embedded structs come after the name of the struct.
            let path: Vec<&str> = fields
                .iter()
                .flat_map(|(owner, name)| crate::builtin::embedded_in(owner, name).into_iter().chain([*name]))
                .collect();
            let owner = owner.rsplit('.').next().unwrap_or_default();
            self.fail(format!(
                "json: cannot unmarshal {got} into Go struct field {owner}.{} of type {wanted}",
                path.join(".")
            ));
        }
    }
}

fn push_name(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

/// The type of what is `depth` lists or maps inside of a Go type.
fn element_type(mut name: &str, depth: usize) -> &str {
    for _ in 0..depth {
        name = name
            .strip_prefix("[]")
            .or_else(|| name.strip_prefix("map[").and_then(|n| n.split_once(']')).map(|p| p.1))
            .unwrap_or(name);
    }
    name
}

/// How the converter that strategic patches go through words an error of [`super::conform`].
pub fn converter_error(why: &str) -> String {
    let parts = why
        .strip_prefix("json: cannot unmarshal ")
        .and_then(|rest| rest.split_once(" into Go struct field "))
        .and_then(|(got, rest)| Some((got, rest.split_once(" of type ")?.1)));
    let Some((got, wanted)) = parts else { return why.to_owned() };
    let got = match got.split(' ').next().unwrap_or_default() {
        "object" => "map",
        "array" => "slice",
        "number" => "int64",
        other => other,
    };
    let float = why.strip_prefix("json: cannot unmarshal number ").and_then(|n| n.split(' ').next());
    let float = float.is_some_and(|n| n.contains(['.', 'e']));
    // What Go would convert between numbers and texts is refused in other words.
    match wanted {
        "string" if got == "int64" && !float => return "cannot convert int64 to string".to_owned(),
        "int32" | "int64" if float => return format!("cannot convert float64 to {wanted}"),
        _ => {}
    }
    let simple = matches!(wanted, "string" | "bool" | "int32" | "int64" | "float64");
    match wanted {
        _ if wanted.starts_with("[]") => format!("cannot restore slice from {got}"),
        _ if wanted.starts_with("map[") => format!("cannot restore map from {got}"),
        _ if simple => format!("unrecognized type: {wanted}"),
        _ if got == "map" || got == "slice" => "unrecognized type: string".to_owned(),
        _ => format!("cannot restore struct from: {got}"),
    }
}

/// How a schema's Go type is called.
fn go_type(schemas: &Schemas, id: SchemaId) -> String {
    let schema = schemas.get(id);
    if let Some(name) = &schema.name {
        return match schema.leaf {
            Leaf::IntOrString => "int32".to_owned(),
            Leaf::Time | Leaf::MicroTime => "string".to_owned(),
            _ => {
                let mut parts = name.rsplit('.');
                let (kind, version) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
                format!("{version}.{kind}")
            }
        };
    }
    match schema.kind {
        SchemaType::Array => format!("[]{}", schema.items.map_or_else(String::new, |i| go_type(schemas, i))),
        SchemaType::Object => {
            format!("map[string]{}", schema.additional.map_or_else(String::new, |i| go_type(schemas, i)))
        }
        SchemaType::Integer if schema.format.is_empty() => "int64".to_owned(),
        SchemaType::Integer => schema.format.clone(),
        SchemaType::Boolean => "bool".to_owned(),
        SchemaType::Number => "float64".to_owned(),
        _ if schema.leaf == Leaf::Bytes => "[]uint8".to_owned(),
        _ => "string".to_owned(),
    }
}

/// The zero value of a type, as Go writes it.
pub fn zero_value(schemas: &Schemas, id: SchemaId) -> Value {
    let schema = schemas.get(id);
    match schema.leaf {
        Leaf::Quantity => return Value::String("0".to_owned()),
        Leaf::IntOrString => return Value::from(0),
        Leaf::Time | Leaf::MicroTime => return Value::Null,
        _ => {}
    }
    match schema.kind {
        SchemaType::Object => {
            let mut map = Map::new();
            add_always(schemas, schema, &mut map);
            Value::Object(map)
        }
        SchemaType::Array => Value::Array(Vec::new()),
        SchemaType::String => Value::String(String::new()),
        SchemaType::Integer | SchemaType::Number => Value::from(0),
        SchemaType::Boolean => Value::Bool(false),
        SchemaType::Any | SchemaType::IntOrString => Value::Null,
    }
}

/// Writes the fields that are always written.
fn add_always(schemas: &Schemas, schema: &Schema, map: &mut Map<String, Value>) {
    for name in &schema.always {
        if map.contains_key(name) {
            continue;
        }
        let Some(property) = schema.properties.get(name) else { continue };
        let value = match property.presence {
            Presence::Zero => zero_value(schemas, property.id),
            _ => Value::Null,
        };
        map.insert(name.clone(), value);
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(s) => s.is_empty(),
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o.is_empty(),
    }
}

/// Reads an object; a missing one (`null`) is the zero object.
pub(super) struct Root<'w, 's> {
    walk: &'w mut Walk<'s>,
    id: SchemaId,
}

impl<'de> DeserializeSeed<'de> for Root<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let (schemas, id) = (self.walk.schemas, self.id);
        let found = Node { walk: self.walk, id }.deserialize(deserializer)?;
        Ok(found.unwrap_or_else(|| zero_value(schemas, id)))
    }
}

/// Reads one value; `None` for `null`.
struct Node<'w, 's> {
    walk: &'w mut Walk<'s>,
    id: SchemaId,
}

impl<'s> Node<'_, 's> {
    fn schema(&self) -> &'s Schema {
        self.walk.schemas.get(self.id)
    }

    fn wrong(self, got: &str) -> Option<Value> {
        let wanted = go_type(self.walk.schemas, self.id);
        self.walk.mismatch(got, &wanted);
        None
    }

    /// A quantity from its text.
    fn quantity(self, text: &str) -> Option<Value> {
        match plimsoll_api::Quantity::canonical(text) {
            Ok(text) => Some(Value::String(text)),
            Err(e) => {
                self.walk.stop(e.to_string());
                None
            }
        }
    }

    fn integer(self, value: i64) -> Option<Value> {
        let schema = self.schema();
        match (schema.leaf, schema.kind) {
            (Leaf::Quantity, _) => self.quantity(&value.to_string()),
            (Leaf::IntOrString, _) => match i32::try_from(value) {
                Ok(v) => Some(Value::from(v)),
                Err(_) => self.wrong(&format!("number {value}")),
            },
            (Leaf::Raw, _) | (_, SchemaType::Any | SchemaType::Number) => Some(Value::from(value)),
            (_, SchemaType::Integer) if schema.format == "int32" && i32::try_from(value).is_err() => {
                self.wrong(&format!("number {value}"))
            }
            (_, SchemaType::Integer) => Some(Value::from(value)),
            _ => self.wrong("number"),
        }
    }

    fn text<E: Error>(self, text: &str, owned: Option<String>) -> Result<Option<Value>, E> {
        let schema = self.schema();
        Ok(match (schema.leaf, schema.kind) {
            (Leaf::Quantity, _) => self.quantity(text),
            (Leaf::Time | Leaf::MicroTime, _) => {
                match time::normalise(text, schema.leaf == Leaf::MicroTime) {
                    Ok(time) => time.map(Value::String),
                    Err(why) => {
                        self.walk.stop(why);
                        None
                    }
                }
            }
            (Leaf::Bytes, _) => self.bytes(text),
            (Leaf::Raw | Leaf::IntOrString, _) | (_, SchemaType::Any | SchemaType::String) => {
                Some(Value::String(owned.unwrap_or_else(|| text.to_owned())))
            }
            _ => self.wrong("string"),
        })
    }

    fn bytes(self, text: &str) -> Option<Value> {
        use base64::Engine as _;
        let engine = base64::engine::general_purpose::STANDARD;
        let plain: String;
        let input = if text.contains(['\n', '\r']) {
            plain = text.replace(['\n', '\r'], "");
            &plain
        } else {
            text
        };
        match engine.decode(input) {
            Ok(_) => Some(Value::String(input.to_owned())),
            Err(_) => {
                let at = base64_fault(input.as_bytes());
                self.walk.fail(format!("illegal base64 data at input byte {at}"));
                None
            }
        }
    }

    /// A struct: known fields in, the rest reported.
    fn fields<'de, A: MapAccess<'de>>(self, mut access: A) -> Result<Option<Value>, A::Error> {
        let schema = self.schema();
        let owner = schema.name.as_deref().unwrap_or_default();
        let mut map = Map::new();
        let mut seen: Vec<&str> = Vec::with_capacity(schema.properties.len().min(16));
        while let Some(Key(key)) = access.next_key::<Key<'de>>()? {
            let Some((name, property)) = schema.properties.get_key_value(&*key) else {
                self.walk.strict("unknown", &key);
                access.next_value::<IgnoredAny>()?;
                continue;
            };
            if seen.contains(&name.as_str()) {
                self.walk.strict("duplicate", &key);
            }
            seen.push(name);
            self.walk.frames.push(Frame::Field(owner, name));
            let value = access.next_value_seed(Node { walk: self.walk, id: property.id })?;
            self.walk.frames.pop();
            let Some(value) = value else { continue };
            match property.presence {
                Presence::Omit if is_zero(&value) => {}
                Presence::Null
                    if matches!(&value, Value::Object(o) if o.is_empty())
                        && is_map(self.walk.schemas, property.id) => {}
                _ => {
                    map.insert(name.clone(), value);
                }
            }
        }
        add_always(self.walk.schemas, schema, &mut map);
        Ok(Some(Value::Object(map)))
    }

    /// A map with free keys.
    fn entries<'de, A: MapAccess<'de>>(
        self,
        mut access: A,
        values: SchemaId,
    ) -> Result<Option<Value>, A::Error> {
        let mut map = Map::new();
        let amounts = self.walk.schemas.get(values).leaf == Leaf::Quantity;
        while let Some(key) = access.next_key::<String>()? {
            if map.contains_key(&key) {
                self.walk.strict("duplicate", &key);
            }
            self.walk.frames.push(Frame::Key(key));
            let value = access.next_value_seed(Node { walk: self.walk, id: values })?;
            let mut value = value.unwrap_or_else(|| zero_value(self.walk.schemas, values));
            if amounts && value.as_str().is_some_and(is_fine) && self.walk.in_resource_list() {
                whole_thousandths(&mut value);
            }
            if let Some(Frame::Key(key)) = self.walk.frames.pop() {
                map.insert(key, value);
            }
        }
        Ok(Some(Value::Object(map)))
    }
}

/// Whether an amount may be finer than thousandths, by its canonical form.
fn is_fine(amount: &str) -> bool {
    amount.ends_with(['u', 'n']) || amount.contains("e-")
}

/// Amounts of resources are no finer than thousandths (core/v1 `SetDefaults_ResourceList`).
fn whole_thousandths(value: &mut Value) {
    const MILLI: i128 = 1_000_000;
    let Some(Ok(amount)) = value.as_str().map(str::parse::<plimsoll_api::Quantity>) else { return };
    let rest = amount.nanos() % MILLI;
    if rest != 0 {
        let up = amount.nanos().saturating_add(rest.signum() * MILLI - rest);
        *value = Value::String(plimsoll_api::Quantity::from_nanos(up, amount.format()).to_string());
    }
}

fn is_map(schemas: &Schemas, id: SchemaId) -> bool {
    schemas.get(id).additional.is_some()
}

/// A key, borrowed where the input allows it.
struct Key<'de>(std::borrow::Cow<'de, str>);

impl<'de> serde::Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }
            fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(key.into()))
            }
            fn visit_str<E>(self, key: &str) -> Result<Key<'de>, E> {
                Ok(Key(key.to_owned().into()))
            }
            fn visit_string<E>(self, key: String) -> Result<Key<'de>, E> {
                Ok(Key(key.into()))
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_, '_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<Value>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_, '_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_none<E>(self) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Option<Value>, E> {
        let schema = self.schema();
        Ok(match (schema.leaf, schema.kind) {
            (Leaf::Quantity, _) => self.quantity(if value { "true" } else { "false" }),
            (Leaf::Raw, _) | (_, SchemaType::Any | SchemaType::Boolean) => Some(Value::Bool(value)),
            _ => self.wrong("bool"),
        })
    }

    fn visit_i64<E>(self, value: i64) -> Result<Option<Value>, E> {
        Ok(self.integer(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Option<Value>, E> {
        Ok(match i64::try_from(value) {
            Ok(value) => self.integer(value),
            Err(_) => match (self.schema().leaf, self.schema().kind) {
                (Leaf::Quantity, _) => self.quantity(&value.to_string()),
                (Leaf::Raw, _) | (_, SchemaType::Any | SchemaType::Number) => Some(Value::from(value)),
                (_, SchemaType::Integer | SchemaType::IntOrString) => self.wrong(&format!("number {value}")),
                _ => self.wrong("number"),
            },
        })
    }

    fn visit_f64<E>(self, value: f64) -> Result<Option<Value>, E> {
        let schema = self.schema();
        Ok(match (schema.leaf, schema.kind) {
            (Leaf::Quantity, _) => self.quantity(&value.to_string()),
            (Leaf::Raw, _) | (_, SchemaType::Any | SchemaType::Number) => {
                Number::from_f64(value).map(Value::Number)
            }
            (_, SchemaType::Integer | SchemaType::IntOrString) => self.wrong(&format!("number {value:?}")),
            _ => self.wrong("number"),
        })
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Option<Value>, E> {
        self.text(text, None)
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Option<Value>, E> {
        let schema = self.schema();
        if schema.leaf == Leaf::Plain && schema.kind == SchemaType::String {
            return Ok(Some(Value::String(text)));
        }
        self.text(&text, None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Option<Value>, A::Error> {
        let schema = self.schema();
        if schema.leaf == Leaf::Raw || schema.kind == SchemaType::Any {
            let seq = serde::de::value::SeqAccessDeserializer::new(access);
            return <Value as serde::Deserialize>::deserialize(seq).map(Some);
        }
        let (SchemaType::Array, Some(items)) = (schema.kind, schema.items) else {
            while access.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(if schema.leaf == Leaf::Quantity { self.quantity("[]") } else { self.wrong("array") });
        };
        let mut list = Vec::new();
        loop {
            self.walk.frames.push(Frame::Index(list.len()));
            let element = access.next_element_seed(Node { walk: self.walk, id: items })?;
            self.walk.frames.pop();
            let Some(element) = element else { break };
            list.push(element.unwrap_or_else(|| zero_value(self.walk.schemas, items)));
        }
        Ok(Some(Value::Array(list)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Option<Value>, A::Error> {
        let schema = self.schema();
        if schema.leaf == Leaf::Raw || schema.kind == SchemaType::Any {
            // `JSONSchemaPropsOrBool` and its like: an object is a schema.
            if let Some(object) = schema.items {
                // They are read by a decoder of their own, which looks for no unknown or duplicate fields.
                let known = self.walk.findings.strict.len();
                let found = Node { walk: self.walk, id: object }.fields(access);
                self.walk.findings.strict.truncate(known);
                return found;
            }
            let map = serde::de::value::MapAccessDeserializer::new(access);
            return <Value as serde::Deserialize>::deserialize(map).map(Some);
        }
        if schema.kind != SchemaType::Object {
            while access.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(if schema.leaf == Leaf::Quantity {
                self.quantity("{}")
            } else {
                self.wrong("object")
            });
        }
        match schema.additional {
            Some(values) => self.entries(access, values),
            None => self.fields(access),
        }
    }
}

/// Where Go's decoder gives up on base64 text.
fn base64_fault(text: &[u8]) -> usize {
    let known = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/');
    for (n, quantum) in text.chunks(4).enumerate() {
        let start = n * 4;
        let Some(j) = quantum.iter().position(|b| !known(b)) else {
            if quantum.len() < 4 {
                return start;
            }
            continue;
        };
        let at = start + j;
        let padding = |i: usize| quantum.get(i) == Some(&b'=');
        return match j {
            _ if !padding(j) => at,
            0 | 1 => at,
            2 if quantum.len() == 3 => text.len(),
            2 if !padding(3) => at,
            // something after the end
            _ => start + 4,
        };
    }
    text.len()
}

//! The generated table of messages.

use std::collections::HashMap;
use std::sync::LazyLock;

const DATA: &str = include_str!("../../data/protobuf.txt");

/// The table, read once.
pub static TABLE: LazyLock<Table> = LazyLock::new(|| Table::read(DATA));

/// All messages.
#[derive(Debug, Default)]
pub struct Table {
    /// Messages; fields refer to them by index.
    pub messages: Vec<Message>,
    by_name: HashMap<String, usize>,
}

/// One message.
#[derive(Debug)]
pub struct Message {
    /// The JSON form of the message, when not an object.
    pub form: Form,
    /// Fields by number.
    pub fields: Vec<Field>,
}

/// The JSON form of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An object with its fields.
    Object,
    /// A time in seconds or microseconds, as text.
    Time,
    /// A time in microseconds, as text.
    MicroTime,
    /// A quantity, as text.
    Quantity,
    /// An integer or a text.
    IntOrString,
    /// Any JSON, in bytes.
    Raw,
    /// The list in its only field.
    List,
    /// A schema, or a list of them.
    SchemaOrArray,
    /// A schema, or a boolean.
    SchemaOrBool,
    /// A schema, or a list of texts.
    SchemaOrStrings,
}

/// One field.
#[derive(Debug)]
pub struct Field {
    /// Name in JSON.
    pub json: String,
    /// Number.
    pub number: u32,
    /// Type.
    pub kind: Kind,
    /// The shape of the field.
    pub shape: Shape,
}

/// Type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text.
    String,
    /// Bytes, base64 in JSON.
    Bytes,
    /// A boolean.
    Bool,
    /// An integer.
    Int,
    /// A floating-point number.
    Double,
    /// A message.
    Message(usize),
}

/// How many values a field has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// At most once.
    Single,
    /// A list.
    Repeated,
    /// A map with texts as keys.
    Map,
    /// A message whose fields are the parent's in JSON.
    Embedded,
}

impl Table {
    /// The message of this definition name.
    pub fn named(&self, name: &str) -> Option<usize> {
        self.by_name.get(&fold(name)).copied()
    }

    /// A message.
    pub fn message(&self, index: usize) -> Option<&Message> {
        self.messages.get(index)
    }

    fn read(text: &str) -> Self {
        let mut table = Self::default();
        for (i, line) in text.lines().enumerate() {
            let mut words = line.split(' ');
            let name = words.next().unwrap_or_default();
            let mut fields: Vec<Field> = words.filter_map(field).collect();
            fields.sort_by_key(|f| f.number);
            let form = form(name);
            // these are no objects in JSON; their fields get the names the code knows
            let names: &[&str] = match form {
                Form::SchemaOrArray => &["schema", "schemas"],
                Form::SchemaOrBool => &["allows", "schema"],
                Form::SchemaOrStrings => &["schema", "property"],
                _ => &[],
            };
            for (field, name) in fields.iter_mut().zip(names) {
                field.json = (*name).to_owned();
            }
            table.by_name.insert(fold(name), i);
            table.messages.push(Message { form, fields });
        }
        table
    }
}

/// Upstream's and the table's spellings of acronyms differ.
fn fold(name: &str) -> String {
    name.to_ascii_lowercase()
}

fn field(word: &str) -> Option<Field> {
    let (json, rest) = word.rsplit_once('=')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit())?;
    let (number, rest) = rest.split_at(digits);
    let (shape, rest) = match rest.chars().next()? {
        '*' => (Shape::Repeated, rest.get(1..)?),
        '%' => (Shape::Map, rest.get(1..)?),
        '^' => (Shape::Embedded, rest.get(1..)?),
        _ => (Shape::Single, rest),
    };
    let kind = match rest.split_at_checked(1)? {
        ("s", _) => Kind::String,
        ("y", _) => Kind::Bytes,
        ("b", _) => Kind::Bool,
        ("i", _) => Kind::Int,
        ("d", _) => Kind::Double,
        ("m", index) => Kind::Message(index.parse().ok()?),
        _ => return None,
    };
    Some(Field { json: json.to_owned(), number: number.parse().ok()?, kind, shape })
}

fn form(name: &str) -> Form {
    let tail = name.rsplit('.').next().unwrap_or_default();
    match tail {
        "Time" => Form::Time,
        "MicroTime" => Form::MicroTime,
        "Quantity" => Form::Quantity,
        "IntOrString" => Form::IntOrString,
        "RawExtension" | "FieldsV1" | "JSON" => Form::Raw,
        "ExtraValue" | "Verbs" => Form::List,
        "JSONSchemaPropsOrArray" => Form::SchemaOrArray,
        "JSONSchemaPropsOrBool" => Form::SchemaOrBool,
        "JSONSchemaPropsOrStringArray" => Form::SchemaOrStrings,
        _ => Form::Object,
    }
}

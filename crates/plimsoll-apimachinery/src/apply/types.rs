//! Types of field ownership from a schema: scalars, granular and atomic maps, keyed, set and atomic lists.
//!
//! The rules are those of kube-openapi's conversion to structured-merge-diff schemas.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::fields;
use crate::kinds::Kind;
use crate::schema::{Leaf, Property, Schema, SchemaId, SchemaType, Schemas};

/// Type of a value.
#[derive(Clone, Copy, Debug)]
pub enum Type<'a> {
    /// Unknown: maps are granular, lists atomic.
    Deduced,
    /// A node of a schema.
    Known {
        /// Its arena.
        schemas: &'a Schemas,
        /// The node.
        id: SchemaId,
        /// Whether fields that aren't declared are allowed here and below.
        open: bool,
        /// Whether this is the root of a custom resource, where metadata is built in.
        root: bool,
    },
}

/// The shape that values of a type may have.
#[derive(Clone, Copy, Debug)]
pub enum Shape<'a> {
    /// A scalar of this JSON type (`Any`: any scalar).
    Scalar(SchemaType),
    /// A list.
    List(ListType<'a>),
    /// A map or struct.
    Map(MapType<'a>),
}

/// A list.
#[derive(Clone, Copy, Debug)]
pub struct ListType<'a> {
    /// Key fields of a keyed list, none for a set; `None`: atomic.
    pub keys: Option<Keys<'a>>,
    /// Type of the elements.
    pub items: Type<'a>,
}

/// Key fields of a list.
#[derive(Clone, Copy, Debug)]
pub enum Keys<'a> {
    /// `x-kubernetes-list-map-keys`.
    Many(&'a [String]),
    /// The merge key of strategic merge patch.
    One(&'a str),
    /// A set: the elements are their own keys.
    Set,
}

/// A map.
#[derive(Clone, Copy, Debug)]
pub struct MapType<'a> {
    /// Whether it is owned as a whole.
    pub atomic: bool,
    schema: Option<(&'a Schemas, &'a Schema)>,
    open: bool,
    root: bool,
}

/// Type of `metadata`, the same for all kinds.
fn metadata<'a>() -> Type<'a> {
    static ID: LazyLock<Option<SchemaId>> =
        LazyLock::new(|| crate::builtin::schemas().named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"));
    ID.map_or(Type::Deduced, |id| Type::Known {
        schemas: crate::builtin::schemas(),
        id,
        open: false,
        root: false,
    })
}

impl<'a> Type<'a> {
    /// Type of the objects of a kind.
    pub fn of(kind: &'a Kind) -> Self {
        let bare = || super::bare::schema(&kind.gvk.group, &kind.gvk.kind).filter(|_| kind.custom.is_none());
        kind.schema.as_ref().or_else(bare).map_or(Self::Deduced, |s| Self::Known {
            schemas: &s.schemas,
            id: s.root,
            open: kind.custom.as_ref().is_some_and(|c| c.preserve_unknown),
            root: kind.custom.is_some(),
        })
    }

    /// Whether it is raw JSON in a Go type that upstream's comparison does not look into.
    pub fn raw(self) -> bool {
        matches!(self, Self::Known { schemas, id, .. } if schemas.get(id).leaf == Leaf::Raw)
    }

    /// Whether it is a text of some format, which field ownership takes for any scalar (kube-openapi's
    /// `convertPrimitive`).
    pub fn is_formatted(self) -> bool {
        let Self::Known { schemas, id, .. } = self else { return false };
        let schema = schemas.get(id);
        schema.kind == SchemaType::String && !matches!(schema.format.as_str(), "" | "byte")
    }

    /// The shape of a value: that of its type, or that of the value where the type is open.
    pub fn shape(self, value: Option<&Value>) -> Shape<'a> {
        let Self::Known { schemas, id, open, root } = self else { return deduced(value) };
        let schema = schemas.get(id);
        let map = || {
            let open = open || schema.preserve_unknown;
            Shape::Map(MapType {
                // Upstream sees a Go type without fields.
                atomic: schema.map_type == "atomic" || schema.leaf == Leaf::Raw,
                schema: Some((schemas, schema)),
                open,
                root,
            })
        };
        let list = || {
            let items = schema.items.map_or(Self::Deduced, |id| Self::Known {
                schemas,
                id,
                open: open || schema.preserve_unknown,
                root: false,
            });
            Shape::List(ListType { keys: keys(schema), items })
        };
        match schema.kind {
            SchemaType::Object => map(),
            SchemaType::Array => list(),
            SchemaType::Any => match value {
                Some(Value::Object(_)) => map(),
                Some(Value::Array(_)) => list(),
                _ => Shape::Scalar(SchemaType::Any),
            },
            kind => Shape::Scalar(kind),
        }
    }
}

fn deduced<'a>(value: Option<&Value>) -> Shape<'a> {
    match value {
        Some(Value::Object(_)) => {
            Shape::Map(MapType { atomic: false, schema: None, open: true, root: false })
        }
        Some(Value::Array(_)) => Shape::List(ListType { keys: None, items: Type::Deduced }),
        _ => Shape::Scalar(SchemaType::Any),
    }
}

fn keys(schema: &Schema) -> Option<Keys<'_>> {
    match schema.list_type.as_str() {
        "set" => Some(Keys::Set),
        "map" => Some(Keys::Many(&schema.list_map_keys)),
        "atomic" => None,
        _ if !schema.patch_strategy.split(',').any(|s| s == "merge") => None,
        _ if schema.patch_merge_key.is_empty() => Some(Keys::Set),
        _ => Some(Keys::One(&schema.patch_merge_key)),
    }
}

impl<'a> MapType<'a> {
    /// Whether nothing is known about it.
    pub fn deduced(&self) -> bool {
        self.schema.is_none()
    }

    /// Whether no type of any field is known.
    pub fn is_untyped(&self) -> bool {
        self.schema.is_none_or(|(_, schema)| schema.properties.is_empty() && schema.additional.is_none())
    }

    /// Type of a field; `None` when it isn't declared.
    pub fn field(&self, name: &str) -> Option<Type<'a>> {
        let Some((schemas, schema)) = self.schema else { return Some(Type::Deduced) };
        if self.root {
            match name {
                "metadata" => return Some(metadata()),
                "apiVersion" | "kind" => return Some(Type::Deduced),
                _ => {}
            }
        }
        let known = |id| Type::Known { schemas, id, open: self.open, root: false };
        if let Some(property) = schema.properties.get(name) {
            return Some(known(property.id));
        }
        if let Some(additional) = schema.additional {
            return Some(known(additional));
        }
        (self.open || schema.properties.is_empty()).then_some(Type::Deduced)
    }

    /// Whether a field is declared by name (a struct's), rather than as a map's value.
    pub fn declares(&self, name: &str) -> bool {
        let builtin = self.root && matches!(name, "metadata" | "apiVersion" | "kind");
        builtin || self.property(name).is_some()
    }

    /// The declared field.
    pub fn property(&self, name: &str) -> Option<&'a Property> {
        self.schema.and_then(|(_, schema)| schema.properties.get(name))
    }
}

impl ListType<'_> {
    /// Path element of an item.
    ///
    /// # Errors
    /// Upstream's text when the item has no key.
    pub fn element(&self, item: &Value) -> Result<String, String> {
        match self.keys {
            None => Err("invalid indexing of non-associative list".to_owned()),
            Some(Keys::Set) => match item {
                Value::Object(_) => {
                    Err("associative list without keys has an element that's a map type".to_owned())
                }
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => {
                    Err("associative list without keys has an element that's an explicit null".to_owned())
                }
                scalar => Ok(fields::value_element(scalar)),
            },
            Some(Keys::One(key)) => self.keyed(std::iter::once(key), item),
            Some(Keys::Many(keys)) => self.keyed(keys.iter().map(String::as_str), item),
        }
    }

    /// Whether [`ListType::element`] finds a key in an item.
    pub fn has_key(&self, item: &Value) -> bool {
        let known = |key: &str| item.get(key).is_some() || self.key_default(key).is_some();
        match self.keys {
            None => false,
            Some(Keys::Set) => !matches!(item, Value::Object(_) | Value::Array(_) | Value::Null),
            Some(Keys::One(key)) => item.is_object() && known(key),
            Some(Keys::Many(keys)) => item.is_object() && keys.iter().any(|key| known(key)),
        }
    }

    fn keyed<'k>(&self, keys: impl Iterator<Item = &'k str> + Clone, item: &Value) -> Result<String, String> {
        let map = match item {
            Value::Object(map) => map,
            Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
            _ => return Err("associative list with keys may not have non-map elements".to_owned()),
        };
        let mut key = Map::new();
        for name in keys.clone() {
            if let Some(value) = map.get(name) {
                key.insert(name.to_owned(), value.clone());
            } else if let Some(default) = self.key_default(name) {
                key.insert(name.to_owned(), default.clone());
            }
        }
        if key.is_empty() {
            let names: Vec<String> = keys.map(|k| format!("{k:?}")).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                names.join(" ")
            ));
        }
        Ok(fields::key_element(key))
    }

    fn key_default(&self, name: &str) -> Option<&Value> {
        let Type::Known { schemas, id, .. } = self.items else { return None };
        schemas.get(id).properties.get(name)?.default.as_ref()
    }
}

//! Types, and the typed variables that an expression may use.

use std::fmt;
use std::sync::Arc;

/// A type of CEL, as far as the check follows types.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// Not followed by the check: an expression of this type passes every check.
    Unknown,
    /// `dyn`: known when the expression is evaluated.
    Dyn,
    /// `null_type`.
    Null,
    /// `bool`.
    Bool,
    /// `int`, 64 bits.
    Int,
    /// `uint`, 64 bits.
    Uint,
    /// `double`.
    Double,
    /// `string`.
    String,
    /// `bytes`.
    Bytes,
    /// `type`, the type of types.
    Type,
    /// A type without fields that has methods, by its full name (`kubernetes.Quantity`).
    Opaque(&'static str),
    /// `list(T)`.
    List(Box<Type>),
    /// `map(string, T)`.
    Map(Box<Type>),
    /// An object with declared fields.
    Object(Arc<ObjectType>),
    /// `optional_type(T)`.
    Optional(Box<Type>),
}

impl Type {
    /// A list of `element`.
    pub fn list(element: Self) -> Self {
        Self::List(Box::new(element))
    }

    /// A map from strings to `value`.
    pub fn map(value: Self) -> Self {
        Self::Map(Box::new(value))
    }

    /// An object with declared fields.
    pub fn object(of: ObjectType) -> Self {
        Self::Object(Arc::new(of))
    }

    /// An optional value.
    pub(crate) fn optional(held: Self) -> Self {
        Self::Optional(Box::new(held))
    }

    /// Whether a value of this type may turn out to be of any type.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Unknown | Self::Dyn | Self::Optional(_))
    }

    pub(crate) fn is_number(&self) -> bool {
        matches!(self, Self::Int | Self::Uint | Self::Double)
    }

    /// Whether this is neither an aggregate nor open.
    pub(crate) fn is_plain(&self) -> bool {
        !self.is_open() && !matches!(self, Self::List(_) | Self::Map(_) | Self::Object(_))
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown | Self::Dyn => "dyn",
            Self::Null => "null_type",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Type => "type",
            Self::Opaque(name) => name,
            Self::List(of) => return write!(f, "list({of})"),
            Self::Map(of) => return write!(f, "map(string, {of})"),
            Self::Object(of) => of.name,
            Self::Optional(of) => return write!(f, "optional_type({of})"),
        })
    }
}

/// An object type: its name and its fields.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectType {
    name: &'static str,
    fields: Vec<(&'static str, Type)>,
}

impl ObjectType {
    /// An object type. Messages show `name`; fields have the names that expressions use (see
    /// [`escape_field_name`](crate::escape_field_name)).
    pub fn new(name: &'static str, fields: impl IntoIterator<Item = (&'static str, Type)>) -> Self {
        Self { name, fields: fields.into_iter().collect() }
    }

    /// The type of a field; `None`: the object has no such field.
    pub fn field(&self, name: &str) -> Option<&Type> {
        self.fields.iter().find(|(n, _)| *n == name).map(|(_, ty)| ty)
    }
}

/// The variables that an expression may use, with their types (cel-go's `Env`). Functions are those of Kubernetes' base
/// environment (`k8s.io/apiserver/pkg/cel/environment`, `baseOpts`).
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// The last declaration of a name holds.
    variables: Vec<(String, Type)>,
    scopes: Vec<&'static str>,
}

impl Environment {
    /// An environment without variables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a variable. A qualified name (`authorizer.requestResource`) declares the field of a variable that
    /// [`Activation::select`](crate::Activation::select) gives; a later declaration of a name replaces an earlier one.
    #[must_use]
    pub fn variable(mut self, name: impl Into<String>, ty: Type) -> Self {
        self.variables.push((name.into(), ty));
        self
    }

    /// Declares a name of which only the fields that are declared as qualified variables exist: the check reports
    /// `variables.x` as an undefined field unless `variables.x` is declared.
    #[must_use]
    pub fn scope(mut self, name: &'static str) -> Self {
        self.scopes.push(name);
        self
    }

    /// The type of a variable; `None`: it is not declared.
    pub(crate) fn type_of(&self, name: &str) -> Option<&Type> {
        self.variables.iter().rev().find(|(n, _)| n == name).map(|(_, ty)| ty)
    }

    /// The type of the qualified variable `name.field`; `None`: it is not declared.
    pub(crate) fn type_of_field(&self, name: &str, field: &str) -> Option<&Type> {
        let is_it = |n: &str| n.strip_prefix(name).and_then(|rest| rest.strip_prefix('.')) == Some(field);
        self.variables.iter().rev().find(|(n, _)| is_it(n)).map(|(_, ty)| ty)
    }

    /// Whether `name` has only fields that are declared.
    pub(crate) fn is_scope(&self, name: &str) -> bool {
        self.scopes.contains(&name)
    }
}

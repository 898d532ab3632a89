//! The walk over the body of a built-in kind: its position and its findings.

use super::Findings;
use super::go_types::element_type;
use crate::schema::Schemas;

/// A step of the path to the value that is decoded.
pub(super) enum Frame<'s> {
    /// In a field of a struct; the definition's name and the field's.
    Field(&'s str, &'s str),
    /// In an element of a list.
    Index(usize),
    /// In a value of a map.
    Key(String),
}

/// The state of decoding one body: the path to the current value, and the findings so far.
pub(super) struct Walk<'s> {
    pub schemas: &'s Schemas,
    pub frames: Vec<Frame<'s>>,
    pub findings: Findings,
}

impl<'s> Walk<'s> {
    pub fn new(schemas: &'s Schemas) -> Self {
        Self { schemas, frames: Vec::with_capacity(16), findings: Findings::default() }
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

    /// The length of the prefix, about.
    fn length(&self) -> usize {
        let of = |frame: &Frame<'_>| match frame {
            Frame::Index(_) => 8,
            Frame::Field(_, name) => name.len() + 1,
            Frame::Key(key) => key.len() + 1,
        };
        self.frames.iter().map(of).sum()
    }

    /// Records an unknown or duplicate field of the current value.
    pub fn strict(&mut self, what: &str, name: &str) {
        if self.findings.looks(self.length() + name.len()) {
            let text = format!("{what} field \"{}{name}\"", self.prefix());
            if !self.findings.strict.contains(&text) {
                self.findings.strict.push(text);
            }
        }
    }

    /// Whether this is an entry of a `v1.ResourceList` of a core type: only these have defaults.
    pub fn in_resource_list(&self) -> bool {
        let field = self.frames.iter().rev().find_map(|f| match f {
            Frame::Field(owner, name) => Some((*owner, *name)),
            _ => None,
        });
        field.is_some_and(|(owner, name)| {
            owner.starts_with("io.k8s.api.core.")
                && crate::builtin::go_type(owner, name).is_none_or(|ty| ty == "v1.ResourceList")
        })
    }

    /// Records an error; decoding continues.
    pub fn fail(&mut self, text: String) {
        // Go stops reading at a fatal error.
        if self.findings.fatal.is_none() {
            self.findings.error.get_or_insert(text);
        }
    }

    /// Records a fatal error.
    pub fn stop(&mut self, text: String) {
        self.findings.fatal.get_or_insert(text);
    }

    /// Records a value of JSON type `got` where the schema has another type.
    pub fn mismatch(&mut self, got: &str, wanted: &str) {
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

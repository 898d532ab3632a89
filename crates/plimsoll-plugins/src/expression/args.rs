//! Arguments of an instance of `Expression`.

use plimsoll_scheduler::framework::{ArgsError, ExtensionPoint};
use serde_json::Value;

use super::compiled::{Compiled, Form};

/// Longest `reason`, in bytes: it is part of conditions and events.
const MAX_REASON: usize = 256;
const FIELDS: [&str; 4] = ["filter", "reason", "score", "preEnqueue"];

/// The expressions of an instance.
#[derive(Debug, Default)]
pub(super) struct Expressions {
    pub filter: Option<Compiled>,
    pub score: Option<Compiled>,
    pub pre_enqueue: Option<Compiled>,
    pub reason: Option<String>,
}

impl Expressions {
    /// Reads and compiles the JSON text of arguments.
    ///
    /// # Errors
    /// All that is wrong, by field.
    pub(super) fn read(text: &str) -> Result<Self, Vec<ArgsError>> {
        let fields = match serde_json::from_str(text) {
            Ok(Value::Object(fields)) => fields,
            _ => return Err(vec![ArgsError::new("", "Invalid value: must be an object")]),
        };
        let mut errors = Vec::new();
        for name in fields.keys().filter(|name| !FIELDS.contains(&name.as_str())) {
            errors.push(ArgsError::new(name, format!("unknown field: the fields are {}", FIELDS.join(", "))));
        }
        let mut text = |name: &str| match fields.get(name) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(_) => {
                errors.push(ArgsError::new(name, "Invalid value: must be a string: quote it"));
                None
            }
        };
        let [filter, reason, score, pre_enqueue] = FIELDS.map(&mut text);
        let mut compile = |name: &str, source: Option<String>, form| {
            let compiled = Compiled::new(&source?, form);
            compiled.map_err(|e| errors.push(ArgsError::new(name, format!("Invalid value: {e}")))).ok()
        };
        let out = Self {
            filter: compile("filter", filter, Form::Filter),
            score: compile("score", score, Form::Score),
            pre_enqueue: compile("preEnqueue", pre_enqueue, Form::PreEnqueue),
            reason,
        };
        if let Some(reason) = &out.reason {
            let problem = match () {
                () if reason.len() > MAX_REASON => {
                    format!("Too long: may not be more than {MAX_REASON} bytes")
                }
                () if reason.trim().is_empty() => "Invalid value: must not be empty: leave it out".to_owned(),
                () if reason.contains(char::is_control) => "Invalid value: must be one line".to_owned(),
                () => String::new(),
            };
            if !problem.is_empty() {
                errors.push(ArgsError::new("reason", problem));
            }
        }
        if errors.is_empty() && out.points().is_empty() {
            errors.push(ArgsError::new("", "Required value: one of filter, score, preEnqueue"));
        }
        if errors.is_empty() { Ok(out) } else { Err(errors) }
    }

    /// The extension points at which the instance runs.
    pub(super) fn points(&self) -> Vec<ExtensionPoint> {
        let points = [
            (ExtensionPoint::PreEnqueue, &self.pre_enqueue),
            (ExtensionPoint::Filter, &self.filter),
            (ExtensionPoint::Score, &self.score),
        ];
        points.into_iter().filter(|(_, expression)| expression.is_some()).map(|(point, _)| point).collect()
    }
}

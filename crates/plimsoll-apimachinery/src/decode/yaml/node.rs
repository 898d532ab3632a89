//! A YAML document as it is written: keys of any type, merges not yet made, lines kept.

use std::collections::HashMap;

use serde_saphyr::granit_parser::{Event, Options, Parser, ScalarStyle, Span, StrInput};

use super::scalar;
use crate::error::go_float;

/// A node of a document.
#[derive(Clone, Debug)]
pub enum Node {
    Null,
    Bool(bool),
    Int(i64),
    /// A whole number that only fits without a sign.
    Big(u64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A key and its value.
#[derive(Clone, Debug)]
pub struct Entry {
    pub key: Node,
    pub value: Node,
    /// The line where the value begins.
    pub line: usize,
}

/// Reads a text of one document that is right and whose aliases are known to be bounded.
pub fn parse(text: &str) -> Result<Node, String> {
    let mut options = Options::default();
    options.emit_anchor_events = true;
    options.emit_comments = false;
    options.flow_nesting_limit = usize::MAX;
    options.block_nesting_limit = usize::MAX;
    let mut reader = Reader {
        events: Parser::new_from_str_with_options(text, options),
        anchors: HashMap::new(),
        blank: text.lines().map(|line| line.trim().is_empty()).collect(),
    };
    while let Some((event, span)) = reader.next()? {
        if !matches!(event, Event::StreamStart | Event::DocumentStart(..)) {
            return reader.node(event, span).map(|(node, _)| node);
        }
    }
    Ok(Node::Null)
}

/// Makes nodes of events.
struct Reader<'t> {
    events: Parser<'t, StrInput<'t>>,
    anchors: HashMap<usize, Node>,
    /// Which lines of the text are blank.
    blank: Vec<bool>,
}

impl<'t> Reader<'t> {
    fn next(&mut self) -> Result<Option<(Event<'t>, Span)>, String> {
        self.events.next_event().transpose().map_err(|e| format!("yaml: {e}"))
    }

    /// The node that an event begins, and its line.
    fn node(&mut self, event: Event<'t>, span: Span) -> Result<(Node, usize), String> {
        let start = span.start.line();
        let start = match event {
            // It begins with its indicator, in the line before what is in it.
            Event::Scalar(_, ScalarStyle::Literal | ScalarStyle::Folded, ..) => {
                let before = self.blank.get(..start.saturating_sub(1)).unwrap_or_default();
                before.iter().rposition(|blank| !blank).map_or(start, |at| at + 1)
            }
            _ => start,
        };
        let mut line = start.min(span.tag_start.map_or(usize::MAX, |m| m.line()));
        if matches!(self.events.peek(), Some(Ok((Event::Anchor(..), _))))
            && let Some((_, name)) = self.next()?
        {
            line = line.min(name.start.line());
        }
        let (node, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                (scalar::resolve(&text, style == ScalarStyle::Plain, tag.as_deref())?, anchor)
            }
            Event::SequenceStart(_, anchor, _) => (Node::List(self.items()?), anchor),
            Event::MappingStart(_, anchor, _) => (Node::Map(self.entries()?), anchor),
            Event::Alias(anchor) => (self.anchors.get(&anchor).cloned().unwrap_or(Node::Null), 0),
            _ => (Node::Null, 0),
        };
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok((node, line))
    }

    fn items(&mut self) -> Result<Vec<Node>, String> {
        let mut items = Vec::new();
        while let Some((event, span)) = self.next()?
            && event != Event::SequenceEnd
        {
            items.push(self.node(event, span)?.0);
        }
        Ok(items)
    }

    fn entries(&mut self) -> Result<Vec<Entry>, String> {
        let mut entries = Vec::new();
        while let Some((event, span)) = self.next()?
            && event != Event::MappingEnd
        {
            let (key, _) = self.node(event, span)?;
            let Some((event, span)) = self.next()? else { break };
            let (value, line) = self.node(event, span)?;
            entries.push(Entry { key, value, line });
        }
        Ok(entries)
    }
}

impl Node {
    /// What tells keys apart (Go's `==`); `None`: it equals none, not even itself.
    pub fn identity(&self) -> Option<String> {
        match self {
            Self::Float(n) if n.is_nan() => None,
            // both zeros are the same
            Self::Float(n) => Some(format!("float {}", n + 0.0)),
            Self::Text(text) => Some(format!("text {text}")),
            other => Some(other.go_syntax()),
        }
    }

    /// The name of a key in JSON; `None`: it can't be one.
    pub fn name(&self) -> Option<String> {
        Some(match self {
            Self::Bool(b) => b.to_string(),
            Self::Int(n) => n.to_string(),
            // upstream's converter takes the digits of a float32
            Self::Float(n) if n.is_finite() && (*n as f32).is_finite() => {
                go_float(&(*n as f32).to_string(), &format!("{:e}", *n as f32), 6)
            }
            Self::Float(n) if n.is_nan() => ".nan".to_owned(),
            Self::Float(n) => if *n > 0.0 { ".inf" } else { "-.inf" }.to_owned(),
            Self::Text(text) => text.clone(),
            Self::Null | Self::Big(_) | Self::List(_) | Self::Map(_) => return None,
        })
    }

    /// The type of a scalar as Go prints it.
    pub const fn go_type(&self) -> &'static str {
        match self {
            Self::Null => "%!s(<nil>)",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Big(_) => "uint64",
            Self::Float(_) => "float64",
            Self::Text(_) => "string",
            Self::List(_) => "[]interface {}",
            Self::Map(_) => "map[interface {}]interface {}",
        }
    }

    /// As Go's `%#v` prints it.
    pub fn go_syntax(&self) -> String {
        let inside = |node: &Self| match node {
            Self::Null => "interface {}(nil)".to_owned(),
            other => other.go_syntax(),
        };
        match self {
            Self::Null => "<nil>".to_owned(),
            Self::Bool(b) => b.to_string(),
            Self::Int(n) => n.to_string(),
            Self::Big(n) => format!("{n:#x}"),
            Self::Float(n) if n.is_nan() => "NaN".to_owned(),
            Self::Float(n) if n.is_infinite() => if *n > 0.0 { "+Inf" } else { "-Inf" }.to_owned(),
            Self::Float(n) => go_float(&n.to_string(), &format!("{n:e}"), 6),
            Self::Text(text) => crate::decode::go_quote(text),
            Self::List(items) => {
                let items: Vec<String> = items.iter().map(inside).collect();
                format!("{}{{{}}}", self.go_type(), items.join(", "))
            }
            Self::Map(entries) => {
                let mut entries: Vec<String> =
                    entries.iter().map(|e| format!("{}:{}", inside(&e.key), inside(&e.value))).collect();
                entries.sort();
                format!("{}{{{}}}", self.go_type(), entries.join(", "))
            }
        }
    }
}

//! Reads the nodes of a YAML document.

use std::collections::HashMap;

use serde_saphyr::granit_parser::{Event, Options, Parser, ScalarStyle, Span, StrInput};

use super::node::{Entry, Node};
use super::scalar;

/// Reads a text that is known to be one well-formed document, whose aliases are bounded.
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
    /// For each line of the text, whether it is blank.
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
            // A block scalar begins with its indicator, in the line before its text.
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

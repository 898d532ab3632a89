//! Label selectors: grammar, validation and matching of apimachinery's `labels`.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_api::content;
use serde_json::json;

use crate::error::{ApiError, FieldError};

/// The operator of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `in`, `=` and `==`.
    In,
    /// `notin` and `!=`: also true when the label is missing.
    NotIn,
    /// The label exists.
    Exists,
    /// The label is not there.
    DoesNotExist,
    /// `>`: the label is an integer above the value.
    Gt,
    /// `<`: the label is an integer below the value.
    Lt,
}

/// One requirement of a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// Label key.
    pub key: String,
    /// Operator.
    pub operator: Operator,
    /// Values, sorted; empty for `Exists` and `DoesNotExist`.
    pub values: Vec<String>,
}

impl Requirement {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let label = labels.get(&self.key);
        match self.operator {
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
            Operator::In => label.is_some_and(|l| self.values.contains(l)),
            Operator::NotIn => label.is_none_or(|l| !self.values.contains(l)),
            Operator::Gt | Operator::Lt => {
                let integer = |text: &String| go_int(text);
                let (Some(have), Some(want)) =
                    (label.and_then(integer), self.values.first().and_then(integer))
                else {
                    return false;
                };
                if self.operator == Operator::Gt { have > want } else { have < want }
            }
        }
    }
}

/// A parsed label selector: all requirements must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    /// Requirements in order of appearance.
    pub requirements: Vec<Requirement>,
}

impl LabelSelector {
    /// Parses `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1,m<2`.
    ///
    /// # Errors
    /// 400 with the text of apimachinery's `labels.Parse`.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        Parser { tokens: scan(text), at: 0 }.parse().map_err(ApiError::bad_request)
    }

    /// Whether labels match.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements.iter().all(|r| r.matches(labels))
    }

    /// Whether everything matches.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }
}

/// `strconv.ParseInt(s, 10, 64)`.
fn go_int(text: &str) -> Option<i64> {
    text.parse().ok()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    End,
    Close,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    Gt,
    Identifier,
    In,
    Lt,
    NotEquals,
    NotIn,
    Open,
}

fn scan(text: &str) -> Vec<(Token, &str)> {
    // Upstream's lexer takes a NUL for the end.
    let text = text.split('\0').next().unwrap_or_default();
    let special = |c: char| matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<');
    let blank = |c: char| matches!(c, ' ' | '\t' | '\r' | '\n');
    let mut rest = text;
    let mut tokens = Vec::new();
    loop {
        rest = rest.trim_start_matches(blank);
        let Some(first) = rest.chars().next() else {
            tokens.push((Token::End, ""));
            return tokens;
        };
        let (token, length) = match first {
            '=' if rest.starts_with("==") => (Token::DoubleEquals, 2),
            '=' => (Token::Equals, 1),
            '!' if rest.starts_with("!=") => (Token::NotEquals, 2),
            '!' => (Token::Not, 1),
            '(' => (Token::Open, 1),
            ')' => (Token::Close, 1),
            ',' => (Token::Comma, 1),
            '>' => (Token::Gt, 1),
            '<' => (Token::Lt, 1),
            _ => {
                let end = rest.find(|c| special(c) || blank(c)).unwrap_or(rest.len());
                let token = match rest.get(..end) {
                    Some("in") => Token::In,
                    Some("notin") => Token::NotIn,
                    _ => Token::Identifier,
                };
                (token, end)
            }
        };
        let (literal, tail) = rest.split_at(length);
        tokens.push((token, literal));
        rest = tail;
    }
}

struct Parser<'a> {
    tokens: Vec<(Token, &'a str)>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn raw(&self) -> (Token, &'a str) {
        self.tokens.get(self.at).copied().unwrap_or((Token::End, ""))
    }

    /// The next token where `in` and `notin` are words like others.
    fn peek(&self) -> (Token, &'a str) {
        match self.raw() {
            (Token::In | Token::NotIn, literal) => (Token::Identifier, literal),
            other => other,
        }
    }

    fn take(&mut self) -> (Token, &'a str) {
        let next = self.peek();
        self.at += 1;
        next
    }

    fn parse(&mut self) -> Result<LabelSelector, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                (Token::Identifier | Token::Not, _) => {
                    let r = self.requirement().map_err(|e| format!("unable to parse requirement: {e}"))?;
                    requirements.push(r);
                    match self.take() {
                        (Token::End, _) => break,
                        (Token::Comma, _) => match self.peek() {
                            (Token::Identifier | Token::Not, _) => {}
                            (_, l) => return Err(format!("found '{l}', expected: identifier after ','")),
                        },
                        (_, l) => return Err(format!("found '{l}', expected: ',' or 'end of string'")),
                    }
                }
                (Token::End, _) => break,
                (_, l) => return Err(format!("found '{l}', expected: !, identifier, or 'end of string'")),
            }
        }
        Ok(LabelSelector { requirements })
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let (mut token, mut literal) = self.take();
        let negated = token == Token::Not;
        if negated {
            (token, literal) = self.take();
        }
        if token != Token::Identifier {
            return Err(format!("found '{literal}', expected: identifier"));
        }
        let key = literal.to_owned();
        if let Some(e) = key_error(&key, "<nil>") {
            return Err(e.to_string());
        }
        if negated {
            return Ok(Requirement { key, operator: Operator::DoesNotExist, values: Vec::new() });
        }
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Ok(Requirement { key, operator: Operator::Exists, values: Vec::new() });
        }
        let (token, literal) = self.raw();
        self.at += 1;
        let (operator, list) = match token {
            Token::In => (Operator::In, true),
            Token::NotIn => (Operator::NotIn, true),
            Token::Equals | Token::DoubleEquals => (Operator::In, false),
            Token::NotEquals => (Operator::NotIn, false),
            Token::Gt => (Operator::Gt, false),
            Token::Lt => (Operator::Lt, false),
            _ => return Err(format!("found '{literal}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        let values = if list { self.values()? } else { self.exact()? };
        check(Requirement { key, operator, values: values.into_iter().map(str::to_owned).collect() })
    }

    fn values(&mut self) -> Result<BTreeSet<&'a str>, String> {
        let (token, literal) = self.take();
        if token != Token::Open {
            return Err(format!("found '{literal}' expected: '('"));
        }
        let (token, literal) = self.peek();
        match token {
            Token::Identifier | Token::Comma => {
                let values = self.identifiers()?;
                // identifiers() ends before a closing parenthesis or fails
                self.at += 1;
                Ok(values)
            }
            Token::Close => {
                self.at += 1;
                Ok(BTreeSet::from([""]))
            }
            _ => Err(format!("found '{literal}', expected: ',', ')' or identifier")),
        }
    }

    fn identifiers(&mut self) -> Result<BTreeSet<&'a str>, String> {
        let mut values = BTreeSet::new();
        loop {
            match self.take() {
                (Token::Identifier, literal) => {
                    values.insert(literal);
                    match self.peek() {
                        (Token::Comma, _) => {}
                        (Token::Close, _) => return Ok(values),
                        (_, l) => return Err(format!("found '{l}', expected: ',' or ')'")),
                    }
                }
                (Token::Comma, _) => {
                    if values.is_empty() {
                        values.insert("");
                    }
                    match self.peek().0 {
                        Token::Close => {
                            values.insert("");
                            return Ok(values);
                        }
                        Token::Comma => {
                            values.insert("");
                        }
                        _ => {}
                    }
                }
                (_, l) => return Err(format!("found '{l}', expected: ',', or identifier")),
            }
        }
    }

    fn exact(&mut self) -> Result<BTreeSet<&'a str>, String> {
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Ok(BTreeSet::from([""]));
        }
        match self.take() {
            (Token::Identifier, literal) => Ok(BTreeSet::from([literal])),
            (_, l) => Err(format!("found '{l}', expected: identifier")),
        }
    }
}

/// Checks the values as `labels.NewRequirement` does; all errors in one text.
fn check(requirement: Requirement) -> Result<Requirement, String> {
    let mut errors: Vec<String> = Vec::new();
    let mut add = |e: &FieldError| {
        let text = e.to_string();
        // an aggregate prints equal texts once
        if !errors.contains(&text) {
            errors.push(text);
        }
    };
    if matches!(requirement.operator, Operator::Gt | Operator::Lt) {
        for (i, value) in requirement.values.iter().enumerate() {
            if go_int(value).is_none() {
                add(&FieldError::invalid(
                    format!("values[{i}]"),
                    &json!(value),
                    "for 'Gt', 'Lt' operators, the value must be an integer",
                ));
            }
        }
    }
    for (i, value) in requirement.values.iter().enumerate() {
        let wrong = content::label_value(value);
        if !wrong.is_empty() {
            let path = format!("values[{i}][{}]", requirement.key);
            add(&FieldError::invalid(path, &json!(value), wrong.join("; ")));
        }
    }
    match errors.as_slice() {
        [] => Ok(requirement),
        [one] => Err(one.clone()),
        many => Err(format!("[{}]", many.join(", "))),
    }
}

fn key_error(key: &str, path: &str) -> Option<FieldError> {
    let errors = content::label_key(key);
    (!errors.is_empty()).then(|| FieldError::invalid(path, &json!(key), errors.join("; ")))
}

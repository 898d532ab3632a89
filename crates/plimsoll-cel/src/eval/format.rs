//! `format` of strings, and doubles as text (cel-go's `ext/formatting.go` for the locale `en_US`, Go's `strconv`).

use kube_cel::cel::Value;
use kube_cel::cel::objects::Key;

use super::{time, types};
use crate::error::{EvalError, Evaluated};

/// Digits after the point where the form says nothing.
const PRECISION: usize = 6;
const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];

/// A form with its arguments put in.
pub(super) fn format(form: &str, args: &[Value]) -> Evaluated {
    let mut out = String::with_capacity(form.len());
    let mut used = 0;
    let mut rest = form;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        if let Some(after) = after.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let Some(arg) = args.get(used) else {
            return EvalError::error(format!("index {used} out of range"));
        };
        let (precision, after) = precision(after)?;
        let mut verb = after.chars();
        match verb.next() {
            Some(clause) => out.push_str(&formatted(clause, precision, arg)?),
            None => return EvalError::error("unexpected end of string"),
        }
        rest = verb.as_str();
        used += 1;
    }
    out.push_str(rest);
    Ok(Value::from(out))
}

/// The precision at the start of a clause (`.3`), and what comes after it.
fn precision(clause: &str) -> Result<(Option<usize>, &str), EvalError> {
    let Some(rest) = clause.strip_prefix('.') else { return Ok((None, clause)) };
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (digits, rest) = rest.split_at(end);
    match digits.parse() {
        Ok(precision) if !rest.is_empty() => Ok((Some(precision), rest)),
        _ => EvalError::error("could not parse formatting clause: error while parsing precision"),
    }
}

/// An argument as a clause wants it.
fn formatted(clause: char, precision: Option<usize>, arg: &Value) -> Result<String, EvalError> {
    let refused = |what: &str| {
        EvalError::error(format!("error during formatting: {what}, was given {}", types::name(arg)))
    };
    match (clause, arg) {
        ('s', _) => text(arg),
        ('d', Value::Int(i)) => Ok(i.to_string()),
        ('d', Value::UInt(u)) => Ok(u.to_string()),
        ('d', _) => refused("decimal clause can only be used on integers"),
        ('f', _) => match double(arg) {
            Some(f) => Ok(fixed(f, precision.unwrap_or(PRECISION))),
            None => refused("fixed-point clause can only be used on doubles"),
        },
        ('e', _) => match double(arg) {
            // Upstream's form makes a width of the precision.
            Some(f) => Ok(format!("{:>1$}", scientific(f), precision.unwrap_or(PRECISION))),
            None => refused("scientific clause can only be used on doubles"),
        },
        ('b', Value::Bool(b)) => Ok(u8::from(*b).to_string()),
        ('b', Value::Int(i)) => Ok(signed(*i, format!("{:b}", i.unsigned_abs()))),
        ('b', Value::UInt(u)) => Ok(format!("{u:b}")),
        ('b', _) => refused("only integers and bools can be formatted as binary"),
        ('x', Value::Int(i)) => Ok(signed(*i, format!("{:x}", i.unsigned_abs()))),
        ('X', Value::Int(i)) => Ok(signed(*i, format!("{:X}", i.unsigned_abs()))),
        ('x', Value::UInt(u)) => Ok(format!("{u:x}")),
        ('X', Value::UInt(u)) => Ok(format!("{u:X}")),
        ('x' | 'X', Value::String(s)) => Ok(hexadecimal(s.as_bytes(), clause)),
        ('x' | 'X', Value::Bytes(b)) => Ok(hexadecimal(b, clause)),
        ('x' | 'X', _) => refused("only integers, byte buffers, and strings can be formatted as hex"),
        ('o', Value::Int(i)) => Ok(signed(*i, format!("{:o}", i.unsigned_abs()))),
        ('o', Value::UInt(u)) => Ok(format!("{u:o}")),
        ('o', _) => refused("octal clause can only be used on integers"),
        (other, _) => EvalError::error(format!(
            "could not parse formatting clause: unrecognized formatting clause \"{other}\""
        )),
    }
}

fn signed(i: i64, digits: String) -> String {
    if i < 0 { format!("-{digits}") } else { digits }
}

fn hexadecimal(bytes: &[u8], clause: char) -> String {
    let digits: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    if clause == 'X' { digits.to_uppercase() } else { digits }
}

/// A double, or a text that stands for one that no literal has.
fn double(arg: &Value) -> Option<f64> {
    match arg {
        Value::Float(f) => Some(*f),
        Value::String(s) => match s.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

/// NaN and the infinities as the locale writes them.
fn special(f: f64) -> Option<String> {
    if f.is_nan() {
        return Some("NaN".to_owned());
    }
    f.is_infinite().then(|| if f < 0.0 { "-∞" } else { "∞" }.to_owned())
}

/// With a comma between thousands.
fn fixed(f: f64, precision: usize) -> String {
    if let Some(text) = special(f) {
        return text;
    }
    let plain = format!("{f:.precision$}");
    let (sign, digits) = plain.strip_prefix('-').map_or(("", plain.as_str()), |digits| ("-", digits));
    let (whole, part) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let mut out = sign.to_owned();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out.push_str(part);
    out
}

/// With a power of ten.
fn scientific(f: f64) -> String {
    if let Some(text) = special(f) {
        return text;
    }
    let plain = format!("{f:.PRECISION$e}");
    let (mantissa, exponent) = plain.split_once('e').unwrap_or((&plain, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(("", exponent), |digits| ("⁻", digits));
    let raised = |c: char| c.to_digit(10).and_then(|d| DIGITS.get(d as usize)).copied().unwrap_or(c);
    let exponent: String = format!("{exponent:0>2}").chars().map(raised).collect();
    format!("{mantissa}×10{sign}{exponent}")
}

/// A value as `%s` writes it.
fn text(arg: &Value) -> Result<String, EvalError> {
    Ok(match arg {
        Value::String(s) => s.to_string(),
        Value::Bool(b) => b.to_string(),
        Value::Int(i) => i.to_string(),
        Value::UInt(u) => u.to_string(),
        Value::Float(f) => double_text(*f),
        Value::Null => "null".to_owned(),
        Value::Bytes(b) => match String::from_utf8(b.to_vec()) {
            Ok(text) => text,
            Err(_) => return EvalError::error("invalid UTF-8 in bytes, cannot convert to string"),
        },
        Value::Timestamp(_) | Value::Duration(_) => {
            match time::call("string", false, std::slice::from_ref(arg)) {
                Some(Ok(Value::String(text))) => text.to_string(),
                _ => return EvalError::no_such_overload(),
            }
        }
        Value::List(all) => {
            let all: Result<Vec<String>, EvalError> = all.iter().map(literal).collect();
            format!("[{}]", all?.join(", "))
        }
        Value::Map(map) => {
            let mut pairs = Vec::with_capacity(map.map.len());
            for (key, value) in map.map.iter() {
                let key = match key {
                    Key::String(s) => quoted(s),
                    Key::Bool(b) => b.to_string(),
                    Key::Int(i) => i.to_string(),
                    Key::Uint(u) => u.to_string(),
                };
                pairs.push((key, literal(value)?));
            }
            pairs.sort();
            let pairs: Vec<String> = pairs.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        other => match types::shown(other) {
            Some(name) => name.to_owned(),
            None => {
                return EvalError::error(format!(
                    "error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, \
                     maps, lists, types, durations, and timestamps, was given {}",
                    types::name(other)
                ));
            }
        },
    })
}

/// An element of a list or map, as a literal where it has one.
fn literal(value: &Value) -> Result<String, EvalError> {
    Ok(match value {
        Value::String(s) => quoted(s),
        Value::Bytes(_) => format!("b{}", quoted(&text(value)?)),
        Value::Timestamp(_) => format!("timestamp({})", quoted(&text(value)?)),
        Value::Duration(_) => format!("duration({})", quoted(&text(value)?)),
        Value::Float(f) if f.is_finite() => format!("{f:.PRECISION$}"),
        Value::Float(f) => quoted(&double_text(*f)),
        other => text(other)?,
    })
}

/// A text as Go quotes it (`%q`).
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            ' ' => out.push(' '),
            c if c.is_ascii_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if c.is_control() || c.is_whitespace() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A double as text (`strconv.FormatFloat` with format `g`): large and small ones have an exponent.
pub(super) fn double_text(f: f64) -> String {
    if f.is_nan() {
        return "NaN".to_owned();
    }
    if f.is_infinite() {
        return if f < 0.0 { "-Inf" } else { "+Inf" }.to_owned();
    }
    let shortest = format!("{f:e}");
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    // Go's decision for the shortest text that reads the same.
    if (-4..6).contains(&exponent) {
        return format!("{f}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

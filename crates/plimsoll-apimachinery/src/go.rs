//! Values as Go prints them in messages.

use serde_json::Value;

/// A string as Go's `%q` prints it.
pub fn go_quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if c.is_ascii_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if is_printed(c) => out.push(c),
            c if u32::from(c) < 0x1_0000 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    out.push('"');
    out
}

/// Whether Go prints a character unescaped (`strconv.IsPrint`), for the characters that Unicode assigns.
fn is_printed(c: char) -> bool {
    let hidden = matches!(c,
        '\u{a0}' | '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{1680}' | '\u{180e}'
        | '\u{2000}'..='\u{200f}' | '\u{2028}'..='\u{202f}' | '\u{205f}'..='\u{206f}' | '\u{3000}'
        | '\u{e000}'..='\u{f8ff}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{10ffff}');
    !c.is_control() && !hidden
}

/// A number as Go prints it: `2.5`, `1e+30`, `3` for a whole one.
pub(crate) fn go_number(n: f64) -> String {
    go_float(&n.to_string(), &format!("{n:e}"), 21)
}

/// A number, given without and with an exponent, as Go prints it: with the exponent when that is below -4 or at least
/// `limit`.
pub(crate) fn go_float(plain: &str, scientific: &str, limit: i32) -> String {
    let (digits, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    if (-4..limit).contains(&exponent.parse().unwrap_or(0)) {
        return plain.to_owned();
    }
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |below| ('-', below));
    format!("{digits}e{sign}{exponent:0>2}")
}

/// JSON as Go writes it, with the special characters of HTML escaped (`encoding/json`, `SetEscapeHTML`).
pub(crate) fn escape_html(json: &str) -> String {
    if !json.contains(['<', '>', '&']) {
        return json.to_owned();
    }
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// Turns whole numbers with a fraction (`2.0`) into integers, as Go prints them.
pub fn normalise_numbers(value: &mut Value) {
    match value {
        Value::Number(n) if n.is_f64() => {
            // Go writes these without an exponent and reads them as int64.
            if let Some(whole) = n.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < 9.2e18) {
                *value = Value::from(whole as i64);
            }
        }
        Value::Array(all) => all.iter_mut().for_each(normalise_numbers),
        Value::Object(map) => map.values_mut().for_each(normalise_numbers),
        _ => {}
    }
}

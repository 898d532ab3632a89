//! Output of the program. A closed pipe is no error: the reader has had enough.

use std::io::Write;

/// A line on standard output.
pub fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}

/// A line on standard error.
pub fn error(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

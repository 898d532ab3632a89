//! The depth to which objects and lists may be nested.
//!
//! Reading, comparing, writing and dropping a value recurse, so the limit follows the stack of the thread. Upstream reads
//! 10,000 levels (`maxNestingDepth` of Go's `encoding/json` and `sigs.k8s.io/json`).

use serde::de::DeserializeOwned;

/// Most levels that a request may have, on a thread with [`STACK`].
pub const MAX_DEPTH: usize = 2000;
/// Stack for threads that handle requests, in bytes: enough for [`MAX_DEPTH`] levels of YAML, which take more than
/// twice the stack of JSON.
pub const STACK: usize = MAX_DEPTH * YAML_STACK_PER_LEVEL + (1 << 20);
/// Levels that every thread's stack is enough for: the limit of `serde_json`.
const PLAIN: usize = 127;
/// Stack for one level, in bytes: several times the largest need of a function in a debug build.
const STACK_PER_LEVEL: usize = 16 << 10;

/// Levels of YAML that every thread's stack is enough for: the limit of `serde_saphyr`.
const PLAIN_YAML: usize = 64;
/// As [`STACK_PER_LEVEL`] for YAML; `serde_saphyr` takes 27 KiB in a debug build.
const YAML_STACK_PER_LEVEL: usize = 40 << 10;

/// Levels of YAML that are read on this thread.
pub(super) fn yaml_limit() -> usize {
    let enough = stacker::remaining_stack().map_or(PLAIN_YAML, |free| free / YAML_STACK_PER_LEVEL);
    enough.clamp(PLAIN_YAML, MAX_DEPTH)
}

/// Levels that are read on this thread.
pub fn limit() -> usize {
    stored_limit().min(MAX_DEPTH)
}

/// Levels that this thread's stack is enough for.
fn stored_limit() -> usize {
    stacker::remaining_stack().map_or(PLAIN, |free| free / STACK_PER_LEVEL).max(PLAIN)
}

/// Objects and lists inside one another in a text of JSON. Iterative.
pub fn of(json: &[u8]) -> usize {
    let (mut depth, mut most) = (0_usize, 0);
    let (mut inside, mut escaped) = (false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if inside => escaped = true,
            b'"' => inside = !inside,
            _ if inside => {}
            b'{' | b'[' => {
                depth += 1;
                most = most.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    most
}

/// Reads JSON of a request.
///
/// # Errors
/// Those of `serde_json`, and that the text is nested too deep ([`explain`] has the message).
pub fn from_slice<T: DeserializeOwned>(json: &[u8]) -> Result<T, serde_json::Error> {
    read(json, limit(), |deserializer| T::deserialize(deserializer))
}

/// Reads JSON that the server has written itself.
///
/// # Errors
/// As [`from_slice`].
pub fn from_stored<T: DeserializeOwned>(json: &[u8]) -> Result<T, serde_json::Error> {
    read(json, stored_limit(), |deserializer| T::deserialize(deserializer))
}

type Json<'j> = serde_json::Deserializer<serde_json::de::SliceRead<'j>>;

/// Reads with the limit of `serde_json`, and a second time without it if that was all that was wrong.
pub(super) fn read<'j, T>(
    json: &'j [u8],
    limit: usize,
    read: impl Fn(&mut Json<'j>) -> Result<T, serde_json::Error>,
) -> Result<T, serde_json::Error> {
    let attempt = |unbounded: bool| {
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        if unbounded {
            deserializer.disable_recursion_limit();
        }
        let value = read(&mut deserializer)?;
        deserializer.end()?;
        Ok(value)
    };
    match attempt(false) {
        Err(e) if is_limit(&e) && of(json) <= limit => attempt(true),
        other => other,
    }
}

fn is_limit(error: &serde_json::Error) -> bool {
    error.is_syntax() && error.to_string().starts_with("recursion limit exceeded")
}

/// The error of a JSON text that is nested too deep.
pub fn explain(json: &[u8]) -> Option<String> {
    let (depth, limit) = (of(json), limit());
    (depth > limit).then(|| {
        format!("exceeded max depth: {depth} objects and lists inside one another, at most {limit} are read")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn nested(levels: usize) -> String {
        format!("{}{}", "[".repeat(levels), "]".repeat(levels))
    }

    #[test]
    fn brackets_in_texts_do_not_count() {
        assert_eq!(of(br#"{"a":["[[[\"[[",{}]}"#), 3);
        assert_eq!(of(b"1"), 0);
        assert_eq!(of(b"]]]]{"), 1);
    }

    #[test]
    fn the_limit_follows_the_stack() {
        let read = |levels: usize| from_slice::<Value>(nested(levels).as_bytes()).map(drop);
        let small = std::thread::Builder::new().stack_size(1 << 20);
        let small = small.spawn(move || (read(PLAIN).is_ok(), read(PLAIN + 1).is_ok())).unwrap();
        assert_eq!(small.join().unwrap(), (true, false));
        let large = std::thread::Builder::new().stack_size(STACK);
        let large = large.spawn(move || {
            let text = nested(MAX_DEPTH + 1);
            (read(MAX_DEPTH).is_ok(), read(MAX_DEPTH + 1).is_ok(), explain(text.as_bytes()))
        });
        let why = "exceeded max depth: 2001 objects and lists inside one another, at most 2000 are read";
        assert_eq!(large.unwrap().join().unwrap(), (true, false, Some(why.to_owned())));
        // However long the text, nothing recurses before it is refused.
        assert!(from_slice::<Value>("[".repeat(3 << 20).as_bytes()).is_err());
        assert!(from_slice::<Value>(nested(1 << 20).as_bytes()).is_err());
    }
}

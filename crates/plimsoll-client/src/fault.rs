//! Panics for tests of supervision. Only debug builds have them.
//!
//! The environment variable `PLIMSOLL_PANIC` lists places, separated by commas: `place`, `place:about` (only when the
//! place is about this) and `place:about*n` (only the first `n` times).

#[cfg(debug_assertions)]
use std::sync::OnceLock;
#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(debug_assertions)]
struct Place {
    name: String,
    about: String,
    left: AtomicU64,
}

#[cfg(debug_assertions)]
fn parse(text: &str) -> Vec<Place> {
    let place = |text: &str| {
        let (rest, left) = match text.split_once('*') {
            Some((rest, n)) => (rest, n.parse().unwrap_or(u64::MAX)),
            None => (text, u64::MAX),
        };
        let (name, about) = rest.split_once(':').unwrap_or((rest, ""));
        Place { name: name.to_owned(), about: about.to_owned(), left: AtomicU64::new(left) }
    };
    text.split(',').filter(|t| !t.is_empty()).map(place).collect()
}

/// Panics when the environment asks for it.
#[cfg(debug_assertions)]
#[allow(clippy::panic)]
pub fn point(name: &str, about: &str) {
    static PLACES: OnceLock<Vec<Place>> = OnceLock::new();
    let places = PLACES.get_or_init(|| parse(&std::env::var("PLIMSOLL_PANIC").unwrap_or_default()));
    for place in places {
        let meant = place.name == name && (place.about.is_empty() || place.about == about);
        let one = |left: u64| left.checked_sub(1);
        if meant && place.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one).is_ok() {
            panic!("injected at {name} {about}");
        }
    }
}

/// Does nothing.
#[cfg(not(debug_assertions))]
pub const fn point(_name: &str, _about: &str) {}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn places_are_read() {
        let places = parse("engine,watch:pods*2");
        let read: Vec<_> =
            places.iter().map(|p| (&*p.name, &*p.about, p.left.load(Ordering::Relaxed))).collect();
        assert_eq!(read, [("engine", "", u64::MAX), ("watch", "pods", 2)]);
    }
}

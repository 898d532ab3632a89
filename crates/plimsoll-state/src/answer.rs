//! Answers to actions.

/// What became of an action whose success no other event shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was carried out.
    Done,
    /// It was given up, for this reason. The engine asks again while the cause exists.
    Failed(String),
    /// Its object is gone, or a later action replaces it.
    Superseded,
}

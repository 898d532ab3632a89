//! Texts of verdicts, in upstream's words.

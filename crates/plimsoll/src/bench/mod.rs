//! `plimsoll bench`: figures, measured.

pub mod api;

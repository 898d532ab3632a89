//! The job controllers: a work queue of keys, and the writes that `plimsoll-jobs` plans for each.

pub mod control;

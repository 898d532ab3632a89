//! Admission webhooks over HTTPS: the server around `plimsoll_jobs::webhook`, its certificates and registrations.

pub mod certs;
mod register;
pub mod review;
pub mod serve;

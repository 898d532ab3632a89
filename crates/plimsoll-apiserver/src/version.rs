//! The version that the server says it has.

/// Minor version of the Kubernetes API that is served.
pub const MINOR: u32 = 36;
/// The version that clients see.
pub const GIT_VERSION: &str = concat!("v1.36.2+plimsoll-", env!("CARGO_PKG_VERSION"));

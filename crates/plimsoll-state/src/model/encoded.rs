//! Whole objects, for plugins that read more of them than the engine does.

use std::fmt;
use std::sync::Arc;

/// A whole Pod or Node as a message of `k8s.io/api/core/v1/generated.proto`, without managed fields.
#[derive(Clone, PartialEq, Eq)]
pub struct EncodedObject(pub Arc<[u8]>);

impl fmt::Debug for EncodedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EncodedObject({} bytes)", self.0.len())
    }
}

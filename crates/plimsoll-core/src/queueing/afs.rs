//! Admission fair sharing: LocalQueues that used less go first (spec section 2.7, Kueue KEP-4136).

use super::pending::LqId;
use super::state::Queueing;

impl Queueing {
    /// What a LocalQueue used, weighted: lower goes first.
    pub(crate) fn local_usage(&self, _lq: LqId) -> f64 {
        0.0
    }
}

impl Queueing {
    /// Charges a LocalQueue for an admission.
    pub(crate) fn afs_admitted(&mut self, _id: u32, _cq: u32, _now: crate::time::Time) {}
}

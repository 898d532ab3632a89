//! Numbers of rows.

use plimsoll_state::slab::dense_id;

dense_id!(
    /// A node row.
    NodeId
);
dense_id!(
    /// A pod row.
    PodId
);
dense_id!(
    /// A spec that at least one pod has.
    SpecId
);
dense_id!(
    /// A combination of namespace, labels and spec that at least one pod has.
    ShapeId
);

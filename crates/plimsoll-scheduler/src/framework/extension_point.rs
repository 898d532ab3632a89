//! Extension points (<https://kubernetes.io/docs/concepts/scheduling-eviction/scheduling-framework/>).

/// Extension points at which plugins can be switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are upstream's, see `Plugin`")]
pub enum ExtensionPoint {
    PreEnqueue,
    QueueSort,
    PreFilter,
    Filter,
    PostFilter,
    PreScore,
    Score,
    Reserve,
    Permit,
    PreBind,
    Bind,
    PostBind,
    PlacementGenerate,
    PlacementScore,
}

impl ExtensionPoint {
    /// All of them, with the names of their fields in the configuration file.
    pub const ALL: [(Self, &str); 14] = [
        (Self::PreEnqueue, "preEnqueue"),
        (Self::QueueSort, "queueSort"),
        (Self::PreFilter, "preFilter"),
        (Self::Filter, "filter"),
        (Self::PostFilter, "postFilter"),
        (Self::PreScore, "preScore"),
        (Self::Score, "score"),
        (Self::Reserve, "reserve"),
        (Self::Permit, "permit"),
        (Self::PreBind, "preBind"),
        (Self::Bind, "bind"),
        (Self::PostBind, "postBind"),
        (Self::PlacementGenerate, "placementGenerate"),
        (Self::PlacementScore, "placementScore"),
    ];
}

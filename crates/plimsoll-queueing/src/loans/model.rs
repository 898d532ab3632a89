//! What the engine knows of a QuotaLoan (`plimsoll.dev/v1alpha1`), and what it writes to one.

use plimsoll_state::Time;

/// Finalizer of loans that may have been granted: a loan that is deleted is returned first.
pub const LOAN_FINALIZER: &str = "plimsoll.dev/quota-loan";

/// How far a loan is. It goes from one phase to the next only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoanPhase {
    /// It counts nowhere yet.
    #[default]
    Requested,
    /// The lender's tree is charged, and the borrower's tree may use it.
    Granted,
    /// The borrower's tree uses it no longer.
    Returned,
}

/// An amount of a loan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoanedResource {
    /// Name of the ResourceFlavor.
    pub flavor: String,
    /// Name of the resource.
    pub resource: String,
    /// More than zero: cpu in millicores, everything else in whole units.
    pub quantity: i64,
}

/// A QuotaLoan as the API showed it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaLoan {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// `resourceVersion`.
    pub version: u64,
    /// When it was created.
    pub creation: Time,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Finalizers.
    pub finalizers: Vec<String>,
    /// The cohort that lends.
    pub from: String,
    /// The cohort that borrows.
    pub to: String,
    /// What is lent, each flavor and resource once.
    pub resources: Vec<LoanedResource>,
    /// `spec.return`: whether it was asked back.
    pub asked_back: bool,
    /// How far it is.
    pub phase: LoanPhase,
    /// `status.message`: what it waits for.
    pub message: String,
    /// With shards: whether this process takes the steps of the lender, and those of the borrower, because the cohort exists nowhere.
    pub absent: [bool; 2],
}

impl QuotaLoan {
    /// Whether the borrower has to give it back.
    pub const fn ends(&self) -> bool {
        self.asked_back || self.deleting
    }

    /// Whether it stays, when it is deleted, until the finalizer is removed.
    pub(crate) fn is_held(&self) -> bool {
        self.finalizers.iter().any(|f| f == LOAN_FINALIZER)
    }
}

/// A change of a loan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoanChange {
    /// Its finalizers.
    Finalizers(Vec<String>),
    /// The lender grants it: its tree is charged already.
    Grant,
    /// The borrower has returned it: its tree does without it already.
    Return,
    /// `status.message`: what it waits for.
    Explain(String),
    /// It has ended, and is deleted.
    Delete,
}

/// A write to a loan. It is carried out only while the loan has this version, so that it does nothing a second time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoanUpdate {
    /// Name of the loan.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The version that it was decided for.
    pub version: u64,
    /// What changes.
    pub change: LoanChange,
}

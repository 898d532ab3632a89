//! Cost limits of expressions in an API server, and their texts.

/// Cost limit of all rules of one object, and of all validations of a policy for one binding and parameter
/// (`k8s.io/apiserver/pkg/apis/cel`, `RuntimeCELCostBudget`).
pub(crate) const RUNTIME_BUDGET: u64 = 10_000_000;
/// Cost limit of all match conditions of a policy or webhook (`RuntimeCELCostBudgetMatchConditions`).
pub(crate) const CONDITIONS_BUDGET: u64 = 2_500_000;
/// The error when a limit is exceeded (`k8s.io/apiserver/pkg/admission/plugin/cel/activation.go`, `Evaluate`).
pub(crate) const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";
/// Longest message that an expression may make, in bytes (`MaxEvaluatedMessageExpressionSizeBytes`).
pub(crate) const MAX_MESSAGE: usize = 5 * 1024;

//! Admission: what webhooks and policies share. A request as expressions and reviews show it, the rules and selectors that
//! match it, match conditions, and the variable `authorizer`.

mod attributes;
pub mod authorizer;
mod conditions;
mod environment;
mod matching;
mod request;

pub use self::attributes::{Attributes, Operation, Target};
pub(crate) use self::conditions::{Expression, ExpressionError, MatchCondition, all_hold};
pub(crate) use self::environment::environment;
pub use self::matching::labels_of;
pub(crate) use self::matching::{rule_matches, selector_matches, selects_namespace, selects_object};
pub use self::request::Request;

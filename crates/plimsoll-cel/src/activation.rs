//! The values that an evaluation sees.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use kube_cel::cel::Value;
use kube_cel::cel::objects::Opaque;

use crate::budget::Budget;
use crate::error::Evaluated;

/// How the elements of a list belong together (`x-kubernetes-list-type`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// In their order.
    #[default]
    Atomic,
    /// In any order, each once.
    Set,
    /// In any order, each under the values of these fields, named as expressions reach them.
    Map(Arc<[String]>),
}

/// Gives an evaluation the values of its variables (cel-go's `Activation`). An evaluation asks for a variable each time
/// the expression uses it, so values that are costly to compute are computed when they are needed.
pub trait Activation {
    /// The value of a variable; `None`: there is no such variable, and the evaluation fails.
    fn resolve(&mut self, name: &str) -> Option<Value>;

    /// The value of `variable.field` where the field is a variable of its own
    /// ([`Environment::variable`](crate::Environment::variable) with a qualified name); `None`: it isn't, and the
    /// evaluation selects the field of the variable's value. An expression that is evaluated here charges `budget`
    /// ([`Program::evaluate_nested`](crate::Program::evaluate_nested)).
    fn select(&mut self, _variable: &str, _field: &str, _budget: &mut Budget) -> Option<Evaluated> {
        None
    }

    /// Whether lists of these values may be sets or maps.
    fn has_list_types(&self) -> bool {
        false
    }

    /// How the elements of one of these values' lists belong together: sets and maps are equal in any order, and their sum has
    /// nothing twice (`k8s.io/apiserver/pkg/cel/common/valuesunstructured.go`).
    fn list_type(&self, _list: &Arc<Vec<Value>>) -> ListType {
        ListType::Atomic
    }

    /// Calls a method of a value that the caller's own code made ([`Value::Opaque`]); `None`: the value isn't the
    /// caller's. The method charges what it costs ([`Budget::charge`]).
    fn call(
        &mut self,
        _target: &dyn Opaque,
        _method: &str,
        _args: &[Value],
        _budget: &mut Budget,
    ) -> Option<Evaluated> {
        None
    }
}

impl<S: BuildHasher> Activation for HashMap<&str, Value, S> {
    fn resolve(&mut self, name: &str) -> Option<Value> {
        self.get(name).cloned()
    }
}

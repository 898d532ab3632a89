//! An expression that is compiled, checked and bounded.

use plimsoll_cel::{Budget, Environment, Evaluated, Program, Type, Value, cost};

use super::reads::Reads;
use super::values::{NODE, POD, sizes, with_node, with_pod};

/// Highest cost of one evaluation, in units of CEL's budget: one loop over all labels, and no loops within loops.
pub(super) const LIMIT: u64 = 100_000;

/// Which variables an expression has, and of which type its value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `pod` and `node` to a boolean.
    Filter,
    /// `pod` and `node` to a number.
    Score,
    /// `pod` to a boolean.
    PreEnqueue,
}

impl Form {
    fn environment(self) -> Environment {
        let environment = with_pod(Environment::new());
        if self == Self::PreEnqueue { environment } else { with_node(environment) }
    }

    fn variables(self) -> String {
        let fields = |variable: &str, fields: &[&str]| {
            fields.iter().map(|field| format!("{variable}.{field}")).collect::<Vec<_>>().join(", ")
        };
        match self {
            Self::PreEnqueue => fields("pod", &POD),
            Self::Filter | Self::Score => format!("{}, {}", fields("pod", &POD), fields("node", &NODE)),
        }
    }

    /// What is wrong with the type of the value.
    fn mismatch(self, found: &Type) -> Option<String> {
        let (fits, way_out) = match (self, found) {
            (_, Type::Unknown | Type::Dyn) => return None,
            (Self::Score, Type::Int | Type::Uint | Type::Double) => return None,
            (Self::Score, _) => ("a number", "int(…) converts a string, and condition ? 100 : 0 a bool"),
            (_, Type::Bool) => return None,
            _ => ("a bool", "compare the value: … == \"value\""),
        };
        Some(format!("must evaluate to {fits}, not to {found}: {way_out}"))
    }
}

/// An expression.
#[derive(Debug)]
pub(super) struct Compiled {
    program: Program,
    pub pod: Reads,
    pub node: Reads,
}

impl Compiled {
    /// Compiles an expression.
    ///
    /// # Errors
    /// What is wrong, where in the expression, and what can be written instead.
    pub(super) fn new(source: &str, form: Form) -> Result<Self, String> {
        let program = Program::compile(source, &form.environment())
            .map_err(|e| format!("{e}\nAn expression here can read {}", form.variables()))?;
        if let Some(problem) = form.mismatch(program.output_type()) {
            return Err(problem);
        }
        let cost = cost::upper_bound(&program, &sizes());
        if cost > LIMIT {
            return Err(format!(
                "its cost can reach {cost} and must not exceed {LIMIT}: read single keys, as in node.labels[\"key\"], instead \
                 of looping over all of them, and don't nest loops"
            ));
        }
        let reads = |variable, fields| Reads::of(&program, variable, fields);
        Ok(Self { pod: reads("pod", &POD), node: reads("node", &NODE), program })
    }

    /// Evaluates the expression with what it reads of a pod and of a node.
    pub(super) fn evaluate(&self, pod: &Value, node: &Value) -> Evaluated {
        #[cfg(test)]
        super::tests::EVALUATIONS.with(|n| n.set(n.get() + 1));
        self.program.evaluate(&mut Variables { pod, node }, &mut Budget::new(LIMIT))
    }
}

struct Variables<'a> {
    pod: &'a Value,
    node: &'a Value,
}

impl plimsoll_cel::Activation for Variables<'_> {
    fn resolve(&mut self, name: &str) -> Option<Value> {
        match name {
            "pod" => Some(self.pod.clone()),
            "node" => Some(self.node.clone()),
            _ => None,
        }
    }
}

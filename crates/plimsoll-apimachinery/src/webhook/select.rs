//! The requests that a webhook matches.

use plimsoll_cel::{Activation, Budget, EvalError, Evaluated, Opaque, Value as Cel};
use serde_json::Value;

use super::Webhook;
use crate::admission::authorizer::{self, Authorize};
use crate::admission::{
    Attributes, ExpressionError, MatchCondition, Request, Target, all_hold, rule_matches, selects_namespace,
    selects_object,
};
use crate::cel::CONDITIONS_BUDGET;
use crate::error::ApiError;

impl Webhook {
    /// The version in which this webhook matches a request: the requested one, or an equivalent one that a rule names. The
    /// caller converts the objects to that version before [`Webhook::conditions_hold`] and [`review`](super::review).
    pub fn target<'a>(&self, request: &'a Attributes) -> Option<&'a Target> {
        if !selects_namespace(&self.namespace_selector, request)
            || !selects_object(&self.object_selector, request)
        {
            return None;
        }
        self.by_rules(request)
    }

    /// Whether the webhook may match a request, by its resource and operation: the request needs no objects yet.
    pub fn concerns(&self, request: &Attributes) -> bool {
        self.by_rules(request).is_some()
    }

    fn by_rules<'a>(&self, request: &'a Attributes) -> Option<&'a Target> {
        // Configurations are never subject to webhooks, so that a bad one can be removed.
        let exempt = request.target.gvk.group == "admissionregistration.k8s.io"
            && (request.target.plural.ends_with("webhookconfigurations")
                || request.target.plural.contains("admissionpolic"));
        if exempt {
            return None;
        }
        let matching = |t: &&Target| self.rules.iter().any(|rule| rule_matches(rule, t, request));
        let mut candidates =
            std::iter::once(&request.target).chain(request.equivalents.iter().filter(|_| self.equivalent));
        candidates.find(matching)
    }

    /// Whether all match conditions hold for a request whose objects are in the version of `target`; `authorize` decides
    /// their access checks.
    ///
    /// # Errors
    /// 403 when one can't be evaluated and failures are not ignored.
    pub fn conditions_hold(
        &self,
        request: &Attributes,
        target: &Target,
        authorize: Authorize<'_>,
    ) -> Result<bool, ApiError> {
        if self.conditions.is_empty() {
            return Ok(true);
        }
        let seen = Request::new(request, target, &request.object, &request.old, &Value::Null);
        let mut variables = Variables { request: seen, authorize };
        let mut budget = Budget::new(CONDITIONS_BUDGET);
        let hold = all_hold(&self.conditions, self.ignore_failures, |condition| {
            evaluate(condition, &mut variables, &mut budget)
        });
        hold.map_err(|why| forbidden(request, &why))
    }
}

fn evaluate(
    condition: &MatchCondition,
    variables: &mut Variables<'_>,
    budget: &mut Budget,
) -> Result<bool, ExpressionError> {
    let why = match &condition.expression.program {
        Ok(program) => match program.evaluate(variables, budget) {
            Ok(Cel::Bool(holds)) => return Ok(holds),
            Ok(other) => format!("expected bool, got {}", other.type_of()),
            Err(EvalError::Budget) => return Err(ExpressionError::OutOfBudget),
            Err(error) => error.to_string(),
        },
        Err(why) => why.to_string(),
    };
    let (name, source) = (&condition.name, &condition.expression.source);
    Err(ExpressionError::Failed(format!("{name}: expression '{source}' resulted in error: {why}")))
}

/// The variables of match conditions.
struct Variables<'a> {
    request: Request,
    authorize: Authorize<'a>,
}

impl Activation for Variables<'_> {
    fn resolve(&mut self, name: &str) -> Option<Cel> {
        self.request.resolve(name)
    }

    fn select(&mut self, variable: &str, field: &str, _budget: &mut Budget) -> Option<Evaluated> {
        self.request.select(variable, field)
    }

    fn call(
        &mut self,
        target: &dyn Opaque,
        method: &str,
        args: &[Cel],
        budget: &mut Budget,
    ) -> Option<Evaluated> {
        authorizer::call(target, method, args, self.authorize, budget)
    }
}

fn forbidden(request: &Attributes, why: &str) -> ApiError {
    let group = &request.target.gvk.group;
    let dot = if group.is_empty() { "" } else { "." };
    let message = format!("{}{dot}{group} {:?} is forbidden: {why}", request.target.plural, request.name);
    let mut error = ApiError::new(403, "Forbidden", message);
    error.details = Some(Box::new(crate::error::Details {
        name: request.name.clone(),
        group: group.clone(),
        kind: request.target.plural.clone(),
        ..Default::default()
    }));
    error
}

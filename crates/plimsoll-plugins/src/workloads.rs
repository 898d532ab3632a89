//! Rules about workloads in Kueue's configuration, under `plimsoll.workloads`: `veto`, `order`, `score`, `flavorScore` and
//! `victimOrder` in CEL (`docs/plugins.md`). Plugins that are named there (`guests`) are read elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_cel::cost::SizeEstimate;
use plimsoll_cel::{Budget, Environment, ObjectType, Program, Type, Value, cost, from_entries};
use plimsoll_queueing::{ResourceFlavor, Ruling, Workload, WorkloadPolicy};
use plimsoll_scheduler::framework::ArgsError;
use serde_json::Value as Json;

/// Highest cost of one evaluation, in units of CEL's budget.
const LIMIT: u64 = 100_000;
/// Longest `reason`, in bytes: it is part of conditions and events.
const MAX_REASON: usize = 256;
const FIELDS: [&str; 6] = ["veto", "reason", "order", "score", "flavorScore", "victimOrder"];
/// The field of plugins in WebAssembly, which this crate does not read.
pub const GUESTS: &str = "guests";
const OF_FLAVORS: &str = "flavor.name, flavor.nodeLabels";
const VARIABLES: &str = "workload.name, workload.namespace, workload.queue, workload.priority, workload.priorityClass, \
                         workload.pods, workload.podSets, workload.requests";

/// The rules of a configuration's section `plimsoll`; `None`: it has none.
///
/// # Errors
/// All that is wrong, by field below the section.
pub fn policy(section: &Json) -> Result<Option<Arc<dyn WorkloadPolicy>>, Vec<ArgsError>> {
    let Some(section) = section.as_object() else {
        return Err(vec![ArgsError::new("", "Invalid value: must be an object")]);
    };
    let unknown =
        |at: &str, known: &str| ArgsError::new(at, format!("unknown field: the fields are {known}"));
    let mut errors: Vec<ArgsError> =
        section.keys().filter(|key| *key != "workloads").map(|key| unknown(key, "workloads")).collect();
    let rules = match section.get("workloads") {
        None | Some(Json::Null) => None,
        Some(Json::Object(rules)) => Some(rules),
        Some(_) => {
            errors.push(ArgsError::new("workloads", "Invalid value: must be an object"));
            None
        }
    };
    let Some(rules) = rules else { return if errors.is_empty() { Ok(None) } else { Err(errors) } };
    let path = |field: &str| format!("workloads.{field}");
    errors.extend(
        rules
            .keys()
            .filter(|key| !FIELDS.contains(&key.as_str()) && *key != GUESTS)
            .map(|key| unknown(&path(key), &format!("{}, {GUESTS}", FIELDS.join(", ")))),
    );
    let mut text = |field: &str| match rules.get(field) {
        None | Some(Json::Null) => None,
        Some(Json::String(text)) => Some(text.clone()),
        Some(_) => {
            errors.push(ArgsError::new(path(field), "Invalid value: must be a string: quote it"));
            None
        }
    };
    let [veto, reason, order, score, flavor_score, victim_order] = FIELDS.map(&mut text);
    let mut compile = |field: &str, source: Option<String>, value: Wanted| {
        let compiled = compile(&source?, value);
        compiled.map_err(|e| errors.push(ArgsError::new(path(field), format!("Invalid value: {e}")))).ok()
    };
    let (veto, order) = (compile("veto", veto, Wanted::Veto), compile("order", order, Wanted::Number));
    let score = compile("score", score, Wanted::Number);
    let flavor_score = compile("flavorScore", flavor_score, Wanted::OfFlavor);
    let victim_order = compile("victimOrder", victim_order, Wanted::Number);
    match &reason {
        Some(text) if text.len() > MAX_REASON => {
            let message = format!("Too long: may not be more than {MAX_REASON} bytes");
            errors.push(ArgsError::new(path("reason"), message));
        }
        Some(text) if text.trim().is_empty() || text.contains(char::is_control) => {
            errors.push(ArgsError::new(path("reason"), "Invalid value: must be one line of text"));
        }
        _ => {}
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let numbers = [&order, &score, &flavor_score, &victim_order];
    if veto.is_none() && numbers.iter().all(|rule| rule.is_none()) {
        if rules.contains_key(GUESTS) {
            return Ok(None);
        }
        let message = "Required value: one of veto, order, score, flavorScore, victimOrder, guests";
        return Err(vec![ArgsError::new("workloads", message)]);
    }
    let reason = reason.unwrap_or_else(|| "The configuration vetoes the workload".to_owned());
    Ok(Some(Arc::new(Rules { veto, order, score, flavor_score, victim_order, reason })))
}

/// What an expression evaluates to, and what it can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Veto,
    Number,
    /// A number, and it can read a flavor as well.
    OfFlavor,
}

fn environment(wanted: Wanted) -> Environment {
    let pod_set = [("name", Type::String), ("count", Type::Int)];
    let fields = [
        ("name", Type::String),
        ("namespace", Type::String),
        ("queue", Type::String),
        ("priority", Type::Int),
        ("priorityClass", Type::String),
        ("pods", Type::Int),
        ("podSets", Type::list(Type::object(ObjectType::new("PodSet", pod_set)))),
        ("requests", Type::map(Type::Int)),
    ];
    let all = Environment::new().variable("workload", Type::object(ObjectType::new("Workload", fields)));
    match wanted {
        Wanted::Veto | Wanted::Number => all,
        Wanted::OfFlavor => {
            let fields = [("name", Type::String), ("nodeLabels", Type::map(Type::String))];
            all.variable("flavor", Type::object(ObjectType::new("Flavor", fields)))
        }
    }
}

/// The largest that a workload is taken to be: 10 podsets, as Kueue allows, and 32 resources; and a flavor: 8 labels, as Kueue
/// allows.
fn sizes() -> [(&'static str, SizeEstimate); 2] {
    let name = || SizeEstimate::string(253);
    let pod_set = SizeEstimate::collection(2, 253, SizeEstimate::string(63));
    let workload = SizeEstimate::collection(8, 20_000, name())
        .with_field("name", name())
        .with_field("namespace", name())
        .with_field("queue", name())
        .with_field("priority", SizeEstimate::string(1))
        .with_field("priorityClass", name())
        .with_field("pods", SizeEstimate::string(1))
        .with_field("podSets", SizeEstimate::collection(10, 2530, pod_set))
        .with_field("requests", SizeEstimate::collection(32, 32 * 325, SizeEstimate::string(317)));
    let flavor = SizeEstimate::collection(2, 4000, name())
        .with_field("name", name())
        .with_field("nodeLabels", SizeEstimate::collection(8, 8 * 380, SizeEstimate::string(317)));
    [("workload", workload), ("flavor", flavor)]
}

fn compile(source: &str, wanted: Wanted) -> Result<Program, String> {
    let program = Program::compile(source, &environment(wanted)).map_err(|e| {
        let more = if wanted == Wanted::OfFlavor { format!(", {OF_FLAVORS}") } else { String::new() };
        format!("{e}\nAn expression here can read {VARIABLES}{more}")
    })?;
    let is_veto = wanted == Wanted::Veto;
    match (is_veto, program.output_type()) {
        (_, Type::Unknown | Type::Dyn)
        | (true, Type::Bool)
        | (false, Type::Int | Type::Uint | Type::Double) => {}
        (true, found) => return Err(format!("must evaluate to a bool, not to {found}")),
        (false, found) => return Err(format!("must evaluate to a number, not to {found}")),
    }
    match cost::upper_bound(&program, &sizes()) {
        cost if cost > LIMIT => {
            Err(format!("its cost can reach {cost} and must not exceed {LIMIT}: don't nest loops"))
        }
        _ => Ok(program),
    }
}

/// Compiled rules.
#[derive(Debug)]
struct Rules {
    veto: Option<Program>,
    order: Option<Program>,
    score: Option<Program>,
    flavor_score: Option<Program>,
    victim_order: Option<Program>,
    reason: String,
}

struct Seen {
    workload: Value,
    flavor: Option<Value>,
}

impl Seen {
    fn new(workload: &Workload, requests: &BTreeMap<&str, i64>) -> Self {
        Self { workload: seen(workload, requests), flavor: None }
    }

    /// The value of a rule as a place in an order; 0 where there is no rule, or where it fails.
    fn number(&mut self, program: &Option<Program>) -> i32 {
        let Some(program) = program else { return 0 };
        program.evaluate(self, &mut Budget::new(LIMIT)).map_or(0, |value| place(&value))
    }
}

impl plimsoll_cel::Activation for Seen {
    fn resolve(&mut self, name: &str) -> Option<Value> {
        match name {
            "workload" => Some(self.workload.clone()),
            "flavor" => self.flavor.clone(),
            _ => None,
        }
    }
}

fn seen(workload: &Workload, requests: &BTreeMap<&str, i64>) -> Value {
    let text = |text: &str| Value::String(Arc::new(text.to_owned()));
    let pod_set = |name: &str, count: i32| {
        from_entries([("name".to_owned(), text(name)), ("count".to_owned(), Value::Int(count.into()))])
    };
    let pod_sets: Vec<Value> = workload.pod_sets.iter().map(|ps| pod_set(&ps.name, ps.count)).collect();
    let pods = workload.pod_sets.iter().map(|ps| i64::from(ps.count)).sum();
    let requests = requests.iter().map(|(name, amount)| ((*name).to_owned(), Value::Int(*amount)));
    from_entries([
        ("name".to_owned(), text(&workload.key.name)),
        ("namespace".to_owned(), text(&workload.key.namespace)),
        ("queue".to_owned(), text(&workload.queue)),
        ("priority".to_owned(), Value::Int(workload.effective_priority())),
        ("priorityClass".to_owned(), text(&workload.priority_class)),
        ("pods".to_owned(), Value::Int(pods)),
        ("podSets".to_owned(), Value::List(Arc::new(pod_sets))),
        ("requests".to_owned(), from_entries(requests)),
    ])
}

/// A number as a place in an order; what is no number is 0.
fn place(value: &Value) -> i32 {
    match value {
        Value::Int(n) => i32::try_from(*n).unwrap_or(if *n < 0 { i32::MIN } else { i32::MAX }),
        Value::UInt(n) => i32::try_from(*n).unwrap_or(i32::MAX),
        // Saturates, and NaN is 0.
        Value::Float(n) => *n as i32,
        _ => 0,
    }
}

impl WorkloadPolicy for Rules {
    fn rule(&self, workload: &Workload, requests: &BTreeMap<&str, i64>) -> Ruling {
        if self.veto.is_none() && self.order.is_none() && self.score.is_none() {
            return Ruling::default();
        }
        let mut seen = Seen::new(workload, requests);
        let veto = self.veto.as_ref().map(|veto| veto.evaluate(&mut seen, &mut Budget::new(LIMIT)));
        let veto = match veto {
            None | Some(Ok(Value::Bool(false))) => None,
            Some(Ok(Value::Bool(true))) => Some(self.reason.clone()),
            Some(Ok(_)) => Some(format!("{}: the value is not a bool", self.reason)),
            Some(Err(error)) => Some(format!("{}: {error}", self.reason)),
        };
        Ruling { veto, order: seen.number(&self.order), score: seen.number(&self.score) }
    }

    fn scores_flavors(&self) -> bool {
        self.flavor_score.is_some()
    }

    fn score_flavors(
        &self,
        workload: &Workload,
        requests: &BTreeMap<&str, i64>,
        flavors: &[&ResourceFlavor],
    ) -> Vec<i32> {
        let mut seen = Seen::new(workload, requests);
        let text = |text: &str| Value::String(Arc::new(text.to_owned()));
        let mut score = |flavor: &&ResourceFlavor| {
            let labels = flavor.node_labels.iter().map(|(key, value)| (key.to_string(), text(value)));
            seen.flavor = Some(from_entries([
                ("name".to_owned(), text(&flavor.name)),
                ("nodeLabels".to_owned(), from_entries(labels)),
            ]));
            seen.number(&self.flavor_score)
        };
        flavors.iter().map(&mut score).collect()
    }

    fn orders_victims(&self) -> bool {
        self.victim_order.is_some()
    }

    fn victim_order(&self, workload: &Workload, requests: &BTreeMap<&str, i64>) -> i32 {
        Seen::new(workload, requests).number(&self.victim_order)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_queueing::{PodSet, WorkloadKey};
    use serde_json::json;

    use super::*;

    fn workload(pods: i32) -> Workload {
        let pod_set = PodSet { name: "main".to_owned(), count: pods, ..PodSet::default() };
        Workload {
            key: WorkloadKey { namespace: "ns".to_owned(), name: "w".to_owned() },
            queue: "main".to_owned(),
            priority: 7,
            pod_sets: vec![pod_set].into(),
            ..Workload::default()
        }
    }

    fn rules(rules: &Json) -> Arc<dyn WorkloadPolicy> {
        policy(&json!({"workloads": rules})).expect("valid").expect("rules")
    }

    #[test]
    fn rules_rule() {
        let all = rules(&json!({
            "veto": "workload.pods > 10 && workload.queue == 'main'", "reason": "too many pods",
            "order": "workload.namespace == 'urgent' ? 0 : 1",
            "score": "workload.requests[?'cpu'].orValue(0) / 1000 + workload.priority",
        }));
        let requests = BTreeMap::from([("cpu", 4000)]);
        assert_eq!(all.rule(&workload(1), &requests), Ruling { veto: None, order: 1, score: 11 });
        assert_eq!(all.rule(&workload(11), &requests).veto.as_deref(), Some("too many pods"));
        let none = BTreeMap::new();
        let failing =
            rules(&json!({"veto": "workload.requests['gpu'] > 1", "score": "workload.requests['gpu']"}));
        let veto = "The configuration vetoes the workload: no such key: gpu".to_owned();
        assert_eq!(failing.rule(&workload(1), &none), Ruling { veto: Some(veto), order: 0, score: 0 });
        let sets = rules(&json!({"score": "workload.podSets.map(p, p.count).sum() * 1000000000000"}));
        assert_eq!(sets.rule(&workload(3), &none).score, i32::MAX);
        assert!(policy(&json!({})).expect("valid").is_none());
        assert!(policy(&json!({"workloads": {"guests": []}})).expect("valid").is_none());
    }

    #[test]
    fn flavors_are_scored_and_victims_are_ordered() {
        let all = rules(&json!({
            "flavorScore": "workload.pods > 2 && flavor.name == 'spot' ? -int(flavor.nodeLabels['price']) : 0",
            "victimOrder": "workload.requests['gpu']",
        }));
        let flavor = |name: &str, price: &str| ResourceFlavor {
            name: name.to_owned(),
            node_labels: [("price".into(), price.into())].into_iter().collect(),
            ..ResourceFlavor::default()
        };
        let flavors = [flavor("spot", "7"), flavor("reserved", "3"), flavor("spot", "high")];
        let flavors: Vec<&ResourceFlavor> = flavors.iter().collect();
        let (none, one) = (BTreeMap::new(), BTreeMap::from([("gpu", 8)]));
        assert!(all.scores_flavors() && all.orders_victims());
        assert_eq!(all.score_flavors(&workload(3), &none, &flavors), [-7, 0, 0]);
        assert_eq!(all.score_flavors(&workload(1), &none, &flavors), [0, 0, 0]);
        assert_eq!((all.victim_order(&workload(1), &one), all.victim_order(&workload(1), &none)), (8, 0));
        assert_eq!(all.rule(&workload(1), &none), Ruling::default());
        let order = rules(&json!({"order": "1"}));
        assert!(!order.scores_flavors() && !order.orders_victims());
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (section, want) in [
            (json!(1), ": Invalid value: must be an object"),
            (json!({"workload": {}}), "workload: unknown field: the fields are workloads"),
            (json!({"workloads": {"vetoes": "true"}}), "workloads.vetoes: unknown field"),
            (json!({"workloads": {}}), "workloads: Required value: one of veto, order, score"),
            (json!({"workloads": {"flavorScore": "flavor.labels"}}), "flavor.name, flavor.nodeLabels"),
            (json!({"workloads": {"victimOrder": "flavor.name == 'a' ? 1 : 0"}}), "undeclared reference"),
            (json!({"workloads": {"score": 1}}), "workloads.score: Invalid value: must be a string"),
            (json!({"workloads": {"score": "workload.name"}}), "must evaluate to a number, not to string"),
            (json!({"workloads": {"veto": "workload.pods"}}), "must evaluate to a bool, not to int"),
            (
                json!({"workloads": {"veto": "workload.lables == ''"}}),
                "An expression here can read workload.name",
            ),
            (json!({"workloads": {"veto": "true", "reason": ""}}), "workloads.reason: Invalid value"),
            (
                json!({"workloads": {"score": "workload.requests.map(a, workload.requests.map(b, workload.requests.map(c, 1))).size()"}}),
                "must not exceed 100000",
            ),
        ] {
            let errors = policy(&section).map(drop).expect_err("wrong");
            assert!(errors.iter().any(|e| e.to_string().contains(want)), "{section}: {errors:?}");
        }
    }
}

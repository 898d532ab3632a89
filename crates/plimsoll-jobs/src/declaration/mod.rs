//! Declarations of kinds of jobs: a JobKind (`plimsoll.dev/v1alpha1`) says with paths and CEL expressions where the objects of
//! a kind keep what queueing has to know. [`Declaration::read`] compiles one, [`Declaration::facts`] applies it to an object.

mod expression;
mod path;

use plimsoll_api::json;
use plimsoll_api::resource::Resource;
use plimsoll_cel::Type;
use serde_json::Value;

use self::expression::{Evaluation, Expression};
use self::path::Path;

/// Most podsets of a Workload (Kueue `jobframework.MaxPodSets`).
const MAX_POD_SETS: usize = 18;

/// A resource that a JobKind declares.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Declared {
    /// Group.
    pub group: String,
    /// Versions, the preferred one first.
    pub versions: Vec<String>,
    /// Plural.
    pub plural: String,
    /// Kind.
    pub kind: String,
}

/// A compiled JobKind.
#[derive(Debug)]
pub struct Declaration {
    /// Its resource.
    pub declared: Declared,
    suspend: Path,
    pod_sets: Vec<PodSetRule>,
    active: Expression,
    finished: Expression,
    succeeded: Option<Expression>,
    message: Option<Expression>,
    pods_ready: Option<Expression>,
    reclaimable_pods: Option<Expression>,
    priority_class: Option<Path>,
}

#[derive(Debug)]
struct PodSetRule {
    name: Named,
    for_each: Option<Path>,
    template: Path,
    count: Option<Expression>,
    index_label: Option<String>,
}

#[derive(Debug)]
enum Named {
    Fixed(String),
    By(Expression),
}

/// A pod template of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateAt {
    /// Name of the podset.
    pub podset: String,
    /// Number of pods.
    pub count: i64,
    /// Where it is, as a JSON pointer.
    pub pointer: String,
    /// The same as a field path.
    pub field: String,
    /// Label: index of a pod.
    pub index_label: Option<String>,
}

/// What a declaration says of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The pod templates.
    pub templates: Vec<TemplateAt>,
    /// Whether pods run that use quota.
    pub active: bool,
    /// Whether the job succeeded, and what is to be said of its end; `None`: it has not ended.
    pub finished: Option<(bool, String)>,
    /// Whether all pods are ready.
    pub pods_ready: bool,
    /// Pods by podset whose quota can be released early; `None`: not declared.
    pub reclaimable_pods: Option<Vec<(String, i64)>>,
    /// Name of the PriorityClass of its pods, if it is declared and set.
    pub priority_class: Option<String>,
}

impl Declared {
    /// Name of the JobKind that declares it.
    pub fn name(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }

    /// Its name as a framework.
    pub fn framework(&self) -> String {
        format!("{}/{}", self.group, self.kind.to_lowercase())
    }

    /// The resource in all versions; the names stay in memory as long as the process runs.
    pub(crate) fn leak(&self) -> Vec<Resource> {
        let plural: &'static str = self.plural.clone().leak();
        let kind: &'static str = self.kind.clone().leak();
        let version = |version: &String| Resource {
            api_version: format!("{}/{version}", self.group).leak(),
            plural,
            kind,
        };
        self.versions.iter().map(version).collect()
    }
}

impl Declaration {
    /// Reads a JobKind.
    ///
    /// # Errors
    /// Everything that is wrong with it, each with its field.
    pub fn read(object: &Value) -> Result<Self, Vec<String>> {
        let spec = &object["spec"];
        let mut errors = Vec::new();
        let declared = declared(spec);
        if json::name(object) != declared.name() {
            let want = declared.name();
            errors.push(format!(
                "metadata.name: Invalid value: {:?}: must be {want:?}, plural and group",
                json::name(object)
            ));
        }
        if !declared.group.contains('.') || declared.versions.is_empty() {
            errors.push("spec.group: Invalid value: only kinds of CustomResourceDefinitions".to_owned());
        }
        let mut read = Reader { spec, errors };
        let suspend = read.path("suspendPath", false);
        let rows = json::list(spec, &["podSets"]);
        let pod_sets: Vec<Option<PodSetRule>> =
            rows.iter().enumerate().map(|(i, row)| read.pod_set(i, row)).collect();
        if rows.is_empty() {
            read.errors
                .push("spec.podSets: Required value: without pods there is nothing to queue".to_owned());
        }
        let active = read.expression("active", &Type::Bool);
        let finished = read.expression("finished", &Type::Bool);
        for (field, missing) in [("active", active.is_none()), ("finished", finished.is_none())] {
            if missing && spec[field].is_null() {
                read.errors.push(format!("spec.{field}: Required value"));
            }
        }
        let succeeded = read.expression("succeeded", &Type::Bool);
        let message = read.expression("message", &Type::String);
        let pods_ready = read.expression("podsReady", &Type::Bool);
        let reclaimable_pods = read.expression("reclaimablePods", &Type::map(Type::Int));
        let priority_class =
            if spec["priorityClassPath"].is_null() { None } else { read.path("priorityClassPath", true) };
        let errors = read.errors;
        match (suspend, pod_sets.into_iter().collect::<Option<Vec<_>>>(), active, finished) {
            (Some(suspend), Some(pod_sets), Some(active), Some(finished)) if errors.is_empty() => Ok(Self {
                declared,
                suspend,
                pod_sets,
                active,
                finished,
                succeeded,
                message,
                pods_ready,
                reclaimable_pods,
                priority_class,
            }),
            _ => Err(errors),
        }
    }

    /// Path of the flag that suspends a job.
    pub fn suspend(&self) -> Vec<&str> {
        self.suspend.keys()
    }

    /// What it says of an object.
    ///
    /// # Errors
    /// The expression that failed and why, or the paths that lead nowhere.
    pub fn facts(&self, object: &Value) -> Result<Facts, String> {
        let mut evaluation = Evaluation::of(object);
        let templates = self.templates(object, &mut evaluation)?;
        let finished = evaluation.bool(&self.finished)?;
        let mut text = |expression: &Option<Expression>| {
            expression.as_ref().map_or_else(|| Ok(String::new()), |e| evaluation.string(e))
        };
        let message = if finished { text(&self.message)? } else { String::new() };
        let mut flag = |expression: &Option<Expression>, otherwise: bool| {
            expression.as_ref().map_or(Ok(otherwise), |e| evaluation.bool(e))
        };
        let success = !finished || flag(&self.succeeded, true)?;
        let pods_ready = flag(&self.pods_ready, true)?;
        Ok(Facts {
            templates,
            active: evaluation.bool(&self.active)?,
            finished: finished.then_some((success, message)),
            pods_ready,
            reclaimable_pods: self.reclaimable_pods.as_ref().map(|e| evaluation.counts(e)).transpose()?,
            priority_class: self.priority_class.as_ref().and_then(|path| {
                let name = path.at(object)?.as_str()?;
                (!name.is_empty()).then(|| name.to_owned())
            }),
        })
    }

    fn templates(&self, object: &Value, evaluation: &mut Evaluation) -> Result<Vec<TemplateAt>, String> {
        let mut out: Vec<TemplateAt> = Vec::new();
        for rule in &self.pod_sets {
            let Some(list) = &rule.for_each else {
                out.extend(rule.template(object, "", "", evaluation)?);
                continue;
            };
            let items = list.at(object).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            for (i, item) in items.iter().enumerate().take(MAX_POD_SETS + 1) {
                evaluation.set_item(item);
                let (pointer, field) = (format!("{}/{i}", list.pointer()), format!("{}[{i}].", list.field()));
                out.extend(rule.template(item, &pointer, &field, evaluation)?);
            }
        }
        if out.is_empty() {
            let paths: Vec<String> = self.pod_sets.iter().map(PodSetRule::shown).collect();
            return Err(format!("there is no pod template at {}", paths.join(", ")));
        }
        if out.len() > MAX_POD_SETS {
            return Err(format!("there are more than {MAX_POD_SETS} podsets"));
        }
        for (i, at) in out.iter().enumerate() {
            if out.iter().take(i).any(|other| other.podset == at.podset) {
                return Err(format!("two podsets are called {:?}", at.podset));
            }
        }
        Ok(out)
    }
}

impl PodSetRule {
    /// The template in `within`, whose own place is given; `None`: it has none.
    fn template(
        &self,
        within: &Value,
        pointer: &str,
        field: &str,
        evaluation: &mut Evaluation,
    ) -> Result<Option<TemplateAt>, String> {
        if !self.template.at(within).is_some_and(Value::is_object) {
            return Ok(None);
        }
        let podset = match &self.name {
            Named::Fixed(name) => name.clone(),
            Named::By(expression) => evaluation.string(expression)?.to_lowercase(),
        };
        let count = self.count.as_ref().map_or(Ok(1), |e| evaluation.int(e))?;
        if count < 0 {
            return Err(format!("podset {podset:?} has {count} pods"));
        }
        Ok(Some(TemplateAt {
            podset,
            count,
            pointer: format!("{pointer}{}", self.template.pointer()),
            field: format!("{field}{}", self.template.field()),
            index_label: self.index_label.clone(),
        }))
    }

    fn shown(&self) -> String {
        let template = self.template.field();
        self.for_each
            .as_ref()
            .map_or_else(|| template.clone(), |list| format!("{}[].{template}", list.field()))
    }
}

fn declared(spec: &Value) -> Declared {
    let text = |key: &str| json::text(spec, &[key]).to_owned();
    let versions = json::list(spec, &["versions"]).iter().filter_map(|v| v.as_str().map(str::to_owned));
    Declared {
        group: text("group"),
        versions: versions.collect(),
        plural: text("plural"),
        kind: text("kind"),
    }
}

/// Reads the fields of a spec, and gathers what is wrong.
struct Reader<'a> {
    spec: &'a Value,
    errors: Vec<String>,
}

impl Reader<'_> {
    fn path(&mut self, field: &str, indices: bool) -> Option<Path> {
        let text = json::text(self.spec, &[field]).to_owned();
        self.parse_path(&format!("spec.{field}"), &text, indices)
    }

    fn parse_path(&mut self, field: &str, text: &str, indices: bool) -> Option<Path> {
        match Path::parse(text, indices) {
            Ok(path) => Some(path),
            Err(why) => {
                self.errors.push(format!("{field}: Invalid value: {text:?}: {why}"));
                None
            }
        }
    }

    /// An expression over the object; `None`: there is none, or it is wrong.
    fn expression(&mut self, field: &str, of: &Type) -> Option<Expression> {
        let text = self.spec[field].as_str()?.to_owned();
        self.compile(format!("spec.{field}"), &text, of, false)
    }

    fn compile(&mut self, field: String, text: &str, of: &Type, item: bool) -> Option<Expression> {
        match Expression::compile(field, text, of, item) {
            Ok(expression) => Some(expression),
            Err(why) => {
                self.errors.push(why);
                None
            }
        }
    }

    fn pod_set(&mut self, i: usize, row: &Value) -> Option<PodSetRule> {
        let at = |field: &str| format!("spec.podSets[{i}].{field}");
        let text = |field: &str| row[field].as_str();
        let before = self.errors.len();
        let for_each = text("forEachPath").map(|p| self.parse_path(&at("forEachPath"), p, false));
        let item = for_each.is_some();
        let template = self.parse_path(&at("templatePath"), text("templatePath").unwrap_or_default(), true);
        let name = match (text("name"), text("nameExpression")) {
            (Some(name), None) => Some(Named::Fixed(name.to_owned())),
            (None, Some(e)) => self.compile(at("nameExpression"), e, &Type::String, item).map(Named::By),
            _ => {
                self.errors.push(format!("{}: Required value: either name or nameExpression", at("name")));
                None
            }
        };
        let count = text("count").map(|e| self.compile(at("count"), e, &Type::Int, item));
        if self.errors.len() > before {
            return None;
        }
        Some(PodSetRule {
            name: name?,
            for_each: for_each.flatten(),
            template: template?,
            count: count.flatten(),
            index_label: text("podIndexLabel").map(str::to_owned),
        })
    }
}

#[cfg(test)]
mod tests;

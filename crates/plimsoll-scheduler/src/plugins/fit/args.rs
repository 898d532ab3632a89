//! `NodeResourcesFitArgs` (upstream `ValidateNodeResourcesFitArgs` in `apis/config/validation/validation_pluginargs.go`).

use crate::args::{Args, ArgsError, Fields, PluginArgs, valid};

/// How NodeResourcesFit scores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StrategyKind {
    /// Prefer empty nodes.
    #[default]
    LeastAllocated,
    /// Prefer full nodes.
    MostAllocated,
    /// Prefer by a function of the utilization.
    RequestedToCapacityRatio,
}

/// A resource and how much it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceWeight {
    /// Resource name.
    pub name: String,
    /// 1 to 100.
    pub weight: i64,
}

impl ResourceWeight {
    fn one(name: &str) -> Self {
        Self { name: name.to_owned(), weight: 1 }
    }
}

/// `NodeResourcesFitArgs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FitArgs {
    /// Extended resources that are not filtered.
    pub ignored_resources: Vec<String>,
    /// Prefixes (before `/`) of extended resources that are not filtered.
    pub ignored_resource_groups: Vec<String>,
    /// How to score.
    pub strategy: StrategyKind,
    /// What to score.
    pub resources: Vec<ResourceWeight>,
    /// For `RequestedToCapacityRatio`: (utilization 0..=100, score 0..=10), increasing.
    pub shape: Vec<(i64, i64)>,
}

impl Default for FitArgs {
    fn default() -> Self {
        Self {
            ignored_resources: Vec::new(),
            ignored_resource_groups: Vec::new(),
            strategy: StrategyKind::default(),
            resources: vec![ResourceWeight::one("cpu"), ResourceWeight::one("memory")],
            shape: Vec::new(),
        }
    }
}

impl Args {
    /// Sets the extended resources that NodeResourcesFit doesn't filter, as extenders manage them alone (upstream
    /// `buildExtenders`).
    pub fn ignore_resources(&mut self, resources: Vec<String>) {
        let fit: FitArgs = self.get::<FitArgs>(super::NAME).as_ref().clone();
        self.set(super::NAME, FitArgs { ignored_resources: resources, ..fit });
    }
}

/// `scoringStrategy`.
struct Strategy {
    kind: Option<String>,
    resources: Option<Vec<ResourceWeight>>,
    /// `requestedToCapacityRatio`, its `shape`.
    ratio: Option<Vec<(i64, i64)>>,
}

impl Strategy {
    fn read(fields: &mut dyn Fields) -> Self {
        let weight = |fields: &mut dyn Fields| ResourceWeight {
            name: fields.string("name").unwrap_or_default(),
            weight: fields.int64("weight").unwrap_or_default(),
        };
        let point = |fields: &mut dyn Fields| {
            let mut field = |name| i64::from(fields.int32(name).unwrap_or_default());
            (field("utilization"), field("score"))
        };
        Self {
            kind: fields.string("type"),
            resources: fields.list("resources", weight),
            ratio: fields
                .object("requestedToCapacityRatio", |fields| fields.list("shape", point).unwrap_or_default()),
        }
    }
}

impl PluginArgs for FitArgs {
    fn decode(fields: &mut dyn Fields) -> Result<Self, Vec<ArgsError>> {
        let mut args = Self {
            ignored_resources: fields.strings("ignoredResources").unwrap_or_default(),
            ignored_resource_groups: fields.strings("ignoredResourceGroups").unwrap_or_default(),
            ..Self::default()
        };
        let strategy = fields.object("scoringStrategy", Strategy::read);
        let mut errors = Vec::new();
        for (i, group) in args.ignored_resource_groups.iter().enumerate() {
            if group.contains('/') {
                errors.push(ArgsError::new(
                    format!("ignoredResourceGroups[{i}]"),
                    format!("Invalid value: {group:?}: resource group name can't contain '/'"),
                ));
            }
        }
        if let Some(strategy) = strategy {
            args.score_by(strategy, &mut errors);
        }
        valid(args, errors)
    }
}

impl FitArgs {
    fn score_by(&mut self, strategy: Strategy, errors: &mut Vec<ArgsError>) {
        const RATIO: &str = "scoringStrategy.requestedToCapacityRatio";
        self.strategy = match strategy.kind.as_deref() {
            None | Some("" | "LeastAllocated") => StrategyKind::LeastAllocated,
            Some("MostAllocated") => StrategyKind::MostAllocated,
            Some("RequestedToCapacityRatio") => StrategyKind::RequestedToCapacityRatio,
            Some(other) => {
                let supported = ["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"];
                errors.push(ArgsError::not_supported("scoringStrategy.type", other, &supported));
                StrategyKind::LeastAllocated
            }
        };
        if let Some(list) = strategy.resources.filter(|list| !list.is_empty()) {
            self.resources = weights(list, errors);
        }
        match (self.strategy, strategy.ratio) {
            (StrategyKind::RequestedToCapacityRatio, Some(shape)) => {
                check_shape(&shape, errors);
                self.shape = shape;
            }
            (StrategyKind::RequestedToCapacityRatio, None) => {
                let why = "Required value: must be specified when type is RequestedToCapacityRatio";
                errors.push(ArgsError::new(RATIO, why));
            }
            (_, Some(_)) => {
                let why = "Forbidden: must be nil when type is not RequestedToCapacityRatio";
                errors.push(ArgsError::new(RATIO, why));
            }
            (_, None) => {}
        }
    }
}

/// Weights with upstream's default of 1.
fn weights(mut list: Vec<ResourceWeight>, errors: &mut Vec<ArgsError>) -> Vec<ResourceWeight> {
    for (i, ResourceWeight { name, weight }) in list.iter_mut().enumerate() {
        if *weight == 0 {
            *weight = 1;
        }
        if !(1..=100).contains(weight) {
            errors.push(ArgsError::new(
                format!("scoringStrategy.resources[{i}].weight"),
                format!("Invalid value: {weight}: resource weight of {name} not in valid range (0, 100]"),
            ));
        }
    }
    list
}

/// The points of a RequestedToCapacityRatio function (upstream `validateFunctionShape`).
fn check_shape(shape: &[(i64, i64)], errors: &mut Vec<ArgsError>) {
    const FIELD: &str = "scoringStrategy.requestedToCapacityRatio.shape";
    if shape.is_empty() {
        errors.push(ArgsError::new(FIELD, "Required value: at least one point must be specified"));
    }
    let mut before = None;
    for (i, (utilization, score)) in shape.iter().enumerate() {
        let at = format!("{FIELD}[{i}].utilization");
        errors.extend(ArgsError::out_of_range(&at, *utilization, (0, 100)));
        errors.extend(ArgsError::out_of_range(&format!("{FIELD}[{i}].score"), *score, (0, 10)));
        if before.is_some_and(|before| before >= *utilization) {
            errors.push(ArgsError::new(
                at,
                format!("Invalid value: {utilization}: values must be sorted in increasing order"),
            ));
        }
        before = Some(*utilization);
    }
}

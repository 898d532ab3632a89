//! Options of requests, from the query or (for deletions) the body, with upstream's validation
//! (`metav1/validation`, `internalversion/validation`).

use plimsoll_apimachinery::decode::FieldValidation;
use plimsoll_apimachinery::go::go_quote;
use plimsoll_apimachinery::{ApiError, FieldError, FieldErrorKind};
use serde_json::{Value, json};

use super::query::Query;

/// CreateOptions, UpdateOptions and PatchOptions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// `dryRun=All`.
    pub dry_run: bool,
    /// Field manager; empty: derived from the user agent.
    pub field_manager: String,
    /// `fieldValidation`.
    pub field_validation: FieldValidation,
    /// The parameter as given; empty if it wasn't.
    pub field_validation_given: String,
    /// `force` of an apply; `None`: not given.
    pub force: Option<bool>,
}

fn invalid_options(kind: &str, errors: &[FieldError]) -> ApiError {
    ApiError::invalid("meta.k8s.io", kind, "", errors)
}

fn dry_run_errors(values: &[&str]) -> Option<FieldError> {
    (values.iter().any(|v| *v != "All"))
        .then(|| FieldError::not_supported("dryRun", &json!(values), &["All"]))
}

/// `conversion.Convert_Slice_string_To_Pointer_bool`: what is given is true unless it is `0` or `false`.
fn bool_param(query: &Query, name: &str) -> Option<bool> {
    query.get(name)?;
    Some(query.flag(name))
}

fn int_param(query: &Query, name: &str) -> Result<Option<i64>, ApiError> {
    let Some(text) = query.get(name) else { return Ok(None) };
    text.parse().map(Some).map_err(|e: std::num::ParseIntError| {
        ApiError::bad_request(format!("strconv.ParseInt: parsing {}: {}", go_quote(text), why_no_number(&e)))
    })
}

/// What `strconv` says about text that is no whole number.
pub fn why_no_number(error: &std::num::ParseIntError) -> &'static str {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    if matches!(error.kind(), PosOverflow | NegOverflow) { "value out of range" } else { "invalid syntax" }
}

impl WriteOptions {
    /// Reads and checks the options of a create, update or patch.
    ///
    /// # Errors
    /// 422 naming `kind` (`CreateOptions`, …).
    pub fn parse(query: &Query, kind: &str, apply: bool) -> Result<Self, ApiError> {
        let dry: Vec<&str> = query.all("dryRun").collect();
        let given = query.get("fieldValidation").unwrap_or("");
        let manager = query.get("fieldManager").unwrap_or("");
        let force = bool_param(query, "force");
        let mut errors = Vec::new();
        if kind == "PatchOptions" {
            if apply && manager.is_empty() {
                errors.push(FieldError::required("fieldManager", "is required for apply patch"));
            }
            if !apply && force.is_some() {
                errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
            }
        }
        errors.extend(manager_errors(manager));
        errors.extend(dry_run_errors(&dry));
        let field_validation = match given {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            _ => {
                let allowed = ["", "Ignore", "Strict", "Warn"];
                errors.push(FieldError::not_supported("fieldValidation", &json!(given), &allowed));
                FieldValidation::Warn
            }
        };
        if !errors.is_empty() {
            return Err(invalid_options(kind, &errors));
        }
        Ok(Self {
            dry_run: !dry.is_empty(),
            field_manager: manager.to_owned(),
            field_validation,
            field_validation_given: given.to_owned(),
            force,
        })
    }

    /// The options as an admission webhook sees them.
    pub fn to_value(&self, kind: &str) -> Value {
        let mut v = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
        if self.dry_run {
            v["dryRun"] = json!(["All"]);
        }
        if !self.field_manager.is_empty() {
            v["fieldManager"] = json!(self.field_manager);
        }
        if !self.field_validation_given.is_empty() {
            v["fieldValidation"] = json!(self.field_validation_given);
        }
        v
    }
}

fn manager_errors(manager: &str) -> Option<FieldError> {
    const MAX: usize = 128;
    if manager.len() > MAX {
        return Some(FieldError {
            kind: FieldErrorKind::TooLong,
            field: "fieldManager".to_owned(),
            value: None,
            detail: format!("may not be more than {MAX} bytes"),
        });
    }
    manager.chars().enumerate().find(|(_, c)| c.is_control()).map(|(i, c)| FieldError {
        kind: FieldErrorKind::Invalid,
        field: "fieldManager".to_owned(),
        value: Some(go_quote(manager)),
        detail: format!("invalid character U+{:04X} (at position {i})", u32::from(c)),
    })
}

/// How dependents are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// The object goes at once, dependents later.
    Background,
    /// Dependents first.
    Foreground,
    /// Dependents stay.
    Orphan,
}

impl Propagation {
    /// Its name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
}

/// DeleteOptions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// `dryRun: [All]`.
    pub dry_run: bool,
    /// Grace period in seconds; negative values stand for 1.
    pub grace: Option<i64>,
    /// `propagationPolicy`.
    pub propagation: Option<Propagation>,
    /// `orphanDependents`.
    pub orphan: Option<bool>,
    /// UID that the object must have.
    pub uid: Option<String>,
    /// Resource version that the object must have.
    pub resource_version: Option<String>,
}

impl DeleteOptions {
    /// From query parameters.
    ///
    /// # Errors
    /// 400 for values that don't parse, 422 for those that aren't allowed.
    pub fn from_query(query: &Query) -> Result<Self, ApiError> {
        let dry: Vec<&str> = query.all("dryRun").collect();
        let text = |name: &str| query.non_empty(name).map(str::to_owned);
        let raw = Raw {
            dry,
            grace: int_param(query, "gracePeriodSeconds")?,
            propagation: query.get("propagationPolicy"),
            orphan: bool_param(query, "orphanDependents"),
        };
        raw.check(text("uid"), text("resourceVersion"))
    }

    /// From a decoded body.
    ///
    /// # Errors
    /// 422 for values that aren't allowed, 400 for wrong types.
    pub fn from_value(value: &Value) -> Result<Self, ApiError> {
        let dry = value["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let pre = &value["preconditions"];
        let text = |v: &Value| v.as_str().map(str::to_owned);
        let raw = Raw {
            dry,
            grace: value["gracePeriodSeconds"].as_i64(),
            propagation: value["propagationPolicy"].as_str(),
            orphan: value["orphanDependents"].as_bool(),
        };
        raw.check(text(&pre["uid"]), text(&pre["resourceVersion"]))
    }

    /// The options as an admission webhook sees them.
    pub fn to_value(&self) -> Value {
        let mut v = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"});
        if let Some(grace) = self.grace {
            v["gracePeriodSeconds"] = json!(grace);
        }
        if self.uid.is_some() || self.resource_version.is_some() {
            let mut pre = json!({});
            if let Some(uid) = &self.uid {
                pre["uid"] = json!(uid);
            }
            if let Some(rv) = &self.resource_version {
                pre["resourceVersion"] = json!(rv);
            }
            v["preconditions"] = pre;
        }
        if let Some(orphan) = self.orphan {
            v["orphanDependents"] = json!(orphan);
        }
        if let Some(p) = self.propagation {
            v["propagationPolicy"] = json!(p.name());
        }
        if self.dry_run {
            v["dryRun"] = json!(["All"]);
        }
        v
    }
}

struct Raw<'a> {
    dry: Vec<&'a str>,
    grace: Option<i64>,
    propagation: Option<&'a str>,
    orphan: Option<bool>,
}

impl Raw<'_> {
    fn check(self, uid: Option<String>, rv: Option<String>) -> Result<DeleteOptions, ApiError> {
        let mut errors = Vec::new();
        if let (Some(p), Some(_)) = (self.propagation, self.orphan) {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid("propagationPolicy", &json!(p), detail));
        }
        let propagation = match self.propagation {
            None => None,
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some("Orphan") => Some(Propagation::Orphan),
            Some(other) => {
                let allowed = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_supported("propagationPolicy", &json!(other), &allowed));
                None
            }
        };
        errors.extend(dry_run_errors(&self.dry));
        if !errors.is_empty() {
            return Err(invalid_options("DeleteOptions", &errors));
        }
        Ok(DeleteOptions {
            dry_run: !self.dry.is_empty(),
            grace: self.grace,
            propagation,
            orphan: self.orphan,
            uid,
            resource_version: rv,
        })
    }
}

/// ListOptions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// Items per page; 0: all.
    pub limit: u64,
    /// `continue`.
    pub continue_token: String,
    /// `resourceVersion` as given.
    pub resource_version: String,
    /// `resourceVersionMatch`.
    pub matching: Option<Match>,
    /// `sendInitialEvents`.
    pub send_initial_events: Option<bool>,
    /// `allowWatchBookmarks`.
    pub bookmarks: bool,
    /// `timeoutSeconds`; `None`: not given, or zero.
    pub timeout: Option<u64>,
}

/// `resourceVersionMatch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// At this version.
    Exact,
    /// At this version or a later one.
    NotOlderThan,
}

impl ListOptions {
    /// Reads and checks the options of a list or watch.
    ///
    /// # Errors
    /// 400 for values that don't parse, 422 for combinations that aren't allowed.
    pub fn parse(query: &Query, watch: bool) -> Result<Self, ApiError> {
        let limit = int_param(query, "limit")?.unwrap_or(0);
        let timeout = int_param(query, "timeoutSeconds")?.unwrap_or(0);
        let rv = query.get("resourceVersion").unwrap_or("");
        let token = query.get("continue").unwrap_or("");
        let matching = query.get("resourceVersionMatch").unwrap_or("");
        let initial = bool_param(query, "sendInitialEvents");
        let errors = match_errors(watch, rv, token, matching, initial);
        if !errors.is_empty() {
            return Err(invalid_options("ListOptions", &errors));
        }
        Ok(Self {
            limit: u64::try_from(limit).unwrap_or(0),
            continue_token: token.to_owned(),
            resource_version: rv.to_owned(),
            matching: match matching {
                "Exact" => Some(Match::Exact),
                "NotOlderThan" => Some(Match::NotOlderThan),
                _ => None,
            },
            send_initial_events: initial,
            bookmarks: query.flag("allowWatchBookmarks"),
            timeout: u64::try_from(timeout).ok().filter(|t| *t > 0),
        })
    }
}

/// `ValidateListOptions`.
fn match_errors(
    watch: bool,
    rv: &str,
    token: &str,
    matching: &str,
    initial: Option<bool>,
) -> Vec<FieldError> {
    const FIELD: &str = "resourceVersionMatch";
    let mut errors = Vec::new();
    if watch {
        if matching.is_empty() && initial.is_none() {
            return errors;
        }
        if initial.is_none() {
            let detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.push(FieldError::forbidden(FIELD, detail));
        } else if matching != "NotOlderThan" {
            let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.push(FieldError::forbidden(FIELD, detail));
        }
        if !matching.is_empty() && matching != "NotOlderThan" {
            errors.push(FieldError::not_supported(FIELD, &json!(matching), &["NotOlderThan"]));
        }
        if !token.is_empty() {
            let detail = "resourceVersionMatch is forbidden when continue is provided";
            errors.push(FieldError::forbidden(FIELD, detail));
        }
        return errors;
    }
    if !matching.is_empty() {
        if rv.is_empty() {
            let detail = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            errors.push(FieldError::forbidden(FIELD, detail));
        }
        if !token.is_empty() {
            let detail = "resourceVersionMatch is forbidden when continue is provided";
            errors.push(FieldError::forbidden(FIELD, detail));
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            let allowed = ["Exact", "NotOlderThan", ""];
            errors.push(FieldError::not_supported(FIELD, &json!(matching), &allowed));
        }
        if matching == "Exact" && rv == "0" {
            let detail = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            errors.push(FieldError::forbidden(FIELD, detail));
        }
    }
    if initial.is_some() {
        let detail = "sendInitialEvents is forbidden for list";
        errors.push(FieldError::forbidden("sendInitialEvents", detail));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_as_apimachinery_reads_them() {
        let write = |q: &str, apply| WriteOptions::parse(&Query::parse(q), "PatchOptions", apply);
        let delete = |q: &str| DeleteOptions::from_query(&Query::parse(q));
        let list = |q: &str| ListOptions::parse(&Query::parse(q), false).map_err(|e| e.message);
        // Any text is true but two.
        for (given, want) in [("force=x", true), ("force=", true), ("force=0", false), ("force=False", false)]
        {
            let options = write(&format!("fieldManager=m&{given}"), true);
            assert_eq!(options.map(|o| o.force), Ok(Some(want)), "{given}");
        }
        assert_eq!(write("force=", false).map_err(|e| e.code), Err(422));
        // An empty value is a value.
        assert_eq!(write("dryRun=", false).map_err(|e| e.code), Err(422));
        assert_eq!(delete("dryRun=All&dryRun=").map_err(|e| e.code), Err(422));
        assert_eq!(list("limit="), Err("strconv.ParseInt: parsing \"\": invalid syntax".to_owned()));
        assert_eq!(
            list("limit=99999999999999999999"),
            Err("strconv.ParseInt: parsing \"99999999999999999999\": value out of range".to_owned())
        );
        assert!(list("sendInitialEvents=").is_err_and(|e| e.contains("is forbidden for list")));
        // Preconditions may come with the path.
        let options = delete("uid=u&resourceVersion=5").unwrap_or_default();
        assert_eq!((options.uid.as_deref(), options.resource_version.as_deref()), (Some("u"), Some("5")));
    }
}

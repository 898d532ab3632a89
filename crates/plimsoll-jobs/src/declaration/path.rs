//! Paths such as `.spec.replicaSpecs.Worker.template` and `.spec.tasks[0]['pod.template']`.

use serde_json::Value;

/// A path from an object, or from an item of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Path(Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

impl Path {
    /// Reads a path; `indices`: whether it may lead through lists.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str, indices: bool) -> Result<Self, String> {
        let mut steps = Vec::new();
        let mut rest = text;
        if !rest.starts_with('.') {
            return Err("must begin with a dot, as .spec.suspend does".to_owned());
        }
        while !rest.is_empty() {
            if let Some(bracket) = rest.strip_prefix('[') {
                let Some((inside, after)) = bracket.split_once(']') else {
                    return Err("a bracket is not closed".to_owned());
                };
                let quoted = |q: char| inside.strip_prefix(q).and_then(|i| i.strip_suffix(q));
                let step = match quoted('\'').or_else(|| quoted('"')) {
                    Some(key) if !key.is_empty() => Step::Key(key.to_owned()),
                    _ => Step::Index(
                        inside
                            .parse()
                            .map_err(|_| "a bracket has neither a quoted name nor a number".to_owned())?,
                    ),
                };
                steps.push(step);
                rest = after;
            } else if let Some(name) = rest.strip_prefix('.') {
                let end = name.find(['.', '[']).unwrap_or(name.len());
                let (key, after) = name.split_at(end);
                if key.is_empty() {
                    return Err("a name is missing".to_owned());
                }
                steps.push(Step::Key(key.to_owned()));
                rest = after;
            } else {
                return Err("a dot is missing".to_owned());
            }
        }
        if !indices && steps.iter().any(|step| matches!(step, Step::Index(_))) {
            return Err("must not lead through a list".to_owned());
        }
        Ok(Self(steps))
    }

    /// What is there.
    pub fn at<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(object, |at, step| match step {
            Step::Key(key) => at.as_object()?.get(key),
            Step::Index(i) => at.as_array()?.get(*i),
        })
    }

    /// Its names, of one that leads through no list.
    pub fn keys(&self) -> Vec<&str> {
        let mut keys = Vec::with_capacity(self.0.len());
        for step in &self.0 {
            if let Step::Key(key) = step {
                keys.push(key.as_str());
            }
        }
        keys
    }

    /// As a JSON pointer (RFC 6901).
    pub fn pointer(&self) -> String {
        let step = |step: &Step| match step {
            Step::Key(key) => format!("/{}", key.replace('~', "~0").replace('/', "~1")),
            Step::Index(i) => format!("/{i}"),
        };
        self.0.iter().map(step).collect()
    }

    /// As messages show it.
    pub fn field(&self) -> String {
        let mut out = String::new();
        for step in &self.0 {
            match step {
                Step::Key(key) if out.is_empty() => out.push_str(key),
                Step::Key(key) => {
                    out.push('.');
                    out.push_str(key);
                }
                Step::Index(i) => out.extend(["[", &i.to_string(), "]"]),
            }
        }
        out
    }
}

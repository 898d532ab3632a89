//! Which published devices satisfy the selectors of a request.

use std::collections::{BTreeMap, BTreeSet};

use super::mappings::sources_of;
use super::problem::{Problem, quoted};
use super::{ClaimCount, ClaimRequest, ClaimTemplate, QuotaDeviceClass};
use crate::config::{Config, DeviceSource};
use crate::requests::aggregate;
use plimsoll_state::model::{Device, ResourceSlice};

/// What there is, and the language of selectors.
pub(super) struct Matcher<'a> {
    classes: &'a BTreeMap<String, QuotaDeviceClass>,
    slices: &'a BTreeMap<String, ResourceSlice>,
    config: &'a Config,
}

impl<'a> Matcher<'a> {
    pub(super) fn new(
        classes: &'a BTreeMap<String, QuotaDeviceClass>,
        slices: &'a BTreeMap<String, ResourceSlice>,
        config: &'a Config,
    ) -> Self {
        Self { classes, slices, config }
    }

    /// What can't be compiled, as text; `path` is that of the list.
    pub(super) fn compile(&self, selectors: &[String], path: &str, context: &str) -> Option<String> {
        let cel = self.config.device_selector.as_ref()?;
        let errors = selectors.iter().enumerate().filter_map(|(i, expression)| {
            let error = cel.check(expression).err()?;
            let expression = quoted(expression);
            Some(format!("{path}[{i}].cel.expression: Invalid value: {expression}: {context}: {error}"))
        });
        let errors: Vec<String> = errors.collect();
        (!errors.is_empty()).then(|| aggregate(&errors))
    }

    fn all(&self, selectors: &[String], driver: &str, device: &Device) -> Result<bool, String> {
        let Some(cel) = &self.config.device_selector else {
            return if selectors.is_empty() {
                Ok(true)
            } else {
                Err("selectors can't be evaluated".to_owned())
            };
        };
        for expression in selectors {
            if !cel.matches(expression, driver, device)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The selectors of a class.
    fn class(&self, name: &str, path: &str) -> Result<&'a [String], Problem> {
        if name.is_empty() {
            return Ok(&[]);
        }
        let Some(class) = self.classes.get(name) else {
            let text =
                format!("failed to get DeviceClass {name}: DeviceClass.resource.k8s.io {name:?} not found");
            return Err(Problem::Missing(path.to_owned(), text));
        };
        let cel = self.config.device_selector.as_ref();
        for (i, expression) in class.selectors.iter().enumerate() {
            if let Some(Err(error)) = cel.map(|c| c.check(expression)) {
                let path = format!("{path}[{i}].cel.expression");
                let text = format!("DeviceClass {name} has invalid CEL selector: {error}");
                return Err(Problem::Invalid(path, quoted(expression), text));
            }
        }
        Ok(&class.selectors)
    }

    /// What is wrong with requests that have selectors: unknown classes, or fewer devices than asked for. A device
    /// counts for one request of the claim only.
    pub(super) fn enough(&self, template: &ClaimTemplate) -> Vec<Problem> {
        let asked: Vec<(usize, &str, &[String], i64)> = template
            .requests
            .iter()
            .enumerate()
            .filter_map(|(i, r)| match r {
                ClaimRequest::Exactly { class, selectors, count, .. } if !selectors.is_empty() => {
                    let count = if let ClaimCount::Exactly(n) = count { *n } else { 0 };
                    Some((i, class.as_str(), selectors.as_slice(), count))
                }
                ClaimRequest::FirstAvailable | ClaimRequest::Empty | ClaimRequest::Exactly { .. } => None,
            })
            .collect();
        if asked.is_empty() {
            return Vec::new();
        }
        let devices = self.candidates(&asked.iter().map(|a| a.1).collect::<Vec<_>>());
        let mut given: BTreeSet<usize> = BTreeSet::new();
        let mut problems = Vec::new();
        for (i, class, selectors, count) in asked {
            let path = format!("devices.requests[{i}]");
            let own = match self.class(class, &path) {
                Ok(own) => own,
                Err(problem) => {
                    problems.push(problem);
                    continue;
                }
            };
            let path = format!("{path}.exactly.selectors");
            match self.take(&devices, own, selectors, count, &mut given) {
                Ok(found) if found < count => {
                    let text = format!(
                        "insufficient matching devices for CEL selector in DeviceClass {class}: {found} device(s) match in the cluster but {count} requested"
                    );
                    problems.push(Problem::Missing(path, text));
                }
                Ok(_) => {}
                Err(error) => {
                    let text = format!("CEL evaluation failed for DeviceClass {class}: {error}");
                    problems.push(Problem::Invalid(path, "\"null\"".into(), text));
                }
            }
        }
        problems
    }

    /// All devices, or those of the configured drivers when all of these classes have counters or capacities.
    fn candidates(&self, classes: &[&str]) -> Vec<(&'a str, &'a Device)> {
        let counted = |class: &&str| sources_of(self.config, class).next().is_some();
        let only_counted = classes.iter().all(counted);
        let drivers: BTreeSet<&str> = classes
            .iter()
            .flat_map(|c| sources_of(self.config, c))
            .map(|source| source.driver.as_str())
            .collect();
        let slices = self.slices.values().filter(|s| !only_counted || drivers.contains(s.driver.as_str()));
        slices.flat_map(|s| s.devices.iter().map(|d| (s.driver.as_str(), d))).collect()
    }

    /// Takes up to `count` devices that no other request has been given; how many.
    fn take(
        &self,
        devices: &[(&str, &Device)],
        class: &[String],
        selectors: &[String],
        count: i64,
        given: &mut BTreeSet<usize>,
    ) -> Result<i64, String> {
        let mut found = 0;
        for (i, (driver, device)) in devices.iter().enumerate() {
            if given.contains(&i)
                || !self.all(class, driver, device)?
                || !self.all(selectors, driver, device)?
            {
                continue;
            }
            given.insert(i);
            found += 1;
            if found >= count {
                break;
            }
        }
        Ok(found)
    }

    /// The devices that a request may be given, of those that a counter or capacity is about.
    pub(super) fn fitting(
        &self,
        path: &str,
        class: &str,
        selectors: &[String],
        source: &DeviceSource,
    ) -> Result<Vec<&'a Device>, Problem> {
        let class = self.class(class, path)?;
        let mut out = Vec::new();
        for device in self.complete(&source.driver) {
            let scope = [std::slice::from_ref(&source.selector), class, selectors];
            let what = ["deviceSelector", "DeviceClass selector", "request selector"];
            let mut fits = true;
            for (list, what) in scope.iter().zip(what) {
                fits = self.all(list, &source.driver, device).map_err(|e| {
                    let text = format!("CEL evaluation error in {what} for device {}: {e}", device.name);
                    Problem::Missing(path.to_owned(), text)
                })?;
                if !fits {
                    break;
                }
            }
            if fits {
                out.push(device);
            }
        }
        Ok(out)
    }

    /// Devices of a driver's pools whose newest generation has been published whole.
    fn complete(&self, driver: &str) -> impl Iterator<Item = &'a Device> {
        let mut pools: BTreeMap<&str, Vec<&'a ResourceSlice>> = BTreeMap::new();
        for slice in self.slices.values().filter(|s| s.driver == driver) {
            let pool = pools.entry(&slice.pool).or_default();
            let known = pool.first().map_or(i64::MIN, |s| s.generation);
            if slice.generation > known {
                pool.clear();
            }
            if slice.generation >= known {
                pool.push(slice);
            }
        }
        let whole = pools.into_values().filter(|p| {
            p.first().is_some_and(|s| usize::try_from(s.slice_count).is_ok_and(|n| n == p.len()))
        });
        whole.flatten().flat_map(|s| &s.devices)
    }
}

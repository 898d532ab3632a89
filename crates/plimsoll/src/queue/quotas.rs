//! Quotas of `plimsoll queue create clusterqueue`: `FLAVOR:RESOURCE=VALUE;RESOURCE=VALUE` (upstream's
//! `create_clusterqueue.go`).

use anyhow::{bail, ensure};
use plimsoll_api::Quantity;
use serde_json::{Value, json};

/// Quota of one resource: nominal quota, borrowing limit, lending limit.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Quota {
    resource: String,
    amounts: [Option<String>; 3],
}

/// Quotas of one flavor.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Flavor {
    name: String,
    quotas: Vec<Quota>,
}

/// `spec.resourceGroups` of what the three flags list.
///
/// # Errors
/// In upstream's words.
pub fn resource_groups(
    nominal: &[String],
    borrowing: &[String],
    lending: &[String],
) -> anyhow::Result<Vec<Value>> {
    let mut flavors: Vec<Flavor> = Vec::new();
    for (which, texts) in [nominal, borrowing, lending].into_iter().enumerate() {
        for text in texts {
            let flavor = parse(text, which)?;
            match flavors.iter_mut().find(|f| f.name == flavor.name) {
                Some(known) => merge(known, &flavor)?,
                None => flavors.push(flavor),
            }
        }
    }
    groups(flavors)
}

fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    let first = bytes.next().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let fine = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    first && text.len() <= 253 && bytes.all(fine)
}

/// A name of a resource: words between dots and dashes, with at most one slash.
fn is_resource(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || "_.-/".contains(c);
    !text.is_empty()
        && text.chars().all(word)
        && text.matches('/').count() <= 1
        && text.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
}

fn parse(text: &str, which: usize) -> anyhow::Result<Flavor> {
    let invalid = "invalid resources specification";
    let Some((name, rest)) = text.split_once(':') else { bail!(invalid) };
    let rest = rest.strip_suffix(';').unwrap_or(rest);
    ensure!(is_name(name) && !rest.is_empty(), invalid);
    let mut quotas = Vec::new();
    for pair in rest.split(';') {
        let Some((resource, amount)) = pair.split_once('=') else { bail!(invalid) };
        let word = !amount.is_empty() && amount.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        ensure!(is_resource(resource) && word, invalid);
        ensure!(amount.parse::<Quantity>().is_ok(), "invalid resource quota");
        let mut amounts = [None, None, None];
        amounts[which] = Some(amount.to_owned());
        quotas.push(Quota { resource: resource.to_owned(), amounts });
    }
    Ok(Flavor { name: name.to_owned(), quotas })
}

/// Adds amounts of the same resources.
fn merge(known: &mut Flavor, more: &Flavor) -> anyhow::Result<()> {
    for quota in &mut known.quotas {
        let other = more.quotas.iter().find(|q| q.resource == quota.resource);
        let Some(other) = other else { bail!("invalid flavor") };
        for (amount, more) in quota.amounts.iter_mut().zip(&other.amounts) {
            *amount = amount.take().or_else(|| more.clone());
        }
    }
    Ok(())
}

/// Flavors of the same resources share a group; a resource is in one group only.
fn groups(flavors: Vec<Flavor>) -> anyhow::Result<Vec<Value>> {
    let mut groups: Vec<(Vec<String>, Vec<Flavor>)> = Vec::new();
    for flavor in flavors {
        let covered: Vec<String> = flavor.quotas.iter().map(|q| q.resource.clone()).collect();
        let same = |known: &[String]| {
            known.len() == covered.len() && known.iter().all(|resource| covered.contains(resource))
        };
        match groups.iter_mut().find(|(known, _)| same(known)) {
            Some((_, members)) => members.push(flavor),
            None => {
                let shared = groups.iter().any(|(known, _)| known.iter().any(|r| covered.contains(r)));
                ensure!(!shared, "invalid resource group");
                groups.push((covered, vec![flavor]));
            }
        }
    }
    let quota = |q: &Quota| {
        let mut quota = json!({"name": q.resource, "nominalQuota": q.amounts[0].as_deref().unwrap_or("0")});
        for (field, amount) in [("borrowingLimit", &q.amounts[1]), ("lendingLimit", &q.amounts[2])] {
            if let Some(amount) = amount {
                quota[field] = json!(amount);
            }
        }
        quota
    };
    let flavor = |covered: &[String], f: &Flavor| {
        // In the order in which the group covers them, which the API server checks.
        let in_order = covered.iter().filter_map(|r| f.quotas.iter().find(|q| q.resource == *r));
        json!({"name": f.name, "resources": in_order.map(quota).collect::<Vec<_>>()})
    };
    let group = |(covered, flavors): &(Vec<String>, Vec<Flavor>)| {
        let flavors: Vec<Value> = flavors.iter().map(|f| flavor(covered, f)).collect();
        json!({"coveredResources": covered, "flavors": flavors})
    };
    Ok(groups.iter().map(group).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups_of(flags: [&[&str]; 3]) -> Result<Vec<Value>, String> {
        let [nominal, borrowing, lending] =
            flags.map(|texts| texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>());
        resource_groups(&nominal, &borrowing, &lending).map_err(|e| e.to_string())
    }

    #[test]
    fn quotas_are_merged_by_flavor_and_resources() {
        let alpha = "alpha:cpu=9;memory=36Gi;nvidia.com/gpu=10";
        let made = groups_of([
            &[alpha, "beta:memory=72Gi;cpu=18;nvidia.com/gpu=2", "gamma:pods=5;"],
            &["alpha:cpu=1;memory=1Gi;nvidia.com/gpu=1"],
            &[],
        ]);
        let [first, second] = &made.unwrap()[..] else { panic!("two groups") };
        assert_eq!(first["coveredResources"], json!(["cpu", "memory", "nvidia.com/gpu"]));
        assert_eq!(
            first["flavors"][0]["resources"][0],
            json!({"name": "cpu", "nominalQuota": "9", "borrowingLimit": "1"})
        );
        assert_eq!(first["flavors"][1]["resources"][0], json!({"name": "cpu", "nominalQuota": "18"}));
        assert_eq!(second["flavors"][0]["name"], "gamma");
    }

    #[test]
    fn mistakes_have_upstreams_words() {
        let error = |text: &str| groups_of([&[text], &[], &[]]).unwrap_err();
        for text in [
            "alpha",
            "alpha:",
            "Alpha:cpu=1",
            "alpha:cpu",
            "alpha:cpu=1;;memory=1",
            "alpha:cpu=-1",
            "alpha:=1",
        ] {
            assert_eq!(error(text), "invalid resources specification", "{text}");
        }
        assert_eq!(error("alpha:cpu=9x"), "invalid resource quota");
        assert_eq!(groups_of([&["a:cpu=1"], &["a:memory=1"], &[]]).unwrap_err(), "invalid flavor");
        assert_eq!(
            groups_of([&["a:cpu=1;memory=1", "b:cpu=1"], &[], &[]]).unwrap_err(),
            "invalid resource group"
        );
        assert_eq!(groups_of([&[], &[], &[]]).unwrap(), Vec::<Value>::new());
    }
}

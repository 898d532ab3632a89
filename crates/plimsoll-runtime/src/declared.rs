//! Follows the jobs of kinds that are not built in: as long as a JobKind declares them, or because
//! `integrations.externalFrameworks` names them.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_client::discovery;
use plimsoll_jobs::declaration::Declared;
use plimsoll_jobs::{Config, CustomKind};
use tokio_util::sync::CancellationToken;

use crate::api::Api;
use crate::cache::{Cache, Kind};

/// Pause between two looks which kinds there are.
const LOOK: Duration = Duration::from_millis(500);
/// Pause between two looks for the resources of external kinds.
const DISCOVER: Duration = Duration::from_secs(5);

/// Starts following each kind when it is declared, and stops when it is not any more, until stopped. `start` follows one until
/// its token is cancelled; `end` is called after that.
pub async fn run(
    cache: Cache,
    stop: CancellationToken,
    start: impl Fn(CustomKind, CancellationToken),
    end: impl Fn(CustomKind),
) {
    let mut followed: BTreeMap<CustomKind, CancellationToken> = BTreeMap::new();
    loop {
        let wanted: Vec<CustomKind> =
            cache.objects(|objects| objects.declared_kinds().chain(objects.external_kinds()).collect());
        followed.retain(|custom, token| {
            let stays = wanted.contains(custom);
            if !stays {
                tracing::info!(framework = custom.framework(), "jobs of this kind are not declared any more");
                token.cancel();
                cache.forget(Kind::Custom(*custom));
                end(*custom);
            }
            stays
        });
        for custom in wanted {
            followed.entry(custom).or_insert_with(|| {
                tracing::info!(framework = custom.framework(), "jobs of this kind are declared");
                let token = stop.child_token();
                start(custom, token.clone());
                token
            });
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

/// Finds the resources of `integrations.externalFrameworks` (`Kind.version.group`), which name only kinds, as soon as the
/// cluster serves them. A kind that an integration queues is that integration's, whatever its name is here.
pub async fn discover(api: Api, cache: Cache, names: Vec<String>, stop: CancellationToken) {
    let mut missing = names;
    missing.retain(|name| !is_built_in(name, cache.config()));
    loop {
        let mut left = Vec::new();
        for name in missing {
            match find(&api, &name).await {
                Some(declared) => {
                    cache.add_external(&declared);
                }
                None => left.push(name),
            }
        }
        missing = left;
        if missing.is_empty() {
            return;
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(DISCOVER) => {}
        }
    }
}

/// Kind, version and group of a name.
fn parts(name: &str) -> Option<(&str, &str, &str)> {
    let (kind, rest) = name.split_once('.')?;
    let (version, group) = rest.split_once('.')?;
    Some((kind, version, group))
}

fn is_built_in(name: &str, config: &Config) -> bool {
    let custom = parts(name).and_then(|(kind, version, group)| {
        CustomKind::of_kind(&format!("{group}/{version}"), kind).filter(|custom| custom.has_jobs())
    });
    custom.is_some_and(|custom| config.has_framework(custom.framework()))
}

async fn find(api: &Api, name: &str) -> Option<Declared> {
    let (kind, version, group) = parts(name)?;
    let plural = discovery::plural_of(api, &format!("{group}/{version}"), kind).await.ok()??;
    Some(Declared {
        group: group.to_owned(),
        versions: vec![version.to_owned()],
        plural,
        kind: kind.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_integrations_are_not_declared_again() {
        let mut config = Config::default();
        for (name, want) in [
            ("RayCluster.v1.ray.io", true),
            ("RayCluster.v1.example.com", false),
            ("Train.v1.example.com", false),
            ("RayCluster", false),
        ] {
            assert_eq!(is_built_in(name, &config), want, "{name}");
        }
        config.frameworks.remove("ray.io/raycluster");
        assert!(!is_built_in("RayCluster.v1.ray.io", &config));
    }
}

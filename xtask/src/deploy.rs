//! `cargo xtask deploy`: the generated part of `deploy/`: Kueue's definitions, the roles for users and the webhook configurations, from the
//! sources that the program itself is made of. `crates/plimsoll/tests/integration/deploy.rs` compares them.

use std::path::Path;

use anyhow::{Context, Result};
use plimsoll_api::roles;
use plimsoll_api::webhooks::{NAMESPACE, configurations, service_client};
use plimsoll_apimachinery::crd::definitions_to_install;
use serde_json::Value;

const HEAD: &str = "# Made by `cargo xtask deploy`; don't edit.\n";

/// How the API server reaches a webhook; the process that serves it adds the `caBundle`.
fn client(path: &str) -> Value {
    service_client(NAMESPACE, path)
}

/// Writes the files.
pub fn run(root: &Path) -> Result<()> {
    let dir = root.join("deploy");
    for definition in definitions_to_install(client) {
        let plural =
            definition["spec"]["names"]["plural"].as_str().context("a definition without a plural")?;
        write(&dir.join("crds").join(format!("{plural}.yaml")), std::slice::from_ref(&definition))?;
    }
    write(&dir.join("roles.yaml"), &roles::objects())?;
    write(&dir.join("webhooks.yaml"), &configurations(client, NAMESPACE))
}

fn write(path: &Path, documents: &[Value]) -> Result<()> {
    let mut text = HEAD.to_owned();
    for (i, document) in documents.iter().enumerate() {
        if i > 0 {
            text.push_str("---\n");
        }
        text.push_str(&serde_saphyr::to_string(document)?);
    }
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

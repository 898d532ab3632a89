//! The kubeconfig of a worker cluster: where it may be, and what may be in it (Kueue `multikueuecluster.go`,
//! `validateKubeConfigPath` and `validateKubeconfig`).

use std::io::{Error, ErrorKind};
use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};

use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::connect;

/// The directory of kubeconfigs that are files (`defaultKubeConfigPathPrefix`).
const DIRECTORY: &str = "/etc/multikueue/kubeconfigs";
const NOT_ALLOWED: &str = "kubeconfig path is not under the allowed prefix";

/// Reads a file, which has to be in the directory of kubeconfigs if the path is `validated`.
///
/// # Errors
/// Why it can't be used.
pub fn read(path: &str, validated: bool) -> Result<Vec<u8>, String> {
    let file = if validated { in_directory(path, Path::new(DIRECTORY))? } else { PathBuf::from(path) };
    std::fs::read(&file).map_err(|e| format!("open {}: {}", file.display(), words(&e)))
}

/// An error in Go's words, which Kueue's messages end with.
fn words(error: &Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "no such file or directory".to_owned(),
        ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}

/// The file behind all links, which is in the directory.
fn in_directory(path: &str, directory: &Path) -> Result<PathBuf, String> {
    if path.is_empty() {
        return Err("kubeconfig path must not be empty".to_owned());
    }
    let named = Path::new(path);
    if named.components().any(|part| part == Component::ParentDir) {
        return Err(format!("{NOT_ALLOWED}: path contains \"..\""));
    }
    if !named.is_absolute() {
        return Err(format!("{NOT_ALLOWED}: path must be absolute"));
    }
    let not_under = |file: &Path| {
        format!(
            "{NOT_ALLOWED}: {:?} is not under {:?}",
            file.display().to_string(),
            directory.display().to_string()
        )
    };
    let directory = std::fs::canonicalize(directory).map_err(|_| not_under(named))?;
    let file = std::fs::canonicalize(named).map_err(|e| {
        format!("cannot resolve kubeconfig path symlinks: lstat {}: {}", named.display(), words(&e))
    })?;
    if file.starts_with(&directory) { Ok(file) } else { Err(not_under(&file)) }
}

/// The configuration of a client. Every user with the right to write Secrets in Plimsoll's namespace can write a kubeconfig, so
/// none may make this process run programs, read its files, or skip the verification of certificates.
///
/// # Errors
/// Why it can't be used, in Kueue's words where it refuses the same.
pub async fn settings(bytes: &[u8]) -> Result<kube::Config, String> {
    let parsed = std::str::from_utf8(bytes).map_err(|e| e.to_string());
    let parsed = parsed.and_then(|text| Kubeconfig::from_yaml(text).map_err(|e| position(&e.to_string())));
    let file = parsed.map_err(|e| format!("failed to parse kubeconfig(apiconfig): {e}"))?;
    users(&file)?;
    clusters(&file)?;
    let options = KubeConfigOptions::default();
    let config = connect::from_kubeconfig(file, &options).await;
    let config = config.map_err(|e| format!("invalid configuration: {e}"))?;
    let host = config.cluster_url.host().unwrap_or_default();
    if is_hostname(host) { Ok(config) } else { Err("untrusted server endpoint".to_owned()) }
}

/// Where the text of a kubeconfig is malformed. The parser's error shows the lines around it, and users who can't read the Secret
/// can read the condition.
fn position(error: &str) -> String {
    let number = |word: &str| -> Option<u32> {
        let digits = error.split_once(word)?.1;
        digits.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    let at = |word: &str| number(&format!("{word} ")).map(|n| format!("{word} {n}"));
    let place: Vec<String> = ["line", "column"].into_iter().filter_map(at).collect();
    let place = if place.is_empty() { String::new() } else { format!(" at {}", place.join(", ")) };
    format!("malformed{place}")
}

fn users(file: &Kubeconfig) -> Result<(), String> {
    for user in file.auth_infos.iter().filter_map(|named| named.auth_info.as_ref()) {
        let refused = [
            (user.token_file.is_some(), "tokenFile is not allowed"),
            (user.username.is_some() || user.password.is_some(), "basic auth is not allowed"),
            (user.exec.is_some(), "exec plugins are not allowed"),
            (user.auth_provider.is_some(), "auth providers are not allowed"),
            // Kueue reads these files.
            (
                user.client_certificate.is_some() || user.client_key.is_some(),
                "client-certificate and client-key file paths are not allowed, use client-certificate-data and client-key-data",
            ),
        ];
        if let Some((_, why)) = refused.into_iter().find(|(is, _)| *is) {
            return Err(why.to_owned());
        }
    }
    Ok(())
}

fn clusters(file: &Kubeconfig) -> Result<(), String> {
    for named in &file.clusters {
        let Some(cluster) = &named.cluster else { continue };
        let name = &named.name;
        if cluster.insecure_skip_tls_verify == Some(true) {
            return Err(format!("insecure TLS verification is not allowed for cluster {name}"));
        }
        if cluster.certificate_authority.is_some() {
            return Err(format!(
                "certificate-authority file paths are not allowed, use certificate-authority-data for cluster {name}"
            ));
        }
        if cluster.server.as_ref().is_none_or(String::is_empty) {
            return Err(format!("server URL is required for cluster {name}"));
        }
    }
    Ok(())
}

/// An address, or a DNS name (RFC 1123).
fn is_hostname(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    if address.parse::<IpAddr>().is_ok() {
        return true;
    }
    let part = |part: &str| {
        let inner = |c: char| c.is_ascii_alphanumeric() || c == '-';
        !part.is_empty() && part.chars().all(inner) && !part.starts_with('-') && !part.ends_with('-')
    };
    host.len() <= 253 && host.split('.').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: w, user: u}}}}]\n\
             clusters: [{{name: w, cluster: {{{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
        )
    }

    #[tokio::test]
    async fn errors_show_nothing_of_the_file() {
        for malformed in [
            "users:\n- name: u\n  user:\n    token: s3cr3t\n   bad: [\n",
            "users: s3cr3t\n",
            "users:\n- name: u\n  user: {token: s3cr3t, token: [s3cr3t]}\n",
        ] {
            let error = settings(malformed.as_bytes()).await.expect_err(malformed);
            assert!(!error.contains("s3cr3t"), "{error}");
            assert!(
                error.starts_with("failed to parse kubeconfig(apiconfig): malformed at line "),
                "{error}"
            );
        }
    }

    /// Kueue's `TestValidateKubeconfig`, and files that it would read.
    #[tokio::test]
    async fn only_what_needs_no_trust_is_allowed() {
        const SERVER: &str = "server: \"https://worker.example.com:6443\"";
        let table = [
            (file(SERVER, "token: t"), None),
            (file("server: \"https://10.0.0.1:6443\"", "token: t"), None),
            ("no: [yaml".to_owned(), Some("failed to parse kubeconfig(apiconfig): ")),
            (file(SERVER, "tokenFile: /t"), Some("tokenFile is not allowed")),
            (file(SERVER, "username: u, password: p"), Some("basic auth is not allowed")),
            (
                file(SERVER, "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh}"),
                Some("exec plugins are not allowed"),
            ),
            (file(SERVER, "client-key: /k"), Some("client-certificate and client-key file paths")),
            (
                file("server: \"https://w\", insecure-skip-tls-verify: true", "token: t"),
                Some("insecure TLS verification is not allowed for cluster w"),
            ),
            (
                file("server: \"https://w\", certificate-authority: /ca", "token: t"),
                Some("certificate-authority file paths are not allowed"),
            ),
            (
                file("certificate-authority-data: \"\"", "token: t"),
                Some("server URL is required for cluster w"),
            ),
            (file("server: \"https://not_a_name\"", "token: t"), Some("untrusted server endpoint")),
            ("apiVersion: v1\nkind: Config\n".to_owned(), Some("invalid configuration: ")),
        ];
        for (text, want) in table {
            let refused = settings(text.as_bytes()).await.err();
            match want {
                None => assert_eq!(refused, None, "{text}"),
                Some(want) => {
                    let refused = refused.unwrap_or_default();
                    assert!(refused.starts_with(want), "{refused:?} is not {want:?}\n{text}");
                }
            }
        }
    }

    #[test]
    fn files_are_in_their_directory() {
        let base = std::env::temp_dir().join(format!("plimsoll-kubeconfigs-{}", std::process::id()));
        let allowed = base.join("allowed");
        std::fs::create_dir_all(&allowed).unwrap();
        std::fs::write(allowed.join("a"), "").unwrap();
        std::fs::write(base.join("b"), "").unwrap();
        std::os::unix::fs::symlink(base.join("b"), allowed.join("link")).unwrap();
        let within = |name: &str| in_directory(&base.join(name).display().to_string(), &allowed);
        assert!(within("allowed/a").is_ok());
        for outside in ["b", "allowed/link", "allowed/../b"] {
            assert!(within(outside).unwrap_err().starts_with(NOT_ALLOWED), "{outside}");
        }
        assert!(within("allowed/missing").unwrap_err().starts_with("cannot resolve"));
        assert!(in_directory("a", &allowed).unwrap_err().ends_with("path must be absolute"));
        assert!(in_directory("/a", &base.join("none")).unwrap_err().starts_with(NOT_ALLOWED));
        let missing = base.join("missing").display().to_string();
        let told = read(&missing, false).unwrap_err();
        assert_eq!(told, format!("open {missing}: no such file or directory"));
        std::fs::remove_dir_all(base).unwrap();
    }
}

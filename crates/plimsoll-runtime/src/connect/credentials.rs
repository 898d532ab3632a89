//! What a user of a kubeconfig shows to the server: what is in its files, and what its credential plugin has answered.

use std::io::IsTerminal as _;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::HeaderValue;
use kube::Config;
use kube::config::{AuthInfo, ExecConfig, ExecInteractiveMode};
use plimsoll_api::{json, timestamp};
use plimsoll_state::Time;

use super::exec::{PATIENCE, Plugin};
use crate::clock;

/// Credentials that change.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Credentials {
    /// Client certificate and key, as far as they are in files.
    identity: [Option<Vec<u8>>; 2],
    /// The token in a file.
    token: Option<String>,
    /// What the plugin has answered last.
    answer: Option<Answer>,
}

/// What a credential plugin has answered.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Answer {
    token: Option<String>,
    /// Certificate and key, in PEM.
    identity: Option<(String, String)>,
    /// When they end.
    end: Option<Time>,
}

impl Credentials {
    /// Reads the files of a user.
    ///
    /// # Errors
    /// The file of the token can't be read, and there is no other token.
    pub(super) fn read(auth: &AuthInfo, answer: Option<Answer>) -> Result<Self, String> {
        let token = match token_file(auth).map(read_token).transpose() {
            Ok(token) => token,
            // As in client-go, the file is tried again later (`NewBearerAuthWithRefreshRoundTripper`).
            Err(_) if own_token(auth).is_some() => None,
            Err(why) => return Err(why),
        };
        Ok(Self { identity: read_identity(auth), token, answer })
    }

    /// Reads the files again. A token whose file is gone stays: some programs remove it after the start
    /// (kubernetes/kubernetes#68164).
    pub(super) fn read_again(&self, auth: &AuthInfo) -> Self {
        let token = token_file(auth).and_then(|path| read_token(path).ok());
        Self { identity: read_identity(auth), token: token.or_else(|| self.token.clone()), ..self.clone() }
    }

    /// These credentials with another answer of the plugin.
    pub(super) fn answered(&self, answer: Answer) -> Self {
        Self { answer: Some(answer), ..self.clone() }
    }

    /// Whether the plugin has to run again.
    pub(super) fn have_ended(&self) -> bool {
        let end = self.answer.as_ref().and_then(|answer| answer.end);
        end.is_some_and(|end| end < clock::now())
    }

    /// Whether both have the same client certificate.
    pub(super) fn is_same_identity(&self, other: &Self) -> bool {
        let answered = |credentials: &Self| credentials.answer.as_ref().and_then(|a| a.identity.clone());
        self.identity == other.identity && answered(self) == answered(other)
    }

    /// The configuration of connections with these credentials, without the token.
    pub(super) fn config(&self, config: &Config) -> Config {
        let mut config = config.clone();
        let auth = &mut config.auth_info;
        (auth.token, auth.token_file, auth.exec) = (None, None, None);
        if let Some((certificate, key)) = self.answer.as_ref().and_then(|answer| answer.identity.as_ref()) {
            auth.client_certificate_data = Some(BASE64_STANDARD.encode(certificate));
            auth.client_key_data = Some(BASE64_STANDARD.encode(key).into());
        }
        config
    }

    /// The header `Authorization` of a token. One in a file comes before the one of the kubeconfig, as in client-go
    /// (`bearerAuthRoundTripper`).
    ///
    /// # Errors
    /// The token can't be in a header.
    pub(super) fn bearer(&self, auth: &AuthInfo) -> Result<Option<HeaderValue>, String> {
        let answered = || self.answer.as_ref().and_then(|answer| answer.token.clone());
        let Some(token) = self.token.clone().or_else(|| own_token(auth)).or_else(answered) else {
            return Ok(None);
        };
        let value = HeaderValue::try_from(format!("Bearer {token}"));
        let mut value = value.map_err(|_| "invalid bearer token".to_owned())?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

/// Whether a user has files that are read again.
pub(super) fn has_files(auth: &AuthInfo) -> bool {
    let files = [&auth.client_certificate, &auth.client_key, &auth.token_file];
    files.into_iter().any(Option::is_some)
}

/// The plugin of a user, unless there are other credentials (client-go's `UpdateTransportConfig`).
pub(super) fn plugin(auth: &AuthInfo) -> Option<ExecConfig> {
    let has_token = own_token(auth).is_some() || token_file(auth).is_some();
    let has_certificate = auth.client_certificate.is_some() || auth.client_certificate_data.is_some();
    let has_key = auth.client_key.is_some() || auth.client_key_data.is_some();
    let others = has_token || auth.username.is_some() || has_certificate && has_key;
    auth.exec.clone().filter(|_| !others)
}

/// Runs the plugin of a user.
///
/// # Errors
/// Why there are no credentials.
pub(super) fn run(exec: &ExecConfig) -> Result<Answer, String> {
    let env = exec.env.iter().flatten();
    let env = env.filter_map(|env| Some((env.get("name")?.as_str(), env.get("value")?.as_str())));
    let cluster = exec.cluster.as_ref().filter(|_| exec.provide_cluster_info);
    let interactive = is_interactive(exec)?;
    let plugin = Plugin {
        command: exec.command.as_deref().unwrap_or_default(),
        args: exec.args.as_deref().unwrap_or_default(),
        env: env.collect(),
        api_version: exec.api_version.as_deref().unwrap_or_default(),
        install_hint: exec.install_hint.as_deref().unwrap_or_default(),
        cluster: cluster.and_then(|cluster| serde_json::to_value(cluster).ok()),
        interactive,
    };
    let credential = plugin.run(if interactive { Duration::MAX } else { PATIENCE })?;
    let text = |key: &str| {
        let text = json::text(&credential, &["status", key]);
        (!text.is_empty()).then(|| text.to_owned())
    };
    let parse = |text: String| {
        timestamp::parse(&text).ok_or_else(|| format!("malformed token expiration date: {text}"))
    };
    let end = text("expirationTimestamp").map(parse).transpose()?;
    Ok(Answer {
        token: text("token"),
        identity: text("clientCertificateData").zip(text("clientKeyData")),
        end,
    })
}

/// Whether a plugin may ask the user (`isInteractive`).
fn is_interactive(exec: &ExecConfig) -> Result<bool, String> {
    let terminal = std::io::stdin().is_terminal();
    match &exec.interactive_mode {
        Some(ExecInteractiveMode::Never) => Ok(false),
        Some(ExecInteractiveMode::Always) if !terminal => {
            Err("exec plugin cannot support interactive mode: standard input is not a terminal".to_owned())
        }
        _ => Ok(terminal),
    }
}

fn read_identity(auth: &AuthInfo) -> [Option<Vec<u8>>; 2] {
    [&auth.client_certificate, &auth.client_key].map(|path| std::fs::read(path.as_ref()?).ok())
}

fn token_file(auth: &AuthInfo) -> Option<&str> {
    auth.token_file.as_deref().filter(|path| !path.is_empty())
}

/// A token without the space around it, such as the newline of most editors (k8s.io/client-go/transport/token_source.go).
fn read_token(path: &str) -> Result<String, String> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|e| format!("failed to read token file {path:?}: {e}"))?;
    match text.trim() {
        "" => Err(format!("read empty token from file {path:?}")),
        token => Ok(token.to_owned()),
    }
}

/// The token in the kubeconfig. kube's type for secrets shows it to those who have its crate, or write the kubeconfig.
fn own_token(auth: &AuthInfo) -> Option<String> {
    let auth = serde_json::to_value(auth).ok()?;
    Some(json::text(&auth, &["token"]).to_owned()).filter(|token| !token.is_empty())
}

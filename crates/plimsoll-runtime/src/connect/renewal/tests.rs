use std::path::{Path, PathBuf};

use http::header::AUTHORIZATION;
use kube::config::{KubeConfigOptions, Kubeconfig};
use plimsoll_client::certificates::{Authority, Issued, Subject, client_verifier, server_config};
use plimsoll_client::https::handler::{ClientCertificate, Handler, Limits, serve, text};
use plimsoll_client::https::{Tls, fixed, subject};
use plimsoll_client::rest::Api;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::super::{api, from_kubeconfig};
use super::*;

fn named(common_name: &str) -> Subject<'_> {
    Subject { common_name, organization: None, valid: None }
}

/// A directory of a test.
fn directory(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("plimsoll-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// Serves to each client what it shows, the name in its certificate or a header, and refuses it on the path `/refused`; returns the
/// address.
async fn server(tls: Option<Tls>, stop: &CancellationToken) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let handler: Handler = Arc::new(|request: Request<Bytes>| {
        let status =
            if request.uri().path() == "/refused" { StatusCode::UNAUTHORIZED } else { StatusCode::OK };
        let certificate = request.extensions().get::<ClientCertificate>();
        let header = request.headers().get(AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
        let name = certificate.map(|c| subject::peer(&c.0).unwrap().common_name);
        let shown = name.or(header).unwrap_or_default();
        Box::pin(async move { text(status, &shown) })
    });
    let limits = Limits { connections: 8, body: 1024 };
    tokio::spawn(serve(("test", listener), tls, limits, handler, stop.clone()));
    address
}

/// As [`server`], over TLS.
async fn tls_server(authority: &Authority, stop: &CancellationToken) -> String {
    let own = authority.server(&named("server"), vec!["127.0.0.1".to_owned()]).unwrap();
    let clients = client_verifier(&[authority.certificate()]).unwrap();
    let tls = fixed(server_config(&own.certificate, &own.key, clients).unwrap());
    server(Some(tls), stop).await
}

/// A client with a kubeconfig of which the authority is in a file of a directory.
async fn connected(server: &str, dir: &Path, user: &str) -> Api {
    let ca = dir.join("ca");
    let text = format!(
        "current-context: c\n\
         contexts: [{{name: c, context: {{cluster: s, user: u}}}}]\n\
         clusters: [{{name: s, cluster: {{server: 'https://{server}', certificate-authority: '{}'}}}}]\n\
         users: [{{name: u, user: {{{user}}}}}]\n",
        ca.display()
    );
    let file = Kubeconfig::from_yaml(&text).unwrap();
    let config = from_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    api(config, "test").unwrap()
}

fn write(dir: &Path, identity: &Issued) {
    std::fs::write(dir.join("crt"), &identity.certificate).unwrap();
    std::fs::write(dir.join("key"), &identity.key).unwrap();
}

/// Passes the time until files are read again.
async fn pass() {
    tokio::time::pause();
    tokio::time::advance(REFRESH).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_client_certificate_that_is_replaced_is_used() {
    let dir = directory("renewal");
    let authority = Authority::generate(&named("authority")).unwrap();
    std::fs::write(dir.join("ca"), authority.certificate()).unwrap();
    let [first, second, third] = ["first", "second", "third"].map(|n| authority.client(&named(n)).unwrap());
    write(&dir, &first);

    let stop = CancellationToken::new();
    let address = tls_server(&authority, &stop).await;
    let user = format!("client-certificate: '{0}/crt', client-key: '{0}/key'", dir.display());
    let api = connected(&address, &dir, &user).await;
    let name = async || api.get_text("/").await.unwrap();
    assert_eq!(name().await, "first");
    write(&dir, &second);
    assert_eq!(name().await, "first");
    pass().await;
    assert_eq!(name().await, "second");

    // Half of the third.
    std::fs::write(dir.join("crt"), &third.certificate).unwrap();
    pass().await;
    assert_eq!(name().await, "second");
    write(&dir, &third);
    pass().await;
    assert_eq!(name().await, "third");
    stop.cancel();
    std::fs::remove_dir_all(&dir).unwrap();
}

#[tokio::test]
async fn a_credential_plugin_runs_again_when_its_answer_ends_or_is_refused() {
    const VERSION: &str = "client.authentication.k8s.io/v1";
    let dir = directory("exec");
    let authority = Authority::generate(&named("authority")).unwrap();
    std::fs::write(dir.join("ca"), authority.certificate()).unwrap();
    let [first, second] = ["first", "second"].map(|n| authority.client(&named(n)).unwrap());
    let answer = |status: serde_json::Value| {
        let credential = json!({"apiVersion": VERSION, "kind": "ExecCredential", "status": status});
        std::fs::write(dir.join("answer"), credential.to_string()).unwrap();
    };
    let identity =
        |issued: &Issued| json!({"clientCertificateData": issued.certificate, "clientKeyData": issued.key});
    answer(identity(&first));

    let stop = CancellationToken::new();
    let address = tls_server(&authority, &stop).await;
    let user = format!(
        "exec: {{apiVersion: {VERSION}, command: cat, args: ['{}/answer'], interactiveMode: Never}}",
        dir.display()
    );
    let api = connected(&address, &dir, &user).await;
    let name = async || api.get_text("/").await.map_err(|e| e.to_string());
    let refused = async || assert_eq!(api.get_text("/refused").await.unwrap_err().code(), 401);
    assert_eq!(name().await.unwrap(), "first");
    answer(identity(&second));
    assert_eq!(name().await.unwrap(), "first");
    refused().await;
    assert_eq!(name().await.unwrap(), "second");
    // Connections without a certificate.
    answer(json!({"token": "third", "expirationTimestamp": "2020-01-01T00:00:00Z"}));
    refused().await;
    assert_eq!(name().await.unwrap(), "Bearer third");
    answer(json!({"token": "fourth"}));
    assert_eq!(name().await.unwrap(), "Bearer fourth");

    // Credentials that were refused are shown again, those that have ended are not.
    std::fs::remove_file(dir.join("answer")).unwrap();
    refused().await;
    assert_eq!(name().await.unwrap(), "Bearer fourth");
    answer(json!({"token": "fifth", "expirationTimestamp": "2020-01-01T00:00:00Z"}));
    refused().await;
    assert_eq!(name().await.unwrap(), "Bearer fifth");
    std::fs::remove_file(dir.join("answer")).unwrap();
    let problem = name().await.unwrap_err();
    assert!(problem.starts_with("getting credentials: exec plugin \"cat\": exit status: 1"), "{problem}");
    stop.cancel();
    std::fs::remove_dir_all(&dir).unwrap();
}

#[tokio::test]
async fn tokens_of_files_are_trimmed_and_come_first() {
    let dir = directory("token");
    let file = dir.join("token");
    let stop = CancellationToken::new();
    let url = format!("http://{}", server(None, &stop).await);
    let config = |own: Option<&str>| {
        let mut config = Config::new(url.parse().unwrap());
        config.auth_info.token_file = Some(file.display().to_string());
        config.auth_info.token = own.map(Into::into);
        config
    };
    let problem = api(config(None), "test").err().unwrap().to_string();
    assert!(problem.contains("failed to read token file"), "{problem}");
    assert_eq!(api(config(Some("own")), "test").unwrap().get_text("/").await.unwrap(), "Bearer own");
    std::fs::write(&file, " \n").unwrap();
    let problem = api(config(None), "test").err().unwrap().to_string();
    assert!(problem.contains("read empty token from file"), "{problem}");

    std::fs::write(&file, "first\n").unwrap();
    let api = api(config(Some("own")), "test").unwrap();
    assert_eq!(api.get_text("/").await.unwrap(), "Bearer first");
    std::fs::write(&file, " second\n").unwrap();
    pass().await;
    assert_eq!(api.get_text("/").await.unwrap(), "Bearer second");
    // A token that can't be in a header, and no file.
    std::fs::write(&file, "a\nb").unwrap();
    pass().await;
    assert_eq!(api.get_text("/").await.unwrap(), "Bearer second");
    std::fs::remove_file(&file).unwrap();
    pass().await;
    assert_eq!(api.get_text("/").await.unwrap(), "Bearer second");
    stop.cancel();
    std::fs::remove_dir_all(&dir).unwrap();
}

/// kube's layer panics.
#[tokio::test]
async fn a_token_that_can_t_be_in_a_header_is_an_error() {
    let mut config = Config::new("http://127.0.0.1:1".parse().unwrap());
    config.auth_info.token = Some("a\nb".into());
    let problem = api(config, "test").err().unwrap().to_string();
    assert!(problem.contains("invalid bearer token"), "{problem}");
}

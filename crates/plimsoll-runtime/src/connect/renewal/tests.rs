use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, StatusCode};
use kube::config::{KubeConfigOptions, Kubeconfig};
use plimsoll_client::certificates::{Authority, Issued, Subject, client_verifier, server_config};
use plimsoll_client::https::handler::{ClientCertificate, Handler, Limits, serve, text};
use plimsoll_client::https::{fixed, subject};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::super::{api, from_kubeconfig};
use super::*;

fn named(common_name: &str) -> Subject<'_> {
    Subject { common_name, organization: None, valid: None }
}

/// Serves the name of each client to it; returns the address.
async fn server(authority: &Authority, stop: &CancellationToken) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let own = authority.server(&named("server"), vec!["127.0.0.1".to_owned()]).unwrap();
    let clients = client_verifier(&[authority.certificate()]).unwrap();
    let tls = fixed(server_config(&own.certificate, &own.key, clients).unwrap());
    let handler: Handler = Arc::new(|request: Request<Bytes>| {
        let certificate = request.extensions().get::<ClientCertificate>();
        let name = certificate.map(|c| subject::peer(&c.0).unwrap().common_name).unwrap_or_default();
        Box::pin(async move { text(StatusCode::OK, &name) })
    });
    let limits = Limits { connections: 8, body: 1024 };
    tokio::spawn(serve(("test", listener), Some(tls), limits, handler, stop.clone()));
    address
}

/// A kubeconfig with everything in files of a directory.
fn kubeconfig(server: &str, dir: &Path) -> Kubeconfig {
    let dir = dir.display();
    let text = format!(
        "current-context: c\n\
         contexts: [{{name: c, context: {{cluster: s, user: u}}}}]\n\
         clusters: [{{name: s, cluster: {{server: 'https://{server}', certificate-authority: '{dir}/ca'}}}}]\n\
         users: [{{name: u, user: {{client-certificate: '{dir}/crt', client-key: '{dir}/key'}}}}]\n"
    );
    Kubeconfig::from_yaml(&text).unwrap()
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
    let dir = std::env::temp_dir().join(format!("plimsoll-renewal-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let authority = Authority::generate(&named("authority")).unwrap();
    std::fs::write(dir.join("ca"), authority.certificate()).unwrap();
    let [first, second, third] = ["first", "second", "third"].map(|n| authority.client(&named(n)).unwrap());
    write(&dir, &first);

    let stop = CancellationToken::new();
    let address = server(&authority, &stop).await;
    let options = KubeConfigOptions::default();
    let config = from_kubeconfig(kubeconfig(&address, &dir), &options).await.unwrap();
    let api = api(config, "test").unwrap();
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

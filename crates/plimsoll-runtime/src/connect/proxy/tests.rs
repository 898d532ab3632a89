use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::super::{api, client, from_kubeconfig};
use super::*;

fn uri(text: &str) -> Uri {
    text.parse().unwrap()
}

#[test]
fn no_proxy_exempts_addresses_networks_and_domains() {
    let https = "http://proxy:3128".to_owned();
    for (no, server, is_exempt) in [
        ("", "https://api.example.com", false),
        ("", "https://localhost:6443", true),
        ("", "https://127.8.0.1:6443", true),
        ("", "https://[::1]:6443", true),
        ("*", "https://10.0.0.1", true),
        ("10.0.0.0/8", "https://10.96.0.1", true),
        ("10.0.0.0/8", "https://11.96.0.1", false),
        ("0.0.0.0/0", "https://11.96.0.1", true),
        ("10.0.0.0/33", "https://10.96.0.1", false),
        ("10.0.0.0/8", "https://[fd00::1]", false),
        ("fd00::/8", "https://[fd00::1]:6443", true),
        ("10.96.0.1", "https://10.96.0.1:6443", true),
        ("10.96.0.1:443", "https://10.96.0.1:6443", false),
        ("10.96.0.1:443", "https://10.96.0.1", true),
        ("[fd00::1]:443", "https://[fd00::1]", true),
        ("fd00::1", "https://[fd00::1]", true),
        ("example.org, example.com", "https://api.example.com", true),
        ("example.com", "https://EXAMPLE.com", true),
        ("example.com", "https://myexample.com", false),
        (".example.com", "https://api.example.com", true),
        (".example.com", "https://example.com", false),
        ("*.example.com", "https://api.example.com", true),
        ("example.com:6443", "https://api.example.com:6443", true),
        ("example.com:6443", "https://api.example.com", false),
        (",:443,", "https://api.example.com", false),
    ] {
        let environment = Environment { https: https.clone(), no: no.to_owned(), ..Environment::default() };
        let proxy = environment.proxy_of(&uri(server)).unwrap();
        assert_eq!(proxy.is_none(), is_exempt, "{no} {server}");
    }
}

#[test]
fn the_scheme_of_the_server_chooses_the_variable() {
    let of = |https: &str, http: &str, server: &str| {
        let (https, http) = (https.to_owned(), http.to_owned());
        let environment = Environment { https, http, no: String::new() };
        environment.proxy_of(&uri(server)).map(|proxy| proxy.map(|proxy| proxy.uri().to_string()))
    };
    assert_eq!(of("", "http://p:1", "https://s"), Ok(None));
    assert_eq!(of("", "http://p:1", "http://s"), Ok(Some("http://p:1/".to_owned())));
    assert_eq!(of("p:1", "", "https://s"), Ok(Some("http://p:1/".to_owned())));
    assert_eq!(of("socks5://p:1", "", "https://s"), Ok(Some("socks5://p:1/".to_owned())));
    let refused = of("ftp://u:secret@p:1", "", "https://s").unwrap_err();
    assert!(refused.starts_with("invalid 'HTTPS_PROXY'") && !refused.contains("secret"), "{refused}");
}

/// What kube has taken from the environment is looked at with `NO_PROXY`.
#[tokio::test]
async fn a_proxy_of_the_kubeconfig_is_that_of_its_cluster() {
    let file = |cluster: &str| {
        let clusters = format!(
            "[{{name: b, cluster: {{server: 'https://b', proxy-url: 'http://b'}}}}, \
             {{name: a, cluster: {{server: 'https://a'{cluster}}}}}]"
        );
        let contexts = "[{name: a, context: {cluster: a, user: u}}]";
        let text = format!("current-context: a\ncontexts: {contexts}\nclusters: {clusters}\n");
        Kubeconfig::from_yaml(&text).unwrap()
    };
    let options = KubeConfigOptions::default();
    let config = from_kubeconfig(file(", proxy-url: 'http://p:1'"), &options).await.unwrap();
    assert_eq!(config.proxy_url, Some(uri("http://p:1")));
    for none in ["", ", proxy-url: ''"] {
        assert_eq!(from_kubeconfig(file(none), &options).await.unwrap().proxy_url, None);
    }
    let other = KubeConfigOptions { cluster: Some("b".to_owned()), ..options };
    assert_eq!(from_kubeconfig(file(""), &other).await.unwrap().proxy_url, Some(uri("http://b")));
    let options = KubeConfigOptions::default();
    let config = from_kubeconfig(file(", proxy-url: 'ftp://p'"), &options).await.unwrap();
    let refused = client(config).err().unwrap().to_string();
    assert!(refused.contains("invalid 'proxy-url'"), "{refused}");
}

/// A request to `server` through a proxy at `url`, to which `{}` is the address; the proxy is `serve`, with the connection to it.
async fn through<T>(
    url: &str,
    server: &str,
    serve: impl AsyncFnOnce(TcpStream) -> T,
) -> (T, Result<String, String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = Config::new(uri(server));
    let address = listener.local_addr().unwrap().to_string();
    config.proxy_url = Some(uri(&url.replace("{}", &address)));
    let api = api(config, "test").unwrap();
    let proxy = async { serve(listener.accept().await.unwrap().0).await };
    let (served, answer) = tokio::join!(proxy, api.get_text("/version"));
    (served, answer.map_err(|e| e.to_string()))
}

/// Reads the head of a request or of an answer.
async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

async fn expect(stream: &mut TcpStream, want: &[u8]) {
    let mut got = vec![0; want.len()];
    stream.read_exact(&mut got).await.unwrap();
    assert_eq!(got, want);
}

/// Answers the request that comes through a tunnel.
async fn answer(stream: &mut TcpStream) -> String {
    let asked = head(stream).await;
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").await.unwrap();
    asked
}

#[tokio::test]
async fn http_proxies_are_asked_for_tunnels() {
    // The name exists for the proxy only.
    let ((connect, request), answer) =
        through("http://me:p%40ss@{}", "http://server.invalid/k8s", async |mut stream| {
            let connect = head(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
            (connect, answer(&mut stream).await)
        })
        .await;
    assert!(connect.starts_with("CONNECT server.invalid:80 HTTP/1.1\r\n"), "{connect}");
    // me:p@ss
    assert!(connect.contains("Proxy-Authorization: Basic bWU6cEBzcw==\r\n"), "{connect}");
    assert!(request.starts_with("GET /k8s/version HTTP/1.1\r\n"), "{request}");
    assert_eq!(answer, Ok("hi".to_owned()));
}

#[tokio::test]
async fn tls_is_with_the_server_behind_the_proxy() {
    let (first, answer) = through("http://{}", "https://server.invalid", async |mut stream| {
        assert!(head(&mut stream).await.starts_with("CONNECT server.invalid:443 HTTP/1.1\r\n"));
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        stream.read_u8().await.unwrap()
    })
    .await;
    assert_eq!(first, 0x16, "the handshake of TLS");
    assert!(answer.is_err());
}

#[tokio::test]
async fn refused_tunnels_name_the_proxy() {
    let ((), answer) = through("http://me:secret@{}", "https://server.invalid", async |mut stream| {
        head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await.unwrap();
    })
    .await;
    let why = answer.unwrap_err();
    assert!(why.contains("proxy http://127.0.0.1:") && why.contains("authorization required"), "{why}");
    assert!(!why.contains("secret"), "{why}");
}

#[tokio::test]
async fn socks_proxies_resolve_names() {
    let (request, answer) =
        through("socks5://me:secret@{}", "http://server.invalid:8080", async |mut stream| {
            // Version 5, one method: user and password.
            expect(&mut stream, &[5, 1, 2]).await;
            stream.write_all(&[5, 2]).await.unwrap();
            expect(&mut stream, b"\x01\x02me\x06secret").await;
            stream.write_all(&[1, 0]).await.unwrap();
            // Connect to a domain.
            expect(&mut stream, b"\x05\x01\x00\x03\x0eserver.invalid\x1f\x90").await;
            stream.write_all(&[5, 0, 0, 1, 127, 0, 0, 1, 0, 80]).await.unwrap();
            answer(&mut stream).await
        })
        .await;
    assert!(request.starts_with("GET /version HTTP/1.1\r\n"), "{request}");
    assert_eq!(answer, Ok("hi".to_owned()));
}

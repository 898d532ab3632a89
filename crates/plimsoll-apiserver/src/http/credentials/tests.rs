use super::*;

struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        let dir = std::env::temp_dir().join(format!("plimsoll-credentials-{}", uuid::Uuid::new_v4()));
        Self(dir)
    }

    fn load(&self, hosts: &[&str]) -> Result<Credentials, CredentialsError> {
        let hosts: Vec<String> = hosts.iter().map(|h| (*h).to_owned()).collect();
        Credentials::load_or_create(&self.0, &hosts)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn accepts(c: &Credentials, host: &str) -> bool {
    let issued = Issued { certificate: c.server_certificate.clone(), key: String::new() };
    Trust::of(&c.ca).unwrap().accepts_server(&issued, &[host.to_owned()])
}

#[test]
fn credentials_are_kept_and_the_serving_certificate_follows_the_address() {
    let dir = Dir::new();
    let first = dir.load(&["127.0.0.1"]).unwrap();
    assert!(accepts(&first, "127.0.0.1") && !accepts(&first, "192.0.2.7"));
    let same = dir.load(&["127.0.0.1"]).unwrap();
    assert_eq!(same.server_certificate, first.server_certificate);
    let other = dir.load(&["192.0.2.7"]).unwrap();
    assert!(accepts(&other, "192.0.2.7") && accepts(&other, "localhost"));
    assert_eq!(
        (&other.ca, &other.client_certificate, &other.token),
        (&first.ca, &first.client_certificate, &first.token)
    );
    assert_eq!(dir.load(&["192.0.2.7"]).unwrap().server_certificate, other.server_certificate);
    other.tls().unwrap();
}

/// Every prefix of what a first start and a renewal write, in their order: the next start finishes it.
#[test]
fn interrupted_starts_are_completed() {
    let order = [TOKEN, CA.certificate, CA.key, SERVER.key, SERVER.certificate, ADMIN.key, ADMIN.certificate];
    let whole = Dir::new();
    let old = whole.load(&[]).unwrap();
    for there in 0..order.len() {
        let dir = Dir::new();
        private::create_dir_all(&dir.0).unwrap();
        for name in &order[..there] {
            std::fs::copy(whole.0.join(name), dir.0.join(name)).unwrap();
        }
        let new = dir.load(&[]).unwrap_or_else(|e| panic!("{:?}: {e}", &order[..there]));
        new.tls().unwrap();
        assert!(accepts(&new, "localhost"));
        assert_eq!(new.token == old.token, there > 0);
        assert_eq!(new.ca == old.ca, there > 2, "{:?}", &order[..there]);
    }
    // A new authority beside certificates of the old one.
    let authority = Dir::new();
    authority.load(&[]).unwrap();
    for name in [CA.certificate, CA.key] {
        std::fs::copy(authority.0.join(name), whole.0.join(name)).unwrap();
    }
    let new = whole.load(&[]).unwrap();
    assert!(accepts(&new, "localhost") && new.client_certificate != old.client_certificate);
}

/// Directories of versions that did not keep the authority's key.
#[test]
fn an_authority_without_its_key_serves_until_it_has_to_sign() {
    let dir = Dir::new();
    let first = dir.load(&[]).unwrap();
    std::fs::remove_file(dir.0.join(CA.key)).unwrap();
    assert_eq!(dir.load(&["127.0.0.1"]).unwrap().ca, first.ca);
    let renewed = dir.load(&["192.0.2.7"]).unwrap();
    assert!(renewed.ca != first.ca && renewed.token == first.token && accepts(&renewed, "192.0.2.7"));
    assert_eq!(dir.load(&["192.0.2.8"]).unwrap().ca, renewed.ca);
}

#[test]
fn damaged_files_are_named_with_the_way_out() {
    for name in [CA.certificate, CA.key, SERVER.certificate, SERVER.key, ADMIN.certificate, ADMIN.key] {
        for cut in [0, 60, 90] {
            let dir = Dir::new();
            dir.load(&[]).unwrap();
            let path = dir.0.join(name);
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::write(&path, &text[..cut]).unwrap();
            let error = dir.load(&[]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{}: ", path.display())), "{error}");
            assert!(error.contains("remove") && !error.contains('['), "{error}");
        }
    }
    let dir = Dir::new();
    dir.load(&[]).unwrap();
    std::fs::copy(dir.0.join(ADMIN.key), dir.0.join(SERVER.key)).unwrap();
    let error = dir.load(&[]).unwrap_err().to_string();
    assert!(error.contains("server.key: it is not the key of server.crt; "), "{error}");
    std::fs::copy(dir.0.join(ADMIN.key), dir.0.join(CA.key)).unwrap();
    let error = dir.load(&[]).unwrap_err().to_string();
    assert!(error.contains("ca.key: it is not the key of ca.crt; "), "{error}");
    let dir = Dir::new();
    dir.load(&[]).unwrap();
    for bytes in [&b""[..], b"a b", b"\xff"] {
        std::fs::write(dir.0.join(TOKEN), bytes).unwrap();
        let error = dir.load(&[]).unwrap_err().to_string();
        assert!(error.contains("token: ") && error.contains("remove it"), "{error}");
    }
}

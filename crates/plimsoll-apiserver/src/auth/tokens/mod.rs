//! Tokens of service accounts: signed JSON Web Tokens (ES256), as upstream's `serviceaccount` package issues and reads
//! them. The key is kept with the other credentials, so that tokens outlive the process.

mod verify;

#[cfg(test)]
mod tests;

use std::path::Path;

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use jiff::Timestamp;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey,
};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::User;
use crate::auth::pem::pem_error;
use crate::private;

pub use verify::{Lookup, verify};

/// `--service-account-issuer`, and the audience of tokens that ask for none.
pub const ISSUER: &str = "https://kubernetes.default.svc";

const ALGORITHM: &str = "ES256";
/// What stands before a point of P-256 in a SubjectPublicKeyInfo.
const SPKI_HEAD: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// Bytes of a coordinate.
const COORDINATE: usize = 32;

/// Signs tokens and knows its own.
pub struct Signer {
    key: EcdsaKeyPair,
    random: SystemRandom,
    id: String,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signer").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Signer {
    /// A signer with a new key.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn generate() -> Result<Self, String> {
        Self::of(&Self::new_key()?)
    }

    fn new_key() -> Result<Vec<u8>, String> {
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
        document.map(|d| d.as_ref().to_vec()).map_err(|e| e.to_string())
    }

    fn of(pkcs8: &[u8]) -> Result<Self, String> {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &random)
            .map_err(|e| e.to_string())?;
        let mut digest = Sha256::new();
        digest.update(SPKI_HEAD);
        digest.update(key.public_key().as_ref());
        let id = BASE64_URL_SAFE_NO_PAD.encode(digest.finalize());
        Ok(Self { key, random, id })
    }

    /// The signer whose key is in a file, which is made if it isn't there. Only the owner can read it.
    ///
    /// # Errors
    /// The file can't be used, in words.
    pub fn load_or_create(path: &Path) -> Result<Self, String> {
        match std::fs::read(path) {
            Ok(pem) => {
                let broken = |why: String| {
                    format!(
                        "{why}; restore it from a copy, or remove it: the next start makes a new one, and tokens of \
                         service accounts issued before are no longer accepted"
                    )
                };
                let key = PrivatePkcs8KeyDer::from_pem_slice(&pem).map_err(|e| broken(pem_error(&e)))?;
                Self::of(key.secret_pkcs8_der()).map_err(broken)
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                let key = Self::new_key()?;
                if let Some(dir) = path.parent() {
                    private::create_dir_all(dir).map_err(|e| e.to_string())?;
                }
                private::write(path, &pem(&key)).map_err(|e| e.to_string())?;
                Self::of(&key)
            }
            Err(e) => Err(e.to_string()),
        }
    }

    /// A token with these claims.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn sign(&self, claims: &Value) -> Result<String, String> {
        let header = json!({"alg": ALGORITHM, "kid": self.id});
        let encode = |v: &Value| BASE64_URL_SAFE_NO_PAD.encode(v.to_string());
        let text = format!("{}.{}", encode(&header), encode(claims));
        let signature = self.key.sign(&self.random, text.as_bytes()).map_err(|e| e.to_string())?;
        Ok(format!("{text}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)))
    }

    /// The claims of a token that this key has signed.
    pub fn claims(&self, token: &str) -> Option<Value> {
        let (text, signature) = token.rsplit_once('.')?;
        let (header, claims) = text.split_once('.')?;
        let decode = |part: &str| BASE64_URL_SAFE_NO_PAD.decode(part).ok();
        let header: Value = serde_json::from_slice(&decode(header)?).ok()?;
        if header["alg"] != ALGORITHM {
            return None;
        }
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.public_key().as_ref());
        key.verify(text.as_bytes(), &decode(signature)?).ok()?;
        serde_json::from_slice(&decode(claims)?).ok()
    }

    /// `/openid/v1/jwks`: the public key as a JSON Web Key Set.
    pub fn key_set(&self) -> Value {
        let point = self.key.public_key().as_ref();
        // The first byte says that both coordinates follow.
        let coordinate = |i: usize| {
            let bytes = point.get(1 + i * COORDINATE..1 + (i + 1) * COORDINATE).unwrap_or_default();
            BASE64_URL_SAFE_NO_PAD.encode(bytes)
        };
        json!({"keys": [{
            "use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": ALGORITHM,
            "x": coordinate(0), "y": coordinate(1),
        }]})
    }
}

/// `/.well-known/openid-configuration` of a server at `address` (`host:port`).
pub fn discovery(address: &str) -> Value {
    json!({
        "issuer": ISSUER, "jwks_uri": format!("https://{address}/openid/v1/jwks"),
        "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": [ALGORITHM],
    })
}

fn pem(pkcs8: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(pkcs8);
    let lines: Vec<String> =
        text.as_bytes().chunks(64).map(|l| String::from_utf8_lossy(l).into_owned()).collect();
    format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n"))
}

/// An object that a token names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

impl Named {
    /// The object's name and UID.
    pub fn of(object: &Value) -> Self {
        let text = |f: &str| object["metadata"][f].as_str().unwrap_or("").to_owned();
        Self { name: text("name"), uid: text("uid") }
    }

    fn claim(&self) -> Value {
        let mut claim = json!({"name": self.name});
        if !self.uid.is_empty() {
            claim["uid"] = json!(self.uid);
        }
        claim
    }
}

/// What a token is to say.
#[derive(Clone, Debug, Default)]
pub struct Grant {
    /// Namespace of the account.
    pub namespace: String,
    /// The account.
    pub account: Named,
    /// The pod that it ends with.
    pub pod: Option<Named>,
    /// The secret that it ends with.
    pub secret: Option<Named>,
    /// The node that it ends with, or that the pod is on.
    pub node: Option<Named>,
    /// Whom it is for.
    pub audiences: Vec<String>,
    /// How long it is good, in seconds.
    pub seconds: i64,
    /// When it should have been replaced, in seconds from now.
    pub warn_after: Option<i64>,
}

/// The claims of a token (`serviceaccount.Claims`).
pub fn claims(grant: &Grant, now: Timestamp) -> Value {
    let at = now.as_second();
    let mut private = json!({"namespace": grant.namespace, "serviceaccount": grant.account.claim()});
    for (key, named) in [("pod", &grant.pod), ("secret", &grant.secret), ("node", &grant.node)] {
        if let Some(named) = named {
            private[key] = named.claim();
        }
    }
    if let Some(seconds) = grant.warn_after {
        private["warnafter"] = json!(at.saturating_add(seconds));
    }
    json!({
        "iss": ISSUER, "sub": format!("system:serviceaccount:{}:{}", grant.namespace, grant.account.name),
        "aud": grant.audiences, "iat": at, "nbf": at, "exp": at.saturating_add(grant.seconds),
        "jti": uuid::Uuid::new_v4().to_string(), "kubernetes.io": private,
    })
}

/// The user a service account is.
pub fn service_account(namespace: &str, name: &str, uid: &str) -> User {
    let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}")];
    let mut user = User::new(&format!("system:serviceaccount:{namespace}:{name}"), &groups);
    uid.clone_into(&mut user.uid);
    user
}

//! Tokens of service accounts. They are opaque and good for as long as this process runs: nothing is signed.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use rand::RngExt;

use super::User;

/// Tokens that are valid at one time; when there are more, the one that ends first goes.
const MAX_TOKENS: usize = 10_000;

/// The tokens that have been issued.
#[derive(Default)]
pub struct Tokens(Mutex<HashMap<String, (User, Timestamp)>>);

impl Tokens {
    /// A new token for a user, and when it ends.
    pub fn issue(&self, user: User, seconds: i64, now: Timestamp) -> (String, Timestamp) {
        let secret: [u8; 32] = rand::rng().random();
        let token: String = secret.iter().map(|b| format!("{b:02x}")).collect();
        let end = now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(now);
        let mut tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if tokens.len() >= MAX_TOKENS {
            tokens.retain(|_, (_, end)| *end > now);
        }
        if tokens.len() >= MAX_TOKENS
            && let Some(first) = tokens.iter().min_by_key(|(_, (_, end))| *end).map(|(t, _)| t.clone())
        {
            tokens.remove(&first);
        }
        tokens.insert(token.clone(), (user, end));
        (token, end)
    }

    /// The user of a token that is still good.
    pub fn user(&self, token: &str, now: Timestamp) -> Option<User> {
        let tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.get(token).filter(|(_, end)| *end > now).map(|(user, _)| user.clone())
    }
}

/// The user a service account is.
pub fn service_account(namespace: &str, name: &str, uid: &str) -> User {
    let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}")];
    let mut user = User::new(&format!("system:serviceaccount:{namespace}:{name}"), &groups);
    uid.clone_into(&mut user.uid);
    user
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_end() {
        let tokens = Tokens::default();
        let now = Timestamp::UNIX_EPOCH;
        let (token, end) = tokens.issue(service_account("a", "b", "u"), 600, now);
        assert_eq!(tokens.user(&token, now).unwrap().name, "system:serviceaccount:a:b");
        assert_eq!(tokens.user(&token, end), None);
        assert_eq!(tokens.user("other", now), None);
    }
}

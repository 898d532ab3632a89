use super::*;
use jiff::SignedDuration;

fn grant() -> Grant {
    Grant {
        namespace: "a".into(),
        account: Named { name: "b".into(), uid: "u".into() },
        audiences: vec![ISSUER.into()],
        seconds: 600,
        ..Grant::default()
    }
}

fn check(signer: &Signer, token: &str, there: &Value, now: Timestamp) -> Option<Result<User, String>> {
    let lookup = |plural: &str, _: &str, _: &str| there.get(plural).cloned();
    verify(signer, token, &[ISSUER.to_owned()], &lookup, now).map(|r| r.map(|(user, _)| user))
}

#[test]
fn tokens_end() {
    let (signer, now) = (Signer::generate().unwrap(), Timestamp::UNIX_EPOCH);
    let token = signer.sign(&claims(&grant(), now)).unwrap();
    let there = json!({"serviceaccounts": {"metadata": {"uid": "u"}}});
    let user = check(&signer, &token, &there, now).unwrap().unwrap();
    assert_eq!(user.name, "system:serviceaccount:a:b");
    assert_eq!(user.uid, "u");
    assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"]);
    let late = |s: i64| now.saturating_add(SignedDuration::from_secs(s)).unwrap();
    assert!(check(&signer, &token, &there, late(659)).unwrap().is_ok());
    let ended = check(&signer, &token, &there, late(661)).unwrap();
    assert_eq!(ended.unwrap_err(), "service account token has expired");
    // What upstream says for each way to lose what a token stands on.
    let bound = Grant { pod: Some(Named { name: "p".into(), uid: "q".into() }), ..grant() };
    let bound = signer.sign(&claims(&bound, now)).unwrap();
    let rows = [
        (&token, json!({}), "serviceaccounts \"b\" not found"),
        (
            &token,
            json!({"serviceaccounts": {"metadata": {"uid": "other"}}}),
            "service account UID (other) does not match claim (u)",
        ),
        (&bound, there.clone(), "service account token has been invalidated"),
        (
            &bound,
            json!({"serviceaccounts": {"metadata": {"uid": "u"}}, "pods": {"metadata": {"uid": "x"}}}),
            "pod UID (x) does not match service account pod ref claim (q)",
        ),
    ];
    for (token, there, why) in rows {
        assert_eq!(check(&signer, token, &there, now).unwrap().unwrap_err(), why);
    }
}

#[test]
fn only_ours_and_only_whole() {
    let (signer, other) = (Signer::generate().unwrap(), Signer::generate().unwrap());
    let now = Timestamp::UNIX_EPOCH;
    let there = json!({"serviceaccounts": {"metadata": {"uid": "u"}}});
    let foreign = other.sign(&claims(&grant(), now)).unwrap();
    let token = signer.sign(&claims(&grant(), now)).unwrap();
    let mut parts: Vec<String> = token.split('.').map(str::to_owned).collect();
    parts[1] = BASE64_URL_SAFE_NO_PAD.encode(claims(&Grant { seconds: 1 << 32, ..grant() }, now).to_string());
    let changed = parts.join(".");
    let none = format!("{}.{}.", BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#), parts[1]);
    for bad in [foreign.as_str(), &changed, &none, "", "..", "a.b", "secret", &token[..token.len() - 1]] {
        assert!(check(&signer, bad, &there, now).is_none(), "{bad}");
    }
    let elsewhere = verify(&signer, &token, &["vault".to_owned()], &|_, _, _| None, now);
    assert_eq!(
        elsewhere.unwrap().unwrap_err(),
        "token audiences [\"https://kubernetes.default.svc\"] is invalid for the target audiences [\"vault\"]"
    );
}

#[test]
fn the_key_is_kept() {
    let dir = std::env::temp_dir().join(format!("plimsoll-sa-{}", uuid::Uuid::new_v4()));
    let path = dir.join("pki").join("sa.key");
    let token =
        Signer::load_or_create(&path).unwrap().sign(&claims(&grant(), Timestamp::UNIX_EPOCH)).unwrap();
    assert!(Signer::load_or_create(&path).unwrap().claims(&token).is_some());
    std::fs::write(&path, "rubbish").unwrap();
    assert!(Signer::load_or_create(&path).is_err());
    std::fs::remove_dir_all(&dir).unwrap();
}

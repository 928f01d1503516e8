//! The life of a token.

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use aegis_core::{
    Tier, Timestamp,
    id::{ContextName, CredentialId, TenantId, UserId},
};
use aegis_stores::{
    DataDir, Registry,
    registry::{NewToken, RegistryError, Token, TokenError},
};
use rusqlite::Connection;

fn new(tenant: &str, user: &str) -> NewToken {
    NewToken {
        tenant: TenantId::new(tenant),
        user: UserId::new(user),
        tier: Tier::User,
        context: ContextName::new("workspace"),
        expires: None,
        note: None,
    }
}

struct Home {
    directory: tempfile::TempDir,
    data: DataDir,
    registry: Registry,
}

fn home() -> Home {
    let directory = tempfile::tempdir().unwrap();
    let data = DataDir::open(directory.path()).unwrap();
    let registry = Registry::open(&data).unwrap();
    Home { directory, data, registry }
}

impl Home {
    fn sql(&self) -> Connection {
        Connection::open(self.data.registry_database()).unwrap()
    }
}

fn users(tokens: &[Token]) -> Vec<&str> {
    tokens.iter().map(|token| token.user.as_str()).collect()
}

#[tokio::test]
async fn made_shown_once_found_by_hash() {
    let home = home();
    let mut wanted = new("acme", "alice@example.org");
    wanted.tier = Tier::System;
    wanted.note = Some("ci".into());
    wanted.expires = Some(Timestamp::now().plus(Duration::from_secs(3600)));
    let (token, secret) = home.registry.create(wanted.clone()).await.unwrap();
    assert!(secret.expose().starts_with("aegis_"));
    assert_eq!(secret.expose().len(), 49);
    assert!(token.id.as_str().starts_with("tok_"));

    for registry in [home.registry.clone(), Registry::open(&home.data).unwrap()] {
        // The second time from memory.
        for _ in 0..2 {
            let found = registry.lookup(secret.expose()).await.unwrap();
            assert_eq!((&found.id, &found.tenant, &found.user), (&token.id, &wanted.tenant, &wanted.user));
            assert_eq!((found.tier, &found.context), (Tier::System, &wanted.context));
            assert_eq!((found.expires, &found.note), (wanted.expires, &wanted.note));
        }
    }

    // Neither the file nor anything printed holds the token.
    for entry in fs::read_dir(home.directory.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let content = fs::read(&path).unwrap();
            let text = &secret.expose().as_bytes()[6..];
            assert!(!content.windows(text.len()).any(|window| window == text), "{}", path.display());
        }
    }
    assert!(!format!("{:?} {token:?} {secret:?}", home.registry).contains(&secret.expose()[6..]));
    let mode = fs::metadata(home.data.registry_database()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn unknown_tokens() {
    let home = home();
    let (_, secret) = home.registry.create(new("local", "alice")).await.unwrap();
    let good = secret.expose();
    let other_end = format!("{}{}", &good[..48], if good.ends_with('A') { 'B' } else { 'A' });
    for text in
        ["", "aegis_", "aegis_short", &good[1..], &format!("{good}x"), &good.to_uppercase(), &other_end]
    {
        assert!(matches!(home.registry.lookup(text).await, Err(TokenError::Unknown)), "{text}");
    }
    for text in ["aegis_' OR 1=1 --'' OR 1=1 --'' OR 1=1 --'' OR", &"aegis_é".repeat(7), &"\0".repeat(49)] {
        assert!(matches!(home.registry.lookup(text).await, Err(TokenError::Unknown)), "{text}");
    }
}

#[tokio::test]
async fn revoked_at_once_and_for_good() {
    let home = home();
    let (token, secret) = home.registry.create(new("local", "alice")).await.unwrap();
    let (_, other) = home.registry.create(new("local", "bob")).await.unwrap();
    home.registry.lookup(secret.expose()).await.unwrap();
    home.registry.lookup(other.expose()).await.unwrap();
    let revoked = home.registry.revoke(&token.id).await.unwrap();
    assert!(revoked.revoked.is_some());
    let refused = home.registry.lookup(secret.expose()).await.unwrap_err();
    assert!(matches!(&refused, TokenError::Revoked { id, .. } if *id == token.id), "{refused}");
    home.registry.lookup(other.expose()).await.unwrap();

    assert_eq!(
        home.registry.revoke(&token.id).await.unwrap().revoked,
        revoked.revoked,
        "the first time counts"
    );
    let again = Registry::open(&home.data).unwrap();
    assert!(matches!(again.lookup(secret.expose()).await, Err(TokenError::Revoked { .. })));
    let absent = CredentialId::new("tok_absent");
    assert!(
        matches!(home.registry.revoke(&absent).await, Err(RegistryError::NoSuchToken(id)) if id == absent)
    );
}

#[tokio::test]
async fn expiry_is_looked_at_each_time() {
    let home = home();
    let mut lifetime = Duration::from_millis(200);
    let (token, secret) = loop {
        let expires = Some(Timestamp::now().plus(lifetime));
        let (token, secret) =
            home.registry.create(NewToken { expires, ..new("local", "alice") }).await.unwrap();
        // On a very slow machine it is over before it began.
        if home.registry.lookup(secret.expose()).await.is_ok() {
            break (token, secret);
        }
        lifetime *= 2;
    };
    // It is in memory now, and expires there.
    let refused = loop {
        match home.registry.lookup(secret.expose()).await {
            Ok(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(error) => break error,
        }
    };
    assert!(matches!(&refused, TokenError::Expired { id, .. } if *id == token.id), "{refused}");
    assert!(refused.to_string().contains("aegis token create"));
}

#[tokio::test]
async fn what_can_not_be_a_token_is_not_made() {
    let home = home();
    let long = "x".repeat(300);
    let bad = [
        NewToken { tenant: TenantId::new("Not A Label"), ..new("local", "a") },
        NewToken { user: UserId::new(""), ..new("local", "a") },
        NewToken { user: UserId::new("a\nb"), ..new("local", "a") },
        NewToken { user: UserId::new(&long), ..new("local", "a") },
        NewToken { context: ContextName::new(""), ..new("local", "a") },
        NewToken { note: Some(long.clone()), ..new("local", "a") },
        NewToken { expires: Some(Timestamp::from_millis(1)), ..new("local", "a") },
    ];
    for wanted in bad {
        let result = home.registry.create(wanted.clone()).await;
        assert!(matches!(result, Err(RegistryError::Invalid(_))), "{wanted:?}");
    }
    assert!(home.registry.list(None, 10, None).await.unwrap().is_empty());
}

#[tokio::test]
async fn lists_by_tenant_and_page() {
    let home = home();
    for index in 0..10 {
        let tenant = if index % 2 == 0 { "acme" } else { "local" };
        home.registry.create(new(tenant, &format!("user{index}"))).await.unwrap();
    }
    let first = home.registry.list(None, 4, None).await.unwrap();
    assert_eq!(users(&first), ["user0", "user1", "user2", "user3"]);
    let next = home.registry.list(None, 100, Some(&first[3].id)).await.unwrap();
    assert_eq!(next.len(), 6);
    let acme = TenantId::new("acme");
    let own = home.registry.list(Some(&acme), 2, None).await.unwrap();
    assert_eq!(users(&own), ["user0", "user2"]);
    let own = home.registry.list(Some(&acme), 100, Some(&own[1].id)).await.unwrap();
    assert_eq!(users(&own), ["user4", "user6", "user8"]);
    assert!(home.registry.list(Some(&TenantId::new("other")), 9, None).await.unwrap().is_empty());
    assert!(matches!(
        home.registry.list(None, 1, Some(&CredentialId::new("x"))).await,
        Err(RegistryError::NoSuchToken(_))
    ));
}

#[tokio::test]
async fn the_last_use_is_noted() {
    let home = home();
    let (token, secret) = home.registry.create(new("local", "alice")).await.unwrap();
    home.registry.create(new("local", "bob")).await.unwrap();
    let before = Timestamp::now();
    home.registry.lookup(secret.expose()).await.unwrap();
    home.registry.flush().await.unwrap();
    let tokens = home.registry.list(None, 10, None).await.unwrap();
    assert_eq!(tokens[0].id, token.id);
    assert!(tokens[0].last_used.is_some_and(|at| at >= before));
    assert_eq!(tokens[1].last_used, None);
}

#[tokio::test]
async fn the_operator_token() {
    let home = home();
    let tenant = TenantId::new("local");
    let path = home.data.operator_token();
    let first = home.registry.ensure_operator_token(&tenant).await.unwrap();
    assert!(first.is_new);
    assert_eq!((first.token.tier, first.token.context.as_str()), (Tier::Operator, "aegis-system-operator"));
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", first.secret.expose()));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

    // Found again, also by the next start; made private again.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let again = Registry::open(&home.data).unwrap().ensure_operator_token(&tenant).await.unwrap();
    assert!(!again.is_new);
    assert_eq!((&again.token.id, &again.secret), (&first.token.id, &first.secret));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

    // Gone, emptied, or another's: a new one, and the old one is worth nothing.
    let (_, others) = home.registry.create(new("local", "alice")).await.unwrap();
    let mut old = first;
    let spoilt = [None, Some(String::new()), Some("rubbish".into()), Some(others.expose().to_owned())];
    for content in spoilt {
        home.registry.lookup(old.secret.expose()).await.unwrap();
        match content {
            None => fs::remove_file(&path).unwrap(),
            Some(content) => fs::write(&path, content).unwrap(),
        }
        let fresh = home.registry.ensure_operator_token(&tenant).await.unwrap();
        assert!(fresh.is_new);
        assert!(matches!(home.registry.lookup(old.secret.expose()).await, Err(TokenError::Revoked { .. })));
        home.registry.lookup(fresh.secret.expose()).await.unwrap();
        old = fresh;
    }
    home.registry.lookup(others.expose()).await.unwrap();

    // Revoked by hand: the next start makes a new one.
    home.registry.revoke(&old.token.id).await.unwrap();
    assert!(home.registry.ensure_operator_token(&tenant).await.unwrap().is_new);
}

#[tokio::test]
async fn a_newer_or_foreign_file_is_left_alone() {
    let home = home();
    home.registry.create(new("local", "alice")).await.unwrap();
    let sql = home.sql();
    sql.pragma_update(None, "user_version", 9).unwrap();
    let error = Registry::open(&home.data).unwrap_err();
    assert!(matches!(error, RegistryError::Newer { found: 9, known: 6, .. }), "{error}");
    sql.pragma_update(None, "application_id", 1).unwrap();
    let error = Registry::open(&home.data).unwrap_err();
    assert!(matches!(error, RegistryError::NotARegistry { .. }), "{error}");
}

#[tokio::test]
async fn a_token_revoked_while_it_is_looked_up_stays_revoked() {
    let home = home();
    for _ in 0..20 {
        let (token, secret) = home.registry.create(new("local", "alice")).await.unwrap();
        let lookups: Vec<_> = (0..8)
            .map(|_| {
                let (registry, secret) = (home.registry.clone(), secret.clone());
                tokio::spawn(async move { registry.lookup(secret.expose()).await.is_ok() })
            })
            .collect();
        home.registry.revoke(&token.id).await.unwrap();
        assert!(matches!(home.registry.lookup(secret.expose()).await, Err(TokenError::Revoked { .. })));
        for lookup in lookups {
            lookup.await.unwrap();
        }
        assert!(matches!(home.registry.lookup(secret.expose()).await, Err(TokenError::Revoked { .. })));
    }
}

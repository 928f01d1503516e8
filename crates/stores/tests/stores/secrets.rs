//! The secret store, and what is found by reference.

use std::{os::unix::fs::PermissionsExt, path::Path, time::Duration};

use aegis_core::{
    Secret, Timestamp,
    config::SecretRef,
    id::TenantId,
    secret::{Principal, SecretError, SecretSource},
};
use aegis_stores::{
    DataDir, Registry, SecretResolver,
    registry::{NewSecret, RegistryError, SecretStoreError},
};
use rusqlite::Connection;

fn new(name: &str, value: &str) -> NewSecret {
    NewSecret {
        tenant: "local".into(),
        name: name.into(),
        value: Secret::new(value),
        expires: None,
        created_by: "ann".into(),
    }
}

fn open(home: &Path) -> Registry {
    Registry::open(&DataDir::open(home).unwrap()).unwrap()
}

async fn value(registry: &Registry, name: &str) -> Result<Option<String>, RegistryError> {
    let found = registry.secret(&"local".into(), name).await?;
    Ok(found.map(|(_, secret)| secret.expose().to_owned()))
}

fn sql(home: &Path) -> Connection {
    Connection::open(home.join("registry.db")).unwrap()
}

/// Whether the bytes stand anywhere in any file of the directory.
fn stands_in(home: &Path, bytes: &[u8]) -> bool {
    std::fs::read_dir(home).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        path.is_file() && std::fs::read(path).unwrap().windows(bytes.len()).any(|window| window == bytes)
    })
}

#[tokio::test]
async fn what_is_stored_comes_back_and_stands_nowhere_in_plain() {
    let home = tempfile::tempdir().unwrap();
    let registry = open(home.path());
    let stored = registry.set_secret(new("tools/search-key", "unmistakable-7f3a")).await.unwrap();
    assert_eq!((stored.version, stored.created_by.as_str()), (1, "ann"));
    assert_eq!(value(&registry, "tools/search-key").await.unwrap().as_deref(), Some("unmistakable-7f3a"));
    assert_eq!(value(&registry, "tools/other").await.unwrap(), None);
    assert!(registry.secret(&TenantId::new("acme"), "tools/search-key").await.unwrap().is_none());
    assert!(!stands_in(home.path(), b"unmistakable-7f3a"));
    let mode = std::fs::metadata(home.path().join("secret.keys")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(registry);
    assert_eq!(
        value(&open(home.path()), "tools/search-key").await.unwrap().as_deref(),
        Some("unmistakable-7f3a")
    );
}

#[tokio::test]
async fn versions_go_up_and_old_values_go() {
    let home = tempfile::tempdir().unwrap();
    let registry = open(home.path());
    assert!(matches!(
        registry.rotate_secret(new("a", "1")).await,
        Err(RegistryError::Secret(SecretStoreError::Missing(_)))
    ));
    registry.set_secret(new("a", "first")).await.unwrap();
    assert!(matches!(
        registry.set_secret(new("a", "second")).await,
        Err(RegistryError::Secret(SecretStoreError::Exists { version: 1, .. }))
    ));
    let before = registry.secret_changes();
    assert_eq!(registry.rotate_secret(new("a", "second")).await.unwrap().version, 2);
    assert!(registry.secret_changes() > before);
    assert_eq!(value(&registry, "a").await.unwrap().as_deref(), Some("second"));
    let kept: i64 = sql(home.path())
        .query_row("SELECT count(*) FROM secrets WHERE sealed IS NOT NULL", [], |row| row.get(0))
        .unwrap();
    assert_eq!(kept, 1);
    for number in 0..40 {
        registry.rotate_secret(new("a", &format!("value {number}"))).await.unwrap();
    }
    let rows: i64 = sql(home.path()).query_row("SELECT count(*) FROM secrets", [], |row| row.get(0)).unwrap();
    assert!(rows <= 20, "{rows}");
    assert_eq!(registry.delete_secret(&"local".into(), "a").await.unwrap().version, 42);
    assert_eq!(value(&registry, "a").await.unwrap(), None);
    assert!(registry.delete_secret(&"local".into(), "a").await.is_err());
    assert_eq!(registry.set_secret(new("a", "again")).await.unwrap().version, 43, "no number is used twice");
    let listed = registry.secrets(None, 10).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert!(!serde_json::to_string(&listed).unwrap().contains("again"));
}

#[tokio::test]
async fn a_sealed_value_opens_only_where_it_belongs() {
    let home = tempfile::tempdir().unwrap();
    let registry = open(home.path());
    registry.set_secret(new("low", "harmless")).await.unwrap();
    registry.set_secret(new("high", "precious")).await.unwrap();
    for change in [
        // Moved to another name, brought back as another version, made to live longer, or simply changed.
        "UPDATE secrets SET sealed = (SELECT sealed FROM secrets WHERE name = 'high') WHERE name = 'low'",
        "UPDATE secrets SET version = 7 WHERE name = 'low'",
        "UPDATE secrets SET expires = 99999999999999 WHERE name = 'low'",
        "UPDATE secrets SET tenant = 'acme' WHERE name = 'low'",
        "UPDATE secrets SET sealed = x'00' WHERE name = 'low'",
        "UPDATE secrets SET sealed = zeroblob(100) WHERE name = 'low'",
    ] {
        let connection = sql(home.path());
        let original: (String, i64, Option<i64>, Vec<u8>) = connection
            .query_row("SELECT tenant, version, expires, sealed FROM secrets WHERE name = 'low'", [], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            })
            .unwrap();
        connection.execute(change, []).unwrap();
        for tenant in ["local", "acme"] {
            match registry.secret(&tenant.into(), "low").await {
                Ok(None) => {}
                Err(RegistryError::Secret(SecretStoreError::Tampered(name))) => assert_eq!(name, "low"),
                other => panic!("{change}: {other:?}"),
            }
        }
        connection
            .execute(
                "UPDATE secrets SET tenant = ?1, version = ?2, expires = ?3, sealed = ?4 WHERE name = 'low'",
                original,
            )
            .unwrap();
        assert_eq!(value(&registry, "low").await.unwrap().as_deref(), Some("harmless"));
    }
}

#[tokio::test]
async fn a_new_key_seals_everything_anew() {
    let home = tempfile::tempdir().unwrap();
    let registry = open(home.path());
    assert_eq!(registry.renew_secret_key().await.unwrap(), 0);
    for name in ["a", "b", "c"] {
        registry.set_secret(new(name, &format!("value of {name}"))).await.unwrap();
    }
    let keys = home.path().join("secret.keys");
    let old = std::fs::read_to_string(&keys).unwrap();
    assert_eq!(registry.renew_secret_key().await.unwrap(), 3);
    let now = std::fs::read_to_string(&keys).unwrap();
    assert_eq!(now.lines().count(), 2, "the old key is gone");
    assert_ne!(old, now);
    assert_eq!(value(&registry, "b").await.unwrap().as_deref(), Some("value of b"));
    // The old key opens nothing any more.
    std::fs::write(&keys, old).unwrap();
    assert!(matches!(
        value(&registry, "b").await,
        Err(RegistryError::Secret(SecretStoreError::LostKey { .. }))
    ));
}

#[tokio::test]
async fn keys_that_are_lost_broken_or_open_to_others_are_told() {
    let home = tempfile::tempdir().unwrap();
    let registry = open(home.path());
    registry.set_secret(new("a", "value")).await.unwrap();
    let keys = home.path().join("secret.keys");
    let good = std::fs::read(&keys).unwrap();
    std::fs::set_permissions(&keys, PermissionsExt::from_mode(0o644)).unwrap();
    let told = value(&registry, "a").await.unwrap_err().to_string();
    assert!(told.contains("chmod 600"), "{told}");
    std::fs::set_permissions(&keys, PermissionsExt::from_mode(0o600)).unwrap();
    for broken in ["", "aegis secret keys 1\n", "aegis secret keys 1\nx notbase64\n", "something else\n"] {
        std::fs::write(&keys, broken).unwrap();
        let told = value(&registry, "a").await.unwrap_err().to_string();
        assert!(told.contains("restore it from a backup"), "{told}");
    }
    std::fs::remove_file(&keys).unwrap();
    assert!(value(&registry, "a").await.unwrap_err().to_string().contains("restore"));
    // Nothing is put in the place of what may still be restored.
    assert!(registry.set_secret(new("b", "value")).await.is_err());
    std::fs::write(&keys, good).unwrap();
    std::fs::set_permissions(&keys, PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(value(&registry, "a").await.unwrap().as_deref(), Some("value"));
}

#[tokio::test]
async fn names_and_values_have_bounds() {
    let home = tempfile::tempdir().unwrap();
    let registry = open(home.path());
    for (name, text) in
        [("", "v"), ("../x", "v"), ("a b", "v"), ("a", ""), ("a", "  "), ("a", &"x".repeat(65 << 10))]
    {
        let refused = registry.set_secret(new(name, text)).await.unwrap_err().to_string();
        assert!(refused.len() < 400, "{refused}");
    }
}

#[tokio::test]
async fn references_lead_to_environment_files_and_store() {
    let home = tempfile::tempdir().unwrap();
    let registry = open(home.path());
    let resolver = SecretResolver::new(registry.clone(), "local".into());
    let get = async |reference: &str, user: Option<(&str, &str)>| {
        let principal = user.map(|(tenant, user)| Principal { tenant: tenant.into(), user: user.into() });
        let resolved = resolver.resolve(&SecretRef::parse(reference), principal.as_ref()).await;
        resolved.map(|found| found.secret.expose().to_owned())
    };
    let file = home.path().join("key");
    std::fs::write(&file, "from a file\n").unwrap();
    assert_eq!(get(&format!("file:{}", file.display()), None).await.unwrap(), "from a file");
    assert!(matches!(get("file:/nowhere/at/all", None).await, Err(SecretError::NoFile { .. })));
    assert!(matches!(get("file:/dev/zero", None).await, Err(SecretError::NoFile { .. })));
    assert!(!get("env:PATH", None).await.unwrap().is_empty());
    assert!(matches!(get("env:NO_SUCH_VARIABLE_HERE", None).await, Err(SecretError::NoVariable(_))));
    assert_eq!(get("secret:a", None).await, Err(SecretError::NotStored("a".into())));

    registry.set_secret(new("a", "stored value")).await.unwrap();
    assert_eq!(get("secret:a", None).await.unwrap(), "stored value");
    // A caller's own, in its own tenant and nowhere else.
    registry.set_secret(NewSecret { tenant: "acme".into(), ..new("github/ann", "of ann") }).await.unwrap();
    registry.set_secret(new("github/bob", "of local bob")).await.unwrap();
    assert_eq!(get("secret:github/{user}", Some(("acme", "ann"))).await.unwrap(), "of ann");
    assert_eq!(get("secret:a", Some(("acme", "ann"))).await.unwrap(), "stored value");
    assert!(get("secret:github/{user}", Some(("acme", "bob"))).await.is_err());
    assert!(matches!(get("secret:github/{user}", None).await, Err(SecretError::NoPrincipal(_))));
    for user in ["x/ann", "../ann", "", "ann\n"] {
        assert!(matches!(
            get("secret:github/{user}", Some(("acme", user))).await,
            Err(SecretError::UnusableName(_))
        ));
    }

    let expired =
        NewSecret { expires: Some(Timestamp::now().minus(Duration::from_secs(1))), ..new("old", "gone") };
    registry.set_secret(expired).await.unwrap();
    let told = get("secret:old", None).await.unwrap_err().to_string();
    assert!(told.contains("aegis secret rotate old"), "{told}");

    let redactor = resolver.redactor();
    assert_eq!(redactor.text("it was: of ann, stored value!"), "it was: [redacted], [redacted]!");
    assert_eq!(redactor.text("of local bob"), "of local bob", "nobody asked for it yet");
}

#[tokio::test]
async fn a_value_of_the_nodes_own_replaces_only_what_was_read() {
    let home = tempfile::tempdir().unwrap();
    let registry = open(home.path());
    let resolver = SecretResolver::new(registry.clone(), "local".into());
    let place = SecretRef::parse("secret:notes/sign-in");
    let replace = async |before: &str, secret: &str| {
        resolver.replace(&place, &Secret::new(before), &Secret::new(secret)).await
    };
    assert_eq!(replace("first", "second").await, Ok(false), "nothing is there");
    resolver.keep(&place, &Secret::new("first")).await.unwrap();
    assert_eq!(replace("first", "second").await, Ok(true));
    assert_eq!(replace("first", "third").await, Ok(false), "something else is there");
    assert_eq!(value(&registry, "notes/sign-in").await.unwrap().as_deref(), Some("second"));
    // Between reading and writing, too.
    let stale = registry.replace_secret(new("notes/sign-in", "third"), 1).await;
    let changed = matches!(stale, Err(RegistryError::Secret(SecretStoreError::Changed { version: 2, .. })));
    assert!(changed, "{stale:?}");
    registry.delete_secret(&"local".into(), "notes/sign-in").await.unwrap();
    assert_eq!(replace("second", "third").await, Ok(false), "what was deleted stays so");
    let elsewhere = SecretRef::parse("env:HOME");
    assert!(resolver.replace(&elsewhere, &Secret::new("a"), &Secret::new("b")).await.is_err());
}

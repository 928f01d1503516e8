//! Which definitions of upstream tools are accepted.

use aegis_core::{
    config::upstream::DefinitionTrust::{self, Approve, FirstUse},
    upstream::{Definition, Pins, Standing},
};
use aegis_stores::{
    DataDir, Registry,
    registry::{AddedServer, PinState, read_accepted_definitions},
};
use serde_json::json;

fn definition(tool: &str, description: &str) -> Definition {
    Definition::of(json!({"name": tool, "description": description}).as_object().unwrap())
}

fn open(home: &tempfile::TempDir) -> Registry {
    Registry::open(&DataDir::open(home.path()).unwrap()).unwrap()
}

async fn see(registry: &Registry, trust: DefinitionTrust, seen: &[(&str, &str)]) -> Vec<Standing> {
    let seen: Vec<Definition> = seen.iter().map(|(tool, text)| definition(tool, text)).collect();
    registry.see("s", trust, &seen).await.unwrap()
}

#[tokio::test]
async fn a_rug_pull_is_seen_shown_accepted_and_taken_back() {
    let home = tempfile::tempdir().unwrap();
    let registry = open(&home);
    assert_eq!(see(&registry, FirstUse, &[("a", "1"), ("b", "1")]).await, [Standing::Accepted; 2]);
    assert_eq!(
        see(&registry, FirstUse, &[("a", "evil"), ("b", "1")]).await,
        [Standing::Changed, Standing::Accepted]
    );
    // And after a restart it still waits.
    drop(registry);
    let registry = open(&home);
    assert_eq!(see(&registry, FirstUse, &[("a", "evil")]).await, [Standing::Changed]);
    let pins = registry.pins("s", false).await.unwrap();
    let shown: Vec<_> = pins.iter().map(|pin| (pin.definition.tool.as_str(), pin.state)).collect();
    assert_eq!(shown, [("a", PinState::Accepted), ("a", PinState::Proposed), ("b", PinState::Accepted)]);
    assert_eq!(pins[0].decided_by.as_ref().unwrap().as_str(), "first-use");
    // The server goes back: nothing is left to decide.
    assert_eq!(see(&registry, FirstUse, &[("a", "1")]).await, [Standing::Accepted]);
    assert_eq!(registry.pins("s", false).await.unwrap().len(), 2);

    see(&registry, FirstUse, &[("a", "2")]).await;
    let decided = registry.decide_pins("s", Vec::new(), true, &"ann".into()).await.unwrap();
    assert_eq!((decided.len(), decided[0].state), (1, PinState::Accepted));
    assert_eq!(see(&registry, FirstUse, &[("a", "2")]).await, [Standing::Accepted]);
    assert_eq!(see(&registry, FirstUse, &[("a", "1")]).await, [Standing::Changed], "the old one was let go");
    assert_eq!(registry.pins("s", true).await.unwrap().len(), 3);
    // What is in force is seen from outside, too.
    let read = read_accepted_definitions(&home.path().join("registry.db")).unwrap();
    let shown: Vec<_> = read.iter().map(|pin| (pin.server.as_str(), pin.definition.clone())).collect();
    assert_eq!(shown, [("s", definition("a", "2")), ("s", definition("b", "1"))]);
    assert_eq!(read_accepted_definitions(&home.path().join("nothing.db")).unwrap(), []);
}

#[tokio::test]
async fn a_tool_that_joins_later_waits() {
    let home = tempfile::tempdir().unwrap();
    let registry = open(&home);
    assert!(see(&registry, FirstUse, &[]).await.is_empty());
    assert_eq!(see(&registry, FirstUse, &[("a", "1"), ("b", "1")]).await, [Standing::Accepted; 2]);
    let renamed = [("a", "1"), ("b2", "evil")];
    for _ in 0..2 {
        assert_eq!(see(&registry, FirstUse, &renamed).await, [Standing::Accepted, Standing::New]);
    }
    // Nor with all the old ones gone.
    assert_eq!(see(&registry, FirstUse, &[("c", "evil")]).await, [Standing::New]);
    let named = vec![("b2".to_owned(), None)];
    registry.decide_pins("s", named, true, &"ann".into()).await.unwrap();
    assert_eq!(see(&registry, FirstUse, &renamed).await, [Standing::Accepted; 2]);
    // Another server's first listing is its own.
    let other = [definition("a", "evil")];
    assert_eq!(registry.see("t", FirstUse, &other).await.unwrap(), [Standing::Accepted]);
}

#[tokio::test]
async fn what_is_accepted_is_listed_before_what_is_proposed() {
    let home = tempfile::tempdir().unwrap();
    let registry = open(&home);
    let tools: Vec<String> = (0..20).map(|number| format!("t{number:02}")).collect();
    for text in ["1", "2"] {
        let seen: Vec<(&str, &str)> = tools.iter().map(|tool| (tool.as_str(), text)).collect();
        see(&registry, FirstUse, &seen).await;
    }
    // Both seen within the same millisecond.
    let direct = rusqlite::Connection::open(home.path().join("registry.db")).unwrap();
    direct.execute("UPDATE pins SET seen = 1", []).unwrap();
    let pins = registry.pins("s", false).await.unwrap();
    assert_eq!(pins.len(), 40);
    for pair in pins.chunks(2) {
        assert_eq!([pair[0].state, pair[1].state], [PinState::Accepted, PinState::Proposed]);
    }
}

#[tokio::test]
async fn what_must_be_approved_waits_and_what_is_rejected_stays_so() {
    let home = tempfile::tempdir().unwrap();
    let registry = open(&home);
    assert_eq!(see(&registry, Approve, &[("a", "1")]).await, [Standing::New]);
    assert_eq!(see(&registry, Approve, &[("a", "1")]).await, [Standing::New]);
    let digest = definition("a", "1").digest;
    // What was shown is what is decided: the server has moved on meanwhile.
    assert_eq!(see(&registry, Approve, &[("a", "2")]).await, [Standing::New]);
    let shown = vec![("a".to_owned(), Some(digest))];
    assert!(registry.decide_pins("s", shown, true, &"ann".into()).await.unwrap().is_empty());
    let named = vec![("a".to_owned(), None)];
    let decided = registry.decide_pins("s", named, false, &"ann".into()).await.unwrap();
    assert_eq!(decided[0].state, PinState::Rejected);
    assert_eq!(see(&registry, Approve, &[("a", "2")]).await, [Standing::Rejected]);
    assert_eq!(see(&registry, FirstUse, &[("a", "2")]).await, [Standing::Rejected]);
    assert_eq!(
        see(&registry, FirstUse, &[("a", "3")]).await,
        [Standing::New],
        "once known, never new at first sight"
    );
    // Accepted after all, by its digest: nothing else means what was rejected.
    let all = registry.decide_pins("s", Vec::new(), true, &"ann".into()).await.unwrap();
    assert_eq!((all.len(), &all[0].definition), (1, &definition("a", "3")));
    let rejected = vec![("a".to_owned(), Some(definition("a", "2").digest))];
    let decided = registry.decide_pins("s", rejected, true, &"ann".into()).await.unwrap();
    assert_eq!(decided[0].state, PinState::Accepted);
    assert_eq!(see(&registry, Approve, &[("a", "2")]).await, [Standing::Accepted]);
    registry.forget_pins("s").await.unwrap();
    assert_eq!(see(&registry, FirstUse, &[("a", "2")]).await, [Standing::Accepted]);
}

#[tokio::test]
async fn what_was_rejected_stays_so_when_the_server_comes_back() {
    let home = tempfile::tempdir().unwrap();
    let registry = open(&home);
    assert_eq!(see(&registry, FirstUse, &[("a", "1")]).await, [Standing::Accepted]);
    assert_eq!(see(&registry, FirstUse, &[("a", "2")]).await, [Standing::Changed]);
    registry.decide_pins("s", Vec::new(), false, &"ann".into()).await.unwrap();
    registry.forget_pins("s").await.unwrap();
    let again = see(&registry, FirstUse, &[("a", "2"), ("b", "1")]).await;
    assert_eq!(again, [Standing::Rejected, Standing::New]);
}

#[tokio::test]
async fn a_server_that_never_settles_fills_no_disk() {
    let home = tempfile::tempdir().unwrap();
    let registry = open(&home);
    for number in 0..50 {
        see(&registry, FirstUse, &[("a", &number.to_string())]).await;
        registry.decide_pins("s", Vec::new(), number % 2 == 0, &"ann".into()).await.unwrap();
    }
    assert!(registry.pins("s", true).await.unwrap().len() <= 12);
    for number in 0..50 {
        see(&registry, FirstUse, &[("a", &format!("x{number}"))]).await;
    }
    assert_eq!(registry.pins("s", false).await.unwrap().len(), 2);
}

#[tokio::test]
async fn added_servers_are_kept() {
    let home = tempfile::tempdir().unwrap();
    let registry = open(&home);
    let server = |name: &str| AddedServer {
        name: name.into(),
        text: "{}".into(),
        added: aegis_core::Timestamp::from_millis(1),
        added_by: "ann".into(),
    };
    registry.add_server(server("b")).await.unwrap();
    registry.add_server(server("a")).await.unwrap();
    registry.add_server(server("a")).await.unwrap();
    assert_eq!(registry.added_servers().await.unwrap(), [server("a"), server("b")]);
    let read = aegis_stores::registry::read_added_servers(&home.path().join("registry.db")).unwrap();
    assert_eq!(read, [server("a"), server("b")]);
    assert_eq!(registry.remove_server("a").await.unwrap(), Some(server("a")));
    assert_eq!(registry.remove_server("a").await.unwrap(), None);
}

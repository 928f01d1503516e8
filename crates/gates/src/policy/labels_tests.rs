use aegis_core::{Door, Tier};
use aegis_stores::DataDir;

use super::*;

fn caller(session: Option<&str>) -> Caller {
    Caller {
        tenant: "local".into(),
        user: "ann".into(),
        tier: Tier::User,
        context: "workspace".into(),
        credential: "tok_1".into(),
        door: Door::Rest,
        session: session.map(Into::into),
        pinned: None,
    }
}

fn page(origin: &str) -> Label {
    Label::new(TrustClass::ExternalUntrusted, "remote-http").from(origin)
}

const UNTRUSTED: &[TrustClass] = &[TrustClass::ExternalUntrusted];

#[tokio::test]
async fn labels_stick_to_the_session_or_else_to_the_credential() {
    let book = LabelBook::forgetful();
    book.observe(&caller(Some("one")), &page("https://example.org/")).await.unwrap();
    assert_eq!(book.of(&caller(Some("one"))).classes(), UNTRUSTED);
    assert!(book.of(&caller(Some("two"))).classes().is_empty());
    assert!(book.of(&caller(None)).classes().is_empty());
    book.observe(&caller(None), &page("https://example.org/")).await.unwrap();
    assert_eq!(book.of(&caller(None)).sources().collect::<Vec<_>>(), ["remote-http"]);
    let mut elsewhere = caller(None);
    elsewhere.tenant = "other".into();
    assert!(book.of(&elsewhere).classes().is_empty());
}

#[tokio::test]
async fn an_operator_and_the_agents_of_the_same_token_read_for_themselves() {
    let book = LabelBook::forgetful();
    let acting = |context: &str, session| Caller { context: context.into(), ..caller(session) };
    book.observe(&acting("aegis-system-operator", None), &page("https://example.org/")).await.unwrap();
    assert_eq!(book.of(&acting("aegis-system-operator", None)).classes(), UNTRUSTED);
    for session in [None, Some("one")] {
        assert!(book.of(&acting("careful", session)).classes().is_empty(), "{session:?}");
        assert!(book.read_by(&acting("careful", session)).is_empty(), "{session:?}");
    }
    // Opening a session washes nothing off: what was read in the same role counts there too.
    book.observe(&acting("careful", None), &page("https://example.org/")).await.unwrap();
    assert_eq!(book.of(&acting("careful", Some("one"))).classes(), UNTRUSTED);
}

#[tokio::test]
async fn what_the_node_says_leaves_no_mark() {
    let book = LabelBook::forgetful();
    book.observe(&caller(None), &Label::node()).await.unwrap();
    assert!(book.of(&caller(None)).classes().is_empty());
    assert!(book.read_by(&caller(None)).is_empty());
}

#[tokio::test]
async fn origins_are_told_and_bounded() {
    let book = LabelBook::forgetful();
    for number in 0..100 {
        book.observe(&caller(None), &page(&format!("https://example.org/{number}"))).await.unwrap();
    }
    book.observe(&caller(None), &Label::new(TrustClass::UserOwned, "chat")).await.unwrap();
    let read = book.read_by(&caller(None));
    assert_eq!(read.len(), MOST_ORIGINS + 1);
    assert_eq!(read[0].origin.as_deref(), Some("https://example.org/0"));
    assert_eq!(read[MOST_ORIGINS], Label::new(TrustClass::UserOwned, "chat"));

    let long = LabelBook::forgetful();
    let text = "ü".repeat(10_000);
    for _ in 0..2 {
        long.observe(&caller(None), &page(&text)).await.unwrap();
    }
    let read = long.read_by(&caller(None));
    assert_eq!(read.len(), 1);
    assert_eq!(read[0].origin.as_ref().unwrap().chars().count(), LONGEST_ORIGIN);
}

#[tokio::test]
async fn too_many_sources_become_others_and_none_is_lost() {
    let book = LabelBook::forgetful();
    for number in 0..3 * MOST_ENTRIES {
        let label = Label {
            trust: TrustClass::ExternalUntrusted,
            source: format!("source-{number}").into(),
            origin: None,
        };
        book.observe(&caller(None), &label).await.unwrap();
    }
    let read = book.of(&caller(None));
    assert_eq!(read.sources().count(), MOST_ENTRIES + 1);
    assert!(read.sources().any(|source| source == OTHERS));
}

#[tokio::test]
async fn without_a_session_labels_expire_and_reading_renews_them() {
    let book = LabelBook::forgetful();
    let start = Timestamp::now();
    let later = |share: u32| start.plus(book.memory * share / 4);
    book.observe_at(&caller(None), &page("a"), start).await.unwrap();
    assert_eq!(book.of_at(&caller(None), later(3)).classes(), UNTRUSTED);
    book.observe_at(&caller(None), &page("a"), later(3)).await.unwrap();
    assert_eq!(book.of_at(&caller(None), later(6)).classes(), UNTRUSTED);
    assert!(book.of_at(&caller(None), later(7)).classes().is_empty());
    // Looking at a tool list is no reading: it renews nothing for a credential, but keeps a session alive.
    book.observe_at(&caller(Some("one")), &page("a"), start).await.unwrap();
    let session = |hours: u64| start.plus(Duration::from_secs(hours * 3600));
    assert_eq!(book.of_at(&caller(Some("one")), session(40)).classes(), UNTRUSTED);
    assert_eq!(book.of_at(&caller(Some("one")), session(80)).classes(), UNTRUSTED);
    assert!(book.of_at(&caller(Some("one")), session(200)).classes().is_empty());
}

#[tokio::test]
async fn a_restart_launders_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let data = DataDir::open(directory.path()).unwrap();
    let memory = Duration::from_secs(3600);
    {
        let book = LabelBook::open(Registry::open(&data).unwrap(), memory).await.unwrap();
        book.observe(&caller(Some("one")), &page("https://example.org/")).await.unwrap();
        book.observe(&caller(None), &Label::new(TrustClass::UserOwned, "chat")).await.unwrap();
    }
    let book = LabelBook::open(Registry::open(&data).unwrap(), memory).await.unwrap();
    // A session has read what it has, and what its credential had outside of any; not what another session has.
    let both = [TrustClass::UserOwned, TrustClass::ExternalUntrusted];
    assert_eq!(book.of(&caller(Some("one"))).classes(), both);
    assert_eq!(book.read_by(&caller(Some("one"))), [page("https://example.org/")]);
    assert_eq!(book.of(&caller(None)).classes(), [TrustClass::UserOwned]);
    assert_eq!(book.of(&caller(Some("two"))).classes(), [TrustClass::UserOwned]);
}

#[tokio::test]
async fn the_registry_is_told_once_and_again_before_it_would_forget() {
    let directory = tempfile::tempdir().unwrap();
    let data = DataDir::open(directory.path()).unwrap();
    let registry = Registry::open(&data).unwrap();
    let book = LabelBook::open(registry.clone(), Duration::from_secs(3600)).await.unwrap();
    let start = Timestamp::now();
    let expires = || async { registry.labels(10).await.unwrap()[0].expires };
    book.observe_at(&caller(None), &page("a"), start).await.unwrap();
    let first = expires().await;
    book.observe_at(&caller(None), &page("b"), start.plus(Duration::from_secs(60))).await.unwrap();
    assert_eq!(expires().await, first);
    book.observe_at(&caller(None), &page("a"), start.plus(Duration::from_secs(1800))).await.unwrap();
    assert_eq!(expires().await, first.plus(Duration::from_secs(1800)));
    assert_eq!(registry.labels(10).await.unwrap().len(), 1);
}

#[test]
fn without_room_strangers_count_as_having_read_everything() {
    let book = LabelBook::forgetful();
    let now = Timestamp::now();
    let holder = |number: usize| Holder {
        tenant: "local".into(),
        who: LabelHolder::Session(format!("s{number}").as_str().into()),
    };
    for number in 0..MOST_HOLDERS {
        assert!(book.note(&holder(number), &page("x"), now));
    }
    assert!(book.of_at(&caller(Some("stranger")), now).classes().is_empty());
    assert!(book.note(&holder(MOST_HOLDERS), &page("x"), now));
    assert!(book.of_at(&caller(Some("stranger")), now).classes().contains(&TrustClass::ExternalUntrusted));
    assert_eq!(book.of_at(&caller(Some("s7")), now).classes(), UNTRUSTED);
    assert!(book.read().by_holder.len() <= MOST_HOLDERS);
    assert!(book.read().origins <= ALL_ORIGINS);
    // Once the others are gone there is room again.
    let later = now.plus(3 * SESSION_MEMORY);
    assert!(book.note(&holder(1), &page("x"), later));
    assert!(book.of_at(&caller(Some("stranger")), later).classes().is_empty());
}

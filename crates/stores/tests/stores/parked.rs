//! Requests for approval as rows: what is kept of them, how much, and for how long.

use aegis_core::{
    Approval, ApprovalState, Caller, Door, Label, Tier, Timestamp, Violation, ViolationKind,
    approval::{ApprovalOutcome, Preview},
    call,
    config::ApprovalsConfig,
    id::{ApprovalId, CallId},
    quantity::Size,
};
use aegis_stores::{
    DataDir, Registry,
    registry::{ApprovalFilter, ApprovalPage, DecisionRow, Limit, Parked},
};
use rusqlite::Connection;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::common::format_five;

struct Home {
    directory: TempDir,
    registry: Registry,
    config: ApprovalsConfig,
}

fn home() -> Home {
    let directory = tempfile::tempdir().unwrap();
    let registry = Registry::open(&DataDir::open(directory.path()).unwrap()).unwrap();
    Home { directory, registry, config: ApprovalsConfig::default() }
}

fn caller(tenant: &str, credential: &str) -> Caller {
    Caller {
        tenant: tenant.into(),
        user: "agent".into(),
        tier: Tier::User,
        context: "work".into(),
        credential: credential.into(),
        door: Door::Rest,
        session: None,
        pinned: None,
    }
}

fn asked(caller: Caller, number: usize, content: &str) -> Approval {
    let arguments: Map<String, Value> =
        json!({"path": format!("f{number}"), "content": content}).as_object().unwrap().clone();
    Approval {
        id: ApprovalId::new(format!("approval:{}-{number}", caller.credential)),
        intent: format!("intent:{}-{number}", caller.credential),
        state: ApprovalState::Pending,
        call: CallId::fresh(),
        runs: true,
        caller,
        tool: "fs.write".into(),
        title: "Write file".into(),
        asked_as: None,
        arguments_sha256: call::digest(&arguments),
        arguments_bytes: serde_json::to_vec(&arguments).unwrap().len() as u64,
        arguments_cut: false,
        arguments,
        proof: None,
        preview: Some(Preview::Command { line: "write".into() }),
        asks: Vec::new(),
        labels: Vec::new(),
        read: vec![Label::node()],
        policy_version: String::new(),
        created: Timestamp::now(),
        expires: Timestamp::now().plus(std::time::Duration::from_secs(900)),
        decided: None,
        decided_by: None,
        reason: None,
        ended: None,
        outcome: None,
        delivered: false,
        similar: Vec::new(),
    }
}

impl Home {
    async fn park(&self, approval: &Approval) -> Parked {
        self.registry.park_approval(approval.clone(), &self.config).await.unwrap()
    }

    async fn end(&self, id: &ApprovalId, to: ApprovalState) {
        let violation = Violation::new(ViolationKind::ApprovalVoid, "it is over");
        let outcome = ApprovalOutcome::Refused { violation };
        assert!(
            self.registry.end_approval(id, ApprovalState::Pending, to, outcome, true).await.unwrap(),
            "{id}"
        );
    }

    async fn page(&self, filter: ApprovalFilter) -> ApprovalPage {
        self.registry.list_approvals(&filter).await.unwrap()
    }

    fn sql(&self) -> Connection {
        Connection::open(self.directory.path().join("registry.db")).unwrap()
    }

    /// The files in which this is.
    fn holding(&self, mark: &str) -> Vec<String> {
        let holds = |bytes: Vec<u8>| bytes.windows(mark.len()).any(|window| window == mark.as_bytes());
        let files = std::fs::read_dir(self.directory.path()).unwrap().map(|entry| entry.unwrap().path());
        let files = files.filter(|path| path.is_file() && holds(std::fs::read(path).unwrap()));
        files.map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
    }

    fn bodies(&self) -> (u64, u64) {
        let sum = "SELECT count(*), coalesce(sum(length(body)), 0) FROM approval_bodies";
        self.sql().query_row(sum, [], |row| row.try_into()).unwrap()
    }
}

fn full(parked: &Parked) -> Option<Limit> {
    if let Parked::Full(limit) = parked { Some(*limit) } else { None }
}

#[tokio::test]
async fn the_whole_is_kept_while_it_is_open_and_a_summary_afterwards() {
    let home = home();
    let asked = asked(caller("local", "tok_1"), 1, &"x".repeat(100_000));
    assert!(matches!(home.park(&asked).await, Parked::Fresh));
    let whole = home.registry.whole_approval(&asked.id).await.unwrap().unwrap();
    assert_eq!(whole, asked);
    let listed = home.page(ApprovalFilter { limit: 10, ..ApprovalFilter::default() }).await.approvals;
    let summary = asked.summary();
    assert_eq!(listed, std::slice::from_ref(&summary));
    assert!(summary.arguments_cut && summary.preview.is_none() && summary.read.is_empty());
    assert_eq!(summary.arguments["path"], "f1");
    assert_eq!(summary.arguments["content"]["bytes"], 100_000);
    assert_eq!(summary.arguments_bytes, asked.arguments_bytes);
    assert!(serde_json::to_vec(&summary).unwrap().len() < 2000);

    home.end(&asked.id, ApprovalState::Cancelled).await;
    assert_eq!(home.bodies(), (0, 0));
    let over = home.registry.whole_approval(&asked.id).await.unwrap().unwrap();
    assert_eq!((over.state, &over.arguments), (ApprovalState::Cancelled, &summary.arguments));
    assert!(over.arguments_cut);
    assert_eq!(over.arguments_sha256, asked.arguments_sha256);
}

#[tokio::test]
async fn pages_are_bounded_by_count_and_by_bytes_and_miss_nothing() {
    let home = home();
    // Names can't be cut much: each row has tens of kilobytes.
    let long = |number: usize| {
        let mut asked = asked(caller("local", "tok_1"), number, "");
        asked.arguments =
            (0..60).map(|n| (format!("{n:0>3}{}", "n".repeat(240)), json!("v".repeat(250)))).collect();
        asked.arguments_sha256 = format!("{number}");
        asked
    };
    for number in 0..100 {
        assert!(matches!(home.park(&long(number)).await, Parked::Fresh), "{number}");
    }
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = home.page(ApprovalFilter { limit: 90, after, ..ApprovalFilter::default() }).await;
        assert!(serde_json::to_vec(&page.approvals).unwrap().len() < 2 << 20);
        assert!(page.approvals.len() < 90, "bytes are the narrower bound here");
        seen.extend(page.approvals.iter().map(|approval| approval.id.clone()));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let expected: Vec<ApprovalId> =
        (0..100).rev().map(|number| ApprovalId::new(format!("approval:tok_1-{number}"))).collect();
    assert_eq!(seen, expected);
    let page = home.page(ApprovalFilter { limit: 3, ..ApprovalFilter::default() }).await;
    assert_eq!((page.approvals.len(), page.next.as_ref()), (3, Some(&expected[2])));
    let own = |credential: &str| ApprovalFilter {
        of: Some(caller("local", credential)),
        limit: 1000,
        ..ApprovalFilter::default()
    };
    assert!(!home.page(own("tok_1")).await.approvals.is_empty());
    assert!(home.page(own("tok_2")).await.approvals.is_empty());
    let mut other = caller("local", "tok_1");
    other.context = "other".into();
    let filter = ApprovalFilter { of: Some(other), limit: 10, ..ApprovalFilter::default() };
    assert!(home.page(filter).await.approvals.is_empty(), "the same credential in another role");
}

/// The answer is the same whether the request was never there, is gone, or is another tenant's.
#[tokio::test]
async fn a_list_goes_on_after_a_request_that_is_not_there() {
    let home = home();
    let ask = |tenant: &str, number| asked(caller(tenant, "tok_1"), number, "");
    for (tenant, number) in [("local", 1), ("local", 3), ("other", 4), ("local", 5)] {
        assert!(matches!(home.park(&ask(tenant, number)).await, Parked::Fresh));
    }
    for (after, left) in [(6, "5,3,1"), (5, "3,1"), (4, "3,1"), (3, "1"), (2, "1"), (1, ""), (0, "")] {
        let filter = ApprovalFilter {
            tenant: Some("local".into()),
            limit: 10,
            after: Some(ApprovalId::new(format!("approval:tok_1-{after}"))),
            ..ApprovalFilter::default()
        };
        let page = home.page(filter).await.approvals;
        let paths: Vec<&str> =
            page.iter().map(|row| row.arguments["path"].as_str().unwrap().trim_start_matches('f')).collect();
        assert_eq!(paths.join(","), left, "after {after}");
    }
}

#[tokio::test]
async fn one_caller_leaves_room_for_the_others() {
    let mut home = home();
    home.config.max_pending = 5;
    home.config.max_pending_per_caller = 3;
    let ask = |credential: &str, number| asked(caller("local", credential), number, "");
    for number in 0..3 {
        assert!(matches!(home.park(&ask("tok_1", number)).await, Parked::Fresh));
    }
    assert_eq!(full(&home.park(&ask("tok_1", 3)).await), Some(Limit::Caller));
    assert!(matches!(home.park(&ask("tok_1", 1)).await, Parked::Same(_)), "what waits can be asked for");
    for number in 0..2 {
        assert!(matches!(home.park(&ask("tok_2", number)).await, Parked::Fresh));
    }
    assert_eq!(full(&home.park(&ask("tok_2", 2)).await), Some(Limit::Tenant));
    let elsewhere = asked(caller("elsewhere", "tok_3"), 0, "");
    assert!(matches!(home.park(&elsewhere).await, Parked::Fresh));

    home.config = ApprovalsConfig {
        max_pending_bytes: Size(90_000),
        max_pending_bytes_per_caller: Size(50_000),
        ..ApprovalsConfig::default()
    };
    let large = |credential: &str, number| asked(caller("large", credential), number, &"x".repeat(40_000));
    assert!(matches!(home.park(&large("tok_4", 0)).await, Parked::Fresh));
    assert_eq!(full(&home.park(&large("tok_4", 1)).await), Some(Limit::CallerBytes));
    assert!(matches!(home.park(&large("tok_5", 0)).await, Parked::Fresh));
    assert_eq!(full(&home.park(&large("tok_6", 0)).await), Some(Limit::TenantBytes));
    // What is decided makes room.
    home.end(&large("tok_4", 0).id, ApprovalState::Rejected).await;
    assert!(matches!(home.park(&large("tok_6", 0)).await, Parked::Fresh));
}

#[tokio::test]
async fn what_is_over_is_kept_within_bounds_and_answers_outlast_a_flood() {
    let home = home();
    let answered = asked(caller("local", "tok_1"), 0, "");
    home.park(&answered).await;
    home.end(&answered.id, ApprovalState::Executed).await;
    let other = asked(caller("elsewhere", "tok_2"), 0, "");
    home.park(&other).await;
    home.end(&other.id, ApprovalState::Expired).await;
    for number in 1..=150 {
        let flood = asked(caller("local", "tok_1"), number, &"x".repeat(5000));
        home.park(&flood).await;
        home.end(&flood.id, ApprovalState::Cancelled).await;
    }
    let long_ago = Timestamp::from_millis(1);
    let mut pruned = 0;
    loop {
        match home.registry.prune_approvals(long_ago, 10).await.unwrap() {
            0 => break,
            some => pruned += some,
        }
    }
    assert_eq!(pruned, 141);
    let left = home.page(ApprovalFilter { limit: 100, ..ApprovalFilter::default() }).await.approvals;
    let ids: Vec<&str> = left.iter().map(|approval| approval.id.as_str()).collect();
    assert_eq!(left.len(), 11);
    assert!(ids.contains(&answered.id.as_str()) && ids.contains(&other.id.as_str()), "{ids:?}");
    assert!(ids.contains(&"approval:tok_1-150") && !ids.contains(&"approval:tok_1-1"), "{ids:?}");
    assert_eq!(home.bodies(), (0, 0));
    // Time ends the rest.
    let now = Timestamp::now().plus(std::time::Duration::from_secs(1));
    assert_eq!(home.registry.prune_approvals(now, 10).await.unwrap(), 11);
}

#[tokio::test]
async fn no_flood_pushes_out_a_no_that_still_holds() {
    let home = home();
    let refused = asked(caller("local", "tok_1"), 0, "");
    let mut lapsed = asked(caller("local", "tok_1"), 1, "");
    lapsed.expires = Timestamp::now().plus(std::time::Duration::from_millis(50));
    for (row, outcome) in [&refused, &lapsed].map(|asked| {
        let violation = Violation::new(ViolationKind::ApprovalRejected, "not that one");
        (asked, ApprovalOutcome::Refused { violation })
    }) {
        home.park(row).await;
        let to = ApprovalState::Rejected;
        let ended = home.registry.end_approval(&row.id, ApprovalState::Pending, to, outcome, true);
        assert!(ended.await.unwrap());
    }
    for number in 2..=60 {
        let flood = asked(caller("local", "tok_1"), number, "");
        home.park(&flood).await;
        home.end(&flood.id, ApprovalState::Cancelled).await;
    }
    while Timestamp::now() < lapsed.expires {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    // By number, and by age: `keep` may be shorter than the time a no holds.
    for before in [Timestamp::from_millis(1), Timestamp::now().plus(std::time::Duration::from_secs(1))] {
        while home.registry.prune_approvals(before, 5).await.unwrap() > 0 {}
        assert!(matches!(home.park(&refused).await, Parked::Rejected(_)));
        assert!(home.registry.find_approval(&lapsed.id).await.unwrap().is_none());
    }
    let left = home.page(ApprovalFilter { limit: 100, ..ApprovalFilter::default() }).await.approvals;
    assert_eq!(left.len(), 1, "the rest went by age");
}

#[tokio::test]
async fn a_registry_of_format_five_is_brought_up() {
    let directory = tempfile::tempdir().unwrap();
    let data = DataDir::open(directory.path()).unwrap();
    let sql = format_five(&data);
    let [open, over] = [1, 2].map(|number| asked(caller("local", "tok_1"), number, &"long ".repeat(1000)));
    for (approval, state, ended) in [(&open, "pending", None), (&over, "cancelled", Some(7))] {
        let mut request = serde_json::to_value(approval).unwrap();
        // As it was written then.
        request
            .as_object_mut()
            .unwrap()
            .retain(|name, _| name != "arguments_cut" && name != "arguments_bytes");
        sql.execute(
            "INSERT INTO approvals (id, intent, tenant, user, tool, digest, runs, state, created, expires, request,
                 bytes, ended, recorded)
             VALUES (?1, ?2, 'local', 'agent', 'fs.write', ?3, 1, ?4, 1, ?5, ?6, 1, ?7, 1)",
            rusqlite::params![
                approval.id.as_str(),
                approval.intent,
                approval.arguments_sha256,
                state,
                approval.expires.millis(),
                request.to_string(),
                ended,
            ],
        )
        .unwrap();
    }
    drop(sql);
    let registry = Registry::open(&data).unwrap();
    let whole = registry.whole_approval(&open.id).await.unwrap().unwrap();
    assert_eq!(whole, open);
    let kept = registry.whole_approval(&over.id).await.unwrap().unwrap();
    assert!(kept.arguments_cut && kept.preview.is_none());
    assert_eq!(kept.arguments, over.summary().arguments);
    assert_eq!(kept.arguments_bytes, over.arguments_bytes);
    // What is recorded of its end is what the audit log has of any call.
    let summary = registry.find_approval(&open.id).await.unwrap().unwrap();
    assert_eq!(summary, open.summary());
    let bodies = "SELECT count(*) FROM approval_bodies";
    let sql = Connection::open(data.registry_database()).unwrap();
    assert_eq!(sql.query_row(bodies, [], |row| row.get::<_, u64>(0)).unwrap(), 1);
    let filter =
        ApprovalFilter { of: Some(caller("local", "tok_1")), limit: 10, ..ApprovalFilter::default() };
    assert_eq!(registry.list_approvals(&filter).await.unwrap().approvals.len(), 2);
}

const MARK: &str = "hunter2-of-a-request";

/// Deleted is not gone while the write-ahead log has a copy.
#[tokio::test]
async fn arguments_of_ended_requests_are_in_no_file() {
    let home = home();
    let content = format!("{}{MARK}", "x".repeat(1000));
    let (ended, rejected) =
        (asked(caller("local", "tok_1"), 1, &content), asked(caller("local", "tok_1"), 2, &content));
    home.park(&ended).await;
    home.park(&rejected).await;
    assert!(!home.holding(MARK).is_empty());
    home.end(&ended.id, ApprovalState::Expired).await;
    let decision = DecisionRow {
        id: rejected.id.clone(),
        approve: false,
        by: caller("local", "tok_2"),
        reason: None,
        outcome: None,
    };
    home.registry.decide_approval(decision).await.unwrap();
    home.registry.flush().await.unwrap();
    assert_eq!(home.holding(MARK), Vec::<String>::new());
    // The registry can be used on.
    let third = asked(caller("local", "tok_1"), 3, &content);
    home.park(&third).await;
    assert!(home.registry.find_approval(&third.id).await.unwrap().is_some());
}

/// A request with the mark that has ended while somebody reads the file, who keeps its write-ahead log from being emptied.
async fn ended_under_a_reader(home: &Home) -> Connection {
    let request = asked(caller("local", "tok_1"), 1, &format!("{}{MARK}", "x".repeat(1000)));
    home.park(&request).await;
    let reader = home.sql();
    reader.execute_batch("BEGIN; SELECT count(*) FROM approvals;").unwrap();
    home.end(&request.id, ApprovalState::Expired).await;
    reader
}

#[tokio::test]
async fn traces_are_removed_once_nobody_reads_the_file() {
    let home = home();
    let reader = ended_under_a_reader(&home).await;
    home.registry.flush().await.unwrap();
    assert_eq!(home.holding(MARK), ["registry.db-wal"]);
    reader.execute_batch("COMMIT").unwrap();
    home.registry.flush().await.unwrap();
    assert_eq!(home.holding(MARK), Vec::<String>::new());
}

/// The same without anybody asking for it. Time goes by only while nothing is done.
#[tokio::test(start_paused = true)]
async fn traces_are_looked_for_again() {
    let home = home();
    let reader = ended_under_a_reader(&home).await;
    tokio::time::sleep(std::time::Duration::from_secs(600)).await;
    assert_eq!(home.holding(MARK), ["registry.db-wal"]);
    reader.execute_batch("COMMIT").unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(600)).await;
    assert_eq!(home.holding(MARK), Vec::<String>::new());
}

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::json;

use super::{common, config, error_kind, node, ready, server, status};
use crate::common::TestNode;

const ROOM: &str = "  limits: {max_concurrent_calls: 2000}\n  network: {max_concurrent_requests: 2000}\n";

#[test]
fn every_one_of_a_thousand_calls_is_answered_while_the_server_dies() {
    let spec = format!("{}{ROOM}", config(&[server("fix", "", &["restart: {backoff: 50ms}"])]));
    let node = Arc::new(TestNode::with_config(&spec));
    ready(&node);
    let (done, failed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let callers: Vec<_> = (0..1000)
        .map(|number| {
            let (node, done, failed) = (Arc::clone(&node), Arc::clone(&done), Arc::clone(&failed));
            std::thread::Builder::new()
                .stack_size(256 << 10)
                .spawn(move || {
                    let answer = match number {
                        500 => node.call("fix.die", json!({})),
                        _ => node.call("fix.slow", json!({"ms": 20})),
                    };
                    match answer.status {
                        200 => done.fetch_add(1, Ordering::Relaxed),
                        422 => {
                            assert_eq!(error_kind(&answer), "UpstreamUnavailable", "{}", answer.body);
                            failed.fetch_add(1, Ordering::Relaxed)
                        }
                        other => panic!("{other}: {}{}\n{}", answer.head, answer.body, node.log()),
                    };
                })
                .unwrap()
        })
        .collect();
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    assert_eq!(done.load(Ordering::Relaxed) + failed.load(Ordering::Relaxed), 1000);
    assert!(failed.load(Ordering::Relaxed) > 0);
    ready(&node);
    assert_eq!(status(&node, "fix")["restarts"], 1);
}

#[test]
fn a_server_that_is_not_running_is_refused_at_once_with_the_reason() {
    let node = node("", &["restart: {backoff: 10m, max_backoff: 10m}"]);
    assert_eq!(error_kind(&node.call("fix.die", json!({}))), "UpstreamUnavailable");
    common::wait_until(|| status(&node, "fix")["state"] == "stopped");
    let refused = node.call("fix.echo", json!({"text": "x"}));
    assert_eq!(error_kind(&refused), "UpstreamUnavailable", "{}", refused.body);
    assert!(refused.body.contains("the process ended"), "{}", refused.body);
    // A person need not wait.
    assert!(node.cli(&["upstream", "restart", "fix"]).status.success());
    ready(&node);
}

#[test]
fn a_hanging_call_ends_and_the_server_hears_it() {
    let node = node("", &["limits: {call_timeout: 1s}"]);
    let hung = node.call("fix.hang", json!({}));
    assert_eq!(error_kind(&hung), "Timeout", "{}", hung.body);
    common::wait_until(|| {
        common::text(&node.cli(&["upstream", "logs", "fix"]).stdout).contains("hang was cancelled")
    });
    assert_eq!(node.call("fix.echo", json!({"text": "on"})).result(), json!("on"));
}

#[test]
fn floods_and_huge_answers_hurt_nobody_else() {
    let node = node("--at-start flood", &["limits: {max_message: 1Mi}"]);
    let huge = node.call("fix.huge", json!({"bytes": 4 << 20}));
    assert_eq!(error_kind(&huge), "ResponseTooLarge", "{}", huge.body);
    assert_eq!(node.call("fix.echo", json!({"text": "on"})).result(), json!("on"));
    assert_eq!(node.call("fix.flood", json!({})).result(), json!("flooded"));
    let logs = common::text(&node.cli(&["upstream", "logs", "fix", "--limit", "500"]).stdout);
    assert!(logs.lines().count() <= 501, "{}", logs.lines().count());
}

use std::sync::Arc;

use serde_json::json;

use super::{common, config, ready, server, status};
use crate::common::TestNode;

fn message(answer: &common::Answer) -> String {
    answer.json()["error"]["message"].as_str().unwrap_or_default().to_owned()
}

fn stopped(more: &str, arguments: &str) -> (TestNode, String) {
    let one = match more.strip_prefix("executable: ") {
        Some(program) => format!("    - name: fix\n      executable: {program}\n"),
        None => server("fix", arguments, &[more]),
    };
    let node = TestNode::with_config(&config(&[one]));
    common::wait_until(|| status(&node, "fix")["state"] == "stopped");
    let reason = status(&node, "fix")["reason"].as_str().unwrap_or_default().to_owned();
    (node, reason)
}

#[test]
fn what_keeps_a_server_from_starting_is_told() {
    for (more, arguments, told) in [
        ("executable: /no/such/program", "", "can't be started"),
        ("credentials: {KEY: \"file:/no/such/program\"}", "", "can't be read"),
        ("credentials: {KEY: \"env:NO_SUCH_VARIABLE_HERE\"}", "", "NO_SUCH_VARIABLE_HERE"),
        ("credentials: {KEY: \"secret:no/such\"}", "", "aegis secret set no/such"),
        ("limits: {start_timeout: 1s}", "--at-start silent", "within 1 s"),
        ("restart: {backoff: 1s}", "--at-start die", "the process ended"),
        ("restart: {backoff: 1s}", "--list endless", "does not end"),
    ] {
        let (node, reason) = stopped(more, arguments);
        assert!(reason.contains(told), "{more}: {reason}");
        let refused = node.call("fix.echo", json!({"text": "x"}));
        assert_eq!(refused.violation(), "UpstreamUnavailable", "{more}");
        assert!(message(&refused).contains(told), "{}", refused.body);
        // Where things lie is for those who look after them.
        assert!(!refused.body.contains("/no/such/program"), "{}", refused.body);
        assert_eq!(reason.contains("/no/such/program"), more.contains("/no/such/program"), "{reason}");
        let ready = node.request("GET", "/readyz", None, None);
        assert_eq!(ready.json()["upstreams"]["stopped"], 1, "{}", ready.body);
        assert_eq!(node.cli(&["upstream", "restart", "fix"]).status.code(), Some(1), "{more}");
    }
}

#[test]
fn two_servers_can_not_claim_one_name() {
    let spec = config(&[server("one", "", &["namespace: same"]), server("two", "", &["namespace: same"])]);
    let dir = Arc::new(tempfile::tempdir().unwrap());
    common::write_config(dir.path(), &spec);
    let refused = TestNode::try_on(dir).err().unwrap();
    assert!(refused.contains("one") && refused.contains("two") && refused.contains("same"), "{refused}");
}

#[test]
fn a_server_that_is_the_node_itself_is_found_out() {
    let node = TestNode::start();
    common::write_config(
        node.dir.path(),
        &config(&[format!("    - name: self\n      url: http://{}/mcp\n", node.address)]),
    );
    let added = format!("http://{}/mcp", node.address);
    let _ = node.cli(&["upstream", "add", "mirror", "--url", &added]);
    common::wait_until(|| status(&node, "mirror")["state"] == "stopped");
    let reason = status(&node, "mirror")["reason"].to_string();
    assert!(reason.contains("508"), "{reason}");
}

#[test]
fn a_changed_server_restarts_and_the_others_notice_nothing() {
    let spec = |words: &str| config(&[server("fix", "", &[]), server("other", words, &[])]);
    let node = TestNode::with_config(&spec(""));
    ready(&node);
    common::wait_until(|| node.call("other.echo", json!({"text": "x"})).status == 200);
    let (fix, other) = (status(&node, "fix")["pid"].clone(), status(&node, "other")["pid"].clone());
    common::write_config(node.dir.path(), &spec("--era older"));
    common::wait_until(|| {
        let now = status(&node, "other");
        now["state"] == "running" && now["pid"] != other && now["protocol"] == "2025-11-25"
    });
    assert_eq!(status(&node, "fix")["pid"], fix);
    common::write_config(node.dir.path(), &config(&[server("fix", "", &[])]));
    common::wait_until(|| node.call("other.echo", json!({"text": "x"})).violation() == "ToolNotFound");
    assert_eq!(status(&node, "fix")["pid"], fix);
}

#[test]
fn an_approved_call_reaches_its_server() {
    let context = "  security_contexts:\n    - name: tenant-local-clerk\n      description: may echo\n      capabilities: [{tool_pattern: fix.echo}]\n";
    let one = server("fix", "", &["tools: {echo: {approval: required}}"]);
    let node = TestNode::with_config(&format!("{}{context}", config(&[one])));
    common::wait_until(|| node.call("fix.structured", json!({})).status == 200);
    let clerk = node.make_token("tenant-local-clerk");
    let parked = node.call_as(&clerk, "fix.echo", json!({"text": "later"}));
    assert!(parked.body.contains("pendingApproval"), "{}", parked.body);
    let listed = common::text(&node.cli(&["approvals", "list", "--json"]).stdout);
    let id = listed.split('"').find(|part| part.starts_with("approval:") || part.starts_with("apr_"));
    let id = id.unwrap_or_else(|| panic!("{listed}")).to_owned();
    let approved = node.cli(&["approvals", "approve", &id]);
    assert!(approved.status.success(), "{}", common::text(&approved.stderr));
    common::wait_until(|| {
        let shown = common::text(&node.cli(&["approvals", "show", &id, "--json"]).stdout);
        shown.contains("EXTERNAL_UNTRUSTED")
    });
}

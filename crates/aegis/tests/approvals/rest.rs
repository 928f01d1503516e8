use std::sync::Arc;

use serde_json::json;

use super::{Scene, token};
use crate::common::TestNode;

#[test]
fn asked_approved_and_collected() {
    let scene = Scene::new();
    let parked = scene.write("a.txt");
    assert_eq!(parked.status, 202);
    let body = parked.json();
    assert_eq!(body["result"]["pendingApproval"], true);
    let id = body["approval"]["id"].as_str().unwrap();
    assert_eq!(body["result"]["approvalRequestId"], id);
    assert_eq!(parked.header("location"), Some(format!("/v1/approvals/{id}").as_str()));
    assert_eq!(scene.content("a.txt"), None);

    let seen = scene.get(&scene.agent, id).json();
    assert_eq!((&seen["state"], &seen["arguments"]["content"]), (&json!("pending"), &json!("hello\n")));
    assert!(seen["asks"][0]["rule"].as_str().unwrap().contains("careful"), "{seen}");
    // The very same call is the same request.
    assert_eq!(scene.write("a.txt").json()["approval"]["id"], id);

    assert_eq!(scene.decide(&scene.agent, id, "approve").status, 403);
    scene.approve(id);
    let ended = scene.ended(id);
    assert_eq!(ended["state"], "executed", "{ended}");
    assert_eq!(ended["outcome"]["value"]["bytes_written"], 6, "{ended}");
    assert_eq!(ended["decided_by"]["user"], "operator");
    assert_eq!(scene.content("a.txt").as_deref(), Some("hello\n"));

    // The same decision again is no other one; the opposite is.
    let again = scene.decide(&scene.node.token, id, "approve");
    assert_eq!((again.status, &again.json()["state"]), (200, &json!("executed")));
    let other = scene.decide(&scene.node.token, id, "reject");
    assert_eq!((other.status, other.violation().as_str()), (409, "ApprovalDecided"));
    // It was used up.
    let next = scene.parked("a.txt");
    assert_ne!(next, id);
}

#[test]
fn a_result_that_nobody_fetched_answers_the_same_call() {
    let scene = Scene::new();
    let id = scene.parked("a.txt");
    scene.approve(&id);
    let operator = scene.node.token.clone();
    let wait = format!("/v1/approvals/{id}?wait=30s");
    assert_eq!(scene.node.request("GET", &wait, Some(&operator), None).json()["state"], "executed");
    let answer = scene.write("a.txt");
    assert_eq!((answer.status, &answer.result()["bytes_written"]), (200, &json!(6)), "{}", answer.body);
    assert_eq!(scene.write("a.txt").status, 202);
}

#[test]
fn a_refusal_reaches_whoever_asked() {
    let scene = Scene::new();
    let id = scene.parked("a.txt");
    let empty = scene.node.request(
        "POST",
        &format!("/v1/approvals/{id}/reject"),
        Some(&scene.node.token),
        Some(&json!({"reason": " "})),
    );
    assert_eq!(empty.status, 400, "{}", empty.body);
    assert_eq!(scene.decide(&scene.node.token, &id, "reject").status, 200);
    let ended = scene.ended(&id);
    assert_eq!((&ended["state"], &ended["reason"]), (&json!("rejected"), &json!("not there")));
    let again = scene.write("a.txt");
    assert_eq!((again.status, again.violation().as_str()), (403, "ApprovalRejected"), "{}", again.body);
    assert!(again.body.contains("not there"), "{}", again.body);
    assert_eq!(scene.decide(&scene.node.token, &id, "approve").status, 409);
    assert_eq!(scene.content("a.txt"), None);
}

#[test]
fn a_decision_can_come_too_late() {
    let scene = Scene::with("  approvals: {expiry: 1s}");
    let id = scene.parked("a.txt");
    let ended = scene.ended(&id);
    assert_eq!(ended["state"], "expired", "{ended}");
    let late = scene.decide(&scene.node.token, &id, "approve");
    assert_eq!((late.status, late.violation().as_str()), (410, "ApprovalExpired"), "{}", late.body);
    assert_eq!(scene.content("a.txt"), None);
}

#[test]
fn who_sees_what() {
    let scene = Scene::new();
    let node = &scene.node;
    let id = scene.parked("a.txt");
    let stranger = token(node, json!({"context": "careful", "user": "ann", "tenant": "elsewhere"}));
    let colleague = token(node, json!({"context": "careful", "user": "bob"}));
    let second = token(node, json!({"context": "careful", "user": "ann"}));
    for token in [&stranger, &colleague, &second] {
        for (method, path) in [("GET", ""), ("POST", "/approve"), ("POST", "/cancel")] {
            let answer =
                node.request(method, &format!("/v1/approvals/{id}{path}"), Some(token), Some(&json!({})));
            assert_eq!(answer.status, 404, "{method} {path}: {}", answer.body);
        }
        assert_eq!(node.request("GET", "/v1/approvals", Some(token), None).json()["total"], 0);
    }
    assert_eq!(node.request("GET", &format!("/v1/approvals/{id}"), None, None).status, 401);
    assert_eq!(scene.get(&node.token, "approval:nonsense").status, 404);

    let own = node.request("GET", "/v1/approvals?state=pending", Some(&scene.agent), None).json();
    assert_eq!((&own["total"], &own["approvals"][0]["id"]), (&json!(1), &json!(id)));
    assert!(own["approvals"][0].get("preview").is_none(), "{own}");
    assert_eq!(node.request("GET", "/v1/approvals?state=nosuch", Some(&node.token), None).status, 400);

    // Whoever holds the grant decides for the own tenant, and nobody decides for oneself.
    let approver = token(node, json!({"context": "deciding", "user": "eve"}));
    let elsewhere = token(node, json!({"context": "deciding", "user": "eve", "tenant": "elsewhere"}));
    let oneself = token(node, json!({"context": "deciding", "user": "ann"}));
    assert_eq!(scene.get(&approver, &id).json()["preview"]["kind"], "diff");
    assert_eq!(scene.decide(&elsewhere, &id, "approve").status, 404);
    assert_eq!(scene.decide(&oneself, &id, "approve").status, 403);
    assert_eq!(scene.decide(&approver, &id, "approve").status, 200);
    assert_eq!(scene.ended(&id)["state"], "executed");
}

#[test]
fn taken_back_it_stays_undone() {
    let scene = Scene::new();
    let id = scene.parked("a.txt");
    let cancelled = scene.decide(&scene.agent, &id, "cancel");
    assert_eq!((cancelled.status, &cancelled.json()["state"]), (200, &json!("cancelled")));
    assert_eq!(scene.decide(&scene.node.token, &id, "approve").status, 409);
    assert_eq!(scene.content("a.txt"), None);
}

#[test]
fn a_settled_question_is_not_asked_again_until_it_is_taken_back() {
    let scene = Scene::new();
    let node = &scene.node;
    let always = |token: &str, body: serde_json::Value| {
        node.request("POST", "/v1/approvals/always", Some(token), Some(&body))
    };
    let row = json!({"tool": "fs.write", "user": "ann", "arguments": {"path": {"glob": "/workspace/docs/**"}},
        "note": "drafts"});
    assert_eq!(always(&scene.agent, row.clone()).status, 403);
    assert_eq!(always(&node.token, json!({"tool": "fs.write", "any_arguments": true})).status, 400);
    assert_eq!(
        always(&node.token, json!({"tool": "fs.wirte", "user": "ann", "any_arguments": true})).status,
        404
    );
    // Whoever says nothing about arguments, or two things, has not said which calls are meant.
    for unsaid in [
        json!({}),
        json!({"arguments": {}}),
        json!({"any_arguments": false}),
        json!({"only_named": true}),
        json!({"any_arguments": true, "arguments": {"path": "a"}}),
    ] {
        let mut row = unsaid.clone();
        (row["tool"], row["user"]) = ("fs.write".into(), "ann".into());
        let refused = always(&node.token, row);
        assert_eq!((refused.status, refused.violation().as_str()), (400, "MalformedRequest"), "{unsaid}");
        assert!(refused.body.contains("any_arguments"), "{}", refused.body);
    }
    let made = always(&node.token, row);
    assert_eq!(made.status, 201, "{}", made.body);
    let covers = made.json()["covers"].as_str().unwrap().to_owned();
    assert!(covers.contains("fs.write by ann of tenant local where path is like"), "{covers}");
    assert!(covers.contains("whatever the other arguments are"), "{covers}");
    let standing = made.json()["id"].as_str().unwrap().to_owned();

    let ran = scene.write("/workspace/docs/a.txt");
    assert_eq!(ran.status, 200, "{}", ran.body);
    let call = ran.json()["call"].clone();
    assert_eq!(scene.write("/workspace/b.txt").status, 202);
    let records = node.records();
    let record = records
        .iter()
        .map(|record| &record["entry"])
        .find(|record| record["entry"] == "call" && record["call"] == call)
        .unwrap_or_else(|| panic!("no record of {call}: {}", records[0]));
    let verdict = record["verdicts"].as_array().unwrap().iter().find(|verdict| verdict["gate"] == "approval");
    assert_eq!(verdict.unwrap()["rule"], standing.as_str());

    let listed = node.request("GET", "/v1/approvals/always", Some(&node.token), None).json();
    assert_eq!((&listed["total"], &listed["standing"][0]["note"]), (&json!(1), &json!("drafts")));
    assert_eq!(node.request("GET", "/v1/approvals/always", Some(&scene.agent), None).status, 403);
    let place = format!("/v1/approvals/always/{standing}");
    assert_eq!(node.request("DELETE", &place, Some(&scene.agent), None).status, 404);
    assert_eq!(node.request("DELETE", &place, Some(&node.token), None).status, 200);
    assert_eq!(scene.write("/workspace/docs/c.txt").status, 202);
    let listed = |query: &str| {
        node.request("GET", &format!("/v1/approvals/always{query}"), Some(&node.token), None).json()
    };
    assert_eq!(listed("")["total"], 0, "what was taken back is not in force");
    assert!(listed("?all=true")["standing"][0]["revoked"].is_string());
}

#[test]
fn an_approver_hears_how_the_call_ended_and_not_what_it_said() {
    let scene = Scene::new();
    let approve = |id: &str| {
        let path = format!("/v1/approvals/{id}/approve?wait=30s");
        scene.node.request("POST", &path, Some(&scene.node.token), None)
    };
    let ran = approve(&scene.parked("a.txt"));
    assert_eq!((ran.status, &ran.json()["state"]), (200, &json!("executed")), "{}", ran.body);
    assert!(ran.json().get("outcome").is_none(), "{}", ran.body);
    let node = &scene.node;
    let asked = node.call_as(&scene.agent, "fs.delete", json!({"path": "nowhere"})).json();
    assert_eq!(approve(asked["approval"]["id"].as_str().unwrap()).json()["state"], "failed");
    // The session has read something else since it asked.
    let id = scene.parked("b.txt");
    assert_eq!(node.call_as(&scene.agent, "fs.read", json!({"path": "a.txt"})).status, 200);
    let void = approve(&id).json();
    assert_eq!(
        (&void["state"], &void["outcome"]["violation"]["kind"]),
        (&json!("cancelled"), &json!("ApprovalVoid"))
    );
}

#[test]
fn what_waits_survives_the_node() {
    let scene = Scene::new();
    let (first, second) = (scene.parked("a.txt"), scene.parked("b.txt"));
    let Scene { node, agent } = scene;
    let (code, dir) = node.stop();
    assert_eq!(code, Some(0));
    let node = TestNode::on(Arc::clone(&dir));
    let scene = Scene { node, agent };
    assert_eq!(scene.get(&scene.agent, &first).json()["state"], "pending");
    scene.approve(&first);
    assert_eq!(scene.ended(&first)["state"], "executed");
    assert_eq!(scene.content("a.txt").as_deref(), Some("hello\n"));
    let Scene { node, agent } = scene;
    let node = TestNode::on(node.kill());
    let scene = Scene { node, agent };
    assert_eq!(scene.get(&scene.agent, &second).json()["state"], "pending");
    assert_eq!(scene.get(&scene.agent, &first).json()["outcome"]["value"]["bytes_written"], 6);
}

#[test]
fn a_look_that_waits_ends_with_its_time_and_with_the_node() {
    let scene = Scene::new();
    let id = scene.parked("a.txt");
    let path = format!("/v1/approvals/{id}?wait=1s");
    let short = scene.node.request("GET", &path, Some(&scene.agent), None);
    assert_eq!((short.status, &short.json()["state"]), (200, &json!("pending")));
    let bad = scene.node.request("GET", &format!("/v1/approvals/{id}?wait=soon"), Some(&scene.agent), None);
    assert_eq!(bad.status, 400);
    let Scene { node, agent } = scene;
    std::thread::scope(|scope| {
        let held =
            scope.spawn(|| node.request("GET", &format!("/v1/approvals/{id}?wait=50s"), Some(&agent), None));
        // Once one look is over, the other has long been at the node, or finds it stopping.
        let look = node.request("GET", &format!("/v1/approvals/{id}?wait=1s"), Some(&agent), None);
        assert_eq!(look.status, 200);
        crate::common::signal(node.pid(), "TERM");
        let held = held.join().unwrap();
        assert!(held.json()["state"] == "pending" || held.violation() == "ShuttingDown", "{}", held.body);
    });
    assert_eq!(node.ended().0, Some(0));
}

#[test]
fn the_page_for_users_tells_nothing() {
    let scene = Scene::new();
    let id = scene.parked("secret-name.txt");
    let page = |id: &str| scene.node.request("GET", &format!("/approvals/{id}"), None, None);
    let shown = page(&id);
    assert_eq!(shown.status, 200);
    assert!(shown.body.contains("aegis approvals show") && !shown.body.contains("secret-name"));
    assert_eq!(page("approval:nothing").body, shown.body.replace(&id, "approval:nothing"));
    assert_eq!(page("%3Cscript%3E").status, 404);
}

/// A standing word about a directory is no word about where a link in it leads.
#[test]
fn a_standing_word_ends_at_a_link() {
    let scene = Scene::new();
    let node = &scene.node;
    for directory in ["docs", "prod"] {
        let made = node.call("fs.create_dir", json!({"path": directory}));
        assert_eq!(made.status, 200, "{}", made.body);
    }
    std::os::unix::fs::symlink("../prod", node.workspace().join("docs/l")).unwrap();
    let pattern =
        json!({"tool": "fs.write", "user": "ann", "arguments": {"path": {"glob": "/workspace/docs/**"}}});
    let made = node.request("POST", "/v1/approvals/always", Some(&node.token), Some(&pattern));
    assert!(made.status < 300, "{}", made.body);
    assert_eq!(scene.write("docs/fine").status, 200);
    let bent = scene.write("docs/l/x");
    assert!(bent.body.contains("symbolic link"), "{}", bent.body);
    assert_eq!((scene.content("prod/x"), scene.content("docs/fine")), (None, Some("hello\n".into())));
}

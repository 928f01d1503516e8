//! A caller that asks for more than people can read.

use serde_json::json;

use super::{Scene, token};

const TIGHT: &str = "  approvals: {max_arguments: 64Ki, max_pending_per_caller: 4, max_pending_bytes_per_caller: 300Ki, \
                     max_pending: 6, max_kept: 5}";

#[test]
fn large_arguments_are_refused_and_lists_stay_small() {
    let scene = Scene::with(TIGHT);
    let node = &scene.node;
    let write = |path: &str, size: usize| {
        node.call_as(&scene.agent, "fs.write", json!({"path": path, "content": "x".repeat(size)}))
    };
    let refused = write("large.txt", 64 << 10);
    assert_eq!((refused.status, refused.violation().as_str()), (413, "RequestTooLarge"), "{}", refused.body);
    assert_eq!(refused.json()["error"]["data"]["rule"], "spec.approvals.max_arguments");
    assert_eq!(node.request("GET", "/v1/approvals", Some(&node.token), None).json()["total"], 0);
    // The same call runs where nobody has to be asked.
    assert_eq!(
        node.call("fs.write", json!({"path": "large.txt", "content": "x".repeat(64 << 10)})).status,
        200
    );

    let first = write("a.txt", 60 << 10);
    assert_eq!(first.status, 202, "{}", first.body);
    let id = first.json()["approval"]["id"].as_str().unwrap().to_owned();
    assert_eq!(write("b.txt", 60 << 10).status, 202);
    let full = write("c.txt", 60 << 10);
    assert_eq!((full.status, full.violation().as_str()), (503, "Overloaded"), "{}", full.body);
    assert_eq!(full.json()["error"]["data"]["rule"], "spec.approvals.max_pending_bytes_per_caller");

    for token in [&node.token, &scene.agent] {
        let list = node.request("GET", "/v1/approvals", Some(token), None);
        assert!(list.body.len() < 8000, "{} bytes", list.body.len());
        let row = &list.json()["approvals"][0];
        assert_eq!(
            (&row["arguments_cut"], &row["arguments"]["path"]),
            (&json!(true), &json!("b.txt")),
            "{row}"
        );
        assert_eq!(row["arguments"]["content"]["bytes"], 60 << 10, "{row}");
        assert!(row["arguments_bytes"].as_u64().unwrap() > 60 << 10 && row.get("preview").is_none(), "{row}");
    }
    let whole = scene.get(&node.token, &id).json();
    assert_eq!(whole["arguments"]["content"].as_str().map(str::len), Some(60 << 10));
    assert_eq!((&whole["arguments_cut"], &whole["preview"]["kind"]), (&json!(false), &json!("diff")));

    // What is over keeps no more than lists show, and what ran was the whole.
    scene.approve(&id);
    assert_eq!(scene.ended(&id)["state"], "executed");
    assert_eq!(scene.content("a.txt").map(|text| text.len()), Some(60 << 10));
    let over = scene.get(&node.token, &id);
    assert!(over.body.len() < 4000, "{} bytes", over.body.len());
    assert_eq!(over.json()["arguments"]["content"]["bytes"], 60 << 10);
    assert_eq!(over.json()["arguments_sha256"], whole["arguments_sha256"]);
}

#[test]
fn one_caller_takes_nobody_elses_place() {
    let scene = Scene::with(TIGHT);
    let node = &scene.node;
    (0..4).for_each(|number| drop(scene.parked(&format!("f{number}"))));
    let full = scene.write("f4");
    assert_eq!((full.status, full.violation().as_str()), (503, "Overloaded"), "{}", full.body);
    assert_eq!(full.json()["error"]["data"]["rule"], "spec.approvals.max_pending_per_caller");
    // Another token of the very same user has its own share, until the tenant's is used up.
    let other = token(node, json!({"context": "careful", "user": "ann"}));
    let write = |number: usize| {
        node.call_as(&other, "fs.write", json!({"path": format!("g{number}"), "content": ""}))
    };
    assert_eq!((write(0).status, write(1).status), (202, 202));
    let full = write(2);
    assert_eq!(full.json()["error"]["data"]["rule"], "spec.approvals.max_pending", "{}", full.body);
}

#[test]
fn lists_go_on_where_they_ended() {
    let scene = Scene::new();
    let node = &scene.node;
    let mut parked: Vec<String> = (0..5).map(|number| scene.parked(&format!("f{number}"))).collect();
    parked.reverse();
    for token in [&node.token, &scene.agent] {
        let mut seen: Vec<String> = Vec::new();
        let mut path = "/v1/approvals?limit=2".to_owned();
        loop {
            let page = node.request("GET", &path, Some(token), None).json();
            let rows = page["approvals"].as_array().unwrap();
            assert_eq!(page["total"], rows.len());
            seen.extend(rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()));
            let Some(next) = page["next"].as_str() else { break };
            path = format!("/v1/approvals?limit=2&after={next}");
        }
        assert_eq!(seen, parked);
    }
    let lost = node.request("GET", "/v1/approvals?after=approval:none", Some(&node.token), None);
    assert_eq!((lost.status, lost.violation().as_str()), (400, "MalformedRequest"), "{}", lost.body);
    // One that is not there is a place in the list all the same.
    let gone = "/v1/approvals?after=approval:ffffffff-ffff-7fff-bfff-ffffffffffff";
    let gone = node.request("GET", gone, Some(&scene.agent), None);
    assert_eq!((gone.status, gone.json()["total"].as_u64()), (200, Some(5)), "{}", gone.body);
    let shown = node.cli(&["approvals", "list", "--limit", "2"]);
    let (table, more) = (crate::common::text(&shown.stdout), crate::common::text(&shown.stderr));
    assert!(table.contains(&parked[1]) && !table.contains(&parked[2]), "{table}");
    assert!(more.contains(&format!("aegis approvals list --after {}", parked[1])), "{more}");
    let rest = node.cli(&["approvals", "list", "--after", &parked[1]]);
    assert!(crate::common::text(&rest.stdout).contains(&parked[4]));
}

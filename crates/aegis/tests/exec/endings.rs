//! However a command ends, nothing of it is left.

use serde_json::{Value, json};

use super::{Scene, processes_with};
use crate::common::{data, read_answer, records, signal, wait_until};

#[test]
fn a_runaway_is_killed_with_all_it_started() {
    let scene = Scene::with("  exec: {default_timeout: 2s}");
    let result = scene.ran("trap '' TERM; (sleep 86401 &) ; while :; do :; done");
    assert_eq!(result["exit_code"], -1, "{result}");
    assert!(result["notice"].as_str().unwrap().contains("2s"), "{result}");
    wait_until(|| processes_with("sleep\u{0}86401").is_empty());
}

#[test]
fn past_the_ceiling_is_a_refusal() {
    let scene = Scene::with("  exec: {default_timeout: 1s, max_timeout: 1s}");
    let answer = scene.shell("sleep 30");
    assert_eq!(
        (answer.status, answer.violation().as_str()),
        (403, "ExecTimeoutCeilingExceeded"),
        "{}",
        answer.body
    );
    let asked = scene.node.call_as(
        &scene.agent,
        "tool.exec",
        json!({"command": "ls", "args": ["-a"], "timeoutMs": 300_000}),
    );
    let id = asked.json()["approval"]["id"].as_str().unwrap().to_owned();
    let approve = format!("/v1/approvals/{id}/approve");
    scene.node.request("POST", &approve, Some(&scene.node.token), Some(&json!({})));
    let ended = scene.node.request("GET", &format!("/v1/approvals/{id}?wait=30s"), Some(&scene.agent), None);
    assert!(ended.body.contains("ExecTimeoutCeilingExceeded"), "{}", ended.body);
}

#[test]
fn daemons_die_with_their_command() {
    let scene = Scene::new();
    let result = scene.ran("setsid sleep 86402 >/dev/null 2>&1 < /dev/null & disown; (setsid setsid sleep 86402 &); echo started");
    assert_eq!(result["stdout"], "started\n", "{result}");
    wait_until(|| processes_with("sleep\u{0}86402").is_empty());
}

#[test]
fn whoever_leaves_stops_the_command() {
    let scene = Scene::new();
    let arguments = json!({"command": "bash", "args": ["-c", "sleep 86403"]});
    let stream = scene.node.begin("cmd.run", &arguments, |body| body);
    wait_until(|| !processes_with("sleep\u{0}86403").is_empty());
    drop(stream);
    wait_until(|| processes_with("sleep\u{0}86403").is_empty());
}

#[test]
fn a_killed_node_leaves_no_orphan() {
    let scene = Scene::new();
    let arguments = json!({"command": "bash", "args": ["-c", "(setsid sleep 86404 &); sleep 86404"]});
    let _streams: Vec<_> = (0..3).map(|_| scene.node.begin("cmd.run", &arguments, |body| body)).collect();
    wait_until(|| processes_with("sleep\u{0}86404").len() >= 6);
    drop(scene.node.kill());
    wait_until(|| processes_with("sleep\u{0}86404").is_empty());
}

/// Calls, connections and the node share one time: a call that takes longer is answered that it does, and the node ends.
#[test]
fn a_stopping_node_ends_what_takes_too_long_and_says_so() {
    let scene = Scene::with("  limits: {drain_timeout: 1s}");
    let arguments = json!({"command": "bash", "args": ["-c", "sleep 86405"]});
    let mut stream = scene.node.begin("cmd.run", &arguments, |body| body);
    wait_until(|| !processes_with("sleep\u{0}86405").is_empty());
    signal(scene.node.pid(), "TERM");
    let answer = read_answer(&mut stream);
    assert_eq!((answer.status, answer.violation().as_str()), (504, "DeadlineExceeded"), "{}", answer.body);
    assert_eq!(answer.json()["error"]["data"]["rule"], "spec.limits.drain_timeout", "{}", answer.body);
    let (code, dir) = scene.node.ended();
    assert_eq!(code, Some(0));
    assert!(processes_with("sleep\u{0}86405").is_empty());
    let records = records(&data(dir.path()));
    let is_settled =
        |entry: &Value| entry["tool"] == "cmd.run" && entry["result"]["status"].as_str() != Some("unknown");
    assert!(records.iter().any(|record| is_settled(&record["entry"])), "{records:?}");
}

#[test]
fn a_stopping_node_answers_what_ends_in_time() {
    let scene = Scene::with("  limits: {drain_timeout: 10m}");
    let script = "touch begun; until [ -e go ]; do sleep 0.02; done; echo last";
    let arguments = json!({"command": "bash", "args": ["-c", script]});
    let mut stream = scene.node.begin("cmd.run", &arguments, |body| body);
    let workspace = scene.node.workspace();
    wait_until(|| workspace.join("begun").exists());
    signal(scene.node.pid(), "TERM");
    // It has heard: nobody else gets in.
    wait_until(|| std::net::TcpStream::connect(&scene.node.address).is_err());
    std::fs::write(workspace.join("go"), "").unwrap();
    assert_eq!(read_answer(&mut stream).result()["stdout"], "last\n");
    assert_eq!(scene.node.ended().0, Some(0));
}

#[test]
fn bombs_end_in_their_sandbox() {
    let scene = Scene::with(
        "  exec: {default_timeout: 5s, limits: {memory: 128Mi, processes: 64, scratch: 16Mi, file_size: 8Mi}}",
    );
    // However the bomb ends, the node answers, and goes on.
    let answer = scene.shell(":(){ :|:& };:; sleep 1; echo over");
    assert_eq!(answer.status, 200, "{}", answer.body);
    let memory = scene.shell("a=$(head -c 1G /dev/zero | tr '\\0' x); echo ${#a}");
    assert_eq!(memory.status, 200, "{}", memory.body);
    assert_ne!(memory.result()["stdout"], "1073741824\n", "{}", memory.body);
    let disk = scene.ran("head -c 64M /dev/zero > /tmp/fill; head -c 64M /dev/zero > /workspace/fill; stat -c %s /tmp/fill /workspace/fill");
    let sizes = disk["stdout"].as_str().unwrap().lines().map(|size| size.parse::<u64>().unwrap());
    assert!(sizes.max().unwrap() <= 16 << 20, "{disk}");
    assert_eq!(scene.ran("echo still here")["stdout"], "still here\n");
}

#[test]
fn two_hundred_at_once_are_all_answered() {
    let scene = Scene::with("  exec: {max_concurrent_per_caller: 4, max_concurrent: 8}");
    let arguments = json!({"command": "bash", "args": ["-c", "echo done"]});
    let answers: Vec<(u16, Value)> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..200)
            .map(|_| {
                scope.spawn(|| {
                    let answer = scene.node.call("cmd.run", arguments.clone());
                    (answer.status, answer.json())
                })
            })
            .collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    let ran = answers.iter().filter(|(status, _)| *status == 200).collect::<Vec<_>>();
    assert!(!ran.is_empty());
    assert!(ran.iter().all(|(_, answer)| answer["result"]["stdout"] == "done\n"), "{ran:?}");
    for (status, answer) in answers.iter().filter(|(status, _)| *status != 200) {
        let data = &answer["error"]["data"];
        assert_eq!((*status, &data["violation"]), (403, &json!("ConcurrentExecLimitExceeded")), "{answer}");
        assert!(data["rule"].as_str().unwrap().starts_with("spec.exec.max_concurrent"), "{answer}");
    }
    // No place was lost.
    for _ in 0..8 {
        assert_eq!(scene.ran("echo again")["stdout"], "again\n");
    }
}

#[test]
fn ten_gigabytes_of_output_cost_no_memory() {
    // As much time as it takes: what is looked at is memory, and other tests may have the cores.
    let scene = Scene::with("  exec: {default_timeout: 1800s, max_timeout: 1800s}");
    let resident = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", scene.node.pid())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim().to_owned();
        peak.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    scene.ran("echo warm");
    let before = resident();
    // Of all this, half a megabyte is kept.
    let script = "head -c 10G /dev/zero; echo; echo the end; head -c 64M /dev/zero >&2";
    let arguments = json!({"command": "bash", "args": ["-c", script]});
    let mut stream = scene.node.begin("cmd.run", &arguments, |body| body);
    stream.set_read_timeout(None).unwrap();
    let result = read_answer(&mut stream).result();
    assert_eq!((&result["exit_code"], &result["truncated"]), (&json!(0), &json!(true)));
    assert!(result["stdout"].as_str().unwrap().ends_with("\0\0\0\nthe end\n"));
    let size = (10 << 30) + "\nthe end\n".len() + (64 << 20);
    assert!(result["notice"].as_str().unwrap().contains(&size.to_string()), "{}", result["notice"]);
    assert_eq!(result["stdout"].as_str().unwrap().len(), 256 << 10);
    assert_eq!(result["stderr"].as_str().unwrap().len(), 256 << 10);
    assert!(resident() < before + (64 << 10), "{before} KiB before, {} KiB after", resident());
}

/// Empty files take no space, and a volume's limit is one of files all the same.
#[test]
fn a_flood_of_empty_files_ends_at_the_quota() {
    let scene = Scene::with("  storage: {workspace_size_limit: 32Mi}");
    if rustix::fs::statvfs(scene.node.data().as_path()).unwrap().f_files == 0 {
        // The file system counts no files, so nobody can look while the command runs.
        return;
    }
    let answer = scene.shell("mkdir d; cd d; for n in {1..60000}; do : > $n; done; sleep 50; echo all");
    assert_eq!(answer.result()["error_kind"], "VolumeQuotaExceeded", "{}", answer.body);
    let again = scene.shell("true");
    assert_eq!(again.result()["error_kind"], "VolumeQuotaExceeded", "{}", again.body);
}

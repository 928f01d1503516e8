//! The network is off, or goes through the node.

use serde_json::json;

use super::Scene;
use crate::common::web_server;

/// Prints what comes of connecting to each address.
const TRY: &str = "
import socket, sys
for target in sys.argv[1:]:
    host, port = target.rsplit(':', 1)
    try:
        with socket.create_connection((host, int(port)), timeout=2) as s:
            print(target, 'reached')
    except OSError as error:
        print(target, 'failed')
";

fn context(domains: &str) -> String {
    format!(
        "  egress: {{allow_private: [127.0.0.1]}}\n  security_contexts:\n    - name: online\n      capabilities:\n        \
         - {{tool_pattern: cmd.run, command_allowlist: [python3, bash], domain_allowlist: [{domains}]}}"
    )
}

const FETCH: &str = "
import sys, urllib.request, urllib.error
for url in sys.argv[1:]:
    try:
        print(urllib.request.urlopen(url, timeout=10).read().decode().strip())
    except urllib.error.HTTPError as error:
        print('refused', error.code, error.read().decode().strip())
    except OSError as error:
        print('failed', error)
";

#[test]
fn off_means_off() {
    let scene = Scene::with("  egress: {allow_private: [127.0.0.1]}");
    let web = web_server(|_| (200, "text/plain", "hello".into()));
    let node = scene.node.address.clone();
    let result = scene.run(
        "python3",
        &[
            "-c",
            TRY,
            &web,
            &node,
            "169.254.169.254:80",
            "[::1]:80",
            "127.0.0.1:3128",
            "1.1.1.1:53",
            "localhost:80",
        ],
    );
    let result = result.result();
    assert!(!result["stdout"].as_str().unwrap().contains("reached"), "{result}");
    let names = "import socket\ntry:\n  print(socket.getaddrinfo('example.org', 80))\nexcept OSError as e:\n  print('no name')";
    assert_eq!(scene.run("python3", &["-c", names]).result()["stdout"], "no name\n");
    let raw = "import socket\nfor f, t in ((socket.AF_INET, socket.SOCK_RAW), (socket.AF_PACKET, socket.SOCK_RAW)):\n  try:\n    socket.socket(f, t, 1); print('raw')\n  except OSError:\n    pass";
    assert_eq!(scene.run("python3", &["-c", raw]).result()["stdout"], "");
}

#[test]
fn granted_domains_are_reached_through_the_proxy_and_recorded() {
    let scene = Scene::acting_as("online", &context("127.0.0.1"));
    let web = web_server(|path| (200, "text/plain", format!("hello from {path}")));
    let port = web.rsplit(':').next().unwrap();
    let answer = scene.run(
        "python3",
        &[
            "-c",
            FETCH,
            &format!("http://{web}/page"),
            &format!("http://localhost:{port}/other"),
            "http://169.254.169.254/latest",
        ],
    );
    let result = answer.result();
    let lines: Vec<&str> = result["stdout"].as_str().unwrap().lines().collect();
    assert_eq!(lines[0], "hello from /page", "{result}");
    assert!(lines[1].starts_with("refused 403") && lines[1].contains("domain_allowlist"), "{result}");
    assert!(lines[2].starts_with("refused 403"), "{result}");
    // Around the proxy there is nothing.
    let direct = scene.run("python3", &["-c", TRY, &web]).result();
    assert!(direct["stdout"].as_str().unwrap().contains("failed"), "{direct}");
    let records = scene.node.records();
    let out: Vec<_> = records
        .iter()
        .map(|record| &record["entry"])
        .filter(|entry| entry["action"].as_str().is_some_and(|action| action.starts_with("egress-")))
        .collect();
    assert_eq!(out.len(), 3, "{out:?}");
    assert_eq!(
        (&out[0]["action"], &out[0]["detail"]["host"]),
        (&json!("egress-connected"), &json!("127.0.0.1"))
    );
    assert_eq!(out[1]["action"], "egress-refused");
    assert_eq!(out[0]["caller"]["context"], "online");
    assert!(out[0]["detail"]["call"].is_string());
}

#[test]
fn a_tunnel_carries_bytes_both_ways() {
    let scene = Scene::acting_as("online", &context("127.0.0.1"));
    let web = web_server(|_| (200, "text/plain", "through the tunnel".into()));
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT {web} HTTP/1.1\\r\\n\\r\\n' >&3; read -r line <&3; read -r blank <&3; \
         printf 'GET / HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n' >&3; cat <&3; echo; echo \"$line\""
    );
    let result = scene.run("bash", &["-c", &script]).result();
    let text = result["stdout"].as_str().unwrap();
    assert!(text.contains("through the tunnel") && text.contains("200 Connection established"), "{result}");
}

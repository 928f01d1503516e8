//! Network: none, or one way out that the node holds.

use aegis_sandbox::{Backend, Exit, Launch, Network, PROXY_PORT};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{finish, run, says, sh};

fn bash(script: &str) -> Launch {
    let mut launch = sh(script);
    launch.program = "bash".into();
    launch
}

pub(crate) async fn none_has_loopback_only(backend: &dyn Backend) {
    let said =
        says(backend, sh("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; tail -n +2 /proc/net/route"))
            .await;
    assert_eq!(said, "lo");
    let outcome = run(backend, bash("exec 3<>/dev/tcp/192.0.2.1/80 && echo reached")).await;
    assert!(!outcome.out().contains("reached") && outcome.err().contains("unreachable"), "{outcome:?}");
}

pub(crate) async fn proxy_is_the_only_way(backend: &dyn Backend) {
    let mut launch = bash(&format!(
        "exec 3<>/dev/tcp/127.0.0.1/{PROXY_PORT}; echo hello >&3; read line <&3; echo \"got $line\"; \
         exec 4<>/dev/tcp/192.0.2.1/80 || echo unreachable"
    ));
    launch.network = Network::Proxy;
    let mut running = backend.launch(launch).await.unwrap();
    let proxy = running.proxy.take().unwrap();
    let serve = async {
        let (mut stream, peer) = proxy.accept().await.unwrap();
        assert!(peer.ip().is_loopback());
        let mut line = [0; 6];
        stream.read_exact(&mut line).await.unwrap();
        assert_eq!(&line, b"hello\n");
        stream.write_all(b"answer\n").await.unwrap();
    };
    let (outcome, ()) = tokio::join!(finish(running), serve);
    assert_eq!(outcome.exit, Exit::Code(0), "{outcome:?}");
    assert_eq!(outcome.out(), "got answer\nunreachable");
}

/// Neither services of the host's loopback nor another sandbox's proxy are there.
pub(crate) async fn loopback_is_private(backend: &dyn Backend) {
    let service = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = service.local_addr().unwrap().port();
    let mut with_proxy = sh("sleep 30");
    with_proxy.network = Network::Proxy;
    let other = backend.launch(with_proxy).await.unwrap();
    // The same question from outside is answered.
    assert!(tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok());
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached; exec 3<>/dev/tcp/127.0.0.1/{PROXY_PORT} && echo reached"
    );
    let outcome = run(backend, bash(&script)).await;
    assert!(!outcome.out().contains("reached"), "{outcome:?}");
    for port in [port, PROXY_PORT] {
        assert!(outcome.err().contains(&format!("/{port}: Connection refused")), "{outcome:?}");
    }
    drop(other);
}

use std::{fs::File, io::Write, net::SocketAddr, os::unix::fs::OpenOptionsExt, path::Path, sync::Arc};

use aegis_doors::serve::serve;
use anyhow::{Context, bail};
use serde_json::{Map, json};
use tokio::net::{TcpListener, TcpSocket};

use crate::{
    cli::{Global, Up},
    known,
    locate::{self, NodeFile},
    node::{Node, VERSION},
    output::{Ending, json_line, say},
    reload::{self, Watched},
    reload_policies,
    signals::Signals,
};

pub(super) async fn run(global: &Global, command: &Up) -> anyhow::Result<Ending> {
    super::log("warn,aegis=info,aegis_stores=info,aegis_plane=info");
    // Needed whatever the configuration says, so it is made while that is read.
    tokio::task::spawn_blocking(aegis_gates::policy::warm_up);
    let data = locate::data_dir(global)?;
    let file = locate::config_file(global)?;
    let watched = Watched::read(file.clone(), data.join("config.yaml"))?;
    let mut config = watched.config.clone();
    if let Some(listen) = command.listen {
        config.spec.network.listen = listen;
    }
    let listen = config.spec.network.listen;
    refuse_open_address(listen)?;
    let node = Node::open(&data, file, config).await?;
    let listener = bind(listen).with_context(|| {
        format!("can't listen on {listen}; is another program there? choose another with --listen")
    })?;
    let address = listener.local_addr()?;
    let exports = node
        .doors
        .volumes
        .bind()
        .await
        .context("can't listen for NFS; is another program there? see spec.storage.nfs.listen")?;
    let node_file = NodeFile {
        pid: std::process::id(),
        address: address.to_string(),
        version: VERSION.into(),
        chosen: command.listen.is_some(),
    };
    let mut detail = Map::new();
    detail.insert("version".into(), VERSION.into());
    detail.insert("address".into(), address.to_string().into());
    node.mention("started", detail).await?;
    let signals = Signals::listen()?;
    write_node_file(&node.data.node_file(), &node_file)?;
    announce(global, &node, address);
    node.start_servers().await;
    known::warn_of_doubts(&node.doors).await;

    let watcher = tokio::spawn(reload::watch(Arc::clone(&node.doors), Arc::clone(&node.config), watched));
    let policy_watcher = tokio::spawn(reload_policies::watch(
        Arc::clone(&node.doors),
        Arc::clone(&node.config),
        node.policies.clone(),
    ));
    let doors = Arc::clone(&node.doors);
    let server = tokio::spawn(async move { serve(listener, &doors).await });
    let exports = exports.map(|listener| {
        let (volumes, stopping) = (Arc::clone(&node.doors.volumes), node.doors.stopping.clone());
        tokio::spawn(volumes.serve(listener, stopping))
    });
    signals.first().await;
    tracing::info!("stopping: calls in work may finish");
    node.doors.plane.begin_drain();
    node.doors.stopping.cancel();
    let _ = server.await;
    if let Some(exports) = exports {
        let _ = exports.await;
    }
    let _ = watcher.await;
    let _ = policy_watcher.await;
    let _ = std::fs::remove_file(node.data.node_file());
    node.doors.plane.drain().await;
    let noted = node.note("stopped", Map::new()).await;
    node.close().await;
    noted.map(|()| Ending::Done)
}

/// A thousand clients may come at the same moment; the usual queue of 128 would turn most of them away.
fn bind(listen: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if listen.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(listen)?;
    socket.listen(4096)
}

/// Says where the node is, for commands on this machine. It means nothing after a crash, so it needs no sync.
fn write_node_file(file: &Path, node: &NodeFile) -> anyhow::Result<()> {
    let mut opened = File::options().write(true).create_new(true).mode(0o600).open(file)?;
    opened.write_all(serde_json::to_string(node)?.as_bytes())?;
    Ok(())
}

/// Tokens would cross the network in the clear.
fn refuse_open_address(listen: SocketAddr) -> anyhow::Result<()> {
    if listen.ip().is_loopback() {
        return Ok(());
    }
    bail!(
        "{listen} can be reached from other machines and this node speaks no TLS: listen on 127.0.0.1 and put a \
         TLS proxy in front (its name goes into spec.network.allowed_hosts)"
    )
}

fn announce(global: &Global, node: &Node, address: SocketAddr) {
    let url = format!("http://{address}");
    let token = node.data.operator_token();
    if global.json {
        json_line(&json!({
            "ready": true,
            "version": VERSION,
            "url": url,
            "mcp": format!("{url}/mcp"),
            "data": node.data.root(),
            "operator_token_file": token,
            "pid": std::process::id(),
        }));
    } else {
        // A command that does not find this node would start one of its own.
        let data =
            global.data.as_ref().map_or_else(String::new, |data| format!(" --data {}", data.display()));
        say!(
            "aegis {VERSION} is ready: MCP at {url}/mcp (or spawn `aegis mcp{data}`), operator token in {}; \
             try `aegis call{data} fs.list '{{\"path\": \"/workspace\"}}'`",
            token.display()
        );
    }
}

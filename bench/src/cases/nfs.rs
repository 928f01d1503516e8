//! 64 MiB over NFS, read and written in pieces of 1 MiB with a few under way at a time, against the same file through the
//! file tools in one call.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    process::Command,
    time::Instant,
};

use aegis_nfs::xdr::{Decoder, Encoder};
use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use crate::{
    load::Client,
    node::{Node, Site, command_line},
    rounds::Rounds,
    table::{Figure, Goal, Row, time},
    tokens, wire,
    workplace::Workplace,
};

pub(super) const NAME: &str = "nfs";
const SIZE: usize = 64 << 20;
const PIECE: usize = 1 << 20;
/// Requests under way, as a kernel's read-ahead and write-back have them.
const UNDER_WAY: usize = 8;

pub(super) fn measure(place: &Workplace) -> anyhow::Result<Vec<Row>> {
    let storage = json!({"max_read_bytes": "256Mi", "nfs": {"enabled": true, "listen": "127.0.0.1:0"}});
    let spec = json!({
        "storage": storage,
        "network": {"max_body": "256Mi"},
        "limits": {"max_response": "256Mi"},
    });
    let site = Site::configured(place, NAME, &spec)?;
    let token = tokens::make(&site.data(), 1)?.remove(0);
    let node = site.start(place)?;
    let made = exported(&mut command_line(place, &site.data()))?;
    let text = "0123456789abcde\n".repeat(SIZE / 16);

    let write = Rounds::take(
        place.rounds(),
        vec![
            Box::new(|| timed(|| Mounted::open(&made)?.write(text.as_bytes()))),
            Box::new(|| {
                timed(|| direct(&node, &token, "fs.write", &json!({"path": "direct", "content": text})))
            }),
        ],
    )?;
    let read = Rounds::take(
        place.rounds(),
        vec![
            Box::new(|| timed(|| Mounted::open(&made)?.read())),
            Box::new(|| timed(|| direct(&node, &token, "fs.read", &json!({"path": "direct"})))),
        ],
    )?;
    node.server.stop()?;
    site.remove()?;
    // Times, so the ratio of speeds is the other way round.
    let row = |what: &str, rounds: &Rounds| Row {
        case: NAME,
        what: format!("{what} 64 MiB, against the file tool"),
        ours: time(rounds.median(0)),
        yardstick: time(rounds.median(1)),
        figure: Figure::Ratio(rounds.ratio(1, 0)),
        goal: Goal::AtLeast(0.3),
    };
    Ok(vec![row("write", &write), row("read", &read)])
}

fn timed(deed: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let start = Instant::now();
    deed()?;
    Ok(start.elapsed().as_secs_f64())
}

fn direct(node: &Node, token: &str, tool: &str, arguments: &Value) -> anyhow::Result<()> {
    Client::open(node.address)?.call(&wire::rest_call(node.address, token, tool, arguments))?;
    Ok(())
}

/// Where to mount, and what.
struct Made {
    address: SocketAddr,
    path: String,
}

fn exported(command: &mut Command) -> anyhow::Result<Made> {
    let output = command.args(["volume", "export", "--context", "workspace"]).output()?;
    ensure!(output.status.success(), "no export: {}", String::from_utf8_lossy(&output.stderr));
    let made: Value = serde_json::from_slice(&output.stdout)?;
    let text = |member: &str| made[member].as_str().with_context(|| format!("no {member}: {made}"));
    Ok(Made { address: text("address")?.parse()?, path: text("mount_path")?.to_owned() })
}

/// A client that knows as much NFS as it takes.
struct Mounted {
    stream: TcpStream,
    root: Vec<u8>,
    xid: u32,
}

impl Mounted {
    fn open(made: &Made) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(made.address)?;
        stream.set_nodelay(true)?;
        let mut mounted = Self { stream, root: Vec::new(), xid: 0 };
        mounted.send(100_005, 1, |a| {
            a.opaque(made.path.as_bytes());
        })?;
        mounted.root = mounted.receive()?.opaque(64)?.to_vec();
        Ok(mounted)
    }

    fn write(&mut self, content: &[u8]) -> anyhow::Result<()> {
        let root = self.root.clone();
        self.send(100_003, 8, |a| {
            // UNCHECKED, and emptied.
            a.opaque(&root).opaque(b"mounted").word(0);
            a.flag(false).flag(false).flag(false).flag(true).double(0).word(0).word(0);
        })?;
        let mut made = self.receive()?;
        ensure!(made.flag()?, "no handle");
        let file = made.opaque(64)?;
        let pieces: Vec<&[u8]> = content.chunks(PIECE).collect();
        self.pipelined(pieces.len(), |mounted, index| {
            let (offset, piece) = ((index * PIECE) as u64, pieces[index]);
            let count = u32::try_from(piece.len())?;
            mounted.send(100_003, 7, |a| {
                a.opaque(&file).double(offset).word(count).word(0).opaque(piece);
            })
        })?;
        self.send(100_003, 21, |a| {
            a.opaque(&file).double(0).word(0);
        })?;
        self.receive().map(drop)
    }

    fn read(&mut self) -> anyhow::Result<()> {
        let root = self.root.clone();
        self.send(100_003, 3, |a| {
            a.opaque(&root).opaque(b"mounted");
        })?;
        let file = self.receive()?.opaque(64)?;
        self.pipelined(SIZE / PIECE, |mounted, index| {
            let count = u32::try_from(PIECE)?;
            mounted.send(100_003, 6, |a| {
                a.opaque(&file).double((index * PIECE) as u64).word(count);
            })
        })
    }

    fn pipelined(
        &mut self,
        requests: usize,
        send: impl Fn(&mut Self, usize) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        for index in 0..requests {
            if index >= UNDER_WAY {
                self.receive()?;
            }
            send(self, index)?;
        }
        for _ in 0..requests.min(UNDER_WAY) {
            self.receive()?;
        }
        Ok(())
    }

    fn send(
        &mut self,
        program: u32,
        procedure: u32,
        arguments: impl FnOnce(&mut Encoder),
    ) -> anyhow::Result<()> {
        self.xid += 1;
        let mut call = Encoder::default();
        call.word(self.xid).word(0).word(2).word(program).word(3).word(procedure);
        call.word(0).word(0).word(0).word(0);
        arguments(&mut call);
        let record = call.into_bytes();
        let length = u32::try_from(record.len())? | 1 << 31;
        self.stream.write_all(&length.to_be_bytes())?;
        self.stream.write_all(&record)?;
        Ok(())
    }

    /// The result of the next answer that comes, after its status.
    fn receive(&mut self) -> anyhow::Result<Decoder> {
        let mut header = [0; 4];
        self.stream.read_exact(&mut header)?;
        let length = usize::try_from(u32::from_be_bytes(header) & !(1 << 31))?;
        ensure!(length <= 2 * PIECE, "an answer of {length} bytes");
        let mut record = vec![0; length];
        self.stream.read_exact(&mut record)?;
        let mut answer = Decoder::new(record.into());
        // xid, reply, accepted, no verifier of no length, success
        for _ in 0..6 {
            answer.word()?;
        }
        match answer.word()? {
            0 => Ok(answer),
            status => bail!("NFS says {status}"),
        }
    }
}

//! A command from its start to its end: output, questions, the way out, and every reason to stop it.

use std::time::Duration;

use aegis_sandbox::{Exit, Running};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    net::TcpListener,
    sync::mpsc,
    time::Instant,
};

use super::{
    disk::{self, Overrun},
    handles::Question,
    launch::Writable,
    live::{Live, Stream},
    output::{Output, Tail},
    proxy::{Pace, Proxy},
};
use crate::{egress::Egress, tool::Run};

const CHUNK: usize = 64 << 10;
/// The sandbox ends a command at its time. This much later the node does it, come what may.
const GRACE: Duration = Duration::from_secs(5);
/// For what is still in the pipes when nothing runs any more.
const DRAIN: Duration = Duration::from_secs(2);

pub(super) struct Watch<'a, 'r> {
    pub(super) run: &'a Run<'r>,
    pub(super) egress: &'a Egress,
    /// Of output, in bytes.
    pub(super) limit: usize,
    pub(super) timeout: Duration,
    pub(super) volumes: &'a [Writable],
}

pub(super) struct Watched {
    pub(super) ended: Ended,
    pub(super) output: Output,
}

#[derive(Debug)]
pub(super) enum Ended {
    Exit(Exit),
    /// Nobody waits for it any more.
    Cancelled,
    DiskFull(Overrun),
}

impl Watch<'_, '_> {
    /// Reads, answers and waits until nothing of the sandbox is left.
    pub(super) async fn until_the_end(
        &self,
        running: &mut Running,
        mut questions: mpsc::Receiver<Question>,
    ) -> Watched {
        let (mut stdout, mut stderr) = (running.stdout.take(), running.stderr.take());
        let (mut out, mut err) = (Tail::new(self.limit), Tail::new(self.limit));
        let (mut out_chunk, mut err_chunk) = (vec![0; CHUNK], vec![0; CHUNK]);
        let mut live = Live::new(self.run.listener());
        let door = running.proxy.take();
        let mut way_out = std::pin::pin!(self.way_out(door.as_ref()));
        let volumes = self.volumes.iter().map(|writable| writable.volume.clone()).collect();
        let mut overrun = std::pin::pin!(disk::overrun(volumes));
        let mut last_call = Instant::now() + self.timeout + GRACE;
        let (mut exit, mut stopped) = (None, None);
        while exit.is_none() || stdout.is_some() || stderr.is_some() {
            let due = live.due();
            tokio::select! {
                // In no order: a command that never stops printing must not keep its own end from being seen.
                read = some_of(&mut stdout, &mut out_chunk) => match read {
                    Some(count) => {
                        out.push(&out_chunk[..count]);
                        live.push(Stream::Stdout, &out_chunk[..count]);
                    }
                    None => stdout = None,
                },
                read = some_of(&mut stderr, &mut err_chunk) => match read {
                    Some(count) => {
                        err.push(&err_chunk[..count]);
                        live.push(Stream::Stderr, &err_chunk[..count]);
                    }
                    None => stderr = None,
                },
                ended = running.wait(), if exit.is_none() => {
                    exit = Some(ended);
                    last_call = Instant::now() + DRAIN;
                }
                Some(question) = questions.recv() => answer(running, question),
                () = at(due) => live.flush(),
                () = &mut way_out, if exit.is_none() => {}
                over = &mut overrun, if exit.is_none() && stopped.is_none() => {
                    stopped = Some(Ended::DiskFull(over));
                    running.kill();
                }
                () = self.run.cancel.cancelled(), if exit.is_none() && stopped.is_none() => {
                    stopped = Some(Ended::Cancelled);
                    running.kill();
                }
                () = tokio::time::sleep_until(last_call) => {
                    if exit.is_some() {
                        break;
                    }
                    running.kill();
                    stopped = stopped.or(Some(Ended::Exit(Exit::TimedOut)));
                    // Killing is done by the kernel; were it not, there would be nothing left to try.
                    exit = tokio::time::timeout(GRACE, running.wait()).await.ok().or(Some(Exit::TimedOut));
                    last_call = Instant::now() + DRAIN;
                }
            }
        }
        live.flush();
        let ended = stopped.or(exit.map(Ended::Exit)).unwrap_or(Ended::Cancelled);
        Watched { ended, output: Output::of(out, err, self.limit) }
    }

    /// Never ends by itself.
    async fn way_out(&self, inside: Option<&TcpListener>) {
        if let Some(inside) = inside {
            let grant = self.run.permit.limits();
            let listener = self.run.listener();
            Proxy { egress: self.egress, grant, listener, pace: Pace::InAll }.serve(inside).await;
        }
        std::future::pending::<()>().await;
    }
}

/// What a stream has, or nothing at its end.
async fn some_of(stream: &mut Option<impl AsyncRead + Unpin>, chunk: &mut [u8]) -> Option<usize> {
    match stream {
        Some(stream) => stream.read(chunk).await.ok().filter(|count| *count > 0),
        None => std::future::pending().await,
    }
}

async fn at(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

fn answer(running: &Running, question: Question) {
    // Who asked may have left.
    match question {
        Question::Processes(answer) => {
            let census = running.census();
            drop(tokio::task::spawn_blocking(move || drop(answer.send(census()))));
        }
        Question::Signal(pid, signal, answer) => drop(answer.send(running.signal_process(pid, signal))),
    }
}

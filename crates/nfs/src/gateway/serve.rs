//! Connections: requests are read one after the other and answered as they are done.

use std::{io, sync::Arc, time::Duration};

use crate::{
    mount3, nfs3, record,
    rpc::{self, Accepted, NoCall},
    xdr::Encoder,
};
use bytes::Bytes;
use tokio::{
    io::{AsyncWriteExt, BufReader, BufWriter},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Semaphore, mpsc},
};
use tokio_util::sync::CancellationToken;

use super::Gateway;

/// Requests of one connection in work at once; its next ones wait in the socket.
const MOST_IN_WORK: usize = 64;
/// A client that sends nothing for so long is taken for gone. Kernels connect again by themselves.
const IDLE: Duration = Duration::from_secs(30 * 60);
/// One answer must be taken off our hands by then.
const WRITE_TIME: Duration = Duration::from_secs(60);

impl Gateway {
    /// Answers until `stopping`, and ends every export then.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, stopping: CancellationToken) {
        let places = Arc::new(Semaphore::new(self.config.max_connections as usize));
        let accepting = async {
            loop {
                let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let (gateway, stopping) = (Arc::clone(&self), stopping.clone());
                        tokio::spawn(async move {
                            let _place = place;
                            tokio::select! {
                                ended = gateway.converse(stream) => {
                                    if let Err(error) = ended {
                                        tracing::debug!(%error, "an NFS connection ended early");
                                    }
                                }
                                () = stopping.cancelled() => {}
                            }
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "an NFS connection could not be accepted");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        };
        let sweeping = tokio::spawn({
            let (gateway, stopping) = (Arc::clone(&self), stopping.clone());
            async move { gateway.sweep(&stopping).await }
        });
        tokio::select! {
            () = accepting => {}
            () = stopping.cancelled() => {}
        }
        // A record that is being written is written to its end.
        let _ = sweeping.await;
        self.close().await;
    }

    async fn converse(self: Arc<Self>, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let (reading, writing) = stream.into_split();
        let (answers, waiting) = mpsc::channel(MOST_IN_WORK);
        // Either end of the conversation ends all of it.
        tokio::select! {
            ended = self.listen_to(reading, answers) => ended,
            ended = send(writing, waiting) => ended,
        }
    }

    async fn listen_to(
        self: Arc<Self>,
        reading: OwnedReadHalf,
        answers: mpsc::Sender<Vec<u8>>,
    ) -> io::Result<()> {
        let mut reading = BufReader::with_capacity(256 << 10, reading);
        let in_work = Arc::new(Semaphore::new(MOST_IN_WORK));
        loop {
            let record = tokio::time::timeout(IDLE, record::read(&mut reading));
            let Ok(record) = record.await else { return Ok(()) };
            let Some(record) = record? else { break };
            let Ok(place) = Arc::clone(&in_work).acquire_owned().await else { break };
            let (gateway, answers) = (Arc::clone(&self), answers.clone());
            // It goes on, and is recorded, when the client hangs up.
            tokio::spawn(async move {
                let _place = place;
                if let Some(answer) = gateway.answer(record).await {
                    // Nobody reads any more when the connection is gone.
                    let _ = answers.send(answer).await;
                }
            });
        }
        // The client has said all it had to say; what is in work is still answered.
        let all = u32::try_from(MOST_IN_WORK).unwrap_or(u32::MAX);
        let _ = tokio::time::timeout(WRITE_TIME, in_work.acquire_many(all)).await;
        drop(answers);
        std::future::pending().await
    }

    /// The whole answer to one record, where one can be given.
    pub(super) async fn answer(&self, record: Bytes) -> Option<Vec<u8>> {
        let call = match rpc::Call::parse(record) {
            Ok(call) => call,
            Err(NoCall::Refused(answer)) => return Some(answer),
            Err(NoCall::Unanswerable) => return None,
        };
        let refused = |how| Some(rpc::accepted(call.xid, how, 0).into_bytes());
        match (call.program, call.version) {
            (nfs3::PROGRAM, nfs3::VERSION) => {
                let Some(procedure) = nfs3::Procedure::of(call.procedure) else {
                    return refused(Accepted::NoSuchProcedure);
                };
                let Ok(request) = nfs3::Call::parse(procedure, call.arguments) else {
                    return refused(Accepted::GarbageArguments);
                };
                Some(match Box::pin(self.nfs(request)).await {
                    Ok(reply) => {
                        let mut answer = rpc::accepted(call.xid, Accepted::Success, reply.room());
                        reply.write(&mut answer);
                        answer.into_bytes()
                    }
                    Err(status) => {
                        let mut answer = rpc::accepted(call.xid, Accepted::Success, 0);
                        nfs3::failed(&mut answer, procedure, status);
                        answer.into_bytes()
                    }
                })
            }
            (mount3::PROGRAM, mount3::VERSION) => match mount3::Call::parse(call.procedure, call.arguments) {
                Err(_) => refused(Accepted::GarbageArguments),
                Ok(None) => refused(Accepted::NoSuchProcedure),
                Ok(Some(request)) => {
                    let mut answer = rpc::accepted(call.xid, Accepted::Success, 128);
                    self.mount_answer(request, &mut answer).await;
                    Some(answer.into_bytes())
                }
            },
            (nfs3::PROGRAM | mount3::PROGRAM, _) => refused(Accepted::OtherVersion(3, 3)),
            _ => refused(Accepted::NoSuchProgram),
        }
    }

    async fn mount_answer(&self, request: mount3::Call, answer: &mut Encoder) {
        match request {
            mount3::Call::Null | mount3::Call::Unmount | mount3::Call::UnmountAll => {}
            mount3::Call::Dump | mount3::Call::Export => mount3::nothing_to_list(answer),
            mount3::Call::Mount(path) => {
                let mounted = self.mount(&path).await;
                mount3::mounted(answer, mounted.as_deref().map_err(|status| *status));
            }
        }
    }
}

async fn send(writing: OwnedWriteHalf, mut waiting: mpsc::Receiver<Vec<u8>>) -> io::Result<()> {
    let mut writing = BufWriter::with_capacity(64 << 10, writing);
    while let Some(answer) = waiting.recv().await {
        let sent = async {
            record::write(&mut writing, &answer).await?;
            // More may be ready; then one packet does for all.
            if waiting.is_empty() { writing.flush().await } else { Ok(()) }
        };
        tokio::time::timeout(WRITE_TIME, sent).await.map_err(|_| io::ErrorKind::TimedOut)??;
    }
    writing.shutdown().await
}

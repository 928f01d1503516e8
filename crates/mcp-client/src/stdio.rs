//! A child process on its pipes: a task that writes, one that reads, one that listens to its complaints, and one that
//! sees it off.

use std::{process::Stdio, sync::Arc, time::Duration};

use bytes::Bytes;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    process::Child,
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    task::JoinHandle,
    time::Instant,
};

use crate::{
    command::Command,
    error::Error,
    handler::Handler,
    handshake::Identity,
    hosted::{Hosted, Keeper},
    limits::Limits,
    lines::{Line, Lines},
    message,
    shared::{Shared, Wire},
};

/// Messages that wait to be written. Whoever would add to a full queue waits.
const QUEUE: usize = 256;
/// Small messages that are ready together leave in one write.
const BATCH: usize = 64 << 10;
/// Between the end of a child and the end of its output, whichever comes first.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Between two looks at a child where the kernel does not tell of its end.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

pub(crate) fn spawn(
    command: &Command,
    identity: &Identity,
    limits: &Limits,
    handler: &Arc<dyn Handler>,
) -> Result<Arc<Shared>, Error> {
    let failed =
        |reason: String| Error::Start { program: command.program.as_str().into(), reason: reason.into() };
    let mut child = tokio::process::Command::new(&command.program);
    child
        .args(&command.args)
        .env_clear()
        .envs(command.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        // What it starts itself goes when it goes.
        .process_group(0);
    if let Some(directory) = &command.directory {
        child.current_dir(directory);
    }
    let mut child = child.spawn().map_err(|error| failed(error.to_string()))?;
    let (Some(input), Some(output), Some(complaints)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(failed("it has no pipes".into()));
    };
    let (shared, reader) = open(input, output, identity, limits, handler);
    if let Some(pid) = child.id() {
        let _ = shared.pid.set(pid);
    }
    let listener = tokio::spawn(listen(complaints, Arc::clone(&shared)));
    tokio::spawn(tend(child, reader, listener, Arc::clone(&shared)));
    Ok(shared)
}

/// Takes the pipes of a program that someone else looks after.
pub(crate) fn host(
    program: Hosted,
    identity: &Identity,
    limits: &Limits,
    handler: &Arc<dyn Handler>,
) -> Arc<Shared> {
    let Hosted { pid, input, output, complaints, keeper } = program;
    let (shared, reader) = open(input, output, identity, limits, handler);
    let _ = shared.pid.set(pid);
    let listener = tokio::spawn(listen(complaints, Arc::clone(&shared)));
    tokio::spawn(attend(keeper, reader, listener, Arc::clone(&shared)));
    shared
}

fn open(
    input: impl AsyncWrite + Send + Unpin + 'static,
    output: impl AsyncRead + Send + Unpin + 'static,
    identity: &Identity,
    limits: &Limits,
    handler: &Arc<dyn Handler>,
) -> (Arc<Shared>, JoinHandle<()>) {
    let (queue, queued) = mpsc::channel(QUEUE);
    let shared = Shared::new(Wire::Pipe(queue), identity.clone(), limits.clone(), Arc::clone(handler));
    tokio::spawn(write(input, queued, Arc::clone(&shared)));
    let reader = tokio::spawn(read(output, Arc::clone(&shared)));
    (shared, reader)
}

async fn write(mut input: impl AsyncWrite + Unpin, mut queued: mpsc::Receiver<Bytes>, shared: Arc<Shared>) {
    let mut batch = Vec::new();
    loop {
        let next = tokio::select! {
            next = queued.recv() => next,
            () = shared.stopping.cancelled() => None,
        };
        let Some(first) = next else { return };
        batch.clear();
        let mut next = Some(first);
        while let Some(message) = next {
            batch.extend_from_slice(&message);
            batch.push(b'\n');
            next = if batch.len() < BATCH { queued.try_recv().ok() } else { None };
        }
        let written = async {
            input.write_all(&batch).await?;
            input.flush().await
        };
        tokio::select! {
            written = written => if let Err(error) = written {
                // Its exit says more, and is noticed where its output ends.
                tracing::debug!(%error, "a server's input is closed");
                return;
            },
            () = shared.stopping.cancelled() => return,
        }
        if batch.capacity() > 4 * BATCH {
            batch = Vec::new();
        }
    }
}

async fn read(output: impl AsyncRead + Unpin, shared: Arc<Shared>) {
    let mut lines = Lines::new(output, shared.limits.message);
    loop {
        let line = tokio::select! {
            line = lines.next() => line,
            () = shared.stopping.cancelled() => return,
        };
        match line {
            Ok(Some(Line::Whole(line))) if line.trim_ascii().is_empty() => {}
            Ok(Some(Line::Whole(line))) => shared.take(&line, None),
            Ok(Some(Line::Head(head))) => {
                let limit = shared.limits.message;
                match message::id_in_head(&head) {
                    Some(id) if shared.pending.settle(id, Err(Error::TooLarge { limit })) => {}
                    // Nobody can tell whose answer that was.
                    _ => return shared.end(&Error::TooLarge { limit }),
                }
            }
            // How it ended is about to be known; then that is the reason.
            Ok(None) => return,
            Err(error) => return shared.end(&Error::protocol(error.to_string())),
        }
    }
}

async fn listen(complaints: impl AsyncRead + Unpin, shared: Arc<Shared>) {
    let mut lines = Lines::new(complaints, shared.limits.stderr_line);
    let (mut since, mut passed, mut dropped) = (Instant::now(), 0u32, 0u64);
    loop {
        let head = match lines.next().await {
            Ok(Some(Line::Whole(line))) => line.to_vec(),
            Ok(Some(Line::Head(head))) => head,
            // A line without end: what follows is read as lines again, since nobody may block the pipe.
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                tokio::task::consume_budget().await;
                continue;
            }
            Ok(None) | Err(_) => return,
        };
        if since.elapsed() >= Duration::from_secs(1) {
            if dropped > 0 {
                shared.handler.stderr(&format!("({dropped} lines more, not shown)"));
            }
            (since, passed, dropped) = (Instant::now(), 0, 0);
        }
        if passed >= shared.limits.stderr_lines {
            dropped += 1;
            // A flood must not keep this worker from everyone else.
            tokio::task::consume_budget().await;
            continue;
        }
        passed += 1;
        let line = String::from_utf8_lossy(&head);
        let line: String = line.chars().filter(|character| !character.is_control()).collect();
        shared.handler.stderr(&line);
    }
}

/// Notices when the child ends, and sees that it does once nobody needs it.
///
/// The child is reaped last: until then its number, which is that of its group, can't become another's.
async fn tend(mut child: Child, mut reader: JoinHandle<()>, listener: JoinHandle<()>, shared: Arc<Shared>) {
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let tell = |signal| {
        if let Some(group) = group {
            let _ = kill_process_group(group, signal);
        }
    };
    let went = tokio::select! {
        () = exited(group) => {
            // What it wrote before it went is still in the pipe, which a child of its own may hold open.
            let _ = tokio::time::timeout(LAST_WORDS, &mut reader).await;
            true
        }
        _ = &mut reader => {
            let went = tokio::time::timeout(LAST_WORDS, exited(group)).await.is_ok();
            if !went {
                shared.end(&Error::Closed("it closed its output".into()));
            }
            went
        }
        () = shared.stopping.cancelled() => {
            // Its input is closed by now, which is how a child is told to go.
            for last_word in [Signal::TERM, Signal::KILL] {
                if tokio::time::timeout(shared.limits.farewell, exited(group)).await.is_ok() {
                    break;
                }
                tell(last_word);
            }
            false
        }
    };
    tell(Signal::KILL);
    let ended = child.wait().await;
    if went {
        // Its last complaint often says why, and is to be heard with the end.
        let _ = tokio::time::timeout(LAST_WORDS, listener).await;
        shared.end(&Error::Closed(how(ended).into()));
    }
    shared.gone.cancel();
}

/// As [`tend`], where somebody else knows the program.
async fn attend(keeper: Keeper, mut reader: JoinHandle<()>, listener: JoinHandle<()>, shared: Arc<Shared>) {
    let mut kept = keeper(shared.stopping.clone());
    let how = tokio::select! {
        how = &mut kept => {
            // What it wrote before it went is still in the pipe.
            let _ = tokio::time::timeout(LAST_WORDS, &mut reader).await;
            how
        }
        _ = &mut reader => match tokio::time::timeout(LAST_WORDS, &mut kept).await {
            Ok(how) => how,
            Err(_) => {
                shared.end(&Error::Closed("it closed its output".into()));
                kept.await
            }
        },
    };
    if !shared.stopping.is_cancelled() {
        let _ = tokio::time::timeout(LAST_WORDS, listener).await;
    }
    shared.end(&Error::Closed(how.into()));
    shared.gone.cancel();
}

/// Waits for the end of a child and leaves it to be reaped.
async fn exited(child: Option<Pid>) {
    let Some(child) = child else { return };
    // Listened for before the first look, so that none is missed in between.
    let mut ends = signal(SignalKind::child()).ok();
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    while let Ok(None) = waitid(WaitId::Pid(child), look) {
        let told = match &mut ends {
            Some(ends) => ends.recv().await.is_some(),
            None => false,
        };
        if !told {
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
    }
}

fn how(ended: std::io::Result<std::process::ExitStatus>) -> String {
    match ended {
        Ok(status) => format!("the process ended ({status})"),
        Err(error) => format!("the process is lost ({error})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_of_a_child_is_noticed_before_its_number_is_free() {
        let mut child = tokio::process::Command::new("true").process_group(0).spawn().unwrap();
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        exited(group).await;
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let left = waitid(WaitId::Pid(group.unwrap()), look).unwrap();
        assert!(left.is_some(), "it is there to be reaped");
        assert!(child.wait().await.unwrap().success());
        assert!(waitid(WaitId::Pid(group.unwrap()), look).is_err(), "it is gone");
    }
}

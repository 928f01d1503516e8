//! Being asked to stop. The first signal lets what runs end in order; the second ends the process.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a shell reports of a program that an interrupt ended.
const INTERRUPTED: i32 = 130;

#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From here on neither signal ends the process by itself.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Returns with the first signal. Who sends another does not want to wait: the log survives that as it does a crash.
    #[expect(
        clippy::disallowed_methods,
        reason = "a second signal means: now, and not after the last audit head"
    )]
    pub async fn first(mut self) {
        self.next().await;
        tokio::spawn(async move {
            self.next().await;
            tracing::warn!("told to stop a second time: calls in work are left to the next start's record");
            std::process::exit(INTERRUPTED);
        });
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

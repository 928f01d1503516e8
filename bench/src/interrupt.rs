//! Ctrl-C ends the run between two measurements, so that data and child processes are cleaned up.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use tokio::signal::unix::{SignalKind, signal};

use crate::load::runtime;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

pub(crate) fn listen() -> anyhow::Result<()> {
    let runtime = runtime()?;
    std::thread::Builder::new()
        .name("interrupt".into())
        .spawn(move || {
            runtime.block_on(async {
                let (Ok(mut interrupt), Ok(mut terminate)) =
                    (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
                else {
                    return;
                };
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                INTERRUPTED.store(true, Ordering::Relaxed);
            });
        })
        .context("no thread for signals")?;
    Ok(())
}

pub(crate) fn check() -> anyhow::Result<()> {
    if INTERRUPTED.load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    Ok(())
}

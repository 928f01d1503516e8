//! After a kill, temporary files may be left in the volumes. A mark on disk says so to the next start, so that a
//! node that ended well starts without looking through every volume.

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, Once, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use super::{error::FileError, storage::Storage, volume::Volumes};

/// No tenant can have this name.
const MARK: &str = ".unswept";

#[derive(Debug)]
pub(super) struct Sweep {
    mark: PathBuf,
    marked: Once,
    clean: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Sweep {
    /// Starts looking for leftovers when the node before this one did not end well.
    pub(super) fn start(volumes: &Volumes) -> Self {
        let mark = volumes.directory().join(MARK);
        let clean = Arc::new(AtomicBool::new(!mark.exists()));
        let thread = (!clean.load(Ordering::Relaxed)).then(|| {
            let (configured, workspaces) = (volumes.writable_storages(), volumes.workspaces());
            let clean = clean.clone();
            std::thread::Builder::new().name("aegis-sweep".into()).spawn(move || {
                let configured = configured.iter().map(|storage| storage.sweep());
                let workspaces = workspaces.map(|workspace| workspace?.sweep());
                // All of them, whatever becomes of one.
                let failed = configured.chain(workspaces).filter(|swept| !told(swept)).count();
                clean.store(failed == 0, Ordering::Relaxed);
            })
        });
        // Where no thread can be had, the mark stays for the next start.
        let thread = thread.and_then(Result::ok);
        Self { mark, marked: Once::new(), clean, thread: Mutex::new(thread) }
    }

    /// To be called before the first change: from now on a kill may leave something.
    pub(super) fn mark(&self) {
        self.marked.call_once(|| {
            let made = File::create(&self.mark).and_then(|mark| mark.sync_all());
            let synced = made.and_then(|()| File::open(self.mark.parent().unwrap_or(Path::new("/")))?.sync_all());
            if let Err(error) = synced {
                tracing::warn!(%error, "a kill from now on may leave temporary files that no start looks for");
            }
        });
    }

    /// Waits for the search for leftovers to end.
    pub(super) fn wait(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

fn told(swept: &Result<u64, FileError>) -> bool {
    match swept {
        Ok(0) => true,
        Ok(files) => {
            tracing::info!(files, "removed what a killed node left half written");
            true
        }
        Err(error) => {
            tracing::warn!(%error, "could not look through a volume for leftovers");
            false
        }
    }
}

impl Drop for Sweep {
    fn drop(&mut self) {
        if self.clean.load(Ordering::Relaxed) {
            let _ = std::fs::remove_file(&self.mark);
        }
    }
}

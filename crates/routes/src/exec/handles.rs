//! Commands that run right now: how many, whose, and how to speak with them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use aegis_core::{
    Caller, Violation, ViolationKind,
    config::ExecConfig,
    id::{CallId, CredentialId, TenantId},
};
use aegis_sandbox::{ProcessInfo, SandboxId, Signal};
use tokio::sync::{mpsc, oneshot};

/// A sandbox that does not say what runs in it within this time is left out.
const PATIENCE: Duration = Duration::from_secs(2);
const MOST_QUESTIONS: usize = 16;

/// Whose commands they are. Two agents of one user that hold different credentials don't see each other's.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Owner {
    tenant: TenantId,
    credential: CredentialId,
}

impl Owner {
    pub(super) fn of(caller: &Caller) -> Self {
        Self { tenant: caller.tenant.clone(), credential: caller.credential.clone() }
    }
}

/// A question to a running command, answered by whoever looks after it.
#[derive(Debug)]
pub(super) enum Question {
    Processes(oneshot::Sender<Vec<ProcessInfo>>),
    /// The process by its number inside.
    Signal(u32, Signal, oneshot::Sender<std::io::Result<()>>),
}

#[derive(Debug, Clone)]
struct Handle {
    owner: Owner,
    call: CallId,
    started: Instant,
    ask: mpsc::Sender<Question>,
}

#[derive(Debug)]
pub(super) struct Handles {
    per_caller: u32,
    in_all: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    callers: HashMap<Owner, u32>,
    total: u32,
    running: HashMap<SandboxId, Handle>,
}

/// A place for one command; free again when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    handles: Arc<Handles>,
    owner: Owner,
    sandbox: Option<SandboxId>,
}

/// A process of a caller's, and the command it belongs to.
#[derive(Debug, Clone)]
pub struct OwnProcess {
    pub info: ProcessInfo,
    /// The call that started the command: its handle.
    pub call: CallId,
    /// How long the command has run.
    pub age: Duration,
    sandbox: SandboxId,
}

impl OwnProcess {
    /// The number by which it is known. Those inside are the same in every sandbox, so it is the host's where there is
    /// one.
    pub fn number(&self) -> u32 {
        if self.info.host_pid == 0 { self.info.pid } else { self.info.host_pid }
    }
}

impl Handles {
    pub(super) fn new(config: &ExecConfig) -> Arc<Self> {
        Arc::new(Self {
            per_caller: config.max_concurrent_per_caller.max(1),
            in_all: config.max_concurrent.max(1),
            state: Mutex::default(),
        })
    }

    /// Takes a place, or says why there is none.
    pub(super) fn enter(self: &Arc<Self>, caller: &Caller) -> Result<Place, Violation> {
        let full = |message: String, rule: &str| {
            Violation::new(ViolationKind::ConcurrentExecLimitExceeded, message)
                .rule(rule)
                .hint("wait for one of them to end, then try again")
                .retry_after(1)
        };
        let owner = Owner::of(caller);
        let mut state = self.state();
        if state.total >= self.in_all {
            let message = format!("{} commands run on this node, which is its limit", self.in_all);
            return Err(full(message, "spec.exec.max_concurrent"));
        }
        let own = state.callers.entry(owner.clone()).or_default();
        if *own >= self.per_caller {
            let message = format!("{own} of the caller's commands run, which is the limit");
            return Err(full(message, "spec.exec.max_concurrent_per_caller"));
        }
        *own += 1;
        state.total += 1;
        drop(state);
        Ok(Place { handles: Arc::clone(self), owner, sandbox: None })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every process of the caller's commands.
    pub(super) async fn processes(&self, caller: &Caller) -> Vec<OwnProcess> {
        let owner = Owner::of(caller);
        let own: Vec<(SandboxId, Handle)> = {
            let state = self.state();
            let own = state.running.iter().filter(|(_, handle)| handle.owner == owner);
            own.map(|(sandbox, handle)| (*sandbox, handle.clone())).collect()
        };
        let asked = own.into_iter().map(|(sandbox, handle)| async move {
            let (answer, answered) = oneshot::channel();
            let told = async {
                handle.ask.send(Question::Processes(answer)).await.ok()?;
                answered.await.ok()
            };
            let processes = tokio::time::timeout(PATIENCE, told).await.ok().flatten().unwrap_or_default();
            let (call, age) = (handle.call, handle.started.elapsed());
            processes.into_iter().map(move |info| OwnProcess { info, call, age, sandbox }).collect::<Vec<_>>()
        });
        let mut all: Vec<OwnProcess> = futures::future::join_all(asked).await.into_iter().flatten().collect();
        all.sort_by_key(|process| (process.call, process.info.pid));
        all
    }

    /// Sends a signal to a process that [`Handles::processes`] told of.
    pub(super) async fn signal(&self, process: &OwnProcess, signal: Signal) -> std::io::Result<()> {
        let gone = || std::io::Error::new(std::io::ErrorKind::NotFound, "the command has ended");
        let ask = self.state().running.get(&process.sandbox).map(|handle| handle.ask.clone());
        let (answer, answered) = oneshot::channel();
        let ask = ask.ok_or_else(gone)?;
        let told = async {
            ask.send(Question::Signal(process.info.pid, signal, answer)).await.map_err(|_| gone())?;
            answered.await.map_err(|_| gone())?
        };
        tokio::time::timeout(PATIENCE, told).await.unwrap_or_else(|_| Err(gone()))
    }
}

impl Place {
    /// Makes the command known to its owner; the questions to answer come out.
    pub(super) fn started(&mut self, sandbox: SandboxId, call: CallId) -> mpsc::Receiver<Question> {
        let (ask, asked) = mpsc::channel(MOST_QUESTIONS);
        let handle = Handle { owner: self.owner.clone(), call, started: Instant::now(), ask };
        self.handles.state().running.insert(sandbox, handle);
        self.sandbox = Some(sandbox);
        asked
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.handles.state();
        if let Some(sandbox) = &self.sandbox {
            state.running.remove(sandbox);
        }
        state.total = state.total.saturating_sub(1);
        if let Some(own) = state.callers.get_mut(&self.owner) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                state.callers.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use aegis_core::{Door, Tier};

    use super::*;

    fn caller(credential: &str) -> Caller {
        Caller {
            tenant: "acme".into(),
            user: "agent".into(),
            tier: Tier::User,
            context: "workspace".into(),
            credential: credential.into(),
            door: Door::Rest,
            session: None,
            pinned: None,
        }
    }

    #[test]
    fn places_are_counted_by_caller_and_in_all() {
        let config = ExecConfig { max_concurrent_per_caller: 2, max_concurrent: 3, ..ExecConfig::default() };
        let handles = Handles::new(&config);
        let first = handles.enter(&caller("a")).unwrap();
        let _second = handles.enter(&caller("a")).unwrap();
        let refused = handles.enter(&caller("a")).unwrap_err();
        assert_eq!(refused.kind, ViolationKind::ConcurrentExecLimitExceeded);
        assert_eq!(refused.rule.as_deref(), Some("spec.exec.max_concurrent_per_caller"));
        let _third = handles.enter(&caller("b")).unwrap();
        assert_eq!(
            handles.enter(&caller("c")).unwrap_err().rule.as_deref(),
            Some("spec.exec.max_concurrent")
        );
        drop(first);
        assert!(handles.enter(&caller("c")).is_ok());
        assert_eq!(handles.state().callers.len(), 2);
    }

    #[tokio::test]
    async fn nobody_sees_what_belongs_to_others() {
        let handles = Handles::new(&ExecConfig::default());
        let mut place = handles.enter(&caller("a")).unwrap();
        let mut asked = place.started(SandboxId::new(), CallId::fresh());
        let answering = tokio::spawn(async move {
            let info = ProcessInfo {
                pid: 2,
                host_pid: 4711,
                parent: 1,
                name: "sleep".into(),
                command: vec!["sleep".into(), "9".into()],
                state: 'S',
                memory: 1 << 20,
                cpu: Duration::ZERO,
            };
            while let Some(question) = asked.recv().await {
                match question {
                    Question::Processes(answer) => answer.send(vec![info.clone()]).unwrap(),
                    Question::Signal(pid, signal, answer) => {
                        assert_eq!((pid, signal), (2, Signal::Terminate));
                        answer.send(Ok(())).unwrap();
                    }
                }
            }
        });
        assert!(handles.processes(&caller("b")).await.is_empty());
        let own = handles.processes(&caller("a")).await;
        assert_eq!((own.len(), own[0].number()), (1, 4711));
        handles.signal(&own[0], Signal::Terminate).await.unwrap();
        drop(place);
        answering.await.unwrap();
        assert!(handles.signal(&own[0], Signal::Terminate).await.is_err());
    }
}

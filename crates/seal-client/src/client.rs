//! Attest once, then call: the session is renewed when it ends.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use serde_json::{Map, Value};
use tokio::sync::Mutex;

use crate::{
    answer::{self, Answer, Attested},
    envelope::{self, Key},
    error::Error,
    http::Endpoint,
};

/// A session this close to its end is not used any more.
const MARGIN: Duration = Duration::from_secs(5);
/// As the published clients have it.
const ATTEST_TIME: Duration = Duration::from_secs(10);

/// An agent's side of SEAL. One client is one workload in one context; calls may run at once.
#[derive(Debug)]
pub struct Client {
    endpoint: Endpoint,
    workload: Workload,
    context: String,
    patience: Duration,
    /// One attestation at a time: those who wait for it use what it brings.
    session: Mutex<Option<Arc<Session>>>,
}

/// The id that an operator's enrolment gave. It is a credential, so it does not print.
struct Workload(zeroize::Zeroizing<String>);

impl std::fmt::Debug for Workload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Workload(…)")
    }
}

#[derive(Debug)]
struct Session {
    key: Key,
    attested: Attested,
}

impl Session {
    fn is_over(&self) -> bool {
        self.attested.expires().is_some_and(|end| end <= SystemTime::now() + MARGIN)
    }
}

impl Client {
    /// `url` is `http://HOST:PORT`. Beyond this machine a node is behind TLS: there, use [`Key`] and
    /// [`crate::answer`] with an HTTP client that speaks it.
    pub fn new(url: &str, workload: &str, context: &str) -> Result<Self, Error> {
        Ok(Self {
            endpoint: Endpoint::parse(url)?,
            workload: Workload(zeroize::Zeroizing::new(workload.trim().to_owned())),
            context: context.to_owned(),
            patience: Duration::from_secs(30),
            session: Mutex::new(None),
        })
    }

    /// How long a call may take [default: 30 s].
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Calls a tool. A tool that ran and could not do its work is an [`Answer`] too: look at [`Answer::is_error`].
    pub async fn call(&self, tool: &str, arguments: &Map<String, Value>) -> Result<Answer, Error> {
        self.invoke(|| envelope::call(tool, arguments)).await
    }

    /// The tools this session may call, as MCP describes them.
    pub async fn tools(&self) -> Result<Vec<Value>, Error> {
        let mut answer = self.invoke(envelope::list).await?;
        match answer.result.remove("tools") {
            Some(Value::Array(tools)) => Ok(tools),
            _ => Err(Error::Unreadable("the list has no `tools`".into())),
        }
    }

    /// Begins a new session with a new key, whether or not there is one.
    pub async fn attest(&self) -> Result<Attested, Error> {
        let mut session = self.session.lock().await;
        let fresh = self.begin().await?;
        let attested = fresh.attested.clone();
        *session = Some(Arc::new(fresh));
        Ok(attested)
    }

    async fn invoke(&self, payload: impl Fn() -> Result<Value, Error>) -> Result<Answer, Error> {
        let session = self.session(None).await?;
        match self.send(&session, &payload()?).await {
            // Nothing ran: the refusal comes before the call.
            Err(Error::Refused(refused)) if refused.is_session_end() => {
                let session = self.session(Some(&session)).await?;
                self.send(&session, &payload()?).await
            }
            answered => answered,
        }
    }

    /// The session to use; a new one if there is none, it is over, or it is the one that was `refused`.
    async fn session(&self, refused: Option<&Arc<Session>>) -> Result<Arc<Session>, Error> {
        let mut held = self.session.lock().await;
        let usable = |session: &Arc<Session>| {
            !session.is_over() && refused.is_none_or(|refused| !Arc::ptr_eq(refused, session))
        };
        if let Some(session) = held.as_ref().filter(|session| usable(session)) {
            return Ok(Arc::clone(session));
        }
        let fresh = Arc::new(self.begin().await?);
        *held = Some(Arc::clone(&fresh));
        Ok(fresh)
    }

    async fn begin(&self) -> Result<Session, Error> {
        let key = Key::fresh()?;
        let body = key.attestation(&self.workload.0, &self.context);
        let (status, body) = self.endpoint.post("/v1/seal/attest", body, ATTEST_TIME).await?;
        Ok(Session { attested: answer::attested(status, &body)?, key })
    }

    async fn send(&self, session: &Session, payload: &Value) -> Result<Answer, Error> {
        let body = session.key.envelope(&session.attested.token, payload, SystemTime::now());
        let (status, body) = self.endpoint.post("/v1/seal/invoke", body, self.patience).await?;
        answer::invoked(status, &body)
    }
}

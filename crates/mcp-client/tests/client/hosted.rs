//! Programs that someone else starts: the same client, with another's word for how they ended.

use std::{
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use aegis_mcp_client::{Client, Error, Handler, Host, Hosted, Limits, Preference, Version};
use futures::future::BoxFuture;
use serde_json::json;

use super::{Heard, call, command, identity, said};

/// Starts the fixture as a child of its own.
struct Nanny {
    arguments: &'static str,
    starts: AtomicUsize,
}

impl Nanny {
    fn new(arguments: &'static str) -> Self {
        Self { arguments, starts: AtomicUsize::new(0) }
    }

    async fn open(&self, heard: &Arc<Heard>) -> Result<Client, Error> {
        let handler: Arc<dyn Handler> = Arc::clone(heard) as Arc<dyn Handler>;
        Client::hosted(self, Preference::Any, &identity(), &Limits::default(), &handler).await
    }
}

impl Host for Nanny {
    fn start(&self) -> BoxFuture<'_, Result<Hosted, Error>> {
        Box::pin(async move {
            self.starts.fetch_add(1, Ordering::Relaxed);
            let wanted = command(self.arguments);
            let mut child = tokio::process::Command::new(&wanted.program)
                .args(&wanted.args)
                .envs(wanted.environment)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .kill_on_drop(true)
                .spawn()
                .unwrap();
            Ok(Hosted {
                pid: child.id().unwrap(),
                input: Box::new(child.stdin.take().unwrap()),
                output: Box::new(child.stdout.take().unwrap()),
                complaints: Box::new(child.stderr.take().unwrap()),
                keeper: Box::new(move |stopping| {
                    Box::pin(async move {
                        tokio::select! {
                            _ = child.wait() => "it left the house".to_owned(),
                            () = stopping.cancelled() => {
                                child.kill().await.unwrap();
                                "it was sent away".to_owned()
                            }
                        }
                    })
                }),
            })
        })
    }
}

#[tokio::test]
async fn a_hosted_program_is_called_heard_and_its_end_told() {
    let (nanny, heard) = (Nanny::new(""), Arc::new(Heard::default()));
    let client = nanny.open(&heard).await.unwrap();
    assert_eq!(said(&call(&client, "echo", json!({"text": "hello"})).await.unwrap()), "hello");
    assert_eq!(said(&call(&client, "flood", json!({})).await.unwrap()), "flooded");
    assert!(heard.complaints.lock().unwrap().iter().any(|line| line.starts_with("yyy")));
    let died = call(&client, "die", json!({})).await.unwrap_err();
    assert!(matches!(&died, Error::Closed(how) if how.contains("it left the house")), "{died}");
    client.gone().await;
}

#[tokio::test]
async fn a_hosted_program_goes_with_its_last_client() {
    let (nanny, heard) = (Nanny::new(""), Arc::new(Heard::default()));
    let client = nanny.open(&heard).await.unwrap();
    let pid = client.pid().unwrap();
    assert!(std::path::Path::new(&format!("/proc/{pid}")).exists());
    client.close("nobody needs it");
    client.gone().await;
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}

#[tokio::test]
async fn a_hosted_program_that_dies_of_the_newest_question_is_started_again() {
    let (nanny, heard) = (Nanny::new("--era older --dies-when-discovered"), Arc::new(Heard::default()));
    let client = nanny.open(&heard).await.unwrap();
    assert_eq!((client.version(), nanny.starts.load(Ordering::Relaxed)), (Version::V2025_11_25, 2));
}

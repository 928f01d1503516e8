use std::sync::Mutex;

use aegis_core::{
    asking::{Answering, Manner, Question},
    event::Event,
    outcome::Passed,
    progress::{Listener, Progress},
};
use aegis_routes::upstream::Notice;
use serde_json::{Map, Value, json, value::RawValue};
use tokio_util::sync::CancellationToken;

use super::Stage;

/// Hears everything, and answers every question with a name.
#[derive(Default)]
struct Client {
    steps: Mutex<Vec<f64>>,
    questions: Mutex<Vec<String>>,
    /// Every text that came.
    texts: Mutex<Vec<String>>,
    manner: Option<Manner>,
}

impl Client {
    fn asked(by_result: bool) -> Self {
        let abilities: Map<String, Value> =
            [("elicitation".to_owned(), json!({"form": {}}))].into_iter().collect();
        Self { manner: Some(Manner { abilities, by_result, ..Manner::default() }), ..Self::default() }
    }
}

impl Listener for Client {
    fn progress(&self, progress: Progress) {
        self.steps.lock().unwrap().push(progress.progress);
        self.texts.lock().unwrap().extend(progress.message);
    }

    fn log(&self, message: &Value) {
        self.texts.lock().unwrap().push(message.to_string());
    }

    fn event(&self, _: Event) {}

    fn manner(&self) -> Option<&Manner> {
        self.manner.as_ref()
    }

    fn ask(&self, question: Question) -> Answering<'_> {
        self.questions.lock().unwrap().push(question.method);
        self.texts.lock().unwrap().extend(question.params.map(|params| params.get().to_owned()));
        let answer = json!({"action": "accept", "content": {"name": "anna"}}).to_string();
        Box::pin(std::future::ready(Ok(RawValue::from_string(answer).unwrap())))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_reaches_whoever_waits() {
    let stage = Stage::running("", |_| {}).await;
    let client = Client::default();
    stage.call_heard("fix.progress", json!({}), &client, &CancellationToken::new()).await.unwrap();
    assert_eq!(*client.steps.lock().unwrap(), [1.0, 2.0, 3.0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_reach_whoever_waits_in_both_eras() {
    for era in ["older", "newest"] {
        let stage = Stage::running(&format!("--era {era}"), |_| {}).await;
        let client = Client::asked(false);
        let said = stage.call_heard("fix.ask", json!({}), &client, &CancellationToken::new()).await.unwrap();
        assert_eq!(said.value, json!("hello \"anna\""), "{era}");
        assert_eq!(*client.questions.lock().unwrap(), ["elicitation/create"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_pass_as_an_answer_where_the_client_takes_them_so() {
    let stage = Stage::running("--era newest", |_| {}).await;
    let client = Client::asked(true);
    let asked = stage.call_heard("fix.ask", json!({}), &client, &CancellationToken::new()).await.unwrap();
    let Some(Passed::Asks(text)) = asked.passed else { panic!("{asked:?}") };
    assert!(text.contains("Your name?") && text.contains("requestState"), "{text}");
    let brought = aegis_core::asking::Brought {
        responses: Some(
            RawValue::from_string(r#"{"who":{"action":"accept","content":{"name":"bert"}}}"#.into()).unwrap(),
        ),
        state: Some(RawValue::from_string(r#""s1""#.into()).unwrap()),
    };
    let mut again = Client::asked(true);
    again.manner.as_mut().unwrap().brought = Some(brought);
    let said = stage.call_heard("fix.ask", json!({}), &again, &CancellationToken::new()).await.unwrap();
    assert_eq!(said.value, json!("hello \"bert\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_says_meanwhile_is_rid_of_its_secrets() {
    for era in ["older", "newest"] {
        let stage = Stage::running(&format!("--era {era}"), |server| {
            server.environment.insert("KEY".into(), "key-of-someone".into());
        })
        .await;
        let client = Client::asked(false);
        let name = json!({"name": "KEY"});
        stage.call_heard("fix.leak", name, &client, &CancellationToken::new()).await.unwrap();
        let texts = client.texts.lock().unwrap().join("\n");
        assert!(!texts.contains("key-of-someone"), "{era}: {texts}");
        for kept in ["with [redacted]", r#""key":"[redacted]""#, "Is [redacted] yours?"] {
            assert!(texts.contains(kept), "{era}: {texts}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn notices_come_to_listeners() {
    let stage = Stage::running("--era older", |_| {}).await;
    let mut notices = stage.servers.notices();
    stage.call("mcp.resources.subscribe", json!({"server": "fix", "uri": "memo://one"})).await;
    let updated = Notice::ResourceUpdated { server: "fix".into(), uri: "memo://one".into(), whose: None };
    loop {
        if notices.recv().await.unwrap() == updated {
            break;
        }
    }
}

use std::{sync::Arc, time::Duration};

use aegis_mcp_client::{
    Client, Command, Error, Handler, Limits, Listed, Preference, Progress, ProgressUpdate, Request, Version,
};
use serde_json::json;

use super::{Heard, call, command, deaf, identity, raw, said, start};

#[tokio::test]
async fn both_eras_are_spoken() {
    for (era, version) in
        [("both", Version::V2026_07_28), ("newest", Version::V2026_07_28), ("older", Version::V2025_11_25)]
    {
        let client = start(&format!("--era {era}")).await;
        assert_eq!(client.version(), version, "{era}");
        assert_eq!(client.facts().unwrap().name, "fixture");
        assert_eq!(said(&call(&client, "echo", json!({"text": "hé\n"})).await.unwrap()), "hé\n");
        client.ping(Duration::from_secs(5)).await.unwrap();
        assert!(client.list(Listed::Tools).await.unwrap().len() > 10);
        assert_eq!(client.list(Listed::Prompts).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_server_that_dies_of_the_newest_question_is_greeted_again() {
    let client = start("--era older --dies-when-discovered").await;
    assert_eq!(client.version(), Version::V2025_11_25);
    let mut strict = command("--era older");
    strict.preference = Preference::Stateless;
    let refused = Client::spawn(&strict, &identity(), &Limits::default(), &deaf()).await.unwrap_err();
    assert!(matches!(refused, Error::Rpc(_)), "{refused}");
}

#[tokio::test]
async fn what_speaks_no_mcp_is_found_out() {
    let program = |program: &str, args: &[&str]| {
        let args = args.iter().map(|&word| word.to_owned()).collect();
        Command { program: program.to_owned(), args, ..command("") }
    };
    let echo =
        Client::spawn(&program("cat", &[]), &identity(), &Limits::default(), &deaf()).await.unwrap_err();
    assert!(matches!(&echo, Error::Protocol(what) if what.contains("sends back")), "{echo}");
    let heard = Arc::new(Heard::default());
    let ears: Arc<dyn Handler> = heard.clone();
    let chatty = program("printf", &[&format!("hello \\033there\\n{}\\n", "x".repeat(4000))]);
    let ended = Client::spawn(&chatty, &identity(), &Limits::default(), &ears).await.unwrap_err();
    assert!(matches!(ended, Error::Closed(_)), "{ended}");
    let strays = heard.strays.lock().unwrap();
    assert_eq!((strays[0].as_str(), strays[1].len()), ("hello there", 512));
}

#[tokio::test]
async fn a_thousand_calls_share_the_pipe() {
    let client = start("").await;
    let calls = (0..1000).map(|number| {
        let client = client.clone();
        async move {
            let text = format!("call {number}");
            assert_eq!(said(&call(&client, "echo", json!({"text": text})).await.unwrap()), text);
        }
    });
    futures::future::join_all(calls).await;
    assert_eq!(client.pending(), 0);
}

#[tokio::test]
async fn mischief_hurts_nobody() {
    let client = start("").await;
    assert_eq!(said(&call(&client, "twice", json!({})).await.unwrap()), "first");
    assert_eq!(said(&call(&client, "wrong_id", json!({})).await.unwrap()), "yours");
    assert_eq!(said(&call(&client, "garbage", json!({})).await.unwrap()), "after garbage");
    assert_eq!(said(&call(&client, "bad_utf8", json!({})).await.unwrap()), "after bad bytes");
    let unknown = call(&client, "nope", json!({})).await.unwrap_err();
    assert!(matches!(&unknown, Error::Rpc(error) if error.code == -32602), "{unknown}");
    assert_eq!(said(&call(&client, "echo", json!({"text": "still here"})).await.unwrap()), "still here");
}

#[tokio::test]
async fn only_what_is_given_is_in_the_environment() {
    let client = start("").await;
    assert_eq!(said(&call(&client, "env", json!({"name": "SECRET"})).await.unwrap()), "7 bytes");
    assert_eq!(said(&call(&client, "env", json!({"name": "PATH"})).await.unwrap()), "unset");
    assert!(!format!("{:?}", command("")).contains("hunter2"));
}

#[tokio::test]
async fn death_answers_everyone() {
    let client = start("").await;
    let waiting: Vec<_> = (0..50)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { call(&client, "hang", json!({})).await })
        })
        .collect();
    let died = call(&client, "die", json!({})).await.unwrap_err();
    assert!(matches!(&died, Error::Closed(how) if how.contains("signal: 6")), "{died}");
    for waiting in waiting {
        assert!(matches!(waiting.await.unwrap(), Err(Error::Closed(_))));
    }
    assert!(matches!(call(&client, "echo", json!({})).await, Err(Error::Closed(_))));
    assert!(matches!(client.end().await, Error::Closed(_)));
}

#[tokio::test]
async fn silence_missing_programs_and_early_deaths_are_told_apart() {
    let limits = Limits {
        handshake: Duration::from_millis(300),
        probe: Duration::from_millis(100),
        ..Limits::default()
    };
    let silent =
        Client::spawn(&command("--at-start silent"), &identity(), &limits, &deaf()).await.unwrap_err();
    assert!(matches!(silent, Error::Silent(_)), "{silent}");
    let early = Client::spawn(&command("--at-start die"), &identity(), &Limits::default(), &deaf()).await;
    assert!(matches!(early, Err(Error::Closed(_))), "{early:?}");
    let mut missing = command("");
    missing.program = "/no/such/program".into();
    let missing = Client::spawn(&missing, &identity(), &limits, &deaf()).await.unwrap_err();
    assert!(matches!(missing, Error::Start { .. }), "{missing}");
}

#[tokio::test]
async fn huge_answers_fail_their_own_call_only() {
    let limits = Limits { message: 1 << 20, ..Limits::default() };
    let client = Client::spawn(&command(""), &identity(), &limits, &deaf()).await.unwrap();
    let huge = call(&client, "huge", json!({"bytes": 4 << 20})).await.unwrap_err();
    assert!(matches!(huge, Error::TooLarge { .. }), "{huge}");
    assert_eq!(said(&call(&client, "echo", json!({"text": "on"})).await.unwrap()), "on");
    // One that never ends takes the connection with it.
    let endless = call(&client, "huge", json!({"bytes": 1_u64 << 34})).await.unwrap_err();
    assert!(matches!(endless, Error::TooLarge { .. }), "{endless}");
    assert!(matches!(client.end().await, Error::Protocol(_)));
}

#[tokio::test]
async fn lists_without_end_are_refused() {
    for list in ["endless", "circle"] {
        let client = start(&format!("--list {list}")).await;
        let error = client.list(Listed::Tools).await.unwrap_err();
        assert!(matches!(error, Error::Endless(_)), "{error}");
    }
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_there() {
    for era in ["older", "newest"] {
        let heard = Arc::new(Heard::default());
        let handler: Arc<dyn Handler> = heard.clone();
        let client =
            Client::spawn(&command(&format!("--era {era}")), &identity(), &Limits::default(), &handler)
                .await
                .unwrap();
        let hanging =
            tokio::time::timeout(Duration::from_millis(100), call(&client, "hang", json!({}))).await;
        assert!(hanging.is_err());
        assert_eq!(client.pending(), 0);
        while !heard.complaints.lock().unwrap().iter().any(|line| line == "hang was cancelled") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn floods_are_thinned() {
    let heard = Arc::new(Heard::default());
    let handler: Arc<dyn Handler> = heard.clone();
    let client =
        Client::spawn(&command("--at-start flood"), &identity(), &Limits::default(), &handler).await.unwrap();
    assert_eq!(said(&call(&client, "flood", json!({})).await.unwrap()), "flooded");
    let complaints = heard.complaints.lock().unwrap();
    assert!(complaints.len() < 5000, "{}", complaints.len());
    assert!(complaints.iter().all(|line| line.len() <= 2048));
}

struct Steps(std::sync::Mutex<Vec<f64>>);

impl Progress for Steps {
    fn progress(&self, update: ProgressUpdate) {
        self.0.lock().unwrap().push(update.progress);
    }
}

#[tokio::test]
async fn progress_and_notices_arrive() {
    let heard = Arc::new(Heard::default());
    let handler: Arc<dyn Handler> = heard.clone();
    let client = Client::spawn(&command(""), &identity(), &Limits::default(), &handler).await.unwrap();
    let steps = Arc::new(Steps(std::sync::Mutex::default()));
    let params = raw(&json!({"name": "progress", "arguments": {}}));
    let request = Request { progress: Some(steps.clone()), ..Request::new("tools/call").params(&params) };
    client.request(request).await.unwrap();
    assert_eq!(*steps.0.lock().unwrap(), [1.0, 2.0, 3.0]);
    call(&client, "changed", json!({})).await.unwrap();
    assert_eq!(*heard.notices.lock().unwrap(), ["notifications/tools/list_changed"]);
}

#[tokio::test]
async fn questions_reach_whoever_called() {
    for era in ["older", "newest"] {
        let client = start(&format!("--era {era}")).await;
        let params = raw(&json!({"name": "ask", "arguments": {}}));
        let request = Request {
            questions: Some(Arc::new(Heard::default())),
            ..Request::new("tools/call").params(&params).about("ask")
        };
        let answer = client.request_answering(request).await.unwrap();
        assert!(answer.get().contains("hello \\\"anna\\\""), "{era}: {}", answer.get());
    }
    // Nobody to ask: the server hears so.
    let client = start("--era older").await;
    let refused = call(&client, "ask", json!({})).await.unwrap();
    assert!(said(&refused).contains("not supported here"), "{refused}");
}

#[tokio::test]
async fn the_child_goes_when_the_last_handle_does() {
    let client = start("").await;
    let other = client.clone();
    drop(client);
    assert_eq!(said(&call(&other, "echo", json!({"text": "x"})).await.unwrap()), "x");
    let heard = tokio::spawn({
        let waiting = other.clone();
        async move { call(&waiting, "hang", json!({})).await }
    });
    while other.pending() == 0 {
        tokio::task::yield_now().await;
    }
    other.close("the operator removed it");
    let told = heard.await.unwrap().unwrap_err();
    assert!(told.to_string().contains("the operator removed it"), "{told}");
}

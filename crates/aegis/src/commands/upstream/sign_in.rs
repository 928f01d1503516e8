//! `aegis upstream sign-in`: the browser's half. The node knows where to go; this waits on the loopback for the answer.

use std::{net::Ipv4Addr, time::Duration};

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use url::Url;

use super::{address, ask, finish, settled, step};
use crate::{
    backend::Backend,
    cli::{Global, SignIn},
    client::Answer,
    ending::Obstacle,
    output::{Ending, json_line, say, text},
};

/// How long a person may take; the node waits as long.
const PATIENCE: Duration = Duration::from_secs(600);
/// A browser sends its request at once.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
const LARGEST_HEAD: usize = 16 << 10;
/// Browsers open connections before they know what for.
const MOST_CONNECTIONS: usize = 64;
const CALLBACK: &str = "/callback";

pub(super) async fn run(global: &Global, wanted: &SignIn) -> anyhow::Result<Ending> {
    ask(global, async |node| sign_in(global, node, wanted).await).await
}

async fn sign_in(global: &Global, node: &Backend, wanted: &SignIn) -> anyhow::Result<Ending> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, wanted.port)).await.map_err(|error| {
        let next = "leave --port out, or name one that is free";
        Obstacle::new(format!("port {} of the loopback can't be used: {error}", wanted.port), next)
    })?;
    let redirect = format!("http://127.0.0.1:{}{CALLBACK}", listener.local_addr()?.port());
    let wish = json!({"redirect": redirect, "client_id": wanted.client_id, "client_secret": wanted.client_secret,
        "scopes": wanted.scopes});
    let begun = match node.patient_post(&address(&wanted.name, "/sign-in"), &wish).await? {
        Answer::Ok(begun) => begun,
        other => return Ok(finish(global, other, |_| {})),
    };
    if global.json {
        json_line(&event("open", begun.clone()));
    } else {
        say!("{} asks for your word. Open this in a browser on this machine:", text(&begun["issuer"]));
        say!("  {}", text(&begun["url"]));
        eprintln!("waiting for the browser to come back, at most {} minutes …", PATIENCE.as_secs() / 60);
    }
    let state = begun["state"].as_str().unwrap_or_default();
    let back = tokio::time::timeout(PATIENCE, came_back(&listener, &redirect, state)).await;
    let back =
        back.map_err(|_| Obstacle::new("the browser did not come back", "run the command again"))??;
    let answer = json!({"back": back.as_str()});
    let answer = node.patient_post(&address(&wanted.name, "/signed-in"), &answer).await?;
    let (ended, mut told) =
        step(global, answer, |found| say!("you are signed in to {}", text(&found["name"])));
    if ended == Ending::Done {
        let found = settled::settle(global, node, &[&wanted.name]).await?;
        settled::note(&mut told, &found);
        told = event("signed_in", told);
    }
    if global.json {
        json_line(&told);
    }
    Ok(ended)
}

/// A line for scripts, which have to show the address before they can wait for the rest.
fn event(name: &str, mut told: Value) -> Value {
    told["event"] = name.into();
    told
}

/// Takes what browsers ask for until one brings the answer to this sign-in.
async fn came_back(listener: &TcpListener, redirect: &str, state: &str) -> anyhow::Result<Url> {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MOST_CONNECTIONS => {
                let (stream, _) = accepted.context("the loopback can't be listened to")?;
                connections.spawn(converse(stream, redirect.to_owned(), state.to_owned()));
            }
            Some(ended) = connections.join_next() => {
                if let Ok(Some(back)) = ended {
                    return Ok(back);
                }
            }
        }
    }
}

/// Answers one request; what it brought, if that is the answer to this sign-in.
async fn converse(mut stream: TcpStream, redirect: String, state: String) -> Option<Url> {
    let target = tokio::time::timeout(HEAD_PATIENCE, target(&mut stream)).await.ok()??;
    let back = answer_in(&redirect, &target, &state);
    let (status, words) = match &back {
        None => ("404 Not Found", "nothing is here"),
        Some(_) => ("200 OK", "The terminal says what came of it. This window can be closed."),
    };
    let page = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\ncache-control: no-store\r\n\
         referrer-policy: no-referrer\r\nconnection: close\r\n\r\n{words}",
        words.len()
    );
    let _ = tokio::time::timeout(HEAD_PATIENCE, stream.write_all(page.as_bytes())).await;
    let _ = stream.shutdown().await;
    back
}

/// The address that a request asks for.
async fn target(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut chunk = [0; 2048];
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        match stream.read(&mut chunk).await {
            Ok(count @ 1..) if head.len() + count <= LARGEST_HEAD => head.extend_from_slice(&chunk[..count]),
            _ => return None,
        }
    }
    let head = String::from_utf8(head).ok()?;
    let mut words = head.lines().next()?.split(' ');
    (words.next() == Some("GET")).then(|| words.next()).flatten().map(str::to_owned)
}

/// The whole address, if it is the answer to this sign-in. What it says is for the node to judge.
fn answer_in(redirect: &str, target: &str, state: &str) -> Option<Url> {
    let redirect = Url::parse(redirect).ok()?;
    let back = redirect.join(target).ok()?;
    let is_answer = back.query_pairs().any(|(name, value)| name == "state" && value == state);
    (is_answer && back.origin() == redirect.origin() && back.path() == redirect.path()).then_some(back)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_that_say_nothing_hold_nobody_up() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let redirect = format!("http://{address}{CALLBACK}");
        let waiting = tokio::spawn(async move { came_back(&listener, &redirect, "s").await });
        let mut idle = Vec::new();
        for _ in 0..MOST_CONNECTIONS - 1 {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        let mut browser = TcpStream::connect(address).await.unwrap();
        browser.write_all(b"GET /callback?code=c&state=s HTTP/1.1\r\n\r\n").await.unwrap();
        let mut page = String::new();
        // The others are still there, each within its patience.
        let read = tokio::time::timeout(HEAD_PATIENCE, browser.read_to_string(&mut page)).await;
        assert!(read.is_ok() && page.starts_with("HTTP/1.1 200 "), "{page}");
        let back = waiting.await.unwrap().unwrap();
        assert_eq!((back.path(), back.query()), (CALLBACK, Some("code=c&state=s")));
    }

    #[test]
    fn only_the_answer_to_this_sign_in_counts() {
        let read = |target: &str| answer_in("http://127.0.0.1:9/callback", target, "s");
        let back = read("/callback?code=a%2Fb&state=s").unwrap();
        assert_eq!(back.as_str(), "http://127.0.0.1:9/callback?code=a%2Fb&state=s");
        assert!(read("/callback?error=access_denied&state=s").is_some());
        for other in
            ["/callback?code=c&state=t", "/callback?code=c", "/favicon.ico", "/", "//x/callback?state=s"]
        {
            assert_eq!(read(other), None, "{other}");
        }
    }
}

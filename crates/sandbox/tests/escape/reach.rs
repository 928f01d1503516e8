//! What can be reached by sockets and shared memory.

use std::{
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
    process::Command,
};

use crate::{
    attack_program, must_answer, outside,
    support::{directory, native},
};

#[tokio::test]
async fn no_address_leads_out() {
    let place = directory();
    attack_program(place.path());
    let service = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let connect = format!("connect={}", service.local_addr().unwrap().port());
    let answers = [
        (connect.as_str(), "ECONNREFUSED"),
        ("metadata", "ENETUNREACH"),
        ("dns", "ENETUNREACH"),
        ("socket-raw", "EPERM"),
        ("socket-packet", "EAFNOSUPPORT"),
        ("socket-audit", "EAFNOSUPPORT"),
        ("socket-uevent", "EAFNOSUPPORT"),
        ("socket-vsock", "EAFNOSUPPORT"),
        ("socket-alg", "EAFNOSUPPORT"),
        ("socket-route", "ok"),
    ];
    must_answer(&native(), place.path(), &answers).await;
    outside(
        place.path(),
        &[(connect.as_str(), "ok"), ("socket-uevent", "ok"), ("socket-alg", "ok|EAFNOSUPPORT")],
    );
}

#[tokio::test]
async fn sockets_and_memory_of_the_host_are_not_shared() {
    let place = directory();
    attack_program(place.path());
    let name = format!("aegis-sandbox-test-{}", std::process::id());
    let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let socket = format!("abstract-socket={name}");
    let segment = Segment::new();
    let memory = format!("shared-memory={}", segment.0);
    let answers = [(socket.as_str(), "ECONNREFUSED"), (memory.as_str(), "EINVAL")];
    must_answer(&native(), place.path(), &answers).await;
    outside(place.path(), &[(socket.as_str(), "ok"), (memory.as_str(), "ok")]);
}

/// A System V segment of the host, by its number.
struct Segment(u32);

impl Segment {
    fn new() -> Self {
        let made = Command::new("ipcmk").args(["-M", "64"]).output().unwrap();
        let text = String::from_utf8(made.stdout).unwrap();
        Self(text.rsplit(' ').next().unwrap().trim().parse().unwrap())
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        let _ = Command::new("ipcrm").args(["-m", &self.0.to_string()]).status();
    }
}

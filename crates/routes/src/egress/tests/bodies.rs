//! Packed, endless and oversized bodies.

use async_compression::tokio::write::{BrotliEncoder, DeflateEncoder, GzipEncoder, ZlibEncoder};

use super::*;

async fn packed(encoding: &str, plain: &[u8]) -> Vec<u8> {
    macro_rules! by {
        ($encoder:ident) => {{
            let mut encoder = $encoder::new(Vec::new());
            encoder.write_all(plain).await.unwrap();
            encoder.shutdown().await.unwrap();
            encoder.into_inner()
        }};
    }
    match encoding {
        "gzip" => by!(GzipEncoder),
        "deflate" => by!(ZlibEncoder),
        "bare deflate" => by!(DeflateEncoder),
        _ => by!(BrotliEncoder),
    }
}

#[tokio::test]
async fn every_encoding_is_unpacked() {
    let plain = "the quick brown fox ".repeat(5000).into_bytes();
    let egress = egress(&["127.0.0.1"]);
    for encoding in ["gzip", "deflate", "bare deflate", "br"] {
        let packed = packed(encoding, &plain).await;
        let name = encoding.rsplit(' ').next().unwrap();
        let server = Server::start(move |_| answer(200, &[("content-encoding", name)], &packed)).await;
        assert!(body(&egress, &server.url("/")).await.unwrap() == plain, "{encoding}");
    }
    let twice = packed("br", &packed("gzip", &plain).await).await;
    let server = Server::start(move |head| match path(head) {
        "/twice" => answer(200, &[("content-encoding", "gzip, br")], &twice),
        "/empty" => answer(200, &[("content-encoding", "gzip")], ""),
        "/junk" => answer(200, &[("content-encoding", "gzip")], "no gzip at all"),
        "/zstd" => answer(200, &[("content-encoding", "zstd")], "x"),
        _ => answer(200, &[("content-encoding", "gzip, gzip, gzip, gzip")], "x"),
    })
    .await;
    assert!(body(&egress, &server.url("/twice")).await.unwrap() == plain);
    assert_eq!(body(&egress, &server.url("/empty")).await.unwrap(), b"");
    assert!(matches!(fails(&egress, &server.url("/junk")).await, FetchError::BrokenBody(_)));
    assert!(matches!(fails(&egress, &server.url("/zstd")).await, FetchError::Encoding(_)));
    assert!(matches!(fails(&egress, &server.url("/many")).await, FetchError::Encoding(_)));
}

/// One gigabyte of zeros in about one megabyte: a hundred members of ten megabytes each.
async fn bomb() -> Vec<u8> {
    packed("gzip", &vec![0; 10 << 20]).await.repeat(103)
}

#[tokio::test]
async fn a_gzip_bomb_stops_at_the_cap() {
    let bomb = bomb().await;
    assert!(bomb.len() < 2 << 20);
    let server = Server::start(move |_| answer(200, &[("content-encoding", "gzip")], &bomb)).await;
    let egress = egress(&["127.0.0.1"]);
    let error = fails(&egress, &server.url("/")).await;
    assert!(matches!(error, FetchError::TooLarge { limit: 5_242_880 }), "{error}");
    let reply = get(&egress, request(&server.url("/"))).await.unwrap();
    let body = reply.read(Limit::First(1000)).await.unwrap();
    assert_eq!((body.bytes.len(), body.truncated), (1000, true));
}

#[tokio::test]
async fn an_endless_body_stops_at_the_cap() {
    let server = Server::start(|_| vec![Act::Send(head(200, &[])), Act::Repeat(vec![b'x'; 8192])]).await;
    let config = EgressConfig { max_body: Size(100_000), ..config(&["127.0.0.1"]) };
    let egress = Egress::new(&config).unwrap();
    assert!(matches!(fails(&egress, &server.url("/")).await, FetchError::TooLarge { limit: 100_000 }));
    let body =
        get(&egress, request(&server.url("/"))).await.unwrap().read(Limit::First(100_000)).await.unwrap();
    assert_eq!((body.bytes.len(), body.truncated), (100_000, true));
}

#[tokio::test]
async fn a_declared_size_over_the_cap_is_not_read() {
    let server =
        Server::start(|_| vec![Act::Send(head(200, &[("content-length", "99999999999")])), Act::Hang]).await;
    assert!(matches!(fails(&egress(&["127.0.0.1"]), &server.url("/")).await, FetchError::TooLarge { .. }));
}

#[tokio::test]
async fn a_body_of_exactly_the_cap_is_whole() {
    let server = Server::start(|_| page("text/plain", "12345")).await;
    let egress = egress(&["127.0.0.1"]);
    for limit in [Limit::Whole(5), Limit::First(5)] {
        let body = get(&egress, request(&server.url("/"))).await.unwrap().read(limit).await.unwrap();
        assert_eq!((body.bytes.as_slice(), body.truncated), (b"12345".as_slice(), false));
    }
}

//! Whatever comes over the wire is read or refused: no panic, no endless work, no room for lengths that lie.
#![cfg(test)]

use aegis_nfs::{
    MAX_RECORD, MAX_TRANSFER, mount3,
    nfs3::{Call, Procedure, Status, failed},
    record,
    rpc::{self, Accepted, NoCall},
    xdr::{Decoder, Encoder},
};
use bytes::Bytes;
use proptest::prelude::*;

fn read_all(bytes: &[u8]) -> Vec<Result<Bytes, std::io::ErrorKind>> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut stream = bytes;
        let mut found = Vec::new();
        loop {
            match record::read(&mut stream).await {
                Ok(Some(record)) => found.push(Ok(record)),
                Ok(None) => return found,
                Err(error) => {
                    found.push(Err(error.kind()));
                    return found;
                }
            }
        }
    })
}

#[test]
fn fragments_become_a_record_and_lies_end_the_stream() {
    let fragment = |last: bool, body: &[u8]| {
        let header = u32::try_from(body.len()).unwrap() | if last { 1 << 31 } else { 0 };
        [&header.to_be_bytes()[..], body].concat()
    };
    let two = [fragment(false, b"abcd"), fragment(true, b"efgh"), fragment(true, b"")].concat();
    assert_eq!(read_all(&two), [Ok(Bytes::from("abcdefgh")), Ok(Bytes::new())]);
    let huge = (u32::MAX).to_be_bytes();
    assert_eq!(read_all(&huge), [Err(std::io::ErrorKind::InvalidData)]);
    let empties = fragment(false, b"").repeat(1000);
    assert_eq!(read_all(&empties), [Err(std::io::ErrorKind::InvalidData)]);
    let summed = [fragment(false, &vec![0; MAX_RECORD]), fragment(true, b"x")].concat();
    assert_eq!(read_all(&summed), [Err(std::io::ErrorKind::InvalidData)]);
    assert_eq!(read_all(&fragment(true, b"abcd")[..6]), [Err(std::io::ErrorKind::UnexpectedEof)]);
}

fn call(program: u32, flavour: u32, credential: usize) -> Bytes {
    let mut call = Encoder::default();
    call.word(7).word(0).word(2).word(program).word(3).word(1);
    call.word(flavour).opaque(&vec![0; credential]).word(0).opaque(&[]);
    call.into_bytes().into()
}

#[test]
fn envelopes_are_checked() {
    let fine = rpc::Call::parse(call(100_003, 1, 20)).unwrap();
    assert_eq!((fine.xid, fine.program, fine.version, fine.procedure), (7, 100_003, 3, 1));
    assert!(matches!(rpc::Call::parse(call(1, 6, 20)), Err(NoCall::Refused(_))));
    assert!(matches!(rpc::Call::parse(call(1, 1, 404)), Err(NoCall::Unanswerable)));
    assert!(matches!(
        rpc::Call::parse(Bytes::from_static(&[0, 0, 0, 7, 0, 0, 0, 1])),
        Err(NoCall::Unanswerable)
    ));
    let head = rpc::accepted(7, Accepted::OtherVersion(3, 3), 0).into_bytes();
    assert_eq!(head.len(), 32);
}

#[test]
fn arguments_end_where_they_say() {
    let mut arguments = Encoder::default();
    arguments.opaque(b"handle").opaque(b"name");
    let bytes = Bytes::from(arguments.into_bytes());
    let parsed = Call::parse(Procedure::Lookup, Decoder::new(bytes.clone())).unwrap();
    assert_eq!(parsed, Call::Lookup { directory: Bytes::from("handle"), name: Bytes::from("name") });
    for length in 0..bytes.len() {
        assert!(Call::parse(Procedure::Lookup, Decoder::new(bytes.slice(..length))).is_err());
    }
    assert!(Call::parse(Procedure::GetAttr, Decoder::new(bytes)).is_err());
    let mut long = Encoder::default();
    long.opaque(&[0; 65]);
    assert!(Call::parse(Procedure::GetAttr, Decoder::new(long.into_bytes().into())).is_err());
    let mut lying = Encoder::default();
    lying.opaque(b"h").double(0).word(8).word(0).word(MAX_TRANSFER + 1);
    assert!(Call::parse(Procedure::Write, Decoder::new(lying.into_bytes().into())).is_err());
}

#[test]
fn failures_have_a_body_of_the_right_length() {
    for (procedure, words) in [
        (Procedure::GetAttr, 1),
        (Procedure::Lookup, 2),
        (Procedure::Write, 3),
        (Procedure::Rename, 5),
        (Procedure::Link, 4),
    ] {
        let mut answer = Encoder::default();
        failed(&mut answer, procedure, Status::Stale);
        assert_eq!(answer.len(), words * 4);
    }
}

proptest! {
    #[test]
    fn no_bytes_break_the_readers(bytes in prop::collection::vec(any::<u8>(), 0..300), number in 0_u32..30) {
        let bytes = Bytes::from(bytes);
        let _ = rpc::Call::parse(bytes.clone());
        let _ = mount3::Call::parse(number, Decoder::new(bytes.clone()));
        if let Some(procedure) = Procedure::of(number) {
            let _ = Call::parse(procedure, Decoder::new(bytes.clone()));
        }
        let _ = read_all(&bytes);
    }

    /// Small words make plausible requests, which get further than noise.
    #[test]
    fn no_words_break_the_readers(words in prop::collection::vec(0_u32..70, 0..80)) {
        let bytes: Bytes = words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>().into();
        for procedure in Procedure::ALL {
            let _ = Call::parse(*procedure, Decoder::new(bytes.clone()));
        }
        let _ = rpc::Call::parse(bytes);
    }
}

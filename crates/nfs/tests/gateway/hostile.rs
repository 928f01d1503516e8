//! Handles that are forged, old or somebody else's, and bytes that are nothing.

use std::time::Duration;

use aegis_core::record::NodeRecord;
use aegis_nfs::xdr::Encoder;

use crate::{
    client::{Set, Wire, says},
    stage::{Stage, operator, wanted},
};

fn alarms(notes: &[NodeRecord]) -> Vec<String> {
    notes
        .iter()
        .filter(|note| note.action == "unauthorized-volume-access")
        .map(|note| note.detail["reason"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn forged_replayed_and_foreign_handles_are_refused_and_told() {
    let mut stage = Stage::new().await;
    let (one, other) = (stage.export("workspace").await, stage.export("workspace").await);
    let (mut mine, mut theirs) = (Wire::mount(&one).await, Wire::mount(&other).await);
    let root = mine.root.clone();
    let file = mine.create(&root, "f", 1, Set::default()).await.unwrap();
    stage.events();
    // Any bit that is changed.
    for index in 0..48 {
        let mut forged = file.to_vec();
        forged[index] ^= 0x10;
        assert_eq!(mine.getattr(&forged).await, Err(says::BADHANDLE), "byte {index}");
    }
    for forged in [&[][..], &[0; 48], &[0xff; 64], &file[..47]] {
        assert_eq!(mine.getattr(forged).await, Err(says::BADHANDLE));
    }
    // Another execution's name on my file.
    let mut foreign = file.to_vec();
    foreign[..16].copy_from_slice(&theirs.root[..16]);
    assert_eq!(theirs.read(&foreign, 0, 10).await, Err(says::BADHANDLE));
    let told = stage.events();
    let name = "StorageEvent::UnauthorizedVolumeAccess";
    assert!(told.iter().filter(|event| event.name.as_str() == name).count() >= 53, "{}", told.len());
    // Two exports in one request.
    let moved = mine.rename((&root, "f"), (&theirs.root.clone(), "g")).await;
    assert_eq!(moved, Err(says::XDEV));
    // After the end.
    stage.gateway.unexport(&operator(), &one.summary.id).await.unwrap();
    assert_eq!(mine.getattr(&file).await, Err(says::STALE));
    assert_eq!(mine.write(&file, 0, 0, b"x").await, Err(says::STALE));
    assert_eq!(theirs.read(&file, 0, 1).await, Err(says::STALE));
    assert_eq!(mine.mnt(&one.mount_path).await, Err(13));
    assert_eq!(theirs.mnt("/00000000000000000000000000000000").await, Err(13));
    assert!(stage.gateway.unexport(&operator(), &one.summary.id).await.is_err());
    let (recorded, dir) = stage.stop().await;
    let alarms = alarms(&recorded.notes);
    // A flood is recorded in part.
    assert_eq!(alarms.len(), 20);

    // A node that starts again knows its own handles, and that they are of no more use.
    let stage = Stage::on(dir, |_, _| {}).await;
    let export = stage.export("workspace").await;
    let mut wire = Wire::connect(&export).await;
    assert_eq!(wire.getattr(&theirs.root).await, Err(says::STALE));
    let (recorded, _dir) = stage.stop().await;
    assert!(self::alarms(&recorded.notes).iter().any(|reason| reason.contains("has ended")));
}

#[tokio::test]
async fn an_export_ends_by_itself() {
    let stage = Stage::new().await;
    let export =
        stage.gateway.export(&operator(), wanted("workspace", None, Duration::from_millis(1))).await.unwrap();
    while !stage.gateway.list().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut wire = Wire::connect(&export).await;
    assert_eq!(wire.mnt(&export.mount_path).await, Err(13));
    let zero = stage.gateway.export(&operator(), wanted("workspace", None, Duration::ZERO)).await;
    assert!(zero.is_err());
    let long =
        stage.gateway.export(&operator(), wanted("workspace", None, Duration::from_secs(1 << 40))).await;
    assert!(long.is_err());
}

#[tokio::test]
async fn garbage_is_answered_or_ends_the_connection() {
    let stage = Stage::new().await;
    let export = stage.export("workspace").await;
    for garbage in [
        vec![0; 4],
        vec![0xff; 4],
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        [&[0x80, 0, 0, 4][..], b"abcd"].concat(),
        [&[0x80, 0, 0, 0][..]].concat(),
    ] {
        let mut wire = Wire::connect(&export).await;
        wire.send_raw(&garbage).await;
    }
    let mut wire = Wire::mount(&export).await;
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    // Another RPC version, another credential, another program, version, procedure; arguments that are none.
    for (record, length) in [
        (words(&[1, 0, 3, 100_003, 3, 0, 0, 0, 0, 0]), 24),
        (words(&[2, 0, 2, 100_003, 3, 0, 6, 0, 0, 0]), 20),
        (words(&[3, 0, 2, 100_000, 2, 3, 0, 0, 0, 0]), 24),
        (words(&[4, 0, 2, 100_003, 4, 0, 0, 0, 0, 0]), 32),
        (words(&[5, 0, 2, 100_003, 3, 99, 0, 0, 0, 0]), 24),
        (words(&[6, 0, 2, 100_003, 3, 1, 0, 0, 0, 0, 9, 9]), 24),
        (words(&[7, 0, 2, 100_003, 3, 0, 0, 0, 0, 0]), 24),
    ] {
        wire.send(&record).await;
        let answer = wire.receive().await.unwrap();
        assert_eq!((&answer[..4], answer.len()), (&record[..4], length), "{record:?}");
    }
    // What is no call gets no answer, and the next call does.
    wire.send(&words(&[8, 1, 2])).await;
    wire.send(&[1]).await;
    let root = wire.root.clone();
    wire.getattr(&root).await.unwrap();
    // Lists of what there is are empty: names are secrets.
    for procedure in [2, 5] {
        let mut list = wire.call(100_005, procedure, Encoder::default()).await.unwrap();
        assert!(!list.flag().unwrap());
    }
}

/// Requests that are not waited for, in one heap.
#[tokio::test]
async fn many_requests_at_once_are_all_answered() {
    let stage = Stage::new().await;
    let mut wire = stage.mounted("workspace").await;
    let root = wire.root.clone();
    for xid in 0..1000_u32 {
        let mut call = Encoder::default();
        call.word(1_000_000 + xid)
            .word(0)
            .word(2)
            .word(100_003)
            .word(3)
            .word(1)
            .word(0)
            .word(0)
            .word(0)
            .word(0);
        call.opaque(&root);
        wire.send(&call.into_bytes()).await;
    }
    let mut seen = std::collections::HashSet::new();
    for _ in 0..1000 {
        let answer = wire.receive().await.unwrap();
        seen.insert(u32::from_be_bytes(answer[..4].try_into().unwrap()));
    }
    assert_eq!(seen.len(), 1000);
}

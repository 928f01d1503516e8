//! Each procedure, and what it leaves on disk and in the record.

use std::os::unix::fs::PermissionsExt;

use crate::{
    client::{Set, Wire, says},
    stage::{Stage, small},
};

#[tokio::test]
async fn a_file_is_made_written_read_truncated_and_removed() {
    let mut stage = Stage::new().await;
    let mut wire = stage.mounted("workspace").await;
    let root = wire.root.clone();
    assert_eq!(root.len(), 48);
    let file = wire.create(&root, "a.txt", 1, Set { mode: Some(0o640), ..Set::default() }).await.unwrap();
    assert_eq!(file.len(), 48);
    let on_disk = stage.workspace().join("a.txt");
    assert_eq!(on_disk.metadata().unwrap().permissions().mode() & 0o777, 0o640);

    let (stable, verifier) = wire.write(&file, 0, 0, b"hello world").await.unwrap();
    assert_eq!(stable, 0);
    assert_eq!(wire.write(&file, 6, 2, b"there").await.unwrap(), (2, verifier));
    assert_eq!(wire.commit(&file).await, Ok(verifier));
    assert_eq!(std::fs::read(&on_disk).unwrap(), b"hello there");
    assert_eq!(wire.read(&file, 6, 3).await.unwrap().0, "the");
    let (rest, end) = wire.read(&file, 6, 100).await.unwrap();
    assert!(end && rest == "there");
    assert_eq!(wire.read(&file, 100, 10).await.unwrap(), (bytes::Bytes::new(), true));

    let found = wire.getattr(&file).await.unwrap();
    assert_eq!((found.kind, found.mode, found.size, found.uid, found.gid), (1, 0o640, 11, 1000, 1000));
    assert!(found.links == 1 && found.number != 0);
    wire.setattr(&file, Set { size: Some(5), mode: Some(0o600), ..Set::default() }, None).await.unwrap();
    assert_eq!(std::fs::read(&on_disk).unwrap(), b"hello");
    wire.setattr(&file, Set { size: Some(8), mtime: Some((1_000_000, 5)), ..Set::default() }, None)
        .await
        .unwrap();
    assert_eq!(std::fs::read(&on_disk).unwrap(), b"hello\0\0\0");
    let found = wire.getattr(&file).await.unwrap();
    assert_eq!((found.mode, found.size, found.mtime), (0o600, 8, (1_000_000, 5)));
    // A guard that is not the file's time of change keeps the file as it is.
    let set = Set { size: Some(1), ..Set::default() };
    assert_eq!(wire.setattr(&file, set, Some((1, 1))).await, Err(says::NOT_SYNC));
    wire.setattr(&file, set, Some(found.ctime)).await.unwrap();
    assert_eq!(on_disk.metadata().unwrap().len(), 1);
    for refused in [Set { uid: Some(0), ..Set::default() }, Set { mode: Some(0o4755), ..Set::default() }] {
        assert_eq!(wire.setattr(&file, refused, None).await, Err(says::PERM));
    }

    wire.remove(&root, "a.txt").await.unwrap();
    assert!(!on_disk.exists());
    assert_eq!(wire.getattr(&file).await, Err(says::STALE));
    assert_eq!(wire.remove(&root, "a.txt").await, Err(says::NOENT));

    let names: Vec<&str> = stage.events().iter().map(|event| event.name.as_str()).collect();
    for name in
        ["FileWritten", "FileRead", "FileDeleted", "AttributesChanged", "FileLookedAt", "VolumeExported"]
    {
        assert!(names.contains(&format!("StorageEvent::{name}").as_str()), "{name} in {names:?}");
    }
    let (recorded, _dir) = stage.stop().await;
    let count = |asked_as, status| recorded.count(asked_as, status);
    assert_eq!(
        (count("nfs.create", "done"), count("nfs.remove", "done"), count("nfs.remove", "failed")),
        (1, 1, 1)
    );
    // Both writes are one, which the commit ended.
    assert_eq!((count("nfs.write", "done"), count("nfs.read", "done")), (1, 1));
    assert_eq!((count("nfs.setattr", "done"), count("nfs.setattr", "failed")), (3, 1));
    let write = recorded.calls.iter().find(|call| call.asked_as.as_deref() == Some("nfs.write")).unwrap();
    assert_eq!(
        (write.tool.as_str(), write.result.clone()),
        ("fs.write", aegis_core::record::CallResult::Done { bytes: 16 })
    );
    assert_eq!(write.caller.door, aegis_core::Door::Nfs);
    // Every change has an intent, and every intent its record.
    for intent in &recorded.intents {
        assert_eq!(recorded.calls.iter().filter(|call| call.call == intent.call).count(), 1);
    }
    assert_eq!(recorded.intents.len(), 1 + 1 + 2 + 4);
    let notes: Vec<&str> = recorded.notes.iter().map(|note| note.action.as_str()).collect();
    assert!(notes.contains(&"volume-exported") && notes.contains(&"volume-unexported"), "{notes:?}");
}

#[tokio::test]
async fn making_the_same_file_again() {
    let stage = Stage::new().await;
    let mut wire = stage.mounted("workspace").await;
    let root = wire.root.clone();
    let file = wire.create(&root, "f", 0, Set::default()).await.unwrap();
    wire.write(&file, 0, 2, b"content").await.unwrap();
    assert_eq!(wire.create(&root, "f", 1, Set::default()).await, Err(says::EXIST));
    assert_eq!(wire.create(&root, "f", 0, Set::default()).await.unwrap(), file);
    assert_eq!(wire.read_all(&file).await.unwrap(), b"content");
    wire.create(&root, "f", 0, Set { size: Some(0), ..Set::default() }).await.unwrap();
    assert_eq!(wire.read_all(&file).await.unwrap(), b"");

    wire.mkdir(&root, "d").await.unwrap();
    assert_eq!(wire.create(&root, "d", 0, Set::default()).await, Err(says::EXIST));
    // As git makes its objects: nobody may write the file but who is making it.
    let kept = wire.create(&root, "kept", 1, Set { mode: Some(0o444), ..Set::default() }).await.unwrap();
    wire.write(&kept, 0, 2, b"object").await.unwrap();
    let mut other = stage.mounted("workspace").await;
    let kept = other.walk("kept").await.unwrap();
    assert_eq!(other.write(&kept, 0, 2, b"x").await, Err(says::ACCES));

    let exclusive = wire.create_exclusive(&root, "x", 0x1234_5678_9abc_def0).await.unwrap();
    // A client that did not hear the answer asks again; another one is told no.
    assert_eq!(wire.create_exclusive(&root, "x", 0x1234_5678_9abc_def0).await.unwrap(), exclusive);
    assert_eq!(wire.create_exclusive(&root, "x", 7).await, Err(says::EXIST));
}

#[tokio::test]
async fn directories_and_their_pages() {
    let stage = Stage::new().await;
    let mut wire = stage.mounted("workspace").await;
    let root = wire.root.clone();
    let directory = wire.mkdir(&root, "many").await.unwrap();
    assert_eq!(wire.mkdir(&root, "many").await, Err(says::EXIST));
    let mut names: Vec<String> = (0..300).map(|n| format!("a file with number {n}")).collect();
    for name in &names {
        std::fs::write(stage.workspace().join("many").join(name), name).unwrap();
    }
    names.sort();
    for count in [512, 4096, 1 << 20] {
        assert_eq!(wire.names(&directory, count).await.unwrap(), names);
    }
    // What is removed between two pages does not make others vanish.
    let (mut seen, mut cookie, mut verifier) = (Vec::new(), 0, 0);
    loop {
        let (entries, found, end) = wire.readdirplus(&directory, cookie, verifier, 8192).await.unwrap();
        verifier = found;
        for (name, at, found) in entries {
            cookie = at;
            if name == "." || name == ".." {
                continue;
            }
            let (attributes, handle) = found.unwrap();
            assert_eq!(attributes.size, name.len() as u64);
            assert_eq!(wire.read_all(&handle).await.unwrap(), name.as_bytes());
            wire.remove(&directory, &name).await.unwrap();
            seen.push(name);
        }
        if end {
            break;
        }
    }
    seen.sort();
    assert_eq!(seen, names);
    assert_eq!(wire.readdir(&directory, 3, verifier ^ 1, 4096).await, Err(says::BAD_COOKIE));
    std::fs::write(stage.workspace().join("many/x"), "").unwrap();
    assert_eq!(wire.readdir(&directory, 2, verifier, 100).await, Err(says::TOOSMALL));
    let file = wire.walk("many/x").await.unwrap();
    assert_eq!(wire.readdir(&file, 0, 0, 4096).await, Err(says::NOTDIR));
    assert_eq!(wire.lookup(&file, "y").await, Err(says::NOTDIR));
    assert_eq!(wire.rmdir(&root, "many").await, Err(says::NOTEMPTY));
    assert_eq!(wire.remove(&root, "many").await, Err(says::ISDIR));
    assert_eq!(wire.rmdir(&directory, "x").await, Err(says::NOTDIR));
    wire.remove(&directory, "x").await.unwrap();
    wire.rmdir(&root, "many").await.unwrap();
    assert_eq!(wire.readdir(&directory, 0, 0, 4096).await, Err(says::STALE));
    assert_eq!(wire.lookup(&root, ".").await.unwrap(), root);
    assert_eq!(wire.lookup(&root, "..").await.unwrap(), root);
}

#[tokio::test]
async fn a_handle_follows_its_file() {
    let stage = Stage::new().await;
    let mut wire = stage.mounted("workspace").await;
    let root = wire.root.clone();
    let (a, b) = (wire.mkdir(&root, "a").await.unwrap(), wire.mkdir(&root, "b").await.unwrap());
    let file = wire.create(&a, "f", 1, Set::default()).await.unwrap();
    wire.write(&file, 0, 2, b"one").await.unwrap();
    wire.rename((&a, "f"), (&b, "g")).await.unwrap();
    wire.write(&file, 3, 2, b" two").await.unwrap();
    assert_eq!(std::fs::read(stage.workspace().join("b/g")).unwrap(), b"one two");
    // With its directory, too.
    wire.rename((&root, "b"), (&a, "c")).await.unwrap();
    assert_eq!(wire.read_all(&file).await.unwrap(), b"one two");
    assert_eq!(wire.lookup(&b, "..").await.unwrap(), a);
    // Onto another file, whose handle is of no more use.
    let other = wire.create(&a, "other", 1, Set::default()).await.unwrap();
    wire.rename((&b, "g"), (&a, "other")).await.unwrap();
    assert_eq!(wire.getattr(&other).await, Err(says::STALE));
    assert_eq!(wire.read_all(&file).await.unwrap(), b"one two");
    assert_eq!(wire.rename((&root, "a"), (&b, "deep")).await, Err(says::INVAL));
    assert_eq!(wire.rename((&root, "none"), (&a, "x")).await, Err(says::NOENT));
    wire.mkdir(&root, "d").await.unwrap();
    assert_eq!(wire.rename((&root, "d"), (&a, "other")).await, Err(says::NOTDIR));
    // Somebody else replaced the file: the old handle is not taken for the new file.
    std::fs::write(stage.workspace().join("new"), "new").unwrap();
    std::fs::rename(stage.workspace().join("new"), stage.workspace().join("a/other")).unwrap();
    assert_eq!(wire.read_all(&file).await, Err(says::STALE));
    assert_eq!(wire.getattr(&file).await, Err(says::STALE));
}

#[tokio::test]
async fn links_stay_inside_and_hard_ones_are_not_made() {
    let stage = Stage::new().await;
    let mut wire = stage.mounted("workspace").await;
    let root = wire.root.clone();
    let directory = wire.mkdir(&root, "d").await.unwrap();
    let link = wire.symlink(&directory, "up", "../target").await.unwrap();
    assert_eq!(wire.getattr(&link).await.unwrap().kind, 5);
    assert_eq!(wire.readlink(&link).await.unwrap(), "../target");
    for target in ["/etc/passwd", "../../outside", "../x/../../y", ""] {
        assert_eq!(wire.symlink(&directory, "out", target).await, Err(says::ACCES), "{target}");
    }
    std::os::unix::fs::symlink("/etc", stage.workspace().join("etc")).unwrap();
    let outward = wire.lookup(&root, "etc").await.unwrap();
    assert_eq!(wire.readlink(&outward).await, Err(says::ACCES));
    // The server never follows one itself.
    assert_eq!(wire.lookup(&outward, "passwd").await, Err(says::NOTDIR));
    assert_eq!(wire.read(&outward, 0, 10).await, Err(says::INVAL));
    assert_eq!(wire.readdir(&outward, 0, 0, 4096).await, Err(says::NOTDIR));
    let file = wire.create(&root, "f", 1, Set::default()).await.unwrap();
    assert_eq!(wire.readlink(&file).await, Err(says::INVAL));
    assert_eq!(wire.link(&file, &root, "g").await, Err(says::NOTSUPP));
    assert_eq!(wire.mknod(&root, "fifo").await, Err(says::NOTSUPP));
    // A file with another name somewhere is not read, as by the tools.
    std::fs::hard_link(stage.workspace().join("f"), stage.outside().join("elsewhere")).unwrap();
    assert_eq!(wire.read(&file, 0, 10).await, Err(says::ACCES));
}

#[tokio::test]
async fn names_that_are_none_are_refused() {
    let stage = Stage::new().await;
    let mut wire = stage.mounted("workspace").await;
    let root = wire.root.clone();
    let reserved = ".aegis-0123456789abcdef0123456789abcdef.part";
    for (name, status) in [
        ("..", says::INVAL),
        (".", says::INVAL),
        ("", says::INVAL),
        ("a/b", says::INVAL),
        ("../x", says::INVAL),
        ("a\0b", says::INVAL),
        (reserved, says::ACCES),
        (&"x".repeat(256), says::NAMETOOLONG),
    ] {
        assert_eq!(wire.create(&root, name, 1, Set::default()).await, Err(status), "{name:?}");
        assert_eq!(wire.mkdir(&root, name).await, Err(status), "{name:?}");
    }
    std::fs::write(stage.workspace().join(reserved), "half").unwrap();
    assert_eq!(wire.lookup(&root, reserved).await, Err(says::NOENT));
    assert!(wire.names(&root, 4096).await.unwrap().is_empty());
}

#[tokio::test]
async fn the_quota_holds_and_says_how_much_is_left() {
    let mut stage = Stage::with(|storage, _| small(storage)).await;
    let mut wire = stage.mounted("workspace").await;
    let root = wire.root.clone();
    let (total, free) = wire.fsstat(&root).await.unwrap();
    assert_eq!((total, free), (64 << 10, 64 << 10));
    let file = wire.create(&root, "f", 1, Set::default()).await.unwrap();
    wire.write(&file, 0, 0, &[1; 32 << 10]).await.unwrap();
    assert_eq!(wire.fsstat(&root).await.unwrap().1, (64 << 10) - (32 << 10) - 4096);
    assert_eq!(wire.write(&file, 32 << 10, 0, &[1; 32 << 10]).await, Err(says::DQUOT));
    assert_eq!(wire.write(&file, 1 << 40, 0, b"x").await, Err(says::DQUOT));
    let grow = Set { size: Some(1 << 30), ..Set::default() };
    assert_eq!(wire.setattr(&file, grow, None).await, Err(says::DQUOT));
    // Writing over what is there takes no room.
    wire.write(&file, 0, 0, &[2; 32 << 10]).await.unwrap();
    wire.setattr(&file, Set { size: Some(0), ..Set::default() }, None).await.unwrap();
    wire.write(&file, 0, 0, &[1; 48 << 10]).await.unwrap();
    wire.remove(&root, "f").await.unwrap();
    assert_eq!(wire.fsstat(&root).await.unwrap().1, 64 << 10);
    let events = stage.events();
    assert!(events.iter().any(|event| event.name.as_str() == "StorageEvent::QuotaExceeded"));
}

#[tokio::test]
async fn what_clients_ask_before_they_begin() {
    let stage = Stage::new().await;
    let export = stage.export("workspace").await;
    let mut wire = Wire::mount(&export).await;
    let root = wire.root.clone();
    assert_eq!(wire.fsinfo(&root).await.unwrap(), 1 << 20);
    wire.pathconf(&root).await.unwrap();
    assert_eq!(wire.access(&root, 0x3f).await.unwrap(), 0x3f);
    let directory = wire.mkdir(&root, "sub").await.unwrap();
    // A directory below can be mounted by itself; something that is none can't.
    assert_eq!(wire.mnt(&format!("{}/sub", export.mount_path)).await.unwrap(), directory);
    wire.create(&root, "file", 1, Set::default()).await.unwrap();
    assert_eq!(wire.mnt(&format!("{}/file", export.mount_path)).await, Err(20));
    assert_eq!(wire.mnt(&format!("{}/none", export.mount_path)).await, Err(2));
    assert_eq!(wire.mnt(&format!("{}/../..", export.mount_path)).await, Err(2));
    assert!(export.mount_command().contains("vers=3") && export.url().starts_with("nfs://127.0.0.1/"));
}

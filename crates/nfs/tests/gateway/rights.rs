//! The caller's context decides, as it does for the tools.

use std::time::Duration;

use aegis_core::{Timestamp, config::AccessMode, record::CallResult};
use aegis_plane::approvals::{Covered, NewStanding};

use crate::{
    client::{Set, Wire, says},
    stage::{Stage, operator, volume, wanted},
};

#[tokio::test]
async fn who_may_only_read_only_reads() {
    let stage = Stage::new().await;
    let mut writer = stage.mounted("workspace").await;
    let root = writer.root.clone();
    let file = writer.create(&root, "f", 1, Set::default()).await.unwrap();
    writer.write(&file, 0, 2, b"text").await.unwrap();

    let mut reader = stage.mounted("read-only").await;
    let root = reader.root.clone();
    let file = reader.walk("f").await.unwrap();
    assert_eq!(reader.read_all(&file).await.unwrap(), b"text");
    assert_eq!(reader.access(&file, 0x3f).await.unwrap(), 0x23);
    assert_eq!(reader.write(&file, 0, 0, b"x").await, Err(says::ACCES));
    assert_eq!(reader.setattr(&file, Set { size: Some(0), ..Set::default() }, None).await, Err(says::ACCES));
    assert_eq!(reader.create(&root, "g", 1, Set::default()).await, Err(says::ACCES));
    assert_eq!(reader.mkdir(&root, "d").await, Err(says::ACCES));
    assert_eq!(reader.symlink(&root, "l", "f").await, Err(says::ACCES));
    assert_eq!(reader.remove(&root, "f").await, Err(says::ACCES));
    assert_eq!(reader.rmdir(&root, "f").await, Err(says::ACCES));
    assert_eq!(reader.rename((&root, "f"), (&root, "g")).await, Err(says::ACCES));
    assert_eq!(std::fs::read(stage.workspace().join("f")).unwrap(), b"text");
    let (recorded, _dir) = stage.stop().await;
    assert_eq!(recorded.count("nfs.write", "refused"), 1);
    let refused = recorded.calls.iter().filter(|call| matches!(call.result, CallResult::Refused { .. }));
    assert!(
        refused.clone().count() >= 7
            && refused.into_iter().all(|call| call.caller.context.as_str() == "read-only")
    );
}

#[tokio::test]
async fn a_context_holds_for_every_path() {
    let stage = Stage::new().await;
    for path in ["open/x", "closed/y", "secret/z"] {
        let path = stage.workspace().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "text").unwrap();
    }
    // All below one directory: the root itself may not be looked at, and the directory can be mounted.
    let export = stage.export("part").await;
    let mut wire = Wire::mount(&export).await;
    let root = wire.root.clone();
    assert_eq!(wire.getattr(&root).await, Err(says::ACCES));
    assert_eq!(wire.readdir(&root, 0, 0, 4096).await, Err(says::ACCES));
    assert_eq!(wire.lookup(&root, "closed").await, Err(says::ACCES));
    let open = wire.mnt(&format!("{}/open", export.mount_path)).await.unwrap();
    assert_eq!(wire.mnt(&format!("{}/closed", export.mount_path)).await, Err(13));
    let file = wire.lookup(&open, "x").await.unwrap();
    assert_eq!(wire.read_all(&file).await.unwrap(), b"text");
    assert_eq!(wire.rename((&open, "x"), (&root, "x")).await, Err(says::ACCES));

    // All but one directory.
    let mut wire = stage.mounted("secretive").await;
    let root = wire.root.clone();
    assert_eq!(wire.lookup(&root, "secret").await, Err(says::ACCES));
    let (entries, ..) = wire.readdirplus(&root, 0, 0, 8192).await.unwrap();
    for (name, _, found) in entries {
        assert_eq!(found.is_some(), ["open", "closed"].contains(&name.as_str()), "{name}");
    }
    // A directory can't be moved onto the denied one, nor the denied one with its parent.
    assert_eq!(wire.rename((&root, "open"), (&root, "secret")).await, Err(says::ACCES));
    assert_eq!(wire.create(&root, "secret", 0, Set::default()).await, Err(says::ACCES));
    let (recorded, _dir) = stage.stop().await;
    let refused =
        |path: &str| recorded.operations().iter().any(|(_, at, ended)| at == path && ended == "refused");
    assert!(refused("/workspace/secret") && refused("/workspace/closed"), "{:?}", recorded.operations());
}

/// Under another name the path would be open, so neither it nor what it is in is given one.
#[tokio::test]
async fn what_is_closed_stays_where_it_is() {
    let stage = Stage::new().await;
    for path in ["box/keys/k", "box/plain", "other/x"] {
        let path = stage.workspace().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "text").unwrap();
    }
    for context in ["blind", "walled"] {
        let mut wire = stage.mounted(context).await;
        let root = wire.root.clone();
        let (parent, other) = (wire.walk("box").await.unwrap(), wire.walk("other").await.unwrap());
        assert_eq!(wire.rename((&root, "box"), (&root, "crate")).await, Err(says::ACCES), "{context}");
        assert_eq!(wire.rename((&parent, "keys"), (&root, "keys")).await, Err(says::ACCES), "{context}");
        assert_eq!(wire.rename((&root, "other"), (&parent, "keys")).await, Err(says::ACCES), "{context}");
        assert_eq!(wire.rename((&other, "x"), (&root, "box")).await, Err(says::ACCES), "{context}");
        assert_eq!(wire.rmdir(&root, "box").await, Err(says::ACCES), "{context}");
        // Who may look at it but not read it can't take single files out either.
        if let Ok(keys) = wire.lookup(&parent, "keys").await {
            assert_eq!(context, "blind");
            let file = wire.lookup(&keys, "k").await.unwrap();
            assert_eq!(wire.read(&file, 0, 10).await.map(drop), Err(says::ACCES));
            assert_eq!(wire.rename((&keys, "k"), (&root, "k")).await, Err(says::ACCES));
            assert_eq!(wire.remove(&keys, "k").await, Err(says::ACCES));
        }
        assert_eq!(wire.rename((&parent, "plain"), (&root, "plain")).await, Ok(()), "{context}");
        assert_eq!(wire.rename((&root, "plain"), (&parent, "plain")).await, Ok(()), "{context}");
    }
    assert_eq!(std::fs::read(stage.workspace().join("box/keys/k")).unwrap(), b"text");
}

/// A link where a directory belongs would decide where others put what is closed; a file would be in their way.
#[tokio::test]
async fn nobody_bends_the_way_to_what_is_closed() {
    for context in ["blind", "walled"] {
        let stage = Stage::new().await;
        let mut wire = stage.mounted(context).await;
        let root = wire.root.clone();
        let open = wire.mkdir(&root, "open").await.unwrap();
        assert_eq!(wire.symlink(&root, "box", "open").await, Err(says::ACCES), "{context}");
        assert_eq!(wire.create(&root, "box", 0, Set::default()).await, Err(says::ACCES), "{context}");
        assert_eq!(wire.create(&root, "box", 1, Set::default()).await, Err(says::ACCES), "{context}");
        // Nor does one that was made elsewhere come there.
        wire.symlink(&open, "l", ".").await.unwrap();
        assert_eq!(wire.rename((&open, "l"), (&root, "box")).await, Err(says::ACCES), "{context}");

        let parent = wire.mkdir(&root, "box").await.unwrap();
        assert_eq!(wire.symlink(&parent, "keys", "../open").await, Err(says::ACCES), "{context}");
        assert_eq!(wire.rename((&open, "l"), (&parent, "keys")).await, Err(says::ACCES), "{context}");
        std::fs::create_dir_all(stage.workspace().join("box/keys")).unwrap();
        if let Ok(keys) = wire.lookup(&parent, "keys").await {
            assert_eq!(context, "blind");
            assert_eq!(wire.symlink(&keys, "l", "../../open").await, Err(says::ACCES));
            wire.create(&keys, "k", 1, Set::default()).await.unwrap();
        }
        // What lies beside it is nobody's concern, and neither are the modes and times of what lies above it.
        wire.symlink(&parent, "beside", "../open").await.unwrap();
        wire.create(&parent, "file", 1, Set::default()).await.unwrap();
        let times = Set { mode: Some(0o750), ..Set::default() };
        wire.setattr(&parent, times, None).await.unwrap();
    }
}

#[tokio::test]
async fn what_needs_a_person_is_refused_and_a_rate_counts_files_not_pieces() {
    let stage = Stage::new().await;
    let mut wire = stage.mounted("asks").await;
    let root = wire.root.clone();
    assert_eq!(wire.create(&root, "f", 1, Set::default()).await, Err(says::ACCES));
    for name in ["one", "two"] {
        std::fs::write(stage.workspace().join(name), "").unwrap();
    }
    let mut wire = stage.mounted("slow").await;
    let (one, two) = (wire.walk("one").await.unwrap(), wire.walk("two").await.unwrap());
    for piece in 0..10 {
        wire.write(&one, piece * 10, 0, b"0123456789").await.unwrap();
        wire.write(&two, piece * 10, 0, b"0123456789").await.unwrap();
    }
    let third = wire.setattr(&one, Set { size: Some(0), ..Set::default() }, None).await;
    assert_eq!(third, Err(says::JUKEBOX));
    let (recorded, _dir) = stage.stop().await;
    assert_eq!(recorded.count("nfs.write", "done"), 2);
    let asked = recorded.calls.iter().find(|call| call.asked_as.as_deref() == Some("nfs.create")).unwrap();
    let CallResult::Refused { message, .. } = &asked.result else { panic!("{:?}", asked.result) };
    assert!(message.contains("a person has to agree"), "{message}");
}

#[tokio::test]
async fn a_standing_word_holds_until_it_is_taken_back() {
    let stage = Stage::new().await;
    let standing = NewStanding {
        tenant: "local".into(),
        user: "agent".into(),
        tool: "fs.write".into(),
        arguments: Covered::Any,
        until: Timestamp::now().plus(Duration::from_secs(3600)),
        covers_labels: true,
        note: None,
    };
    let approvals = stage.plane.approvals();
    let standing = approvals.always(standing, &operator()).await.unwrap();
    let mut wire = stage.mounted("asks").await;
    std::fs::write(stage.workspace().join("f"), "").unwrap();
    let file = wire.walk("f").await.unwrap();
    wire.write(&file, 0, 0, b"agreed").await.unwrap();
    approvals.revoke_standing(&standing.id, &operator()).await.unwrap();
    // Writes that follow each other are one access. It goes on with what was decided, but not for long.
    let mut written = 0;
    let refused = loop {
        match wire.write(&file, 6, 0, b"!").await {
            Ok(_) if written < 100 => written += 1,
            Ok(_) => panic!("still written"),
            Err(refused) => break refused,
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(refused, says::ACCES);
}

#[tokio::test]
async fn one_export_is_one_volume() {
    let stage = Stage::with(|storage, outside| {
        storage.volumes.push(volume(
            "shared",
            &outside.join("shared"),
            "/workspace/shared",
            AccessMode::ReadWrite,
        ));
        storage.volumes.push(volume("kept", &outside.join("kept"), "/workspace/kept", AccessMode::ReadOnly));
    })
    .await;
    std::fs::write(stage.outside().join("shared/s"), "shared").unwrap();
    std::fs::write(stage.outside().join("kept/k"), "kept").unwrap();
    let mut wire = stage.mounted("workspace").await;
    let root = wire.root.clone();
    std::fs::create_dir(stage.workspace().join("shared")).unwrap();
    assert_eq!(wire.lookup(&root, "shared").await, Err(says::ACCES));
    assert_eq!(wire.mkdir(&root, "kept").await, Err(says::ACCES));
    assert!(wire.names(&root, 4096).await.unwrap().is_empty());

    let mut wire = Wire::mount(&stage.export_volume("workspace", Some("shared")).await).await;
    let file = wire.walk("s").await.unwrap();
    assert_eq!(wire.read_all(&file).await.unwrap(), b"shared");
    let mut wire = Wire::mount(&stage.export_volume("workspace", Some("kept")).await).await;
    let root = wire.root.clone();
    let file = wire.walk("k").await.unwrap();
    assert_eq!(wire.read_all(&file).await.unwrap(), b"kept");
    assert_eq!(wire.write(&file, 0, 0, b"x").await, Err(says::ROFS));
    assert_eq!(wire.remove(&root, "k").await, Err(says::ROFS));
    assert_eq!(wire.create(&root, "n", 0, Set::default()).await, Err(says::ROFS));
    assert_eq!(wire.access(&file, 0x3f).await.unwrap(), 0x23);
    let refused =
        stage.gateway.export(&operator(), wanted("workspace", Some("none"), Duration::from_secs(9))).await;
    assert!(refused.unwrap_err().message.contains("no volume `none`"));
    let refused = stage.gateway.export(&operator(), wanted("none", None, Duration::from_secs(9))).await;
    assert!(refused.unwrap_err().message.contains("no security context `none`"));
}

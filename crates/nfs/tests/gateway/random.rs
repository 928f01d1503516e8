//! The same random deeds over NFS and on a local directory, which must end up alike.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::Path,
};

use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};

use crate::{
    client::{Said, Set, Wire},
    stage::Stage,
};

#[derive(Debug, Clone)]
enum Deed {
    Create(String),
    Write(String, u64, Vec<u8>),
    Truncate(String, u64),
    MkDir(String),
    Remove(String),
    RmDir(String),
    Rename(String, String),
    Link(String, String),
}

/// Few names, so that deeds meet.
fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..4).prop_map(|names| names.join("/"))
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        3 => path().prop_map(Deed::Create),
        3 => (path(), 0_u64..5000, prop::collection::vec(any::<u8>(), 0..3000))
            .prop_map(|(path, offset, data)| Deed::Write(path, offset, data)),
        1 => (path(), 0_u64..6000).prop_map(|(path, size)| Deed::Truncate(path, size)),
        3 => path().prop_map(Deed::MkDir),
        1 => path().prop_map(Deed::Remove),
        1 => path().prop_map(Deed::RmDir),
        3 => (path(), path()).prop_map(|(from, to)| Deed::Rename(from, to)),
        1 => (path(), prop::sample::select(vec!["a", "b/c", "./x"])).prop_map(|(path, to)| Deed::Link(path, to.into())),
    ]
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

async fn over_nfs(wire: &mut Wire, deed: &Deed) -> Said<()> {
    match deed {
        Deed::Create(path) => {
            let (above, name) = split(path);
            let directory = wire.walk(above).await?;
            wire.create(&directory, name, 1, Set::default()).await.map(drop)
        }
        Deed::Write(path, offset, data) => {
            let file = wire.walk(path).await?;
            wire.write(&file, *offset, 0, data).await.map(drop)
        }
        Deed::Truncate(path, size) => {
            let file = wire.walk(path).await?;
            wire.setattr(&file, Set { size: Some(*size), ..Set::default() }, None).await
        }
        Deed::MkDir(path) => {
            let (above, name) = split(path);
            let directory = wire.walk(above).await?;
            wire.mkdir(&directory, name).await.map(drop)
        }
        Deed::Remove(path) => {
            let (above, name) = split(path);
            let directory = wire.walk(above).await?;
            wire.remove(&directory, name).await
        }
        Deed::RmDir(path) => {
            let (above, name) = split(path);
            let directory = wire.walk(above).await?;
            wire.rmdir(&directory, name).await
        }
        Deed::Rename(from, to) => {
            let ((old, from), (new, to)) = (split(from), split(to));
            let (old, new) = (wire.walk(old).await?, wire.walk(new).await?);
            wire.rename((&old, from), (&new, to)).await
        }
        Deed::Link(path, target) => {
            let (above, name) = split(path);
            let directory = wire.walk(above).await?;
            wire.symlink(&directory, name, target).await.map(drop)
        }
    }
}

/// As `open` with `O_NOFOLLOW`: links are not followed there either.
fn plain(root: &Path, path: &str) -> io::Result<std::path::PathBuf> {
    let mut at = root.to_owned();
    for name in path.split('/') {
        if at != root && at.symlink_metadata()?.is_symlink() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        at.push(name);
    }
    Ok(at)
}

fn locally(root: &Path, deed: &Deed) -> io::Result<()> {
    let file = |path: &str| {
        let path = plain(root, path)?;
        if path.symlink_metadata()?.is_symlink() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        File::options().write(true).open(path)
    };
    match deed {
        Deed::Create(path) => File::options().write(true).create_new(true).open(plain(root, path)?).map(drop),
        Deed::Write(path, offset, data) => file(path)?.write_all_at(data, *offset),
        Deed::Truncate(path, size) => file(path)?.set_len(*size),
        Deed::MkDir(path) => fs::create_dir(plain(root, path)?),
        Deed::Remove(path) => fs::remove_file(plain(root, path)?),
        Deed::RmDir(path) => fs::remove_dir(plain(root, path)?),
        Deed::Rename(from, to) => fs::rename(plain(root, from)?, plain(root, to)?),
        Deed::Link(path, target) => std::os::unix::fs::symlink(target, plain(root, path)?),
    }
}

type Picture = BTreeMap<String, String>;

fn picture_of(root: &Path) -> Picture {
    let mut found = Picture::new();
    let mut left = vec![String::new()];
    while let Some(at) = left.pop() {
        for entry in fs::read_dir(root.join(&at)).unwrap() {
            let entry = entry.unwrap();
            let name =
                format!("{at}/{}", entry.file_name().to_string_lossy()).trim_start_matches('/').to_owned();
            let kind = entry.file_type().unwrap();
            let shown = if kind.is_dir() {
                left.push(name.clone());
                "directory".to_owned()
            } else if kind.is_symlink() {
                format!("link to {}", fs::read_link(entry.path()).unwrap().display())
            } else {
                format!("{:?}", fs::read(entry.path()).unwrap())
            };
            found.insert(name, shown);
        }
    }
    found
}

async fn picture_over(wire: &mut Wire) -> Picture {
    let mut found = Picture::new();
    let mut left = vec![(String::new(), wire.root.clone())];
    while let Some((at, directory)) = left.pop() {
        for name in wire.names(&directory, 1024).await.unwrap() {
            let handle = wire.lookup(&directory, &name).await.unwrap();
            let path = format!("{at}/{name}").trim_start_matches('/').to_owned();
            let shown = match wire.getattr(&handle).await.unwrap().kind {
                2 => {
                    left.push((path.clone(), handle));
                    "directory".to_owned()
                }
                5 => format!("link to {}", String::from_utf8_lossy(&wire.readlink(&handle).await.unwrap())),
                _ => format!("{:?}", wire.read_all(&handle).await.unwrap()),
            };
            found.insert(path, shown);
        }
    }
    found
}

#[test]
fn random_deeds_end_alike() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut runner = TestRunner::new(Config { cases: 24, failure_persistence: None, ..Config::default() });
    let deeds = prop::collection::vec(deed(), 1..60);
    runner
        .run(&deeds, |deeds| {
            runtime.block_on(async {
                let stage = Stage::new().await;
                let local = tempfile::TempDir::new_in(stage.outside()).unwrap();
                let mut wire = stage.mounted("workspace").await;
                for deed in &deeds {
                    let (ours, theirs) = (over_nfs(&mut wire, deed).await, locally(local.path(), deed));
                    prop_assert_eq!(ours.is_ok(), theirs.is_ok(), "{:?}: {:?} and {:?}", deed, ours, theirs);
                }
                let picture = picture_of(local.path());
                prop_assert_eq!(&picture_of(&stage.workspace()), &picture);
                prop_assert_eq!(&picture_over(&mut wire).await, &picture);
                Ok(())
            })
        })
        .unwrap();
}

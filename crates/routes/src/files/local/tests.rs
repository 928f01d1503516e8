//! What can't be reached through tools: the way without `openat2`, and changes in the middle of an edit.

use std::{os::unix::fs::symlink, path::Path};

use aegis_core::VolumePath;
use tempfile::TempDir;

use super::*;
use crate::files::{
    quota::{PER_ENTRY, Quota},
    search::{LinePattern, Query},
};

const BOTH: [Confinement; 2] = [Confinement::Kernel, Confinement::Walk];

struct Fixture {
    directory: TempDir,
    storage: LocalDirectory,
    quota: Quota,
    cancel: CancellationToken,
}

impl Fixture {
    fn new(confinement: Confinement) -> Self {
        let directory = TempDir::new().unwrap();
        let volume = directory.path().join("volume");
        std::fs::create_dir(&volume).unwrap();
        std::fs::write(directory.path().join("secret"), "outside").unwrap();
        let locks = Arc::new(FileLocks::default());
        let storage = LocalDirectory::open(&volume, HardLinks::Refuse, locks, Some(confinement)).unwrap();
        Self { directory, storage, quota: Quota::new(Some(1 << 20)), cancel: CancellationToken::new() }
    }

    fn volume(&self) -> std::path::PathBuf {
        self.directory.path().join("volume")
    }

    fn terms(&self) -> Terms<'_> {
        Terms { quota: &self.quota, cancel: &self.cancel }
    }

    fn read(&self, path: &str) -> Result<String, FileError> {
        let content = self.storage.read(&place(path), Portion::Whole(1000))?;
        Ok(String::from_utf8(content.bytes).unwrap())
    }

    fn grep(&self, path: &str, pattern: &str) -> Found {
        let query = Query::Lines(LinePattern::parse(pattern).unwrap());
        let search = Search {
            query: &query,
            limit: 10,
            prefix: "",
            covered: &[],
            honour_ignore_files: true,
            cancel: &self.cancel,
        };
        self.storage.search(&place(path), &search).unwrap()
    }
}

fn place(path: &str) -> Place {
    let mount = VolumePath::parse("/workspace").unwrap();
    Place::new(VolumePath::parse(path).unwrap(), &mount, 0).unwrap()
}

#[test]
fn everything_works_with_and_without_openat2() {
    for confinement in BOTH {
        let fixture = Fixture::new(confinement);
        let (storage, terms) = (&fixture.storage, fixture.terms());
        assert!(storage.create_dir(&place("a/b"), &terms).unwrap());
        assert!(!storage.create_dir(&place("a/b"), &terms).unwrap());
        storage.write(&place("a/b/c/file"), b"one\ntwo\n", &terms).unwrap();
        assert_eq!(fixture.read("a/b/c/file").unwrap(), "one\ntwo\n");
        let mut change = |text: &str| Ok(Some(text.replace("two", "three")));
        let rewritten = storage.rewrite(&place("a/b/c/file"), 100, &mut change, &terms).unwrap();
        assert_eq!(rewritten, Rewritten { old_size: 8, new_size: 10 });
        assert_eq!(storage.usage(&fixture.cancel).unwrap(), 10 + 4 * PER_ENTRY);
        let found = fixture.grep(".", "three");
        assert_eq!((found.files[0].path.as_str(), found.hits), ("a/b/c/file", 1));
        let listing = storage.list(&place("a/b"), 10, &fixture.cancel).unwrap();
        assert_eq!((listing.total, listing.entries[0].name.as_slice()), (1, b"c".as_slice()));
        assert!(matches!(fixture.read("a/b/none"), Err(FileError::NotFound)));
        assert!(matches!(fixture.read("a/b/c/file/x"), Err(FileError::NotADirectory)));
        assert!(matches!(storage.delete(&place("a"), false, &terms), Err(FileError::DirectoryNotEmpty)));
        let deleted = storage.delete(&place("a"), true, &terms).unwrap();
        assert_eq!(deleted, Deleted { entries: 4, bytes: 10 });
        assert!(matches!(storage.delete(&place("/workspace"), true, &terms), Err(FileError::MountPoint)));
    }
}

#[test]
fn no_way_leads_out_with_or_without_openat2() {
    for confinement in BOTH {
        let fixture = Fixture::new(confinement);
        let (storage, terms) = (&fixture.storage, fixture.terms());
        let volume = fixture.volume();
        std::fs::create_dir(volume.join("inside")).unwrap();
        symlink("../secret", volume.join("relative")).unwrap();
        symlink(fixture.directory.path().join("secret"), volume.join("absolute")).unwrap();
        symlink("..", volume.join("up")).unwrap();
        symlink("inside", volume.join("link")).unwrap();
        for path in ["relative", "absolute", "up/secret"] {
            assert!(
                matches!(fixture.read(path), Err(FileError::LeadsOut | FileError::LinkRefused)),
                "{path}"
            );
            assert!(storage.write(&place(path), b"x", &terms).is_err(), "{path}");
            assert!(
                storage.rewrite(&place(path), 100, &mut |_| Ok(Some("x".into())), &terms).is_err(),
                "{path}"
            );
        }
        for path in ["up", "up/volume", "up/new"] {
            assert!(storage.list(&place(path), 10, &fixture.cancel).is_err(), "{path}");
            assert!(storage.create_dir(&place(path), &terms).is_err(), "{path}");
        }
        assert!(storage.delete(&place("up/secret"), true, &terms).is_err());
        // A path can't have one, and if it had, it would not climb.
        let climbed = storage.root.beneath(storage.root.fd(), b"inside/../../secret", READ, Links::Follow);
        assert!(matches!(climbed, Err(FileError::LeadsOut)));
        assert_eq!(fixture.grep(".", "outside").hits, 0);
        let through_link = storage.write(&place("link/file"), b"x", &terms);
        match confinement {
            Confinement::Kernel => through_link.unwrap(),
            Confinement::Walk => assert!(matches!(through_link, Err(FileError::LinkRefused))),
        }
        assert_eq!(std::fs::read(fixture.directory.path().join("secret")).unwrap(), b"outside");
    }
}

#[test]
fn without_openat2_a_swapped_link_gains_nothing() {
    let fixture = Fixture::new(Confinement::Walk);
    let at = fixture.volume().join("file");
    let away = fixture.volume().join("away");
    let swap = |make: &dyn Fn(&Path)| {
        make(&away);
        std::fs::rename(&away, &at).unwrap();
    };
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| (0..2000).filter_map(|_| fixture.read("file").ok()).collect::<Vec<_>>());
        while !reader.is_finished() {
            swap(&|away| symlink("../secret", away).unwrap());
            swap(&|away| std::fs::write(away, "inside").unwrap());
        }
        // An empty read sees the real file between its making and its content.
        assert!(reader.join().unwrap().iter().all(|text| text == "inside" || text.is_empty()));
    });
}

#[test]
fn what_is_read_at_once_is_what_is_there_and_never_what_is_outside() {
    let fixture = Fixture::new(Confinement::Kernel);
    let volume = fixture.volume();
    std::fs::create_dir(volume.join("inside")).unwrap();
    std::fs::write(volume.join("inside/file"), "text").unwrap();
    std::fs::write(volume.join("large"), vec![b'x'; 100_000]).unwrap();
    std::fs::write(volume.join("two"), "names").unwrap();
    std::fs::hard_link(volume.join("two"), volume.join("names")).unwrap();
    symlink("inside", volume.join("link")).unwrap();
    symlink("../secret", volume.join("relative")).unwrap();
    symlink("/proc/self/cwd", volume.join("magic")).unwrap();
    let at_once = |place: &Place, limit| {
        let _ = fixture.storage.read(place, Portion::Whole(limit));
        fixture.storage.read_at_once(place, Portion::Whole(limit)).map(|content| content.bytes)
    };
    for path in ["inside/file", "link/file"] {
        // Not every file system can; none may answer anything else.
        if let Some(bytes) = at_once(&place(path), 1000) {
            assert_eq!(bytes, b"text");
        }
        assert_eq!(at_once(&place(path), 3), None);
    }
    for path in ["large", "two", "relative", "magic/Cargo.toml", "none", "inside", "/workspace"] {
        assert_eq!(at_once(&place(path), 1_000_000), None, "{path}");
    }
    // A grant of `link` is a grant of a link, which grants nothing.
    let granted = |path: &str| {
        let mount = VolumePath::parse("/workspace").unwrap();
        let path = VolumePath::parse(path).unwrap();
        let free_from = path.as_str().rfind('/').unwrap() + 1;
        Place::new(path, &mount, free_from).unwrap()
    };
    assert_eq!(at_once(&granted("link/file"), 1000), None);
    assert!(at_once(&granted("inside/file"), 1000).is_none_or(|bytes| bytes == b"text"));
}

#[test]
fn a_change_by_others_during_an_edit_is_kept() {
    let outsiders: [fn(&Path); 4] = [
        |path| std::fs::write(path, "theirs").unwrap(),
        |path| {
            std::fs::write(path.with_extension("new"), "theirs").unwrap();
            std::fs::rename(path.with_extension("new"), path).unwrap();
        },
        |path| std::fs::remove_file(path).unwrap(),
        |path| {
            std::fs::remove_file(path).unwrap();
            symlink("elsewhere", path).unwrap();
        },
    ];
    for outsider in outsiders {
        let fixture = Fixture::new(Confinement::Kernel);
        let path = fixture.volume().join("file");
        std::fs::write(&path, "ours").unwrap();
        let mut change = |_: &str| {
            outsider(&path);
            Ok(Some("edited".to_owned()))
        };
        let outcome = fixture.storage.rewrite(&place("file"), 100, &mut change, &fixture.terms());
        assert!(matches!(outcome, Err(FileError::ChangedWhileEditing)), "{outcome:?}");
        let left: Vec<_> =
            std::fs::read_dir(fixture.volume()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| name == "file"), "{left:?}");
        assert!(std::fs::read_to_string(&path).is_ok_and(|text| text == "theirs") || !path.exists());
    }
}

#[test]
fn what_can_not_be_looked_into_is_counted_as_far_as_it_is_known() {
    use super::tree::{Total, Visit};
    let mut total = Total::default();
    total.refused(c"closed", FileError::PermissionDenied).unwrap();
    total.refused(c"mounted", FileError::ForeignMount("mounted".into())).unwrap();
    assert_eq!(total, Total { bytes: PER_ENTRY, unread: 1 });

    // Root may look into everything.
    if rustix::process::geteuid().is_root() {
        return;
    }
    for confinement in BOTH {
        let fixture = Fixture::new(confinement);
        fixture.storage.write(&place("open/closed/file"), b"0123456789", &fixture.terms()).unwrap();
        assert_eq!(fixture.storage.usage(&fixture.cancel).unwrap(), 10 + 3 * PER_ENTRY);
        let closed = fixture.volume().join("open/closed");
        let mode =
            |mode| std::fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(mode));
        mode(0o000).unwrap();
        assert_eq!(fixture.storage.usage(&fixture.cancel).unwrap(), 2 * PER_ENTRY);
        assert_eq!(fixture.storage.unread(), 1);
        mode(0o755).unwrap();
        fixture.storage.usage(&fixture.cancel).unwrap();
        assert_eq!(fixture.storage.unread(), 0);
    }
}

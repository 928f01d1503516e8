//! An image of this machine's own programs, in a storage of its own that all tests share.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
};

pub(crate) const NAME: &str = "localhost/aegis-sandbox-test:latest";
pub(crate) const OTHER_NAME: &str = "localhost/aegis-sandbox-test:other";
/// Another engine than the podman in PATH, by path.
const ENGINE: &str = "AEGIS_TEST_ENGINE";
/// What the conformance set uses inside.
const PROGRAMS: [&str; 27] = [
    "bash", "cat", "chmod", "cut", "echo", "env", "false", "grep", "head", "hostname", "id", "ln", "ls",
    "mkdir", "mv", "pwd", "readlink", "rm", "setsid", "sh", "sleep", "tail", "tr", "true", "touch", "wc",
    "yes",
];

/// Where the tests' containers and images are kept, apart from everybody else's.
pub(crate) struct Store {
    pub(crate) engine: PathBuf,
    pub(crate) place: PathBuf,
}

impl Store {
    /// The storage with its images; nothing where there is no podman.
    pub(crate) fn get() -> Option<Self> {
        let path = std::env::var_os("PATH")?;
        let named = std::env::var_os(ENGINE).map(PathBuf::from);
        let podman = || std::env::split_paths(&path).map(|at| at.join("podman")).find(|at| at.is_file());
        let Some(engine) = named.or_else(podman) else {
            println!("skipped: there is no podman; install podman and runc");
            return None;
        };
        let user = rustix::process::geteuid().as_raw();
        let place = PathBuf::from(format!("/tmp/aegis-oci-tests-{user}"));
        // Users of containers, who are nobody on this host, must get through to their files.
        let made = fs::DirBuilder::new().mode(0o711).create(&place);
        assert!(made.is_ok() || place.is_dir(), "{made:?}");
        let store = Self { engine, place };
        let lock = fs::File::create(store.place.join("lock")).unwrap();
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
        for (name, note) in [(NAME, "the image"), (OTHER_NAME, "the other image")] {
            if !store.command().args(["image", "inspect", name]).output().unwrap().status.success()
                && let Err(reason) = store.import(name, note)
            {
                println!("skipped: {reason}");
                return None;
            }
        }
        Some(store)
    }

    pub(crate) fn is_docker(&self) -> bool {
        self.engine.ends_with("docker")
    }

    pub(crate) fn options(&self) -> Vec<String> {
        if self.is_docker() {
            return Vec::new();
        }
        let at = |name: &str| self.place.join(name).display().to_string();
        vec![format!("--root={}", at("storage")), format!("--runroot={}", at("run"))]
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.engine);
        command.args(self.options());
        command
    }

    pub(crate) fn ask(&self, arguments: &[&str], more: &[&str]) -> String {
        let output = self.command().args(arguments).args(more).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Containers of backends with that directory of state, running or not.
    pub(crate) fn containers(&self, state: &Path) -> Vec<String> {
        let filter = format!("label=aegis.sandbox.state={}", state.display());
        let listed = self.ask(&["ps", "--all", "--quiet", "--filter", &filter], &[]);
        listed.lines().map(str::to_owned).collect()
    }

    fn import(&self, name: &str, note: &str) -> Result<(), String> {
        let root = tempfile::tempdir().unwrap();
        for directory in ["bin", "usr/bin", "etc", "tmp", "root", "home", "var", "run"] {
            fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        fs::set_permissions(root.path().join("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
        fs::write(root.path().join("etc/image"), note).unwrap();
        let mut libraries = BTreeSet::new();
        for program in PROGRAMS {
            let from =
                ["/bin", "/usr/bin"].iter().map(|at| Path::new(at).join(program)).find(|at| at.exists());
            let from = from.ok_or_else(|| format!("this machine has no {program} to put into an image"))?;
            fs::copy(&from, root.path().join("bin").join(program)).unwrap();
            libraries.extend(needed(&from));
        }
        for library in libraries {
            let to = root.path().join(library.strip_prefix("/").unwrap());
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(&library, to).unwrap();
        }
        let archive = self.place.join("image.tar");
        let packed = Command::new("tar")
            .arg("-cf")
            .arg(&archive)
            .arg("-C")
            .arg(root.path())
            .arg(".")
            .output()
            .unwrap();
        assert!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));
        let output = self.command().arg("import").arg(&archive).arg(name).output().unwrap();
        fs::remove_file(archive).unwrap();
        if output.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }
}

/// The loader and libraries of a program.
fn needed(program: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(program).output().unwrap();
    String::from_utf8(output.stdout)
        .unwrap()
        .split_whitespace()
        .filter(|word| word.starts_with('/') && !word.ends_with(':'))
        .map(PathBuf::from)
        .collect()
}

//! Control groups of both generations: limits that hold for a whole tree of processes, where the host lets us set them.

use std::{
    fs, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rustix::event::Timespec;

use super::control::Remains;
use crate::launch::Limits;

/// The three controllers a sandbox uses.
pub(super) const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];
const PERIOD: u64 = 100_000;
/// How often a group that is still in use is tried again.
const PATIENCE: u32 = 56;
/// Tells backends of one node apart in the names of their groups.
static INSTANCES: AtomicU64 = AtomicU64::new(0);

/// The generation of the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    One,
    Two,
}

/// Where groups of one controller can be made.
#[derive(Debug, Clone)]
pub(super) struct Place {
    controller: &'static str,
    version: Version,
    parent: PathBuf,
}

impl Place {
    pub(super) fn describe(&self) -> String {
        let version = if self.version == Version::One { 1 } else { 2 };
        format!("version {version}")
    }
}

/// What this host lets the node limit.
#[derive(Debug)]
pub(super) struct Groups {
    places: Vec<Result<Place, String>>,
    /// What the names of all its groups start with.
    prefix: String,
    next: AtomicU64,
}

/// The control groups of one sandbox.
#[derive(Debug)]
pub(super) struct Group {
    parts: Vec<(Place, PathBuf)>,
}

impl Groups {
    /// Looks for writable places, by making a group and removing it again.
    pub(super) fn find() -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let places = CONTROLLERS.map(|controller| place(&mounts, &own, controller)).to_vec();
        let groups = Self::with(places);
        groups.sweep();
        groups
    }

    fn with(places: Vec<Result<Place, String>>) -> Self {
        let instance = INSTANCES.fetch_add(1, Ordering::Relaxed);
        Self { places, prefix: format!("aegis-{}-{instance}-", std::process::id()), next: AtomicU64::new(0) }
    }

    /// None at all, for a given reason.
    pub(super) fn none(reason: &str) -> Self {
        Self::with(CONTROLLERS.map(|_| Err(reason.to_owned())).to_vec())
    }

    /// How a controller stands.
    pub(super) fn state(&self, controller: &str) -> Result<&Place, &str> {
        let index = CONTROLLERS.iter().position(|known| *known == controller).unwrap_or(0);
        self.places[index].as_ref().map_err(String::as_str)
    }

    /// A new group, and the descriptors through which a process joins it by writing 0.
    pub(super) fn make(&self) -> io::Result<(Group, Vec<OwnedFd>)> {
        let name = format!("{}{}", self.prefix, self.next.fetch_add(1, Ordering::Relaxed));
        let mut group = Group { parts: Vec::new() };
        let mut doors = Vec::new();
        for place in self.places.iter().flatten() {
            let path = place.parent.join(&name);
            match fs::create_dir(&path) {
                Ok(()) => {}
                // The second generation has one directory for all controllers.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && group.has(&path) => {
                    group.parts.push((place.clone(), path));
                    continue;
                }
                Err(error) => return Err(error),
            }
            let door = match place.version {
                Version::One => "tasks",
                Version::Two => "cgroup.procs",
            };
            let door = path.join(door);
            group.parts.push((place.clone(), path));
            doors.push(fs::OpenOptions::new().write(true).open(door)?.into());
        }
        Ok((group, doors))
    }

    /// Removes groups of nodes that are no more.
    fn sweep(&self) {
        let _ = self.remove_where(|name| {
            let owner =
                name.strip_prefix("aegis-").and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
            owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
        });
    }

    /// Removes what this backend made; its last processes may still be on their way out.
    pub(super) fn sweep_own(&self) {
        for attempt in 0..PATIENCE {
            if !self.remove_where(|name| name.starts_with(&self.prefix)) {
                return;
            }
            pause(attempt);
        }
    }

    /// Tells whether any is left.
    fn remove_where(&self, gone: impl Fn(&str) -> bool) -> bool {
        let mut left = false;
        for place in self.places.iter().flatten() {
            let Ok(entries) = fs::read_dir(&place.parent) else { continue };
            for entry in entries.flatten() {
                let name = entry.file_name();
                if name.to_str().is_some_and(&gone) {
                    // A group in use refuses.
                    left |= fs::remove_dir(entry.path())
                        .is_err_and(|error| error.kind() != io::ErrorKind::NotFound);
                }
            }
        }
        left
    }
}

impl Group {
    fn has(&self, path: &Path) -> bool {
        self.parts.iter().any(|(_, known)| known == path)
    }

    /// Sets the limits.
    pub(super) fn limit(&self, limits: &Limits) -> io::Result<()> {
        let quota = ((limits.cpu * 100_000.0) as u64).clamp(1000, 1 << 40);
        for (place, path) in &self.parts {
            let set = |file: &str, value: String| fs::write(path.join(file), value);
            match (place.controller, place.version) {
                ("memory", Version::One) => {
                    set("memory.limit_in_bytes", limits.memory.to_string())?;
                    // Only where swap is accounted at all.
                    let _ = set("memory.memsw.limit_in_bytes", limits.memory.to_string());
                }
                ("memory", Version::Two) => {
                    set("memory.max", limits.memory.to_string())?;
                    let _ = set("memory.swap.max", "0".into());
                }
                // The sandbox's first process counts too.
                ("pids", _) => set("pids.max", (u64::from(limits.processes) + 1).to_string())?,
                // More than there is needs no limit, and setting one makes the kernel patch its own code.
                ("cpu", _) if limits.cpu >= cores() => {}
                ("cpu", Version::One) => {
                    set("cpu.cfs_period_us", PERIOD.to_string())?;
                    set("cpu.cfs_quota_us", quota.to_string())?;
                }
                (_, _) => set("cpu.max", format!("{quota} {PERIOD}"))?,
            }
        }
        Ok(())
    }

    /// Whether a memory limit is held by this group.
    pub(super) fn holds_memory(&self) -> bool {
        self.parts.iter().any(|(place, _)| place.controller == "memory")
    }
}

impl Remains for Group {
    fn ran_out_of_memory(&self) -> bool {
        self.parts.iter().filter(|(place, _)| place.controller == "memory").any(|(place, path)| {
            let file = if place.version == Version::One { "memory.oom_control" } else { "memory.events" };
            let text = fs::read_to_string(path.join(file)).unwrap_or_default();
            text.lines()
                .filter_map(|line| line.strip_prefix("oom_kill ")?.trim().parse::<u64>().ok())
                .any(|count| count > 0)
        })
    }

    /// Its last process may still be on its way out.
    fn remove(self: Box<Self>) {
        for attempt in 0..PATIENCE {
            let left = self.parts.iter().any(|(_, path)| match fs::remove_dir(path) {
                Ok(()) => false,
                Err(error) => error.kind() != io::ErrorKind::NotFound,
            });
            if !left {
                return;
            }
            pause(attempt);
        }
        tracing::warn!(groups = ?self.parts, "a sandbox's control group could not be removed; the next start tries again");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for (_, path) in &self.parts {
            let _ = fs::remove_dir(path);
        }
    }
}

/// Processors that this process may use, asked once.
fn cores() -> f64 {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(usize::MAX, usize::from)) as f64
}

/// Waits a little, and longer the more often it was for nothing: a second over all attempts.
fn pause(attempt: u32) {
    if let Ok(pause) = Timespec::try_from(Duration::from_millis(1 << (attempt / 8).min(6))) {
        let _ = rustix::event::poll(&mut [], Some(&pause));
    }
}

/// Where this process stands in a controller's tree, and whether groups can be made there.
fn place(mounts: &str, own: &str, controller: &'static str) -> Result<Place, String> {
    if let Some(mount) = mounts.lines().find_map(|line| Mount::parse(line, |mount| mount.has(controller))) {
        let line = own.lines().find_map(|line| {
            let (names, path) = line.split_once(':')?.1.split_once(':')?;
            names.split(',').any(|name| name == controller).then_some(path)
        });
        let parent = mount.directory(line.ok_or("this process stands in no group of it")?);
        return try_place(Place { controller, version: Version::One, parent });
    }
    let mount = mounts.lines().find_map(|line| Mount::parse(line, |mount| mount.kind == "cgroup2"));
    let (Some(mount), Some(path)) = (mount, own.lines().find_map(|line| line.strip_prefix("0::"))) else {
        return Err("no such controller is mounted".into());
    };
    let parent = mount.directory(path);
    second_generation(&parent, controller)?;
    try_place(Place { controller, version: Version::Two, parent })
}

/// In the second generation a controller must be handed down to the children first.
fn second_generation(parent: &Path, controller: &str) -> Result<(), String> {
    let lists = |file: &str| {
        let text = fs::read_to_string(parent.join(file)).unwrap_or_default();
        text.split_whitespace().any(|name| name == controller)
    };
    if !lists("cgroup.controllers") {
        return Err("the controller was not handed to this process's group".into());
    }
    if lists("cgroup.subtree_control") {
        return Ok(());
    }
    let hand_down = || fs::write(parent.join("cgroup.subtree_control"), format!("+{controller}"));
    match hand_down() {
        // A group with processes can't hand controllers down: this one steps aside into a leaf of its own.
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            let leaf = parent.join("aegis.node");
            let _ = fs::create_dir(&leaf);
            fs::write(leaf.join("cgroup.procs"), "0")
                .and_then(|()| hand_down())
                .map_err(|error| format!("it can't be handed down to groups of its own: {error}"))
        }
        other => other.map_err(|error| format!("it can't be handed down to groups of its own: {error}")),
    }
}

fn try_place(place: Place) -> Result<Place, String> {
    let probe = place.parent.join(format!("aegis-{}-probe", std::process::id()));
    let made = fs::create_dir(&probe).or_else(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Ok(()),
        _ => Err(error),
    });
    made.map_err(|error| format!("no group can be made: {error}"))?;
    let _ = fs::remove_dir(&probe);
    Ok(place)
}

/// A line of mountinfo, as far as it matters here.
struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str, wanted: impl Fn(&Self) -> bool) -> Option<Self> {
        let (front, back) = line.split_once(" - ")?;
        let front: Vec<_> = front.split(' ').collect();
        let back: Vec<_> = back.split(' ').collect();
        let mount =
            Self { root: front.get(3)?, point: front.get(4)?, kind: back.first()?, options: back.last()? };
        wanted(&mount).then_some(mount)
    }

    fn has(&self, controller: &str) -> bool {
        self.kind == "cgroup" && self.options.split(',').any(|option| option == controller)
    }

    /// The directory of a group; inside a container the mount may start below the real root.
    fn directory(&self, group: &str) -> PathBuf {
        let below = group.strip_prefix(self.root).unwrap_or(group);
        Path::new(self.point).join(below.trim_start_matches('/'))
    }
}

#[cfg(test)]
#[path = "cgroup_tests.rs"]
mod tests;

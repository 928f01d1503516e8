//! Which layers hold in containers here: one is made for nothing else than to look at it, from inside and from outside.

use std::{fs::File, io::Read, time::Duration};

use super::{
    Ground, OciSettings,
    engine::{Kind, installed},
    profile::{Groups, Manner},
    start::{Fresh, group_file},
    volumes::Owner,
};
use crate::{
    Layer, Layers, SandboxError,
    launch::{Launch, Limits},
    native::note_namespaces,
    wire::{Program, Sighting},
};

/// A way to make containers that works.
pub(super) struct Found {
    pub(super) ground: Ground,
    pub(super) manner: Manner,
    pub(super) owner: Owner,
}

/// Tries the manners one after the other, best first.
pub(super) fn look(ground: Ground, settings: &OciSettings) -> Result<(Found, Layers), String> {
    let mut reasons: Vec<String> = Vec::new();
    for mut manner in manners(&ground, settings) {
        match tried(&ground, &manner) {
            Ok((layers, owner)) => {
                manner.memory_held = layers.holds(Layer::MemoryCgroup);
                return Ok((Found { ground, manner, owner }, layers));
            }
            // Another manner would not find it either.
            Err(error @ SandboxError::NoSuchImage { .. }) => return Err(error.to_string()),
            Err(error) => {
                let reason = error.to_string();
                if !reasons.contains(&reason) {
                    reasons.push(reason);
                }
            }
        }
    }
    Err(format!(
        "{} {} starts no container: {}",
        ground.engine.name(),
        ground.engine.version,
        reasons.join("; ")
    ))
}

fn manners(ground: &Ground, settings: &OciSettings) -> Vec<Manner> {
    let runtimes = match &settings.runtime {
        Some(runtime) => vec![Some(runtime.clone())],
        None if installed("runc").is_some() => vec![None, Some("runc".to_owned())],
        None => vec![None],
    };
    // Docker's containers always have control groups.
    let groups: &[Groups] = match ground.engine.kind {
        Kind::Podman => &[Groups::Limited, Groups::Bare, Groups::Disabled],
        Kind::Docker => &[Groups::Limited, Groups::Bare],
    };
    let of = |groups: &Groups| {
        let groups = *groups;
        runtimes.iter().map(move |runtime| Manner { runtime: runtime.clone(), groups, memory_held: false })
    };
    groups.iter().flat_map(of).collect()
}

fn tried(ground: &Ground, manner: &Manner) -> Result<(Layers, Owner), SandboxError> {
    let mut what = Launch::new("look-around");
    what.limits = Limits { wall: Duration::from_secs(10), ..Limits::default() };
    let nobody = Owner { user: u32::MAX, mapping: Ok(None) };
    let Fresh { started, asked, peer } = ground.start(manner, &nobody, &what, Program::LookAround)?;
    let mut text = Vec::new();
    File::from(started.stdout).take(1 << 16).read_to_end(&mut text).map_err(SandboxError::Stage)?;
    let sighting: Sighting =
        serde_json::from_slice(&text).map_err(|error| SandboxError::setup("look around", error))?;
    let mut layers = Layers::default();
    note_namespaces(&mut layers, &sighting);
    for (layer, finding) in sighting.tried {
        match finding {
            Ok(how) => layers.hold(layer, how),
            Err(reason) => layers.miss(layer, reason),
        }
    }
    let (process, user, group) = peer;
    groups(&mut layers, ground, manner, process, &what.limits);
    let owner = Owner::new(&ground.executable, (user, group));
    users(&mut layers, ground, &owner);
    drop(started.hold);
    asked.wait(Duration::from_secs(20));
    Ok((layers, owner))
}

/// A layer, its controller, the file that tells the limit in either version, and whether what it tells is right.
type Check<'a> = (Layer, &'a str, [&'a str; 2], &'a dyn Fn(&str) -> bool);

/// The limits as the kernel has them while the container is still there.
fn groups(
    layers: &mut Layers,
    ground: &Ground,
    manner: &Manner,
    process: rustix::process::Pid,
    limits: &Limits,
) {
    let processes = (u64::from(limits.processes) + 1).to_string();
    let memory = limits.memory.to_string();
    let checks: [Check<'_>; 3] = [
        (Layer::MemoryCgroup, "memory", ["memory.limit_in_bytes", "memory.max"], &|text| text == memory),
        (Layer::PidsCgroup, "pids", ["pids.max", "pids.max"], &|text| text == processes),
        (Layer::CpuCgroup, "cpu", ["cpu.cfs_quota_us", "cpu.max"], &|text| {
            text.split(' ').next().is_some_and(|quota| quota.parse::<u64>().is_ok_and(|quota| quota > 0))
        }),
    ];
    for (layer, controller, [first, second], holds) in checks {
        if manner.groups != Groups::Limited {
            layers.miss(layer, format!("{} can limit no control groups here", ground.engine.name()));
            continue;
        }
        let mut text = String::new();
        let read = group_file(process, controller, first, second)
            .is_some_and(|file| file.take(256).read_to_string(&mut text).is_ok());
        match text.trim() {
            text if read && holds(text) => layers.hold(layer, format!("by {}", ground.engine.name())),
            text if read => layers.miss(layer, format!("the limit is not kept: {text}")),
            _ => layers.miss(layer, "the container's group can't be read"),
        }
    }
}

fn users(layers: &mut Layers, ground: &Ground, owner: &Owner) {
    let engine = &ground.engine;
    let rootless = if engine.rootless { ", rootless" } else { "" };
    if owner.user == 0 {
        layers.miss(Layer::UnprivilegedUser, "programs would be root on this host");
    } else {
        let how =
            format!("user {} of the host, by {} {}{rootless}", owner.user, engine.name(), engine.version);
        layers.hold(Layer::UnprivilegedUser, how);
    }
    match &owner.mapping {
        Ok(Some(_)) => layers.hold(Layer::MappedVolumes, "where the file system supports it"),
        Ok(None) => layers.hold(Layer::MappedVolumes, "not needed: the node is not root"),
        Err(reason) => layers.miss(Layer::MappedVolumes, reason.clone()),
    }
}

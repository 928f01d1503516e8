//! Which layers hold: a sandbox is made for nothing else than to look at it, from inside and from outside.

use std::{io::Read, time::Duration};

use super::{NativeSettings, Shared, Started, cgroup};
use crate::{
    Floor, Layer, Layers, SandboxError,
    launch::{Launch, Limits},
    stage::look,
    wire::{Program, Sighting},
};

/// Tries every layer on this host with a throw-away sandbox. Blocks for some milliseconds.
pub fn probe(settings: NativeSettings) -> Layers {
    super::Native::new(NativeSettings { spare: 0, ..settings }, Floor::least()).shared.layers.clone()
}

/// The look behind [`probe`] and every new backend.
pub(super) fn look(shared: &Shared) -> Layers {
    let (sighting, gaps) = match sight(shared) {
        Ok(seen) => seen,
        Err(error) => return Layers::none(&error.to_string()),
    };
    let mut layers = Layers::default();
    note_namespaces(&mut layers, &sighting);
    for (layer, finding) in sighting.tried {
        match finding {
            Ok(how) => layers.hold(layer, how),
            Err(reason) => layers.miss(layer, reason),
        }
    }
    // What the kernel said when a layer was asked for tells more than that it is not there.
    for (layer, reason) in gaps {
        layers.miss(layer, reason);
    }
    user(&mut layers, shared);
    for (layer, controller) in
        [Layer::MemoryCgroup, Layer::PidsCgroup, Layer::CpuCgroup].into_iter().zip(cgroup::CONTROLLERS)
    {
        match shared.groups.state(controller) {
            Ok(place) => layers.hold(layer, place.describe()),
            Err(reason) => layers.miss(layer, reason),
        }
    }
    layers
}

fn sight(shared: &Shared) -> Result<(Sighting, Vec<(Layer, String)>), SandboxError> {
    let mut what = Launch::new("look-around");
    what.limits = Limits { wall: Duration::from_secs(10), ..Limits::default() };
    let Started { hold, stdout, gaps, .. } = shared.start(shared.prepare()?, &what, &Program::LookAround)?;
    let mut text = Vec::new();
    std::fs::File::from(stdout).take(1 << 16).read_to_end(&mut text).map_err(SandboxError::Stage)?;
    drop(hold);
    let sighting =
        serde_json::from_slice(&text).map_err(|error| SandboxError::setup("look around", error))?;
    Ok((sighting, gaps))
}

/// Compares the namespaces seen from inside with the node's own.
pub(crate) fn note_namespaces(layers: &mut Layers, sighting: &Sighting) {
    let outside = look::namespaces();
    for (layer, name) in [
        (Layer::UserNamespace, "user"),
        (Layer::MountNamespace, "mnt"),
        (Layer::PidNamespace, "pid"),
        (Layer::NetworkNamespace, "net"),
        (Layer::IpcNamespace, "ipc"),
        (Layer::UtsNamespace, "uts"),
        (Layer::CgroupNamespace, "cgroup"),
    ] {
        let of =
            |list: &[(String, u64)]| list.iter().find(|(known, _)| known == name).map(|(_, number)| *number);
        match (of(&outside), of(&sighting.namespaces)) {
            (Some(outside), Some(inside)) if outside != inside => layers.hold(layer, ""),
            (Some(_), Some(_)) => layers.miss(layer, "the sandbox stands in the node's own"),
            (None, _) => layers.miss(layer, "this kernel has none"),
            (_, None) => layers.miss(layer, "it can't be told from inside without /proc"),
        }
    }
    if !sighting.interfaces.is_empty() {
        layers
            .miss(Layer::NetworkNamespace, format!("it has interfaces: {}", sighting.interfaces.join(", ")));
    }
}

fn user(layers: &mut Layers, shared: &Shared) {
    let Ok(stage) = shared.stage() else { return };
    match stage.user {
        None => {
            let user = rustix::process::geteuid().as_raw();
            layers.hold(Layer::UnprivilegedUser, format!("user {user}, the node's own"));
            layers.hold(Layer::MappedVolumes, "not needed: the node is not root");
        }
        Some(user) => {
            layers.hold(Layer::UnprivilegedUser, format!("user {user}, though the node is root"));
            match &stage.mapping {
                Ok(Some(_)) => layers.hold(Layer::MappedVolumes, "where the file system supports it"),
                Ok(None) => layers.miss(Layer::MappedVolumes, "no mapping was made"),
                Err(reason) => layers.miss(Layer::MappedVolumes, reason.clone()),
            }
        }
    }
}

//! From a permit and the caller's volumes to what the sandbox is to run.

use std::{path::PathBuf, sync::Arc, time::Duration};

use aegis_core::{
    Failure, FailureKind, Grant, Violation, ViolationKind, config::AccessMode, id::ContextName,
    path::WORKSPACE,
};
use aegis_sandbox::{Access, Launch, Limits, MOST_MOUNTS, Mount, Network};
use serde::Serialize;

use super::{Exec, Wanted, closed, disk, environment, sandbox};
use crate::{
    files::{FileError, HostVolume},
    tool::Run,
};

/// How far a command reaches, by the names that the tools' contracts have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SandboxMode {
    /// No network, and every volume read-only.
    ReadOnlyLocal,
    /// No network; writes to its volumes.
    NoNetworkCompute,
    /// Reaches the domains that are granted, through the node's proxy.
    RestrictedRemote,
    /// Reaches every public address, through the node's proxy.
    PrivilegedOperatorApproved,
}

impl SandboxMode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnlyLocal => "read_only_local",
            Self::NoNetworkCompute => "no_network_compute",
            Self::RestrictedRemote => "restricted_remote",
            Self::PrivilegedOperatorApproved => "privileged_operator_approved",
        }
    }

    fn of(network: Network, grant: &Grant, mounts: &[Mount]) -> Self {
        let everywhere = grant.domains.iter().flatten().any(|domain| domain.to_string() == "*");
        let writes = mounts.iter().any(|mount| mount.access == Access::ReadWrite);
        match network {
            Network::Proxy if everywhere => Self::PrivilegedOperatorApproved,
            Network::Proxy => Self::RestrictedRemote,
            Network::None if writes => Self::NoNetworkCompute,
            Network::None => Self::ReadOnlyLocal,
        }
    }
}

/// What to run, and what must be looked after meanwhile.
pub(super) struct Composed {
    pub(super) launch: Launch,
    pub(super) mode: SandboxMode,
    /// Those that the command can write to.
    pub(super) volumes: Vec<Writable>,
}

/// A volume that a command writes to, and what was left before.
#[derive(Debug, Clone)]
pub(super) struct Writable {
    pub(super) volume: HostVolume,
    pub(super) left: disk::Left,
}

impl Exec {
    pub(super) async fn compose(
        &self,
        run: &Run<'_>,
        wanted: &Wanted,
        timeout: Duration,
        image: Option<String>,
    ) -> Result<Composed, Failure> {
        let grant = run.permit.limits();
        let network = network_of(grant);
        let tenant = &run.permit.caller().tenant;
        let mut volumes = self.files.host_volumes(tenant, grant.paths.as_deref()).await?;
        let directory = wanted.directory.as_ref().map_or(WORKSPACE, |directory| directory.as_str());
        let has_workspace =
            |volumes: &[HostVolume]| volumes.iter().any(|volume| volume.mount_path().as_str() == WORKSPACE);
        if !has_workspace(&volumes) {
            return Err(run.refuse(
                Violation::new(
                    ViolationKind::PathOutsideBoundary,
                    "commands see whole volumes, and the workspace is not granted as a whole",
                )
                .rule(format!("{}.path_allowlist", grant.rule))
                .hint("grant /workspace, or mount the part as a volume of its own"),
            ));
        }
        let closed =
            |volume: &HostVolume| grant.denied_paths.iter().any(|closed| closed.covers(volume.mount_path()));
        volumes.retain(|volume| !closed(volume));
        if !has_workspace(&volumes) {
            return Err(run.refuse(
                Violation::new(
                    ViolationKind::ToolExplicitlyDenied,
                    "commands work in the workspace, and the whole of it is closed to the caller",
                )
                .rule(format!("security_contexts[{}].deny_list", run.permit.caller().context))
                .hint("an operator can close parts of it instead"),
            ));
        }
        let mut mounts: Vec<Mount> = volumes.iter().map(mount_of).collect();
        let covers = self.covers(&volumes, grant).await?;
        let others = mounts.len() + self.directories.len();
        if covers.len() + others > MOST_MOUNTS {
            let room = MOST_MOUNTS.saturating_sub(others);
            return Err(run.refuse(too_many(&run.permit.caller().context, covers.len(), room)));
        }
        mounts.extend(covers);
        mounts.extend(self.directories.iter().map(|(inside, host)| Mount {
            host: host.clone(),
            inside: inside.clone(),
            access: Access::ReadOnly,
        }));
        let env = environment::compose(&self.config, &wanted.environment, network).map_err(|error| {
            run.refuse(
                Violation::new(
                    ViolationKind::InvalidArguments,
                    format!(
                        "Invalid tool arguments: field 'env' can't be used for tool '{}': {error}",
                        run.permit.tool()
                    ),
                )
                .rule("spec.exec.environment.allow")
                .hint("leave it out, or ask an operator to name it there"),
            )
        })?;
        let mode = SandboxMode::of(network, grant, &mounts);
        let volumes: Vec<HostVolume> =
            volumes.into_iter().filter(|volume| volume.access() == AccessMode::ReadWrite).collect();
        let volumes = with_room(volumes).await?;
        let limits = &self.config.limits;
        let launch = Launch {
            program: wanted.line.program.clone(),
            args: wanted.line.arguments.clone(),
            env,
            cwd: PathBuf::from(directory),
            stdin: wanted.stdin.clone().into(),
            mounts,
            network,
            limits: Limits {
                memory: limits.memory.0,
                processes: limits.processes,
                cpu: limits.cpu,
                wall: timeout,
                file_size: limits.file_size.0,
                scratch: limits.scratch.0,
                open_files: limits.open_files,
            },
            image,
        };
        Ok(Composed { launch, mode, volumes })
    }

    /// What keeps closed paths of the volumes from the command.
    async fn covers(&self, volumes: &[HostVolume], grant: &Grant) -> Result<Vec<Mount>, Failure> {
        if grant.denied_paths.is_empty() {
            return Ok(Vec::new());
        }
        let (files, volumes, closed) =
            (Arc::clone(&self.files), volumes.to_vec(), grant.denied_paths.clone());
        let made = tokio::task::spawn_blocking(move || {
            let blank = files.blank()?;
            Ok::<_, Failure>(closed::covers(&volumes, &closed, &blank)?)
        });
        made.await.map_err(|error| Failure::new(FailureKind::StorageError, error.to_string()))?
    }
}

/// Closed paths that no sandbox has room for. Nothing that the caller could write would mend it.
fn too_many(context: &ContextName, covers: usize, room: usize) -> Violation {
    if covers == 0 {
        let message =
            format!("a command sees at most {MOST_MOUNTS} volumes and directories, and there are more");
        return sandbox::unavailable(message).rule("spec.exec.read_only_directories");
    }
    Violation::new(
        ViolationKind::ToolExplicitlyDenied,
        format!(
            "the paths that are closed to the caller can't be kept from a command: with the directories above them they \
             are {covers}, and there is room for {room}"
        ),
    )
    .rule(format!("security_contexts[{context}].deny_list"))
    .hint("an operator can close fewer paths, or the directories that hold them")
}

/// The network is off unless domains are granted by name: for a command, silence grants nothing.
fn network_of(grant: &Grant) -> Network {
    match &grant.domains {
        Some(domains) if !domains.is_empty() => Network::Proxy,
        _ => Network::None,
    }
}

fn mount_of(volume: &HostVolume) -> Mount {
    Mount {
        host: volume.host().clone(),
        inside: PathBuf::from(volume.mount_path().as_str()),
        access: access_of(volume.access()),
    }
}

pub(crate) fn access_of(mode: AccessMode) -> Access {
    match mode {
        AccessMode::ReadOnly => Access::ReadOnly,
        AccessMode::ReadWrite => Access::ReadWrite,
    }
}

/// An estimate is enough, unless it says that there is none.
fn room_of(volume: &HostVolume) -> Result<Option<u64>, FileError> {
    if volume.room()? == Some(0) {
        volume.forget();
    }
    volume.room()
}

/// A command that starts on a full volume could only make it fuller.
async fn with_room(volumes: Vec<HostVolume>) -> Result<Vec<Writable>, Failure> {
    let measured = tokio::task::spawn_blocking(move || {
        let full = volumes.iter().find_map(|volume| match room_of(volume) {
            Ok(Some(0)) => Some(Failure::new(
                FailureKind::VolumeQuotaExceeded,
                format!(
                    "the volume at {} is full: delete files, then run the command again",
                    volume.mount_path()
                ),
            )),
            Ok(_) => None,
            Err(error) => Some(error.into()),
        });
        if let Some(failure) = full {
            return Err(failure);
        }
        let left = |volume: &HostVolume| disk::Left::of(volume).unwrap_or_default();
        Ok(volumes.into_iter().map(|volume| Writable { left: left(&volume), volume }).collect())
    });
    measured.await.map_err(|error| Failure::new(FailureKind::StorageError, error.to_string()))?
}

#[cfg(test)]
mod tests {
    use aegis_core::domain::DomainPattern;

    use super::*;

    fn granting(domains: Option<&[&str]>) -> Grant {
        let parse = |domain: &&str| DomainPattern::parse(domain).unwrap();
        Grant { domains: domains.map(|domains| domains.iter().map(parse).collect()), ..Grant::default() }
    }

    #[test]
    fn the_network_is_off_unless_domains_are_named() {
        assert_eq!(network_of(&granting(None)), Network::None);
        assert_eq!(network_of(&granting(Some(&[]))), Network::None);
        assert_eq!(network_of(&granting(Some(&["example.org"]))), Network::Proxy);
    }

    #[test]
    fn modes_say_what_was_composed() {
        let mount = |access| vec![Mount { host: "/a".into(), inside: "/workspace".into(), access }];
        let mode = |domains: Option<&[&str]>, access| {
            let grant = granting(domains);
            SandboxMode::of(network_of(&grant), &grant, &mount(access)).as_str()
        };
        assert_eq!(mode(None, Access::ReadOnly), "read_only_local");
        assert_eq!(mode(None, Access::ReadWrite), "no_network_compute");
        assert_eq!(mode(Some(&["example.org"]), Access::ReadOnly), "restricted_remote");
        assert_eq!(mode(Some(&["*"]), Access::ReadWrite), "privileged_operator_approved");
    }
}

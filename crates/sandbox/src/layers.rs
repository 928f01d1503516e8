//! Which layers of the sandbox hold on this host, and which an operator insists on.

use std::{collections::BTreeMap, collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

/// One layer. What each stops, and what not, is in the crate's documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// User ids of its own; no id of the host but one unprivileged one.
    UserNamespace,
    /// A root of its own, in which nothing of the host stands but what was mounted.
    MountNamespace,
    /// Sees and signals its own processes only; all die with the first.
    PidNamespace,
    /// No interface but a loopback of its own.
    NetworkNamespace,
    /// No shared memory or message queue of the host.
    IpcNamespace,
    /// A host name of its own.
    UtsNamespace,
    /// Does not see where in the host's control groups it stands.
    CgroupNamespace,
    /// `/proc` shows its own processes, and little of the kernel.
    PrivateProc,
    /// The program's user is not root on the host.
    UnprivilegedUser,
    /// No capability in any set.
    NoCapabilities,
    /// No program raises its rights by being executed.
    NoNewPrivileges,
    /// A filter of system calls.
    Seccomp,
    /// Landlock: file rights that no later mount or namespace widens.
    Landlock,
    /// Limits of each process.
    ResourceLimits,
    /// The whole tree's memory is limited.
    MemoryCgroup,
    /// The whole tree's number of processes is limited, besides the limit that the user namespace carries.
    PidsCgroup,
    /// The whole tree's share of the processors is limited.
    CpuCgroup,
    /// Volumes that root owns are usable by the unprivileged user inside.
    MappedVolumes,
}

impl Layer {
    /// All of them, in the order they are told.
    pub const ALL: [Self; 18] = [
        Self::UserNamespace,
        Self::MountNamespace,
        Self::PidNamespace,
        Self::NetworkNamespace,
        Self::IpcNamespace,
        Self::UtsNamespace,
        Self::CgroupNamespace,
        Self::PrivateProc,
        Self::UnprivilegedUser,
        Self::NoCapabilities,
        Self::NoNewPrivileges,
        Self::Seccomp,
        Self::Landlock,
        Self::ResourceLimits,
        Self::MemoryCgroup,
        Self::PidsCgroup,
        Self::CpuCgroup,
        Self::MappedVolumes,
    ];

    /// Its name in configuration and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::UserNamespace => "user-namespace",
            Self::MountNamespace => "mount-namespace",
            Self::PidNamespace => "pid-namespace",
            Self::NetworkNamespace => "network-namespace",
            Self::IpcNamespace => "ipc-namespace",
            Self::UtsNamespace => "uts-namespace",
            Self::CgroupNamespace => "cgroup-namespace",
            Self::PrivateProc => "private-proc",
            Self::UnprivilegedUser => "unprivileged-user",
            Self::NoCapabilities => "no-capabilities",
            Self::NoNewPrivileges => "no-new-privileges",
            Self::Seccomp => "seccomp",
            Self::Landlock => "landlock",
            Self::ResourceLimits => "resource-limits",
            Self::MemoryCgroup => "memory-cgroup",
            Self::PidsCgroup => "pids-cgroup",
            Self::CpuCgroup => "cpu-cgroup",
            Self::MappedVolumes => "mapped-volumes",
        }
    }

    /// The layer of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|layer| layer.name() == name)
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Whether a layer holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It was tried and holds; the text says how, or is empty.
    Held(String),
    /// It does not, for this reason.
    Missing(String),
}

/// The layers as tried on this host. A layer that nobody reported on is missing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layers(BTreeMap<Layer, State>);

impl Layers {
    /// No layer holds, all for one reason.
    pub fn none(reason: &str) -> Self {
        Self(Layer::ALL.into_iter().map(|layer| (layer, State::Missing(reason.to_owned()))).collect())
    }

    /// Reports a layer that holds.
    pub fn hold(&mut self, layer: Layer, how: impl Into<String>) {
        self.0.insert(layer, State::Held(how.into()));
    }

    /// Reports a layer that does not.
    pub fn miss(&mut self, layer: Layer, reason: impl Into<String>) {
        self.0.insert(layer, State::Missing(reason.into()));
    }

    /// How a layer stands.
    pub fn state(&self, layer: Layer) -> State {
        self.0.get(&layer).cloned().unwrap_or_else(|| State::Missing("it was not tried".to_owned()))
    }

    /// Whether a layer holds.
    pub fn holds(&self, layer: Layer) -> bool {
        matches!(self.0.get(&layer), Some(State::Held(_)))
    }

    /// Every layer with its state.
    pub fn iter(&self) -> impl Iterator<Item = (Layer, State)> + '_ {
        Layer::ALL.into_iter().map(|layer| (layer, self.state(layer)))
    }
}

/// The layers without which nothing runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Floor(BTreeSet<Layer>);

impl Floor {
    /// What no configuration goes below: without these a program would stand on the host.
    const LEAST: [Layer; 8] = [
        Layer::UserNamespace,
        Layer::MountNamespace,
        Layer::PidNamespace,
        Layer::NetworkNamespace,
        Layer::UnprivilegedUser,
        Layer::NoCapabilities,
        Layer::NoNewPrivileges,
        Layer::Seccomp,
    ];

    /// The least that is taken as a sandbox at all.
    pub fn least() -> Self {
        Self(Self::LEAST.into())
    }

    /// The least, and every further layer that keeps a program in. Control groups are not among them: most
    /// unprivileged hosts have none to give, and they limit use rather than reach.
    pub fn standard() -> Self {
        Self::least().with([
            Layer::IpcNamespace,
            Layer::UtsNamespace,
            Layer::PrivateProc,
            Layer::Landlock,
            Layer::ResourceLimits,
        ])
    }

    /// Every layer but `mapped-volumes`, which only concerns a node that runs as root.
    pub fn strict() -> Self {
        Self(Layer::ALL.into_iter().filter(|layer| *layer != Layer::MappedVolumes).collect())
    }

    /// This floor with more layers.
    #[must_use]
    pub fn with(mut self, layers: impl IntoIterator<Item = Layer>) -> Self {
        self.0.extend(layers);
        self
    }

    /// The least with exactly these layers more.
    pub fn of(layers: impl IntoIterator<Item = Layer>) -> Self {
        Self::least().with(layers)
    }

    /// The layers it names.
    pub fn layers(&self) -> impl Iterator<Item = Layer> + '_ {
        self.0.iter().copied()
    }

    /// Whether these layers reach the floor.
    ///
    /// # Errors
    /// Names each layer that is missing, with its reason.
    pub fn check(&self, layers: &Layers) -> Result<(), Refusal> {
        let missing: Vec<_> = self
            .layers()
            .filter_map(|layer| match layers.state(layer) {
                State::Held(_) => None,
                State::Missing(reason) => Some((layer, reason)),
            })
            .collect();
        if missing.is_empty() { Ok(()) } else { Err(Refusal { missing }) }
    }
}

impl Default for Floor {
    fn default() -> Self {
        Self::standard()
    }
}

/// What of the floor is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Each missing layer and why.
    pub missing: Vec<(Layer, String)>,
}

impl std::error::Error for Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("this host does not hold the sandbox's floor, so nothing is run: ")?;
        for (index, (layer, reason)) in self.missing.iter().enumerate() {
            let gap = if index == 0 { "" } else { "; " };
            // One cause often takes many layers away; it is told once.
            match self.missing.get(index + 1) {
                Some((_, next)) if next == reason => write!(formatter, "{gap}{layer}")?,
                _ => write!(formatter, "{gap}{layer} ({reason})")?,
            }
        }
        formatter.write_str("; repair the host, or lower the floor in the node's configuration")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_names_what_is_missing_and_why() {
        let mut layers = Layers::default();
        for layer in Layer::ALL {
            layers.hold(layer, "");
        }
        assert!(Floor::strict().check(&layers).is_ok());
        layers.miss(Layer::Landlock, "the kernel is too old");
        let refusal = Floor::standard().check(&layers).expect_err("landlock is missing");
        assert!(refusal.to_string().contains("landlock (the kernel is too old)"));
        assert!(Floor::least().check(&layers).is_ok());
    }

    #[test]
    fn an_untried_layer_is_a_missing_one() {
        assert!(!Layers::default().holds(Layer::Seccomp));
        assert!(Floor::least().check(&Layers::default()).is_err());
    }

    #[test]
    fn names_go_both_ways() {
        for layer in Layer::ALL {
            assert_eq!(Layer::named(layer.name()), Some(layer));
        }
    }
}

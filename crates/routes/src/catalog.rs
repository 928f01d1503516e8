//! The one table of tools.

use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use aegis_core::{
    Outcome, Permit, ToolSpec, Violation, ViolationKind, approval::Desk, config::ToolPattern,
    nearest::nearest, progress::Listener, tool::Directory,
};
use arc_swap::ArcSwapOption;
use serde_json::{Map, Value};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::tool::{AnyTool, Intended, Run, Tool, spec_of};

/// Every tool this node can run, by name and alias: its own, and those of the MCP servers behind it, which come and go.
#[derive(Default, derive_more::Debug)]
pub struct Catalog {
    /// The node's own, which stay.
    own: View,
    /// With those of servers, while there are any.
    all: ArcSwapOption<View>,
    version: AtomicU64,
    changed: Notify,
    /// Names that tools of configured servers will have.
    expected: OnceLock<Vec<ToolPattern>>,
}

/// The table at one moment.
#[derive(Default, derive_more::Debug)]
pub(crate) struct View {
    #[debug("{}", tools.len())]
    tools: Vec<Entry>,
    by_name: HashMap<String, usize>,
    /// Tools that servers offer and nobody may call, and why.
    withheld: HashMap<String, String>,
    /// The servers whose tools are not all here.
    #[debug(skip)]
    servers: Option<Arc<dyn Absentees>>,
}

/// Whoever knows which tools are missing because their server is not there.
pub(crate) trait Absentees: Send + Sync {
    fn absent(&self, tool: &str) -> Option<Absent>;
}

/// A tool that can't be called because its server can't.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absent {
    pub server: String,
    /// In which state the server is, and why.
    pub reason: String,
    pub until: Until,
}

/// What a tool that is absent waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Its server is about to be there.
    Started,
    /// Something is wrong with its server.
    Mended,
    /// An operator switched its server off.
    SwitchedOn,
}

#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) spec: Arc<ToolSpec>,
    pub(crate) tool: Arc<dyn AnyTool>,
}

impl View {
    fn add(&mut self, entry: Entry) {
        let index = self.tools.len();
        for name in entry.spec.names() {
            self.by_name.entry(name.to_owned()).or_insert(index);
        }
        self.tools.push(entry);
    }

    fn get(&self, name: &str) -> Option<&Entry> {
        self.by_name.get(name).map(|index| &self.tools[*index])
    }

    /// Whether it is the very same tools.
    fn is(&self, other: &Self) -> bool {
        self.withheld == other.withheld
            && self.tools.len() == other.tools.len()
            && self.tools.iter().zip(&other.tools).all(|(one, other)| {
                Arc::ptr_eq(&one.spec, &other.spec)
                    || one.spec.name.starts_with("mcp.") && one.spec.name == other.spec.name
            })
    }
}

impl Catalog {
    /// Adds a tool. A name that is taken already keeps its first owner, which a test holds to never happen.
    #[must_use]
    pub fn with<T: Tool>(mut self, tool: T) -> Self {
        self.own.add(Entry { spec: Arc::new(spec_of(&tool)), tool: Arc::new(tool) });
        self
    }

    fn look<T>(&self, at: impl FnOnce(&View) -> T) -> T {
        match &*self.all.load() {
            Some(all) => at(all),
            None => at(&self.own),
        }
    }

    /// All tools, as they are at this moment.
    pub fn specs(&self) -> Vec<Arc<ToolSpec>> {
        self.look(|view| view.tools.iter().map(|entry| Arc::clone(&entry.spec)).collect())
    }

    /// The tool that `name` (or an alias) stands for.
    pub fn resolve(&self, name: &str) -> Option<Arc<ToolSpec>> {
        self.look(|view| view.get(name).map(|entry| Arc::clone(&entry.spec)))
    }

    /// Why a tool that an MCP server offers can't be called.
    pub fn withheld(&self, name: &str) -> Option<String> {
        self.look(|view| view.withheld.get(name).cloned())
    }

    /// The server that would have this tool, if it were there.
    pub fn absent(&self, name: &str) -> Option<Absent> {
        self.look(|view| view.servers.clone())?.absent(name)
    }

    /// The node's own tool of that name, whether or not a server takes its place.
    pub(crate) fn built_in(&self, name: &str) -> Option<Arc<ToolSpec>> {
        self.own.get(name).map(|entry| Arc::clone(&entry.spec))
    }

    /// The names of the node's own tools, whether or not servers take their places.
    pub fn built_ins(&self) -> impl Iterator<Item = &str> {
        self.own.tools.iter().map(|entry| entry.spec.name.as_ref())
    }

    /// Says, once, which names will be those of tools of configured servers.
    pub fn expect(&self, names: Vec<ToolPattern>) {
        // Servers that come later are there when anybody knows of their tools.
        let _ = self.expected.set(names);
    }

    /// Whether a tool that is not there belongs to a server that was configured when the node started.
    pub fn awaits(&self, name: &str) -> bool {
        let expected =
            self.expected.get().is_some_and(|names| names.iter().any(|pattern| pattern.matches(name)));
        expected && self.resolve(name).is_none() && self.withheld(name).is_none()
    }

    /// Grows with every change of the table.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Waits for a change of the table. One waiter is enough: those who only look compare versions.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The node's own tools, without those that others claim, and the others.
    pub(crate) fn with_others(
        &self,
        others: Vec<Entry>,
        withheld: HashMap<String, String>,
        servers: Arc<dyn Absentees>,
        claimed: &dyn Fn(&str) -> bool,
    ) -> View {
        let mut view = View { withheld, servers: Some(servers), ..View::default() };
        for entry in self.own.tools.iter().filter(|entry| !claimed(&entry.spec.name)) {
            view.add(entry.clone());
        }
        for entry in others {
            // No name of the node's own can be taken by another.
            if !view.by_name.contains_key(entry.spec.name.as_ref()) {
                view.add(entry);
            }
        }
        view
    }

    /// Puts another table in force. `false` when it is the one there was.
    pub(crate) fn install(&self, view: Option<View>) -> bool {
        let same = match (&*self.all.load(), &view) {
            (None, None) => true,
            (Some(old), Some(new)) => old.is(new),
            _ => false,
        };
        self.all.store(view.map(Arc::new));
        if !same {
            self.version.fetch_add(1, Ordering::AcqRel);
            self.changed.notify_one();
        }
        !same
    }

    /// What a call with these arguments would do, where its tool can say.
    pub fn intended(&self, tool: &ToolSpec, arguments: &Map<String, Value>) -> Option<Intended> {
        self.look(|view| view.get(&tool.name)?.tool.intended(arguments))
    }

    /// The name closest to a mistyped one.
    pub fn nearest(&self, name: &str) -> Option<String> {
        self.look(|view| nearest(name, view.by_name.keys().map(String::as_str)).map(str::to_owned))
    }

    /// Carries a permitted call out. This is the only way to a tool's code, and it consumes the permit.
    #[allow(clippy::too_many_arguments, reason = "each is a part of the node that a running tool may need")]
    pub async fn carry_out(
        &self,
        permit: Permit,
        tool: &ToolSpec,
        arguments: Map<String, Value>,
        directory: &dyn Directory,
        desk: &dyn Desk,
        cancel: &CancellationToken,
        listener: &dyn Listener,
    ) -> Result<Outcome, Violation> {
        let Some(entry) = self.look(|view| view.get(&tool.name).cloned()) else {
            return Err(gone(tool));
        };
        // What was decided on is what runs.
        if !std::ptr::eq(&*entry.spec, tool) && !entry.spec.decided_alike(tool) {
            return Err(gone(tool));
        }
        if permit.tool() != entry.spec.name {
            return Err(Violation::new(
                ViolationKind::InternalError,
                format!("a permit for `{}` was used for `{}`", permit.tool(), entry.spec.name),
            ));
        }
        entry.tool.run(&entry.spec, Run::new(&permit, directory, desk, cancel, listener), arguments).await
    }
}

fn gone(tool: &ToolSpec) -> Violation {
    Violation::new(
        ViolationKind::ToolNotFound,
        format!("`{}` changed or went while the call waited", tool.name),
    )
    .hint("look at the list again")
}

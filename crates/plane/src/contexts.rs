//! The security contexts of a running node: those that ship, those of the configuration file, and those that an
//! operator applied. The file wins over what was applied, so that the two never fight over a name.

use std::{path::PathBuf, sync::Arc};

use aegis_core::{
    Caller, Timestamp,
    config::{
        SecurityContext, ToolPattern,
        security_context::{self, Doubt},
    },
    id::{ContextName, ContextVersion},
    nearest::suggestion,
    record::{Entry, NodeRecord},
};
use aegis_gates::{PolicyGate, policy::version_of};
use aegis_routes::Catalog;
use aegis_stores::{
    audit::{AuditError, AuditLog},
    registry::{AppliedContext, ContextRow, Registry, RegistryError},
};
use arc_swap::ArcSwapOption;
use serde::Serialize;
use serde_json::{Map, json};
use tokio::sync::Mutex;

#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    #[error("there is no security context `{name}`{close}")]
    Unknown { name: String, close: String },
    #[error("`{0}` is the node's own and can't be changed")]
    Own(ContextName),
    #[error("the context `{name}` is defined in {place}")]
    InFile { name: ContextName, place: String },
    #[error("the context `{0}` was not applied: what ships with the node can be laid over, not deleted")]
    NotApplied(ContextName),
    #[error("the context is called `{found}` and the address says `{wanted}`")]
    OtherName { found: ContextName, wanted: String },
    #[error("the context `{name}` is no longer what was read: {}", now_at(.found.as_ref()))]
    Moved { name: ContextName, found: Option<ContextVersion> },
    #[error("the applied context `{name}` in the registry can't be read: {source}")]
    Stored { name: ContextName, source: serde_json::Error },
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error("the audit log can't be written: {0}")]
    Unrecordable(#[from] AuditError),
}

/// What of `contexts` is about nothing that is there. `claims` are names that tools of `servers` may have.
pub fn doubts(
    contexts: &[SecurityContext],
    catalog: &Catalog,
    mut claims: Vec<ToolPattern>,
    servers: &[String],
) -> Vec<Doubt> {
    if !claims.is_empty() {
        // There while any server is configured.
        claims.push(ToolPattern::Prefix("mcp.".into()));
    }
    let specs = catalog.specs();
    let tools: Vec<String> = specs.iter().flat_map(|tool| tool.names()).map(str::to_owned).collect();
    security_context::doubts(contexts, &tools, &claims, servers)
}

fn now_at(found: Option<&ContextVersion>) -> String {
    match found {
        Some(version) => format!("it is {version} now"),
        None => "there is none any more".to_owned(),
    }
}

/// What a context is meant to replace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Over {
    Anything,
    /// There must be none of its name.
    Nothing,
    Version(ContextVersion),
}

impl Over {
    fn allows(&self, found: Option<&ContextVersion>) -> bool {
        match self {
            Self::Anything => true,
            Self::Nothing => found.is_none(),
            Self::Version(version) => found == Some(version),
        }
    }
}

/// Where a context comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Every node has it.
    Shipped,
    /// `spec.security_contexts` of the configuration file.
    File,
    /// An operator applied it.
    Applied,
}

/// A context in force.
#[derive(Debug, Clone, Serialize)]
pub struct InForce {
    pub name: ContextName,
    pub version: ContextVersion,
    pub source: Source,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied_by: Option<String>,
    pub context: SecurityContext,
}

/// What an operator changed.
#[derive(Debug, Clone, Serialize)]
pub struct Changed {
    pub name: ContextName,
    /// `None`: there was none of that name.
    pub old: Option<ContextVersion>,
    /// `None`: there is none any more.
    pub new: Option<ContextVersion>,
}

impl Changed {
    pub fn is_change(&self) -> bool {
        self.old != self.new
    }
}

/// The layers that are laid over one another.
#[derive(Debug)]
pub struct Layers {
    /// The configuration file, whether or not there is one yet.
    file: Option<PathBuf>,
    own: Vec<SecurityContext>,
    applied: Vec<(AppliedContext, SecurityContext)>,
}

impl Layers {
    /// `own` are those of the configuration file.
    pub async fn load(
        registry: &Registry,
        file: Option<PathBuf>,
        own: Vec<SecurityContext>,
    ) -> Result<Self, ContextError> {
        let stored = registry.applied_contexts().await?;
        let read = |row: AppliedContext| match serde_json::from_str(&row.text) {
            Ok(context) => Ok((row, context)),
            // Going on without it might fall back to a wider one that ships.
            Err(source) => Err(ContextError::Stored { name: row.name, source }),
        };
        let applied = stored.into_iter().map(read).collect::<Result<_, _>>()?;
        let layers = Self { file, own, applied };
        layers.warn_of_hidden();
        Ok(layers)
    }

    fn warn_of_hidden(&self) {
        for (row, _) in self.applied.iter().filter(|(row, _)| self.in_file(&row.name)) {
            tracing::warn!(context = %row.name, "the configuration file defines a context that was applied; the file's is in force");
        }
    }

    fn in_file(&self, name: &ContextName) -> bool {
        self.own.iter().any(|context| context.name == *name)
    }

    pub fn contexts(&self) -> Vec<SecurityContext> {
        self.in_force().into_iter().map(|found| found.context).collect()
    }

    fn in_force(&self) -> Vec<InForce> {
        let found = |context: &SecurityContext, source, row: Option<&AppliedContext>| InForce {
            name: context.name.clone(),
            version: version_of(context),
            source,
            applied: row.map(|row| row.applied),
            applied_by: row.map(|row| row.applied_by.to_string()),
            context: context.clone(),
        };
        let mut all: Vec<InForce> =
            security_context::shipped().iter().map(|context| found(context, Source::Shipped, None)).collect();
        let applied = self.applied.iter().filter(|(row, _)| !self.in_file(&row.name));
        let over = applied
            .map(|(row, context)| found(context, Source::Applied, Some(row)))
            .chain(self.own.iter().map(|context| found(context, Source::File, None)));
        for context in over {
            all.retain(|below| below.name != context.name);
            all.push(context);
        }
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// The file and line that define a context.
    fn place(&self, name: &ContextName) -> String {
        let Some(file) = &self.file else { return "the configuration".to_owned() };
        let line = std::fs::read_to_string(file).ok().and_then(|text| security_context::line_of(&text, name));
        match line {
            Some(line) => format!("{}:{line}", file.display()),
            None => file.display().to_string(),
        }
    }
}

/// Changes contexts, one change at a time: stored, recorded, then in force for every call decided from then on.
#[derive(Debug)]
pub struct Contexts {
    layers: Mutex<Layers>,
    policy: Arc<PolicyGate>,
    registry: Registry,
    audit: AuditLog,
    /// Why the configuration file as it is now is not what the node goes by.
    refused_file: ArcSwapOption<String>,
}

impl Contexts {
    pub fn new(layers: Layers, policy: Arc<PolicyGate>, registry: Registry, audit: AuditLog) -> Self {
        let refused_file = ArcSwapOption::empty();
        Self { layers: Mutex::new(layers), policy, registry, audit, refused_file }
    }

    /// By name.
    pub async fn list(&self) -> Vec<InForce> {
        self.layers.lock().await.in_force()
    }

    pub async fn show(&self, name: &str) -> Result<InForce, ContextError> {
        let all = self.list().await;
        match all.iter().find(|context| context.name.as_str() == name) {
            Some(found) => Ok(found.clone()),
            None => Err(unknown(name, &all)),
        }
    }

    /// Every version that was ever in force here, the newest first.
    pub async fn versions(&self, name: &str, limit: usize) -> Result<Vec<ContextRow>, ContextError> {
        let rows = self.registry.contexts(Some(&ContextName::new(name)), limit).await?;
        if rows.is_empty() { Err(unknown(name, &self.list().await)) } else { Ok(rows) }
    }

    pub async fn version(&self, name: &str, version: &str) -> Result<ContextRow, ContextError> {
        let row = self.registry.context(&ContextVersion::new(version)).await?;
        row.filter(|row| row.name.as_str() == name).ok_or_else(|| ContextError::Unknown {
            name: version.to_owned(),
            close: format!(
                "; `aegis context diff {name}` and GET /v1/contexts/{name}/versions know the versions"
            ),
        })
    }

    /// Puts a context in force in the place of the one of its name, if that is the one it was made from.
    pub async fn apply(
        &self,
        context: SecurityContext,
        over: &Over,
        operator: &Caller,
    ) -> Result<Changed, ContextError> {
        let mut layers = self.layers.lock().await;
        changeable(&layers, &context.name)?;
        let old = layers.in_force().into_iter().find(|found| found.name == context.name);
        let old = old.map(|found| found.version);
        if !over.allows(old.as_ref()) {
            return Err(ContextError::Moved { name: context.name, found: old });
        }
        let new = version_of(&context);
        let changed = Changed { name: context.name.clone(), old, new: Some(new.clone()) };
        if !changed.is_change() {
            return Ok(changed);
        }
        let row = AppliedContext {
            name: context.name.clone(),
            version: new,
            text: serde_json::to_string(&context)
                .map_err(|source| ContextError::Stored { name: context.name.clone(), source })?,
            applied: Timestamp::now(),
            applied_by: operator.user.clone(),
        };
        let before =
            layers.applied.iter().find(|(row, _)| row.name == context.name).map(|(row, _)| row.clone());
        self.registry.apply_context(row.clone()).await?;
        if let Err(error) = self.record("context-applied", &changed, operator).await {
            // What the record does not know must not be in force after a restart either.
            match before {
                Some(before) => self.registry.apply_context(before).await?,
                None => drop(self.registry.withdraw_context(&context.name).await?),
            }
            return Err(error);
        }
        layers.applied.retain(|(known, _)| known.name != context.name);
        layers.applied.push((row, context));
        self.put_in_force(&layers).await?;
        Ok(changed)
    }

    /// Takes an applied context out of force; one that ships under the same name comes back.
    pub async fn withdraw(&self, name: &str, operator: &Caller) -> Result<Changed, ContextError> {
        let mut layers = self.layers.lock().await;
        let in_force = layers.in_force();
        let Some(found) = in_force.iter().find(|context| context.name.as_str() == name) else {
            return Err(unknown(name, &in_force));
        };
        changeable(&layers, &found.name)?;
        let Some(index) = layers.applied.iter().position(|(row, _)| row.name == found.name) else {
            return Err(ContextError::NotApplied(found.name.clone()));
        };
        let (row, context) = layers.applied.remove(index);
        let after = layers.in_force().into_iter().find(|below| below.name == found.name);
        let changed = Changed {
            name: found.name.clone(),
            old: Some(found.version.clone()),
            new: after.map(|below| below.version),
        };
        let recorded = match self.registry.withdraw_context(&found.name).await {
            Ok(_) => self.record("context-deleted", &changed, operator).await,
            Err(error) => Err(error.into()),
        };
        if let Err(error) = recorded {
            self.registry.apply_context(row.clone()).await?;
            layers.applied.push((row, context));
            return Err(error);
        }
        self.put_in_force(&layers).await?;
        Ok(changed)
    }

    /// Sessions that were opened under an older version of the context must attest again.
    pub async fn drop_older(&self, name: &str, operator: &Caller) -> Result<InForce, ContextError> {
        let found = self.show(name).await?;
        let changed = Changed { name: found.name.clone(), old: None, new: Some(found.version.clone()) };
        self.record("context-sessions-dropped", &changed, operator).await?;
        self.policy.retire(&found.name).await?;
        Ok(found)
    }

    /// Takes a changed configuration file's contexts in; what was applied stays.
    pub async fn replace_own(&self, file: PathBuf, own: Vec<SecurityContext>) -> Result<(), ContextError> {
        let mut layers = self.layers.lock().await;
        let new = Layers { file: Some(file), own, applied: layers.applied.clone() };
        self.put_in_force(&new).await?;
        new.warn_of_hidden();
        *layers = new;
        self.refused_file.store(None);
        Ok(())
    }

    /// The configuration file, whether or not there is one yet.
    pub async fn file(&self) -> Option<PathBuf> {
        self.layers.lock().await.file.clone()
    }

    /// Goes on with what the configuration file said before, and remembers why.
    pub fn refuse_file(&self, reason: String) {
        self.refused_file.store(Some(Arc::new(reason)));
    }

    /// Why the configuration file as it is now is not what the node goes by.
    pub fn refused_file(&self) -> Option<Arc<String>> {
        self.refused_file.load_full()
    }

    async fn put_in_force(&self, layers: &Layers) -> Result<(), ContextError> {
        Ok(self.policy.replace(&layers.contexts()).await?)
    }

    async fn record(&self, action: &str, changed: &Changed, operator: &Caller) -> Result<(), ContextError> {
        let detail: Map<_, _> =
            [("context", json!(changed.name)), ("old", json!(changed.old)), ("new", json!(changed.new))]
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect();
        let record = NodeRecord {
            time: Timestamp::now(),
            action: action.to_owned(),
            caller: Some(operator.clone()),
            detail,
        };
        self.audit.record_durable(&Entry::Node(record)).await?;
        Ok(())
    }
}

fn changeable(layers: &Layers, name: &ContextName) -> Result<(), ContextError> {
    if name.as_str() == security_context::OPERATOR_CONTEXT {
        return Err(ContextError::Own(name.clone()));
    }
    if layers.in_file(name) {
        return Err(ContextError::InFile { name: name.clone(), place: layers.place(name) });
    }
    Ok(())
}

fn unknown(name: &str, all: &[InForce]) -> ContextError {
    let close = suggestion(name, all.iter().map(|context| context.name.as_str()));
    ContextError::Unknown { name: name.to_owned(), close }
}

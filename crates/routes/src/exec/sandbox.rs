//! What confines commands: made at first need, since trying every layer takes its time.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use aegis_core::{
    Violation, ViolationKind,
    config::{ExecConfig, SandboxBackend, SandboxFloor},
    nearest::suggestion,
};
use aegis_sandbox::{Backend, Floor, Layer, Native, NativeSettings, Oci, OciSettings, Refusal};

/// The node's sandbox.
#[derive(Debug, Clone)]
pub struct Sandbox(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    config: ExecConfig,
    made: OnceLock<Result<Arc<dyn Backend>, String>>,
}

impl Sandbox {
    pub fn new(config: &ExecConfig) -> Self {
        Self(Arc::new(Shared { config: config.clone(), made: OnceLock::new() }))
    }

    /// The backend, with all its layers tried. Whether they suffice is for `backend` to say. Blocks.
    pub fn tried(&self) -> Result<Arc<dyn Backend>, String> {
        self.0.made.get_or_init(|| make(&self.0.config)).clone()
    }

    /// The layers without which nothing is run.
    pub fn floor(&self) -> Result<Floor, String> {
        floor(&self.0.config)
    }

    /// What is missing of the floor, if anything is. Blocks.
    pub fn missing(&self) -> Option<Refusal> {
        let backend = self.tried().ok()?;
        self.floor().ok()?.check(backend.layers()).err()
    }

    /// The backend, if it holds what the operator demands.
    pub(super) async fn backend(&self) -> Result<Arc<dyn Backend>, Violation> {
        let sandbox = self.clone();
        let looked = tokio::task::spawn_blocking(move || {
            let backend = sandbox.tried()?;
            match sandbox.missing() {
                Some(refusal) => Err(refusal.to_string()),
                None => Ok(backend),
            }
        });
        let looked = looked.await.unwrap_or_else(|error| Err(error.to_string()));
        looked.map_err(unavailable)
    }
}

pub(super) fn unavailable(reason: String) -> Violation {
    Violation::new(ViolationKind::SandboxUnavailable, reason)
        .rule("spec.exec: no command is run without its sandbox")
        .hint("an operator finds with `aegis doctor` what this machine lacks")
}

fn make(config: &ExecConfig) -> Result<Arc<dyn Backend>, String> {
    let floor = floor(config)?;
    Ok(match config.backend {
        SandboxBackend::Native => Arc::new(Native::new(NativeSettings::default(), floor)),
        SandboxBackend::Oci => {
            let usual = OciSettings::new(config.image.clone().unwrap_or_default());
            let settings = OciSettings {
                engine: config.engine.as_ref().map(PathBuf::from),
                engine_options: config.engine_options.clone(),
                runtime: config.engine_runtime.clone(),
                ..usual
            };
            Arc::new(Oci::new(&settings, floor))
        }
    })
}

fn floor(config: &ExecConfig) -> Result<Floor, String> {
    let floor = match config.floor {
        SandboxFloor::Least => Floor::least(),
        SandboxFloor::Standard => Floor::standard(),
        SandboxFloor::Strict => Floor::strict(),
    };
    let named = config.required_layers.iter().map(|name| {
        Layer::named(name).ok_or_else(|| {
            let close = suggestion(name, Layer::ALL.iter().map(|layer| layer.name()));
            format!("spec.exec.required_layers: there is no layer called `{name}`{close}")
        })
    });
    Ok(floor.with(named.collect::<Result<Vec<_>, _>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_added_to_the_floor_by_name() {
        let config = |layers: &[&str]| ExecConfig {
            required_layers: layers.iter().map(|layer| (*layer).to_owned()).collect(),
            ..ExecConfig::default()
        };
        let asked = floor(&config(&["memory-cgroup"])).unwrap();
        assert!(asked.layers().any(|layer| layer == Layer::MemoryCgroup));
        let slip = floor(&config(&["landlok"])).unwrap_err();
        assert!(slip.contains("landlock"), "{slip}");
    }
}

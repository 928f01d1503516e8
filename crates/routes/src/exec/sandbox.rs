//! What confines commands: made at first need, since trying every layer takes its time.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use aegis_core::{
    Violation, ViolationKind,
    config::{ChosenSandbox, ExecConfig, SandboxChoice, SandboxFloor},
    nearest::suggestion,
};
use aegis_sandbox::{Backend, Floor, Layer, Native, NativeSettings, Oci, OciSettings, Refusal};

/// Images that a node remembers to have tried. Beyond them, the one that was not used for longest is forgotten.
const MOST_IMAGES: usize = 64;
/// An image that was missing may have come meanwhile. Trying takes seconds, so it is not done at every call.
const TRY_AGAIN: Duration = Duration::from_secs(15);

/// The node's sandbox.
#[derive(Debug, Clone)]
pub struct Sandbox(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    config: ExecConfig,
    native: OnceLock<Arc<dyn Backend>>,
    /// Whether containers hold is tried with each image.
    images: Mutex<Images>,
}

/// Locked for a look only: whoever tries an image holds nobody up but those who want the same one.
#[derive(Debug, Default)]
struct Images {
    known: HashMap<String, Image>,
    uses: u64,
}

#[derive(Debug)]
struct Image {
    tried: Arc<Mutex<Option<Contained>>>,
    last_use: u64,
}

impl Images {
    fn find(&mut self, name: &str) -> Arc<Mutex<Option<Contained>>> {
        self.uses += 1;
        let last_use = self.uses;
        if !self.known.contains_key(name) && self.known.len() >= MOST_IMAGES {
            let longest_ago = self.known.iter().min_by_key(|(_, image)| image.last_use);
            let longest_ago = longest_ago.map(|(name, _)| name.clone());
            longest_ago.and_then(|name| self.known.remove(&name));
        }
        let image =
            self.known.entry(name.to_owned()).or_insert_with(|| Image { tried: Arc::default(), last_use });
        image.last_use = last_use;
        Arc::clone(&image.tried)
    }
}

#[derive(Debug)]
struct Contained {
    backend: Arc<dyn Backend>,
    made: Instant,
}

/// What runs commands, and in which image where it has any.
#[derive(Debug, Clone)]
pub(crate) struct Chosen {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) image: Option<String>,
}

impl Sandbox {
    pub fn new(config: &ExecConfig) -> Self {
        let shared = Shared { config: config.clone(), native: OnceLock::new(), images: Mutex::default() };
        Self(Arc::new(shared))
    }

    /// The node's own backend, with all its layers tried. Whether they suffice is for `missing` to say. Blocks.
    pub fn tried(&self) -> Result<Arc<dyn Backend>, String> {
        self.choose(&SandboxChoice::default()).map(|chosen| chosen.backend)
    }

    /// The same as a capability has it. Blocks.
    fn choose(&self, choice: &SandboxChoice) -> Result<Chosen, String> {
        let floor = self.floor()?;
        let config = &self.0.config;
        let chosen = config.sandbox(choice).ok_or(
            "its commands are to run in containers, and neither the capability nor `spec.exec.image` names an image",
        )?;
        Ok(match chosen {
            ChosenSandbox::Oci(image) => {
                Chosen { backend: self.contained(&image, floor), image: Some(image) }
            }
            ChosenSandbox::Native => {
                let make = || Arc::new(Native::new(NativeSettings::default(), floor)) as Arc<dyn Backend>;
                Chosen { backend: Arc::clone(self.0.native.get_or_init(make)), image: None }
            }
        })
    }

    fn contained(&self, image: &str, floor: Floor) -> Arc<dyn Backend> {
        let tried = self.0.images.lock().unwrap_or_else(PoisonError::into_inner).find(image);
        let mut tried = tried.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*tried
            && (floor.check(known.backend.layers()).is_ok() || known.made.elapsed() < TRY_AGAIN)
        {
            return Arc::clone(&known.backend);
        }
        let config = &self.0.config;
        let settings = OciSettings {
            engine: config.engine.as_ref().map(PathBuf::from),
            engine_options: config.engine_options.clone(),
            runtime: config.engine_runtime.clone(),
            ..OciSettings::new(image)
        };
        let backend: Arc<dyn Backend> = Arc::new(Oci::new(&settings, floor));
        *tried = Some(Contained { backend: Arc::clone(&backend), made: Instant::now() });
        backend
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

    /// What a capability chooses, if it holds what the operator demands.
    pub(super) async fn chosen(&self, choice: SandboxChoice) -> Result<Chosen, Violation> {
        self.ready_for(choice).await.map_err(unavailable)
    }

    /// The same for what is no call.
    pub(crate) async fn ready_for(&self, choice: SandboxChoice) -> Result<Chosen, String> {
        let sandbox = self.clone();
        let looked = tokio::task::spawn_blocking(move || {
            let chosen = sandbox.choose(&choice)?;
            match sandbox.floor()?.check(chosen.backend.layers()) {
                Err(refusal) => Err(refusal.to_string()),
                Ok(()) => Ok(chosen),
            }
        });
        looked.await.unwrap_or_else(|error| Err(error.to_string()))
    }
}

pub(super) fn unavailable(reason: String) -> Violation {
    Violation::new(ViolationKind::SandboxUnavailable, reason)
        .rule("spec.exec: no command is run without its sandbox")
        .hint("an operator finds with `aegis doctor` what this machine lacks")
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
    fn the_image_that_was_not_used_for_longest_is_forgotten() {
        let mut images = Images::default();
        let first = images.find("0");
        for number in 1..MOST_IMAGES {
            images.find(&number.to_string());
        }
        assert!(Arc::ptr_eq(&first, &images.find("0")));
        images.find("another");
        assert_eq!(images.known.len(), MOST_IMAGES);
        assert!(images.known.contains_key("0") && !images.known.contains_key("1"));
    }

    /// While one image is tried, which takes seconds, whoever wants another goes on.
    #[test]
    fn an_image_that_is_being_tried_holds_up_no_other() {
        let missing = ExecConfig { engine: Some("/no/such/engine".to_owned()), ..ExecConfig::default() };
        let sandbox = Sandbox::new(&missing);
        let slow = sandbox.0.images.lock().unwrap().find("slow");
        let _tried = slow.lock().unwrap();
        let other = SandboxChoice { image: Some("other".to_owned()), ..SandboxChoice::default() };
        assert_eq!(sandbox.choose(&other).unwrap().image.as_deref(), Some("other"));
    }

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

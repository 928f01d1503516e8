//! A container engine for tests, where this machine has one that holds what nodes demand.

use aegis_sandbox::{Backend, Floor, Oci, OciSettings};

#[allow(dead_code, reason = "the sandbox's own tests use all of it")]
#[allow(clippy::print_stdout, reason = "a test that is skipped says why")]
#[path = "../../../sandbox/tests/oci/image.rs"]
pub(crate) mod image;

/// An engine that holds what nodes demand, if this machine has one: then a node that does not run containers is a fault.
#[allow(clippy::print_stderr, reason = "a test that is skipped says why")]
pub(crate) fn working_engine() -> Option<image::Store> {
    let Some(store) = image::Store::get() else {
        eprintln!("skipped: no image can be made for tests here");
        return None;
    };
    let settings = OciSettings {
        engine: Some(store.engine.clone()),
        engine_options: store.options(),
        executable: crate::common::AEGIS.into(),
        ..OciSettings::new(image::NAME)
    };
    let tried = Oci::new(&settings, Floor::standard());
    match Floor::standard().check(tried.layers()) {
        Ok(()) => Some(store),
        Err(refusal) => {
            eprintln!("skipped: {refusal}");
            None
        }
    }
}

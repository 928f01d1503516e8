//! The policy gate against the cases in `corpus/policy/`.
#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

use std::{path::Path, sync::Arc};

use aegis::{
    cases,
    node::{ActiveConfig, catalog},
};
use aegis_core::config::NodeConfig;
use aegis_gates::policy::Schema;

#[test]
fn policy_cases() {
    let dir = tempfile::tempdir().unwrap();
    let config = Arc::new(ActiveConfig::new(None, NodeConfig::default()));
    let catalog = catalog(&config, dir.path(), Arc::new(|| true)).unwrap();
    let schema = Schema::of(&catalog.specs());
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/policy");
    let files = cases::files(&directory).unwrap();
    let outcomes: Vec<_> =
        files.iter().flat_map(|file| cases::run(file, &catalog, &schema).unwrap()).collect();
    println!("{} policy cases", outcomes.len());
    let wrong: Vec<String> =
        outcomes.iter().filter(|outcome| !outcome.holds()).map(ToString::to_string).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(outcomes.len() >= 100);
}

//! The pages under `docs/reference/` say what the code says. `UPDATE_DOCS=1` writes them anew.
#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

use std::{path::Path, sync::Arc};

use aegis::{
    node::{ActiveConfig, catalog},
    reference,
};
use aegis_core::config::NodeConfig;

#[test]
fn the_reference_is_true() {
    let dir = tempfile::tempdir().unwrap();
    let catalog =
        catalog(&Arc::new(ActiveConfig::new(None, NodeConfig::default())), dir.path(), Arc::new(|| true))
            .unwrap();
    let pages = [
        ("tools.md", reference::tools(catalog.specs().iter().map(AsRef::as_ref))),
        ("config.md", reference::config()),
        ("cli.md", reference::cli()),
    ];
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    for (name, page) in pages {
        let file = directory.join(name);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(&file, &page).unwrap();
        }
        let written = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(
            written == page,
            "docs/reference/{name} is out of date: UPDATE_DOCS=1 cargo test -p aegis --test reference"
        );
    }
}

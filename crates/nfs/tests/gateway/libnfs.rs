//! Other people's client: the utilities and the library of libnfs.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use aegis_nfs::gateway::MadeExport;

use crate::stage::Stage;

/// A URL as libnfs reads it, for a path below the export.
fn url(export: &MadeExport, path: &str) -> String {
    let port = export.address.port();
    format!("nfs://127.0.0.1{}{path}?version=3&nfsport={port}&mountport={port}", export.mount_path)
}

async fn run(program: impl AsRef<Path>, arguments: &[&str]) -> Output {
    let (program, arguments): (PathBuf, Vec<String>) =
        (program.as_ref().to_owned(), arguments.iter().map(|word| (*word).to_owned()).collect());
    tokio::task::spawn_blocking(move || {
        Command::new(&program).args(arguments).output().unwrap_or_else(|error| {
            panic!(
                "{}: {error}; scripts/test installs libnfs-utils, libnfs-dev and a C compiler",
                program.display()
            )
        })
    })
    .await
    .unwrap()
}

async fn done(program: impl AsRef<Path>, arguments: &[&str]) -> Vec<u8> {
    let output = run(program, arguments).await;
    assert!(
        output.status.success(),
        "{arguments:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_utilities_list_read_and_copy() {
    let stage = Stage::new().await;
    let export = stage.export("workspace").await;
    std::fs::create_dir_all(stage.workspace().join("dir/sub")).unwrap();
    std::fs::write(stage.workspace().join("dir/a.txt"), "some text\n").unwrap();
    let listed = String::from_utf8(done("nfs-ls", &["-R", &url(&export, "")]).await).unwrap();
    assert!(listed.contains("dir/sub") && listed.contains("a.txt"), "{listed}");
    assert_eq!(done("nfs-cat", &[&url(&export, "/dir/a.txt")]).await, b"some text\n");
    let (from, back) = (stage.outside().join("from"), stage.outside().join("back"));
    let content: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    std::fs::write(&from, &content).unwrap();
    done("nfs-cp", &[from.to_str().unwrap(), &url(&export, "/dir/sub/copy")]).await;
    assert_eq!(std::fs::read(stage.workspace().join("dir/sub/copy")).unwrap(), content);
    done("nfs-cp", &[&url(&export, "/dir/sub/copy"), back.to_str().unwrap()]).await;
    assert_eq!(std::fs::read(back).unwrap(), content);
    assert!(!run("nfs-cat", &[&url(&export, "/none")]).await.status.success());

    let reader = stage.export("read-only").await;
    let refused = run("nfs-cp", &[from.to_str().unwrap(), &url(&reader, "/dir/sub/other")]).await;
    assert!(!refused.status.success() && !stage.workspace().join("dir/sub/other").exists());
}

/// The whole set of operations, by a program that checks each answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_library_does_everything() {
    let stage = Stage::new().await;
    let export = stage.export("workspace").await;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gateway/libnfs_check.c");
    let program = stage.outside().join("libnfs_check");
    done("cc", &["-o", program.to_str().unwrap(), source.to_str().unwrap(), "-lnfs"]).await;
    let told = done(&program, &[&url(&export, "/")]).await;
    assert_eq!(String::from_utf8_lossy(&told).trim(), "all checks passed");
    let left: Vec<_> = std::fs::read_dir(stage.workspace()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

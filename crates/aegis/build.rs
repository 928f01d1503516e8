//! Puts the pages under `errors/` into the binary.

use std::{env, error::Error, fmt::Write as _, fs, path::Path};

#[allow(clippy::print_stdout, reason = "this is how a build script talks to cargo")]
fn main() -> Result<(), Box<dyn Error>> {
    let pages = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../errors").canonicalize()?;
    println!("cargo::rerun-if-changed={}", pages.display());
    let mut files: Vec<_> =
        fs::read_dir(&pages)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    files.sort();
    let mut code = String::from("static PAGES: &[(&str, &str)] = &[\n");
    for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "md")) {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        writeln!(code, "    ({name:?}, include_str!({:?})),", file.display().to_string())?;
    }
    code.push_str("];\n");
    fs::write(Path::new(&env::var("OUT_DIR")?).join("pages.rs"), code)?;
    Ok(())
}

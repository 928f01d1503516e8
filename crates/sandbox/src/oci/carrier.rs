//! How the node's own binary gets to run in an image that knows nothing of it: read-only, with the loader and the
//! libraries of the host beside it, so that the image's own don't matter.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::stage::STAGE_NAME;

/// Where the stage's files stand in a container.
pub(super) const PLACE: &str = "/.aegis";
/// Where its socket stands, inside [`PLACE`].
pub(super) const CONTROL: &str = "/.aegis/control";
const LOADER: &str = "loader";

/// Why the binary can't be carried.
#[derive(Debug, thiserror::Error)]
pub(super) enum CarrierError {
    #[error("the node's binary {} can't be read: {source}", path.display())]
    Binary { path: PathBuf, source: io::Error },
    #[error("the node's binary is no program of this machine")]
    NoProgram,
    #[error("the loader {} does not name the libraries that the node needs: {reason}", path.display())]
    Loader { path: PathBuf, reason: String },
}

/// What to mount, and what to start.
#[derive(Debug, Clone)]
pub(super) struct Carrier {
    /// Files of the host, and their places inside.
    pub(super) files: Vec<(PathBuf, String)>,
    /// The first program of the container.
    pub(super) entry: String,
    /// Its arguments, before the stage's own.
    pub(super) arguments: Vec<String>,
}

impl Carrier {
    pub(super) fn new(executable: &Path) -> Result<Self, CarrierError> {
        let failed = |source| CarrierError::Binary { path: executable.to_owned(), source };
        // A container's runtime has another /proc/self.
        let executable = executable.canonicalize().map_err(failed)?;
        let inside = |name: &str| format!("{PLACE}/{name}");
        let mut files = vec![(executable.clone(), inside(STAGE_NAME))];
        let file = File::open(&executable).map_err(failed)?;
        let Some(loader) = interpreter(&file).map_err(failed)?.ok_or(CarrierError::NoProgram)? else {
            return Ok(Self { files, entry: STAGE_NAME.to_owned(), arguments: Vec::new() });
        };
        files.push((loader.clone(), inside(LOADER)));
        for library in libraries(&loader, &executable)? {
            let name = library.file_name().unwrap_or_default().to_string_lossy().into_owned();
            files.push((library, inside(&name)));
        }
        let arguments = ["--argv0", STAGE_NAME, "--library-path", PLACE, &inside(STAGE_NAME)];
        Ok(Self { files, entry: inside(LOADER), arguments: arguments.map(str::to_owned).to_vec() })
    }
}

/// The loader that a program names; none when it needs none, nothing when it is no program for 64 bits.
fn interpreter(file: &File) -> io::Result<Option<Option<PathBuf>>> {
    const PROGRAM_INTERPRETER: u32 = 3;
    const LONGEST: u64 = 4096;
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0)?;
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return Ok(None);
    }
    let short = |bytes: &[u8], at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let word = |bytes: &[u8], at: usize| {
        u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    };
    let long = |bytes: &[u8], at: usize| u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32;
    let (table, size, count) = (long(&header, 32), u64::from(short(&header, 54)), short(&header, 56));
    for index in 0..u64::from(count) {
        let mut entry = [0; 56];
        file.read_exact_at(&mut entry, table.saturating_add(index * size))?;
        if word(&entry, 0) == PROGRAM_INTERPRETER {
            let length = long(&entry, 32).min(LONGEST);
            let mut path = vec![0; usize::try_from(length).unwrap_or(0)];
            file.read_exact_at(&mut path, long(&entry, 8))?;
            let path = String::from_utf8_lossy(&path);
            return Ok(Some(Some(PathBuf::from(path.trim_end_matches('\0')))));
        }
    }
    Ok(Some(None))
}

/// The libraries that the loader would give the program here.
fn libraries(loader: &Path, executable: &Path) -> Result<Vec<PathBuf>, CarrierError> {
    let failed = |reason: String| CarrierError::Loader { path: loader.to_owned(), reason };
    let output = Command::new(loader)
        .arg("--list")
        .arg(executable)
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(listed(&String::from_utf8_lossy(&output.stdout), loader))
}

/// Lines as `libc.so.6 => /lib/libc.so.6 (0x…)`; what has no path is the kernel's, or the loader itself.
fn listed(text: &str, loader: &Path) -> Vec<PathBuf> {
    text.lines()
        .filter_map(|line| line.split_once("=> ")?.1.rsplit_once(" ("))
        .map(|(path, _)| PathBuf::from(path.trim()))
        .filter(|path| path.is_absolute() && path.file_name() != loader.file_name())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_programs_loader_and_libraries_are_found() {
        let carrier = Carrier::new(Path::new("/proc/self/exe")).unwrap();
        assert!(carrier.files.iter().all(|(file, _)| file.is_file()), "{carrier:?}");
        let dynamic = carrier.files.len() > 1;
        assert_eq!(carrier.entry.ends_with(LOADER), dynamic);
        assert_eq!(carrier.files.iter().any(|(_, inside)| inside.contains("libc.so")), dynamic);
    }

    #[test]
    fn what_is_no_program_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("script");
        std::fs::write(&script, "#!/bin/sh\n".repeat(20)).unwrap();
        assert!(matches!(Carrier::new(&script), Err(CarrierError::NoProgram)));
        assert!(matches!(Carrier::new(&directory.path().join("none")), Err(CarrierError::Binary { .. })));
    }

    #[test]
    fn libraries_are_those_with_a_path() {
        let text = "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/libc.so.6 (0x2)\n\t/lib64/ld.so => /lib64/ld.so (0x3)\n";
        assert_eq!(listed(text, Path::new("/lib64/ld.so")), [PathBuf::from("/lib/libc.so.6")]);
    }
}

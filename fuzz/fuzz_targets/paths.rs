//! Whatever text names a path: one file has one spelling, and a prefix covers by whole components or not at all.
#![no_main]

use aegis_core::path::{MAX_PATH_BYTES, PathPrefix, VolumePath};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: (&str, &str)| {
    let (first, second) = data;
    let path = VolumePath::parse(first);
    if let Ok(path) = &path {
        let text = path.as_str();
        assert!(text == "/" || (text.starts_with('/') && !text.ends_with('/')));
        assert!(!text.contains('\0') && !text.contains("//"));
        assert!(path.components().all(|component| !matches!(component, "" | "." | "..")));
        if text.len() <= MAX_PATH_BYTES {
            assert_eq!(VolumePath::parse(text).as_ref(), Ok(path));
        }
        // The same file, written with noise.
        let noisy = format!(".//{first}/.");
        if !first.starts_with('/') && noisy.len() <= MAX_PATH_BYTES {
            assert_eq!(VolumePath::parse(&noisy).as_ref(), Ok(path));
        }
    }
    if first.split('/').any(|component| component == "..") {
        assert!(path.is_err());
    }
    let Ok(prefix) = PathPrefix::parse(second) else { return };
    assert_eq!(PathPrefix::parse(&prefix.to_string()), Ok(prefix.clone()));
    let Ok(path) = path else { return };
    let mut below = path.components();
    let whole_components = prefix
        .as_str()
        .split('/')
        .filter(|component| !component.is_empty())
        .all(|component| below.next() == Some(component));
    assert_eq!(prefix.covers(&path), whole_components, "{prefix} and {path}");
});

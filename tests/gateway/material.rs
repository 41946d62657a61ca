//! Where the public test material lies. A clone without it says which tests it left out; with `CI` set they fail.

use flate2::read::GzDecoder;
use std::fs::File;
use std::path::PathBuf;

/// A file or folder of the material; `None` = it is not here, and that was said.
pub fn find(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("RINGWAY_MATERIAL")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/material"), PathBuf::from);
    let path = folder.join(name);
    if !path.exists() {
        assert!(std::env::var_os("CI").is_none(), "{} is missing: set RINGWAY_MATERIAL", path.display());
        eprintln!("left out: no {}", path.display());
        return None;
    }
    Some(path)
}

/// The lines of a packed file.
pub fn lines(name: &str) -> Option<Vec<String>> {
    let file = File::open(find(name)?).unwrap();
    Some(std::io::read_to_string(GzDecoder::new(file)).unwrap().lines().map(str::to_owned).collect())
}

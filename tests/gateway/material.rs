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

/// The files of a folder whose name ends so, by name.
pub fn files(folder: &str, ending: &str) -> Option<Vec<(String, Vec<u8>)>> {
    let entries = std::fs::read_dir(find(folder)?).unwrap().map(|entry| entry.unwrap().path());
    let named = entries.map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), path));
    let wanted = named.filter(|(name, _)| name.ends_with(ending));
    let mut files: Vec<_> = wanted.map(|(name, path)| (name, std::fs::read(path).unwrap())).collect();
    files.sort();
    Some(files)
}

/// Shares the work between threads; the first that fails fails the test.
pub fn in_threads<T: Sync>(threads: usize, all: &[T], work: impl Fn(usize, &T) + Sync) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let work = &work;
            scope.spawn(move || {
                let own = all.iter().enumerate().filter(|(at, _)| at % threads == thread);
                own.for_each(|(at, one)| work(at, one));
            });
        }
    });
}

/// A body in chunks, cut where `seed` says.
pub fn chunked(body: &[u8], seed: usize) -> Vec<u8> {
    let (mut rest, mut out, mut nth) = (body, Vec::new(), seed);
    while !rest.is_empty() {
        // From single bytes to pieces larger than a buffer.
        let size = [1, 7, 300, 5_000, 70_000, 2, 64][nth % 7].min(rest.len());
        let (piece, left) = rest.split_at(size);
        out.extend_from_slice(format!("{size:x}{}\r\n", if nth.is_multiple_of(3) { ";x=\"y\"" } else { "" }).as_bytes());
        out.extend_from_slice(piece);
        out.extend_from_slice(b"\r\n");
        (rest, nth) = (left, nth + 1);
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}

//! Helpers for the tests of this crate.

use std::path::Path;

/// Fails if a file of the repository is not as the code generates it. `make references` writes such files.
#[track_caller]
pub(crate) fn assert_generated(file: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join(file);
    if std::env::var_os("WRITE_REFERENCES").is_some() {
        return std::fs::write(path, text).unwrap();
    }
    let is_same = std::fs::read_to_string(path).is_ok_and(|written| written == text);
    assert!(is_same, "{file} is not as the code generates it; `make references` writes it");
}

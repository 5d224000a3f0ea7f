//! Decides: a live change is saved.
//!
//! `mpathctl config save`

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use mpath_api::client::Client;
use mpath_config::{Change, Config, EditError, edit, read_file, settings_in, written};
use serde::Serialize;
use tempfile::NamedTempFile;

use super::effective;
use crate::Failure;
use crate::output::{Output, write};

/// The mode of a new file.
const MODE: u32 = 0o644;

/// Why the configuration was not saved.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SaveError {
    #[error("the daemon was started with flags; name the file to save to")]
    NoFile,
    #[error(
        "{}: changed since the daemon read it; `mpathctl config diff` shows the differences; reload it first, or save to another file",
        .0.display()
    )]
    Stale(PathBuf),
    #[error("{}: {source}; the daemon was started with this file; name the file to save to", path.display())]
    Missing { path: PathBuf, source: io::Error },
    #[error("{}: {source}", path.display())]
    Edit { path: PathBuf, source: EditError },
    #[error("{}: cannot be written: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// What was saved.
#[derive(Debug, Serialize)]
struct Saved {
    file: String,
    /// The changes to the text that the file begins with. Empty if a new file begins without a text.
    changes: Vec<Change>,
    is_new: bool,
}

pub(super) fn save(client: &Client, file: Option<&Path>, output: &mut Output) -> Result<(), Failure> {
    let configuration = client.configuration()?;
    let wanted = effective(&configuration)?;
    let daemons = configuration.file.as_ref().map(PathBuf::from);
    let named = file.or(daemons.as_deref()).ok_or(SaveError::NoFile)?;
    let is_stdout = named == Path::new("-");
    // A link stays, and the file that it leads to is written.
    let path = fs::canonicalize(named).unwrap_or_else(|_| named.into());
    let is_daemons =
        !is_stdout && daemons.as_ref().and_then(|file| fs::canonicalize(file).ok()).as_ref() == Some(&path);
    let is_new = is_stdout || !path.exists();
    if is_new && file.is_none() {
        let source = io::ErrorKind::NotFound.into();
        return Err(SaveError::Missing { path, source }.into());
    }
    // A new file begins as a copy.
    let base = if is_new { daemons.clone().filter(|file| file.exists()) } else { Some(path.clone()) };
    let mut before = None;
    let (text, changes) = match base {
        Some(base) => {
            let text = read_file(&base)?;
            before = Some(text.clone()).filter(|_| !is_new);
            if is_daemons && settings_in(&text) != configuration.given {
                return Err(SaveError::Stale(named.into()).into());
            }
            edit(&text, &wanted).map_err(|source| SaveError::Edit { path: named.into(), source })?
        }
        None => (new_text(&wanted), Vec::new()),
    };
    if is_stdout {
        return Ok(write(&text)?);
    }
    if is_new || !changes.is_empty() {
        // An editor may have written the file meanwhile.
        if before.is_some_and(|before| fs::read_to_string(&path).map_or(true, |now| now != before)) {
            return Err(SaveError::Stale(named.into()).into());
        }
        replace(&path, &text).map_err(|source| SaveError::Write { path: named.into(), source })?;
    }
    if is_daemons {
        // A dry run makes the daemon take note of the file. If it fails, the next command names a difference.
        let _ = client.reload(true, false);
    }
    let saved = Saved { file: named.display().to_string(), changes, is_new };
    Ok(output.print(&saved, |Saved { file, changes, is_new }| {
        let changes: String = changes.iter().map(|change| change.to_string() + "\n").collect();
        match (is_new, changes.is_empty()) {
            (true, _) => format!("{changes}{file}: written\n"),
            (false, true) => format!("{file}: no changes to save\n"),
            (false, false) => format!("{changes}{file}: saved\n"),
        }
    })?)
}

fn new_text(config: &Config) -> String {
    serde_yaml::to_string(&written(config)).unwrap_or_default()
}

/// Replaces a file, with its mode and owner, so that a reader sees either the old or the new text.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = NamedTempFile::new_in(directory)?;
    file.write_all(text.as_bytes())?;
    match fs::metadata(path) {
        Ok(before) => {
            let own = file.as_file().metadata()?;
            if (own.uid(), own.gid()) != (before.uid(), before.gid()) {
                fchown(file.as_file(), Some(before.uid()), Some(before.gid()))?;
            }
            file.as_file().set_permissions(before.permissions())?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            file.as_file().set_permissions(Permissions::from_mode(MODE))?;
        }
        Err(error) => return Err(error),
    }
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_file_keeps_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.yaml");
        replace(&path, "a").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, MODE);
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        replace(&path, "b").unwrap();
        assert_eq!(
            (fs::metadata(&path).unwrap().mode() & 0o777, fs::read_to_string(&path).unwrap()),
            (0o640, "b".into())
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
    }
}

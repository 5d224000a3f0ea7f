//! Where a measurement is published: data, picture, and a section of a document.

use super::section::{DocumentError, Section};
use serde::Serialize;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The files of one measurement.
#[derive(Debug, Clone)]
pub struct Publication {
    /// The documentation's folder.
    pub docs: PathBuf,
    /// The document in it.
    pub document: &'static str,
    /// What of the document is rewritten. Data and picture have its name, in the folder's `results`.
    pub section: Section,
}

/// Why something was not published.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// A file cannot be written.
    #[error("cannot write {}: {source}", .path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The document is not as it must be.
    #[error("{}: {source}", .path.display())]
    Document {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: DocumentError,
    },
    /// The results are no JSON.
    #[error("cannot encode the results: {0}")]
    Encode(#[from] serde_json::Error),
}

impl Publication {
    /// Whether the document can take the section: not to be found out after an hour of measuring.
    pub fn check(&self) -> Result<(), PublishError> {
        self.rewritten("").map(|_| ())
    }

    /// Writes everything.
    pub fn write(&self, results: &impl Serialize, picture: &str, section: &str) -> Result<(), PublishError> {
        let data = serde_json::to_string_pretty(results)? + "\n";
        let document = self.rewritten(section)?;
        let folder = self.docs.join("results");
        fs::create_dir_all(&folder).map_err(|source| PublishError::Write { path: folder.clone(), source })?;
        write(&folder.join(format!("{}.json", self.section.name)), &data)?;
        write(&folder.join(format!("{}.svg", self.section.name)), picture)?;
        write(&self.docs.join(self.document), &document)
    }

    fn rewritten(&self, section: &str) -> Result<String, PublishError> {
        let path = self.docs.join(self.document);
        fs::read_to_string(&path)
            .map_err(DocumentError::Read)
            .and_then(|text| self.section.replace(&text, section))
            .map_err(|source| PublishError::Document { path, source })
    }
}

fn write(path: &Path, text: &str) -> Result<(), PublishError> {
    fs::write(path, text).map_err(|source| PublishError::Write { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_or_nothing() {
        let docs = tempfile::tempdir().unwrap();
        let section = Section { name: "x", command: "make x" };
        let publication = Publication { docs: docs.path().to_owned(), document: "x.md", section };
        let document = docs.path().join("x.md");
        assert!(matches!(publication.check(), Err(PublishError::Document { .. })));
        fs::write(&document, "no markers\n").unwrap();
        assert!(publication.check().is_err() && publication.write(&[1], "<svg/>", "new").is_err());
        assert!(!docs.path().join("results").exists());
        fs::write(&document, "<!-- x: begin (written by `make x`) -->\nold\n<!-- x: end -->\n").unwrap();
        publication.check().unwrap();
        assert!(fs::read_to_string(&document).unwrap().contains("\nold\n"));
        publication.write(&[1], "<svg/>", "new").unwrap();
        assert!(fs::read_to_string(&document).unwrap().contains("\nnew\n"));
        assert_eq!(fs::read_to_string(docs.path().join("results/x.svg")).unwrap(), "<svg/>");
        assert_eq!(fs::read_to_string(docs.path().join("results/x.json")).unwrap(), "[\n  1\n]\n");
    }
}

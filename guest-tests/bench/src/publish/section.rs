//! A section of a document that is rewritten with each measurement.

use std::io;

/// What stands between two marker lines.
#[derive(Debug, Clone, Copy)]
pub struct Section {
    /// In both markers.
    pub name: &'static str,
    /// What rewrites it, in the first marker.
    pub command: &'static str,
}

/// Why a document was left as it is.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// The file.
    #[error("cannot read it: {0}")]
    Read(#[source] io::Error),
    /// The lines around the section.
    #[error("the marker lines '{begin}' and '{end}' must be there once each, in this order")]
    Markers {
        /// In front.
        begin: String,
        /// Behind.
        end: String,
    },
}

impl Section {
    fn markers(&self) -> (String, String) {
        let begin = format!("<!-- {}: begin (written by `{}`) -->", self.name, self.command);
        (begin, format!("<!-- {}: end -->", self.name))
    }

    /// The document with `content` between the markers.
    pub fn replace(&self, text: &str, content: &str) -> Result<String, DocumentError> {
        let (begin, end) = self.markers();
        let parts = text.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
        match parts {
            Some((before, after)) if !before.contains(&end) && !after.contains(&begin) && !after.contains(&end) => {
                Ok(format!("{before}{begin}\n\n{}\n\n{end}{after}", content.trim()))
            }
            _ => Err(DocumentError::Markers { begin, end }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECTION: Section = Section { name: "x", command: "make x" };
    const BEGIN: &str = "<!-- x: begin (written by `make x`) -->";
    const END: &str = "<!-- x: end -->";

    #[test]
    fn replaces_only_between_the_markers() {
        let text = format!("# Title\n{BEGIN}\nold\n{END}\nrest\n");
        let replaced = SECTION.replace(&text, "\nnew\n").unwrap();
        assert_eq!(replaced, format!("# Title\n{BEGIN}\n\nnew\n\n{END}\nrest\n"));
        assert_eq!(SECTION.replace(&replaced, "new").unwrap(), replaced);
    }

    #[test]
    fn leaves_other_sections_alone() {
        let text = format!("{BEGIN}\nold\n{END}\n<!-- y: begin (written by `make x`) -->\ny\n<!-- y: end -->\n");
        let other = Section { name: "y", ..SECTION };
        let replaced = other.replace(&text, "new").unwrap();
        assert!(
            replaced.starts_with(&format!("{BEGIN}\nold\n{END}\n")) && replaced.contains("\n\nnew\n\n"),
            "{replaced}"
        );
    }

    #[test]
    fn refuses_without_or_with_wrong_markers() {
        for text in
            [String::new(), format!("{BEGIN}\n"), format!("{END}\n{BEGIN}\n"), format!("{BEGIN}{END}{BEGIN}{END}")]
        {
            assert!(SECTION.replace(&text, "new").is_err(), "{text}");
        }
    }
}

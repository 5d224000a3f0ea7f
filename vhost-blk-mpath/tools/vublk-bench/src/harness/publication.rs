//! Where a measurement is published: data, picture, and a section of a document between two marker lines.

use super::chart::Chart;
use super::program::{Failure, Writing};
use super::results::Results;
use super::section::Section;
use super::targets::Target;
use serde_json::Value;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// One measurement's files and how their content is made of its results.
#[derive(Debug, Clone, Copy)]
pub struct Publication {
    /// Names the data, the picture and the section.
    pub name: &'static str,
    /// What repeats the measurement; part of the first marker.
    pub command: &'static str,
    /// The document in the documentation's folder.
    pub document: &'static str,
    /// Judges the results.
    pub targets: fn(&Results) -> Vec<Target>,
    /// Writes the section.
    pub section: fn(&Results, &[Target], &mut Section),
    /// Draws the picture.
    pub chart: fn(&Results) -> Chart,
}

impl Publication {
    /// Whether the document can take the section. To be asked before an hour of measuring.
    pub fn check(&self, docs: &Path) -> Result<(), Failure> {
        self.document_with(docs, "").map(|_| ())
    }

    /// Writes the results, and the samples under `target/bench`; with `--dry-run` only prints the section.
    pub fn publish(&self, writing: &Writing, results: &Results, samples: &Value) -> Result<(), Failure> {
        let folder = samples_folder();
        let samples_file = folder.join(format!("{}-samples.json", self.name));
        write(&samples_file, &samples.to_string())?;
        eprintln!("samples: {}", samples_file.display());
        let data = encode(results)?;
        if !writing.dry_run {
            write(&self.file(&writing.docs, "json"), &data)?;
        }
        self.write_documents(writing, &decode(&data)?)
    }

    /// Writes section and picture again, of the data that is there.
    pub fn render(&self, writing: &Writing) -> Result<(), Failure> {
        let path = self.file(&writing.docs, "json");
        let data = fs::read_to_string(&path).map_err(|error| failed("read", &path, error))?;
        self.write_documents(writing, &decode(&data).map_err(|error| failed("use", &path, error))?)
    }

    fn write_documents(&self, writing: &Writing, results: &Results) -> Result<(), Failure> {
        let targets = (self.targets)(results);
        let mut section = Section::default();
        (self.section)(results, &targets, &mut section);
        let text = section.text();
        println!("{text}");
        if writing.dry_run {
            return Ok(());
        }
        let document = self.document_with(&writing.docs, &text)?;
        write(&self.file(&writing.docs, "svg"), &(self.chart)(results).svg())?;
        write(&writing.docs.join(self.document), &document)
    }

    fn file(&self, docs: &Path, extension: &str) -> PathBuf {
        docs.join("results").join(format!("{}.{extension}", self.name))
    }

    fn document_with(&self, docs: &Path, section: &str) -> Result<String, Failure> {
        let path = docs.join(self.document);
        let text = fs::read_to_string(&path).map_err(|error| failed("read", &path, error))?;
        self.replace(&text, section).map_err(|error| failed("write a section of", &path, error))
    }

    /// The document with `content` between the markers.
    fn replace(&self, text: &str, content: &str) -> Result<String, String> {
        let begin = format!("<!-- {}: begin (written by `{}`) -->", self.name, self.command);
        let end = format!("<!-- {}: end -->", self.name);
        let parts = text.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
        match parts {
            Some((before, after)) if !before.contains(&end) && !after.contains(&begin) && !after.contains(&end) => {
                Ok(format!("{before}{begin}\n\n{}\n\n{end}{after}", content.trim()))
            }
            _ => Err(format!("the lines '{begin}' and '{end}' must be there once each, in this order; add them")),
        }
    }
}

/// `target/bench`, next to the folder of this program.
fn samples_folder() -> PathBuf {
    let program = env::current_exe().unwrap_or_default();
    program.parent().and_then(Path::parent).unwrap_or(Path::new("target")).join("bench")
}

/// JSON with a line for each cell.
fn encode(results: &Results) -> Result<String, Failure> {
    let text = serde_json::to_string(results).map_err(|error| Failure::Failed(format!("cannot encode: {error}")))?;
    let lines = [("{\"table\"", "\n{\"table\""), ("{\"contender\"", "\n  {\"contender\"")];
    Ok(lines.iter().fold(text, |text, (from, to)| text.replace(from, to)) + "\n")
}

fn decode(text: &str) -> Result<Results, Failure> {
    serde_json::from_str(text).map_err(|error| Failure::Failed(format!("the results make no sense: {error}")))
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let folder = path.parent().unwrap_or(Path::new(""));
    fs::create_dir_all(folder).and_then(|()| fs::write(path, text)).map_err(|error| failed("write", path, error))
}

fn failed(what: &str, path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::Failed(format!("cannot {what} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Machine, Row};

    const PUBLICATION: Publication = Publication {
        name: "x",
        command: "make x",
        document: "x.md",
        targets: |_| vec![Target::new("fast", [])],
        section: |results, targets, section| {
            section.paragraph(&results.setting("note"));
            section.targets(targets);
        },
        chart: |results| Chart {
            contenders: Vec::new(),
            columns: 1,
            panels: Vec::new(),
            limit: results.setting("note"),
        },
    };
    const BEGIN: &str = "<!-- x: begin (written by `make x`) -->";
    const END: &str = "<!-- x: end -->";

    #[test]
    fn only_the_text_between_the_markers_is_replaced() {
        let other = "<!-- y: begin (written by `make x`) -->\ny\n<!-- y: end -->";
        let text = format!("# Title\n{BEGIN}\nold\n{END}\n{other}\n");
        let replaced = PUBLICATION.replace(&text, "\nnew\n").unwrap();
        assert_eq!(replaced, format!("# Title\n{BEGIN}\n\nnew\n\n{END}\n{other}\n"));
        assert_eq!(PUBLICATION.replace(&replaced, "new").unwrap(), replaced);
    }

    #[test]
    fn missing_or_misplaced_markers_are_refused() {
        for text in ["", BEGIN, &format!("{END}\n{BEGIN}\n"), &format!("{BEGIN}{END}{BEGIN}{END}")] {
            assert!(PUBLICATION.replace(text, "new").is_err(), "{text}");
        }
    }

    #[test]
    fn stored_results_are_rendered_again() {
        let docs = tempfile::tempdir().unwrap();
        let writing = |dry_run| Writing { docs: docs.path().to_owned(), dry_run, render: false };
        let document = docs.path().join("x.md");
        assert!(PUBLICATION.check(docs.path()).is_err());
        fs::write(&document, format!("{BEGIN}\nold\n{END}\n")).unwrap();
        PUBLICATION.check(docs.path()).unwrap();
        let mut results = Results::new(Machine::look(None), &[("note", "measured".into())]);
        results.rows.push(Row::new("a", "4k", ["bdp"].into_iter()));
        PUBLICATION.publish(&writing(true), &results, &results.samples()).unwrap();
        assert!(fs::read_to_string(&document).unwrap().contains("\nold\n"));
        assert!(PUBLICATION.render(&writing(false)).is_err());
        PUBLICATION.publish(&writing(false), &results, &results.samples()).unwrap();
        let data = docs.path().join("results/x.json");
        let text = fs::read_to_string(&data).unwrap();
        assert!(
            text.contains("\n{\"table\":\"a\",\"name\":\"4k\",\"cells\":[\n  {\"contender\":\"bdp\"}]}]}\n"),
            "{text}"
        );
        fs::write(&data, text.replace("measured", "stored")).unwrap();
        PUBLICATION.render(&writing(false)).unwrap();
        let text = fs::read_to_string(&document).unwrap();
        assert!(text.contains("\nstored\n") && text.contains("Not measured: fast."), "{text}");
        assert!(docs.path().join("results/x.svg").exists());
    }
}

//! Where a measurement is published: data, picture, and a section of a document between two marker lines.

use super::chart::Chart;
use super::machine::Machine;
use super::program::{Failure, Writing};
use super::results::Results;
use super::table::{Section, Table};
use super::targets::Target;
use std::fs;
use std::path::{Path, PathBuf};

/// The files of one measurement, and the functions that make their content from its results.
#[derive(Debug, Clone, Copy)]
pub struct Publication {
    /// Names the data, the picture and the section.
    pub name: &'static str,
    /// The command that repeats the measurement. It is part of the first marker.
    pub command: &'static str,
    /// The document in the documentation's folder.
    pub document: &'static str,
    pub tables: fn(&Results) -> Vec<Table>,
    pub targets: fn(&Results) -> Vec<Target>,
    pub chart: fn(&Results) -> Chart,
    /// What the picture shows.
    pub picture: &'static str,
}

/// A publication and what measures it.
pub type Part<'a> = (Publication, Box<dyn FnOnce(Machine) -> Result<Results, Failure> + 'a>);

/// Measures and publishes one part after the other, or only writes the stored results again. Checks first that the documents have
/// their markers, because a measurement can take an hour.
pub fn publish(parts: Vec<Part<'_>>, writing: &Writing, qsd: Option<&Path>) -> Result<(), Failure> {
    if writing.render {
        return parts.iter().try_for_each(|(publication, _)| publication.render(writing));
    }
    parts.iter().try_for_each(|(publication, _)| publication.document_with(&writing.docs, "").map(|_| ()))?;
    // The machine is looked at only once, because the first publication changes the tree.
    let machine = Machine::look(qsd);
    if machine.commit.ends_with("-dirty") {
        eprintln!("warning: the tree has changes, so others cannot reproduce the results; commit first");
    }
    parts.into_iter().try_for_each(|(publication, measure)| publication.publish(writing, &measure(machine.clone())?))
}

impl Publication {
    /// Writes the results; with `--dry-run` only prints the section.
    fn publish(&self, writing: &Writing, results: &Results) -> Result<(), Failure> {
        let data = encode(results)?;
        if !writing.dry_run {
            write(&self.file(&writing.docs, "json"), &data)?;
        }
        self.write_documents(writing, &data)
    }

    /// Writes the section and the picture again, from the stored data.
    fn render(&self, writing: &Writing) -> Result<(), Failure> {
        let path = self.file(&writing.docs, "json");
        let data = fs::read_to_string(&path).map_err(|error| failed("read", &path, error))?;
        self.write_documents(writing, &data).map_err(|error| failed("use", &path, error))
    }

    fn write_documents(&self, writing: &Writing, data: &str) -> Result<(), Failure> {
        let results: Results = serde_json::from_str(data)
            .map_err(|error| Failure::Failed(format!("the results make no sense: {error}")))?;
        let text = self.text(&results);
        println!("{text}");
        if writing.dry_run {
            return Ok(());
        }
        let document = self.document_with(&writing.docs, &text)?;
        write(&self.file(&writing.docs, "svg"), &(self.chart)(&results).svg())?;
        write(&writing.docs.join(self.document), &document)
    }

    pub fn text(&self, results: &Results) -> String {
        let mut section = Section::default();
        for table in (self.tables)(results) {
            section.table(results, &table);
        }
        section.targets(&(self.targets)(results));
        section.origin(results, self.picture, self.name);
        section.text()
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

/// JSON with a line for each cell.
fn encode(results: &Results) -> Result<String, Failure> {
    let text = serde_json::to_string(results).map_err(|error| Failure::Failed(format!("cannot encode: {error}")))?;
    let lines = [("{\"table\"", "\n{\"table\""), ("{\"contender\"", "\n  {\"contender\"")];
    Ok(lines.iter().fold(text, |text, (from, to)| text.replace(from, to)) + "\n")
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
    use crate::harness::Row;

    const PUBLICATION: Publication = Publication {
        name: "x",
        command: "make x",
        document: "x.md",
        tables: |_| Vec::new(),
        targets: |_| vec![Target::new("fast", [])],
        chart: |_| Chart { columns: 1, panels: Vec::new(), limit: "" },
        picture: "x",
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
        let run = |dry_run, render| {
            let measure = |machine| {
                let mut results = Results::new(machine, &[("note", "measured".into())]);
                results.rows.push(Row::new("a", "4k", ["bdp"].into_iter()));
                Ok(results)
            };
            let writing = Writing { rounds: None, docs: docs.path().to_owned(), dry_run, render };
            publish(vec![(PUBLICATION, Box::new(measure))], &writing, None)
        };
        let document = docs.path().join("x.md");
        assert!(run(false, false).is_err());
        fs::write(&document, format!("{BEGIN}\nold\n{END}\n")).unwrap();
        run(true, false).unwrap();
        assert!(fs::read_to_string(&document).unwrap().contains("\nold\n"));
        assert!(run(false, true).is_err());
        run(false, false).unwrap();
        let data = docs.path().join("results/x.json");
        let text = fs::read_to_string(&data).unwrap();
        assert!(
            text.contains("\n{\"table\":\"a\",\"name\":\"4k\",\"cells\":[\n  {\"contender\":\"bdp\"}]}]}\n"),
            "{text}"
        );
        fs::write(&data, text.replace("measured", "stored")).unwrap();
        run(false, true).unwrap();
        let text = fs::read_to_string(&document).unwrap();
        assert!(text.contains("\nSettings: note stored.\n") && text.contains("Not measured: fast."), "{text}");
        assert!(docs.path().join("results/x.svg").exists());
    }
}

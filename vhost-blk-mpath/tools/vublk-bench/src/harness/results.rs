//! What a program has measured: cells with median, least and most of the rounds. The content of a published file.

use super::machine::Machine;
use super::spread::Spread;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The published file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Results {
    pub machine: Machine,
    /// How it was measured: rounds, lengths, and facts about guests.
    pub settings: BTreeMap<String, Value>,
    /// The command line of each process.
    pub commands: Vec<String>,
    pub rows: Vec<Row>,
}

/// One workload under every contender.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Row {
    /// The table to which the row belongs.
    #[serde(default)]
    pub table: String,
    pub name: String,
    /// Figures that do not depend on the contender, such as the bound.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, f64>,
    pub cells: Vec<Cell>,
}

/// One workload under one contender.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Cell {
    /// A policy, a scheduler, a back-end or a method.
    pub contender: String,
    /// By name, which ends in the unit.
    #[serde(flatten)]
    pub figures: BTreeMap<String, Spread>,
    /// One sample for each round. Samples are not published.
    #[serde(default, skip_serializing)]
    pub samples: Vec<Sample>,
}

/// One cell in one round.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Sample {
    /// By name; these become the cell's figures.
    #[serde(flatten)]
    pub figures: BTreeMap<String, f64>,
    /// Single values, such as the duration of each burst.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lists: BTreeMap<String, Vec<f64>>,
}

impl Sample {
    pub fn new(figures: &[(&str, f64)]) -> Self {
        let figures = figures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        Self { figures, lists: BTreeMap::new() }
    }

    /// A list's values; none if there is no such list.
    pub fn list(&self, name: &str) -> &[f64] {
        self.lists.get(name).map_or(&[], Vec::as_slice)
    }
}

impl Cell {
    pub fn new(contender: &str) -> Self {
        Self { contender: contender.to_owned(), ..Self::default() }
    }

    pub fn add(&mut self, sample: Sample) {
        self.samples.push(sample);
        self.summarise();
    }

    /// Computes the figures from the samples.
    pub fn summarise(&mut self) {
        for name in self.samples.iter().flat_map(|sample| sample.figures.keys()) {
            let values = self.samples.iter().filter_map(|sample| sample.figures.get(name).copied());
            self.figures.insert(name.clone(), Spread::of(values));
        }
    }

    /// Sets a figure that belongs to all rounds together.
    pub fn set(&mut self, name: &str, value: f64) {
        self.figures.insert(name.to_owned(), Spread::exactly(value));
    }

    /// A figure, if it was measured.
    pub fn get(&self, name: &str) -> Option<Spread> {
        self.figures.get(name).copied()
    }

    /// The median of a figure, if it was measured.
    pub fn median(&self, name: &str) -> Option<f64> {
        self.get(name).map(|spread| spread.median)
    }

    /// The values of a list, of all rounds together.
    pub fn list<'a>(&'a self, name: &'a str) -> impl Iterator<Item = f64> + 'a {
        self.samples.iter().flat_map(|sample| sample.list(name).iter().copied())
    }
}

impl Row {
    /// A row with empty cells for these contenders.
    pub fn new<'a>(table: &str, name: &str, contenders: impl Iterator<Item = &'a str>) -> Self {
        let cells = contenders.map(Cell::new).collect();
        Self { table: table.to_owned(), name: name.to_owned(), facts: BTreeMap::new(), cells }
    }

    /// The cell of a contender, if it was measured.
    pub fn cell(&self, contender: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.contender == contender && !cell.figures.is_empty())
    }

    /// The median of a contender's figure, if it was measured.
    pub fn median(&self, contender: &str, figure: &str) -> Option<f64> {
        self.cell(contender)?.median(figure)
    }

    /// A fact; NaN if it is not known.
    pub fn fact(&self, name: &str) -> f64 {
        self.facts.get(name).copied().unwrap_or(f64::NAN)
    }
}

impl Results {
    pub fn new(machine: Machine, settings: &[(&str, Value)]) -> Self {
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        Self { machine, settings, commands: Vec::new(), rows: Vec::new() }
    }

    pub fn table(&self, table: &str) -> Vec<Row> {
        self.rows.iter().filter(|row| row.table == table).cloned().collect()
    }

    pub fn row(&self, table: &str, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.table == table && row.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_the_medians_of_the_rounds() {
        let mut cell = Cell::new("bdp");
        for iops in [3.0, 1.0, 2.0] {
            let mut sample = Sample::new(&[("iops", iops)]);
            sample.lists.insert("bursts_ms".into(), vec![iops; 2]);
            cell.add(sample);
        }
        cell.set("p99_ms", 9.0);
        assert_eq!(cell.get("iops"), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!((cell.median("p99_ms"), cell.median("p50_ms")), (Some(9.0), None));
        assert_eq!(cell.list("bursts_ms").count(), 6);
    }

    #[test]
    fn what_is_stored_is_read_back_without_its_samples() {
        let mut row = Row::new("a", "4k", ["bdp", "numa"].into_iter());
        row.cells[0].add(Sample::new(&[("iops", 33.0)]));
        row.facts.insert("bound_iops".into(), 40.0);
        let text = serde_json::to_string(&row).unwrap();
        assert_eq!(
            text,
            r#"{"table":"a","name":"4k","facts":{"bound_iops":40.0},"cells":[{"contender":"bdp","iops":33.0},{"contender":"numa"}]}"#
        );
        let row: Row = serde_json::from_str(&text).unwrap();
        assert_eq!((row.median("bdp", "iops"), row.cell("numa").is_none()), (Some(33.0), true));
        assert!(row.fact("bound_iops") > 39.0 && row.fact("other").is_nan());
    }
}

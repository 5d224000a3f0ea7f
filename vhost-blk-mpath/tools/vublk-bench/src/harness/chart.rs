//! The picture of a measurement: panels of bars, each bar with a line from least to most.

use std::collections::BTreeMap;

use super::results::Row;
use super::spread::Spread;

/// By contender: the category10 palette, and two more.
const COLOURS: [&str; 12] = [
    "1f77b4", "ff7f0e", "2ca02c", "d62728", "9467bd", "8c564b", "e377c2", "7f7f7f", "bcbd22", "17becf", "393b79", "aaa",
];
const WIDTH: f64 = 1200.0;
const PANEL_HEIGHT: f64 = 190.0;
/// Distances from the top of a panel: where the bars may begin, and where they stand.
const TOP: f64 = 42.0;
const BASE: f64 = 160.0;
const MARGIN: f64 = 14.0;
const LEGEND_LINE: f64 = 22.0;
const LETTER: f64 = 8.0;

#[derive(Debug, Clone)]
pub struct Chart {
    /// Panels side by side.
    pub columns: usize,
    /// From left to right and down.
    pub panels: Vec<Panel>,
    /// The meaning of the dashed lines. Empty if there are none.
    pub limit: &'static str,
}

/// Bars that share a scale.
#[derive(Debug, Clone, Default)]
pub struct Panel {
    pub title: String,
    /// Groups of bars: the label of each, and the contender of each bar with its value.
    pub groups: Vec<(String, Vec<(String, Spread)>)>,
    /// The height of a dashed line.
    pub limit: Option<f64>,
    /// Whether small values are to be seen next to large ones.
    pub is_logarithmic: bool,
}

impl Panel {
    /// A figure of all cells of one row.
    pub fn new(title: String, row: &Row, figure: &str) -> Self {
        Self { title, groups: vec![(String::new(), Self::bars(row, figure))], ..Self::default() }
    }

    /// A bar for each cell that has the figure.
    pub fn bars(row: &Row, figure: &str) -> Vec<(String, Spread)> {
        row.cells.iter().filter_map(|cell| Some((cell.contender.clone(), cell.get(figure)?))).collect()
    }

    fn all_bars(&self) -> impl Iterator<Item = &(String, Spread)> {
        self.groups.iter().flat_map(|(_, bars)| bars)
    }

    /// Where a value lies, from 0 at the base to 1 at the top.
    fn scale(&self) -> impl Fn(f64) -> f64 {
        let most = self.all_bars().map(|(_, value)| value.max).chain(self.limit).fold(f64::MIN_POSITIVE, f64::max);
        let least = self.all_bars().map(|(_, value)| value.min).fold(most, f64::min) / 2.0;
        let is_logarithmic = self.is_logarithmic && least > 0.0 && least < most;
        move |value| if is_logarithmic { (value / least).ln() / (most / least).ln() } else { value / most }
    }

    fn draw(&self, svg: &mut Svg, (left, top, width): (f64, f64, f64), contenders: &[&str]) {
        let base = top + BASE;
        let scale = self.scale();
        let y = |value: f64| base - scale(value) * (BASE - TOP);
        svg.write((left + width / 2.0, top + 18.0), TITLE, &self.title);
        svg.horizontal((left + MARGIN, left + width - MARGIN), base, false);
        if let Some(limit) = self.limit {
            svg.horizontal((left + MARGIN, left + width - MARGIN), y(limit), true);
        }
        // A place for each bar, and one between groups.
        let places: usize = self.groups.iter().map(|(_, bars)| bars.len() + 1).sum::<usize>() + 1;
        let step = (width - 2.0 * MARGIN) / places.max(2) as f64;
        let mut x = left + MARGIN + step;
        for (label, bars) in &self.groups {
            svg.write((x + step * bars.len() as f64 / 2.0, base + 14.0), FIGURE, label);
            for (contender, value) in bars {
                let contender = contenders.iter().position(|name| name == contender).unwrap_or_default();
                let (most, median, least, middle) = (y(value.max), y(value.median), y(value.min), x + step * 0.4);
                svg.bar((x, median), (step * 0.8, base - median), contender);
                svg.vertical(middle, (least, most));
                svg.write((middle, most.min(median) - 3.0), FIGURE, &short(value.median));
                x += step;
            }
            x += step;
        }
    }
}

impl Chart {
    pub fn svg(&self) -> String {
        let mut contenders: Vec<&str> = Vec::new();
        for (name, _) in self.panels.iter().flat_map(Panel::all_bars) {
            if !contenders.contains(&&**name) {
                contenders.push(name);
            }
        }
        let mut svg = Svg::default();
        let legend_height = self.legend(&mut svg, &contenders);
        let columns = self.columns.max(1);
        let width = WIDTH / columns as f64;
        for (index, panel) in self.panels.iter().enumerate() {
            let (column, line) = (index % columns, index / columns);
            let place = (width * column as f64, legend_height + PANEL_HEIGHT * line as f64, width);
            panel.draw(&mut svg, place, &contenders);
        }
        let height = legend_height + PANEL_HEIGHT * self.panels.len().div_ceil(columns) as f64;
        svg.text(height)
    }

    /// Draws the names with their colours. Returns the height.
    fn legend(&self, svg: &mut Svg, contenders: &[&str]) -> f64 {
        let (mut x, mut y) = (MARGIN, MARGIN);
        let limit = (!self.limit.is_empty()).then_some(self.limit);
        for (index, name) in contenders.iter().copied().chain(limit).enumerate() {
            let step = 34.0 + LETTER * name.chars().count() as f64;
            if x + step > WIDTH {
                (x, y) = (MARGIN, y + LEGEND_LINE);
            }
            if index < contenders.len() {
                svg.bar((x, y - 7.0), (14.0, 14.0), index);
            } else {
                svg.horizontal((x, x + 16.0), y, true);
            }
            svg.write((x + 20.0, y + 5.0), LEGEND, name);
            x += step;
        }
        y + LEGEND_LINE
    }
}

/// Attributes of texts: titles of panels, names in the legend, and values or names of groups.
const TITLE: &str = " font-size=\"14\"";
const LEGEND: &str = " font-size=\"14\" text-anchor=\"start\"";
const FIGURE: &str = "";

/// The elements of a picture. Bars of a colour share one path, and so do lines of a kind, which makes small files.
#[derive(Default)]
struct Svg {
    /// By colour.
    bars: BTreeMap<&'static str, Vec<String>>,
    solid: Vec<String>,
    dashed: Vec<String>,
    texts: Vec<String>,
}

impl Svg {
    fn text(&self, height: f64) -> String {
        let path = |attributes: &str, parts: &[String]| format!("<path {attributes} d=\"{}\"/>\n", parts.join("\n"));
        let bars: String = self.bars.iter().map(|(colour, bars)| path(&format!("fill=\"#{colour}\""), bars)).collect();
        let solid = path("stroke=\"#000\"", &self.solid);
        let dashed = path("stroke=\"#000\" stroke-dasharray=\"6 4\"", &self.dashed);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"10\" \
             text-anchor=\"middle\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{bars}{solid}{dashed}{}\n</svg>\n",
            self.texts.join("\n")
        )
    }

    fn bar(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), contender: usize) {
        let bars = self.bars.entry(COLOURS[contender % COLOURS.len()]).or_default();
        bars.push(format!("M{x:.0} {y:.1}h{width:.0}v{height:.1}h-{width:.0}z"));
    }

    fn horizontal(&mut self, (from, to): (f64, f64), y: f64, is_dashed: bool) {
        let lines = if is_dashed { &mut self.dashed } else { &mut self.solid };
        lines.push(format!("M{from:.0} {y:.1}H{to:.0}"));
    }

    fn vertical(&mut self, x: f64, (from, to): (f64, f64)) {
        self.solid.push(format!("M{x:.0} {from:.1}V{to:.1}"));
    }

    fn write(&mut self, (x, y): (f64, f64), attributes: &str, words: &str) {
        if !words.is_empty() {
            let words = words.replace('&', "&amp;").replace('<', "&lt;");
            self.texts.push(format!("<text{attributes} x=\"{x:.0}\" y=\"{y:.0}\">{words}</text>"));
        }
    }
}

/// Three digits and a unit.
fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.2}M", value / 1e6),
        value if value >= 1e4 => format!("{:.0}k", value / 1e3),
        value if value >= 1e3 => format!("{:.1}k", value / 1e3),
        value if value >= 100.0 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Sample;

    fn chart(is_logarithmic: bool) -> String {
        let mut row = Row::new("a", "4k", ["bdp", "numa"].into_iter());
        for (cell, iops) in row.cells.iter_mut().zip([1600.0, 30.0]) {
            cell.add(Sample::new(&[("iops", iops * 0.9)]));
            cell.add(Sample::new(&[("iops", iops * 1.1)]));
        }
        let panel = Panel { is_logarithmic, limit: Some(2000.0), ..Panel::new("4k & QD1".into(), &row, "iops") };
        Chart { columns: 3, panels: vec![panel], limit: "bound" }.svg()
    }

    #[test]
    fn each_contender_has_a_bar_and_an_entry_in_the_legend() {
        let svg = chart(false);
        for text in [">4k &amp; QD1<", ">bdp<", ">numa<", ">bound<", ">1.6k<", ">30.0<"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        let bars = svg.split("fill=\"#1f77b4\" d=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!(bars.lines().count(), 2, "{svg}");
    }

    #[test]
    fn a_logarithmic_scale_shows_small_values() {
        let height = |svg: &str| -> f64 {
            let bars = svg.split("fill=\"#ff7f0e\" d=\"").nth(1).unwrap().split('"').next().unwrap();
            bars.lines().last().unwrap().split('v').nth(1).unwrap().split('h').next().unwrap().parse().unwrap()
        };
        assert!(height(&chart(false)) < 3.0 && height(&chart(true)) > 15.0, "{}", chart(true));
    }

    #[test]
    fn three_digits_are_shown() {
        let texts = [1.26, 345.6, 1234.0, 23_456.0, 2_345_678.0].map(short);
        assert_eq!(texts, ["1.3", "346", "1.2k", "23k", "2.35M"]);
    }
}

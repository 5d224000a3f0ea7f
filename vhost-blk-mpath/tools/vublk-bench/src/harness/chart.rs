//! The picture of a measurement: panels of bars with a line from least to most.

use super::results::Row;
use super::spread::Spread;
use std::fmt::Write;

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

/// A picture.
#[derive(Debug, Clone)]
pub struct Chart {
    /// The legend; a bar's colour is its contender's.
    pub contenders: Vec<String>,
    /// Panels side by side.
    pub columns: usize,
    /// From left to right and down.
    pub panels: Vec<Panel>,
    /// What the dashed lines are; empty if there are none.
    pub limit: String,
}

/// Bars that share a scale.
#[derive(Debug, Clone, Default)]
pub struct Panel {
    title: String,
    /// A group of bars each: its label, and the contender of each bar with its value.
    groups: Vec<(String, Vec<(usize, Spread)>)>,
    limit: Option<f64>,
    is_logarithmic: bool,
}

impl Panel {
    /// A figure of all cells of one row.
    #[must_use]
    pub fn new(title: &str, row: &Row, figure: &str, contenders: &[String]) -> Self {
        let mut panel = Self { title: title.to_owned(), ..Self::default() };
        panel.add("", row, figure, contenders);
        panel
    }

    /// Without bars, on a logarithmic scale.
    #[must_use]
    pub fn logarithmic(title: &str) -> Self {
        Self { title: title.to_owned(), is_logarithmic: true, ..Self::default() }
    }

    /// Adds a group of bars.
    pub fn add(&mut self, label: &str, row: &Row, figure: &str, contenders: &[String]) {
        let bar = |(index, name): (usize, &String)| Some((index, row.cell(name)?.get(figure)?));
        self.groups.push((label.to_owned(), contenders.iter().enumerate().filter_map(bar).collect()));
    }

    /// A dashed line at this height.
    #[must_use]
    pub fn with_limit(self, limit: f64) -> Self {
        Self { limit: Some(limit), ..self }
    }

    fn values(&self) -> impl Iterator<Item = &Spread> {
        self.groups.iter().flat_map(|(_, bars)| bars.iter().map(|(_, value)| value))
    }

    /// Where a value lies, from 0 at the base to 1 at the top.
    fn scale(&self) -> impl Fn(f64) -> f64 {
        let most = self.values().map(|value| value.max).chain(self.limit).fold(f64::MIN_POSITIVE, f64::max);
        let least = self.values().map(|value| value.min).fold(most, f64::min) / 2.0;
        let is_logarithmic = self.is_logarithmic && least > 0.0 && least < most;
        move |value| if is_logarithmic { (value / least).ln() / (most / least).ln() } else { value / most }
    }
}

impl Chart {
    /// The picture as SVG.
    #[must_use]
    pub fn svg(&self) -> String {
        let (mut legend, legend_height) = self.legend();
        let columns = self.columns.max(1);
        let height = legend_height + PANEL_HEIGHT * self.panels.len().div_ceil(columns) as f64;
        let mut bars = vec![String::new(); COLOURS.len()];
        let (mut lines, mut dashes) = (String::new(), String::new());
        let width = WIDTH / columns as f64;
        for (index, panel) in self.panels.iter().enumerate() {
            let left = width * (index % columns) as f64;
            let top = legend_height + PANEL_HEIGHT * (index / columns) as f64;
            panel.draw((left, top, width), &mut bars, &mut legend, &mut lines, &mut dashes);
        }
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
             font-size=\"10\" text-anchor=\"middle\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
        );
        for (path, colour) in bars.iter().zip(COLOURS).filter(|(path, _)| !path.is_empty()) {
            // Writing to a String cannot fail.
            let _ = writeln!(svg, "<path fill=\"#{colour}\" d=\"{path}\"/>");
        }
        let _ = writeln!(svg, "<path stroke=\"#000\" d=\"{lines}\"/>");
        if !dashes.is_empty() {
            let _ = writeln!(svg, "<path stroke=\"#000\" stroke-dasharray=\"6 4\" d=\"{dashes}\"/>");
        }
        svg + &legend + "</svg>\n"
    }

    /// The names with their colours, and how high that is.
    fn legend(&self) -> (String, f64) {
        let (mut text, mut x, mut y) = (String::new(), MARGIN, MARGIN);
        let names = self.contenders.iter().map(String::as_str).zip(COLOURS.iter().cycle().map(Some));
        let limit = Some((&*self.limit, None)).filter(|(limit, _)| !limit.is_empty());
        for (name, colour) in names.chain(limit) {
            let step = 34.0 + LETTER * name.chars().count() as f64;
            if x + step > WIDTH {
                (x, y) = (MARGIN, y + LEGEND_LINE);
            }
            let _ = match colour {
                Some(colour) => {
                    writeln!(text, "<rect x=\"{x}\" y=\"{}\" width=\"14\" height=\"14\" fill=\"#{colour}\"/>", y - 7.0)
                }
                None => {
                    writeln!(text, "<path stroke=\"#000\" stroke-dasharray=\"6 4\" d=\"M{x} {y}h16\"/>")
                }
            };
            let _ = writeln!(
                text,
                "<text x=\"{}\" y=\"{}\" font-size=\"14\" text-anchor=\"start\">{}</text>",
                x + 20.0,
                y + 5.0,
                escaped(name)
            );
            x += step;
        }
        (text, y + LEGEND_LINE)
    }
}

impl Panel {
    fn draw(
        &self,
        (left, top, width): (f64, f64, f64),
        bars: &mut [String],
        texts: &mut String,
        lines: &mut String,
        dashes: &mut String,
    ) {
        let base = top + BASE;
        let scale = self.scale();
        let y = |value: f64| base - scale(value) * (BASE - TOP);
        let middle = left + width / 2.0;
        let mut text = |x: f64, y: f64, size: &str, words: &str| {
            let _ = writeln!(texts, "<text x=\"{x:.0}\" y=\"{y:.0}\"{size}>{}</text>", escaped(words));
        };
        text(middle, top + 18.0, " font-size=\"14\"", &self.title);
        let _ = write!(lines, "M{:.0} {base:.0}h{:.0}", left + MARGIN, width - 2.0 * MARGIN);
        if let Some(limit) = self.limit {
            let _ = write!(dashes, "M{:.0} {:.0}h{:.0}", left + MARGIN, y(limit), width - 2.0 * MARGIN);
        }
        // A place for each bar, and one between groups.
        let places: usize = self.groups.iter().map(|(_, bars)| bars.len() + 1).sum::<usize>() + 1;
        let step = (width - 2.0 * MARGIN) / places.max(2) as f64;
        let mut x = left + MARGIN + step;
        for (label, group) in &self.groups {
            text(x + step * group.len() as f64 / 2.0, base + 14.0, "", label);
            for (contender, value) in group {
                let (height, centre) = (base - y(value.median), x + step / 2.0);
                let colour = contender % bars.len();
                let _ = write!(bars[colour], "M{x:.1} {base:.0}v-{height:.1}h{0:.1}v{height:.1}z", step * 0.8);
                let (most, least) = (y(value.max), y(value.min));
                if least - most >= 0.5 {
                    let _ = write!(lines, "M{:.1} {least:.1}V{most:.1}", x + step * 0.4);
                }
                text(centre - step * 0.1, most.min(base - height) - 3.0, "", &short(value.median));
                x += step;
            }
            x += step;
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
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
        let contenders = ["bdp", "numa"].map(str::to_owned);
        let mut row = Row::new("a", "4k", contenders.iter().map(String::as_str));
        for (cell, iops) in row.cells.iter_mut().zip([1600.0, 30.0]) {
            cell.add(Sample::new(&[("iops", iops * 0.9)]));
            cell.add(Sample::new(&[("iops", iops * 1.1)]));
        }
        let panel = Panel { is_logarithmic, ..Panel::new("4k & QD1", &row, "iops", &contenders) };
        Chart {
            contenders: contenders.into(),
            columns: 3,
            panels: vec![panel.with_limit(2000.0)],
            limit: "bound".into(),
        }
        .svg()
    }

    #[test]
    fn each_contender_has_a_bar_and_an_entry_in_the_legend() {
        let svg = chart(false);
        for text in [">4k &amp; QD1<", ">bdp<", ">numa<", ">bound<", ">1.6k<", ">30.0<", "fill=\"#1f77b4\" d=\"M"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
    }

    #[test]
    fn a_logarithmic_scale_shows_small_values() {
        let height = |svg: &str| -> f64 {
            let path = svg.split("fill=\"#ff7f0e\" d=\"").nth(1).unwrap();
            path.split("v-").nth(1).unwrap().split('h').next().unwrap().parse().unwrap()
        };
        assert!(height(&chart(false)) < 3.0 && height(&chart(true)) > 15.0, "{}", chart(true));
    }

    #[test]
    fn three_digits_are_shown() {
        let texts = [1.26, 345.6, 1234.0, 23_456.0, 2_345_678.0].map(short);
        assert_eq!(texts, ["1.3", "346", "1.2k", "23k", "2.35M"]);
    }
}

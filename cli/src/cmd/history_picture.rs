//! The picture of `mpathctl history`: lines over time, for those who were not there.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use mpath_api::types::{HistoryMinute, MinuteFigures};

/// The category10 palette.
const COLOURS: [&str; 10] =
    ["1f77b4", "ff7f0e", "2ca02c", "d62728", "9467bd", "8c564b", "e377c2", "7f7f7f", "bcbd22", "17becf"];
const WIDTH: f64 = 960.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 170.0;
const HEIGHT: f64 = 130.0;
/// The distance from one panel to the next.
const STEP: f64 = 180.0;
const TOP: f64 = 50.0;

/// A line: its name, and its points as minutes since 1970 and values.
type Line = (String, Vec<(u64, f64)>);
/// The figures of a class.
type Class = fn(&HistoryMinute) -> Option<MinuteFigures>;

struct Panel {
    title: &'static str,
    lines: Vec<Line>,
    is_logarithmic: bool,
}

/// An SVG of the minutes from `from` until `until`.
pub(super) fn picture(disk: &str, from: SystemTime, until: SystemTime, minutes: &[HistoryMinute]) -> String {
    let panels = panels(minutes);
    let minute = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / 60;
    let (first, last) = (minute(from), minute(until).max(minute(from) + 1));
    let height = TOP + STEP * as_f64(panels.len() as u64);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"14\">{disk}, {} to {} UTC</text>\n",
        clock(first, true),
        clock(last, true)
    );
    for (index, panel) in panels.iter().enumerate() {
        panel.draw(&mut svg, TOP + STEP * as_f64(index as u64), first, last);
    }
    svg + "</svg>\n"
}

fn panels(minutes: &[HistoryMinute]) -> [Panel; 4] {
    let line = |name: &str, of: &dyn Fn(&HistoryMinute) -> Option<f64>| {
        let points = minutes.iter().filter_map(|of_minute| Some((began(of_minute)?, of(of_minute)?)));
        (name.to_owned(), points.collect())
    };
    let ms = |us: u64| as_f64(us) / 1000.0;
    let guest = |name: &str, class: Class, of: fn(&MinuteFigures) -> u64| {
        line(name, &|minute| class(minute).map(|figures| ms(of(&figures))))
    };
    let (read, write): (Class, Class) = (|of| of.guest.read, |of| of.guest.write);
    let mut paths = BTreeMap::<_, Vec<_>>::new();
    for (minute, path) in minutes.iter().flat_map(|minute| minute.paths.iter().map(move |path| (minute, path))) {
        let slower = [path.io.read, path.io.write].into_iter().flatten().map(|of| of.p99_us).max();
        if let (Some(at), Some(us)) = (began(minute), slower) {
            paths.entry(format!("{} {}", path.index, path.address)).or_default().push((at, ms(us)));
        }
    }
    let per_second = |of: Option<MinuteFigures>, seconds: u32| Some(as_f64(of?.ios) / f64::from(seconds.max(1)));
    let latencies = vec![
        guest("read p50", read, |of| of.p50_us),
        guest("read p99", read, |of| of.p99_us),
        guest("read max", read, |of| of.max_us),
        guest("write p50", write, |of| of.p50_us),
        guest("write p99", write, |of| of.p99_us),
        guest("write max", write, |of| of.max_us),
    ];
    let rates = vec![
        line("read", &|minute| per_second(minute.guest.read, minute.seconds)),
        line("write", &|minute| per_second(minute.guest.write, minute.seconds)),
    ];
    let waits = vec![
        line("host", &|minute| Some(as_f64(minute.host_stalled_ms) / 1000.0)),
        line("oldest request", &|minute| minute.oldest_request_ms.map(|ms| as_f64(ms) / 1000.0)),
    ];
    [
        Panel { title: "Latency of the guest in ms", lines: latencies, is_logarithmic: true },
        Panel { title: "P99 of each path in ms", lines: paths.into_iter().collect(), is_logarithmic: true },
        Panel { title: "Requests of the guest per second", lines: rates, is_logarithmic: false },
        Panel {
            title: "The host did not run the I/O threads; age of the oldest request, s",
            lines: waits,
            is_logarithmic: false,
        },
    ]
}

impl Panel {
    fn draw(&self, svg: &mut String, top: f64, first: u64, last: u64) {
        let (right, base) = (WIDTH - RIGHT, top + HEIGHT);
        let values = || self.lines.iter().flat_map(|(_, points)| points.iter().map(|(_, value)| *value));
        let most = values().fold(f64::MIN_POSITIVE, f64::max);
        let least = values().filter(|value| *value > 0.0).fold(most, f64::min);
        let scale = |value: f64| {
            if self.is_logarithmic && most > least {
                (value.max(least) / least).ln() / (most / least).ln()
            } else {
                value / most
            }
        };
        let x =
            |minute: u64| LEFT + (right - LEFT) * as_f64(minute.saturating_sub(first)) / as_f64((last - first).max(1));
        let y = |value: f64| base - HEIGHT * scale(value).clamp(0.0, 1.0);
        // A string takes all text.
        let _ = writeln!(
            svg,
            "<text x=\"{LEFT}\" y=\"{}\" font-weight=\"bold\">{}</text>\n\
             <path d=\"M{LEFT} {top}V{base}H{right}\" fill=\"none\" stroke=\"#888\"/>",
            top - 8.0,
            self.title
        );
        let lowest = if self.is_logarithmic { least } else { 0.0 };
        for value in [lowest, most].into_iter().filter(|_| values().next().is_some()) {
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{:.0}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y(value) + 4.0,
                short(value)
            );
        }
        for minute in [first, first.midpoint(last), last] {
            let _ = writeln!(
                svg,
                "<text x=\"{:.0}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                x(minute),
                base + 16.0,
                clock(minute, false)
            );
        }
        for (index, (name, points)) in self.lines.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let mut path = String::new();
            let mut before = None;
            for (minute, value) in points {
                // A gap: nothing happened, or no daemon ran.
                let is_next = before.is_some_and(|before| *minute <= before + 1);
                // A line of no length is a dot.
                let dot = if is_next { "" } else { "h0" };
                let _ = write!(path, "{}{:.1} {:.1}{dot}", if is_next { 'L' } else { 'M' }, x(*minute), y(*value));
                before = Some(*minute);
            }
            let _ = writeln!(
                svg,
                "<path d=\"{path}\" fill=\"none\" stroke=\"#{colour}\" stroke-width=\"1.5\" stroke-linecap=\"round\"/>\n\
                 <text x=\"{}\" y=\"{}\" fill=\"#{colour}\">{}</text>",
                right + 8.0,
                top + 12.0 + 14.0 * as_f64(index as u64),
                name.replace('&', "&amp;").replace('<', "&lt;")
            );
        }
    }
}

/// When the minute began, in minutes since 1970.
fn began(of: &HistoryMinute) -> Option<u64> {
    let time = humantime::parse_rfc3339(&of.began).ok()?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs() / 60)
}

/// `03:12`, or with the date.
fn clock(minute: u64, has_date: bool) -> String {
    let time = UNIX_EPOCH + std::time::Duration::from_secs(minute * 60);
    let text = humantime::format_rfc3339_seconds(time).to_string().replace('T', " ");
    text.get(if has_date { 0..16 } else { 11..16 }).unwrap_or_default().into()
}

/// Three digits.
fn short(value: f64) -> String {
    match value {
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

// Beyond 2^52 the last digit may be wrong.
#[allow(clippy::cast_precision_loss)]
fn as_f64(value: u64) -> f64 {
    value as f64
}

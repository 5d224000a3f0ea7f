//! `--watch`: repeats a command that shows something.

use std::io;
use std::thread;
use std::time::{Duration, SystemTime};

use clap::{Arg, ArgMatches, Command};
use mpath_config::parse_time;

use crate::output::{Output, note, write};
use crate::{Failure, Format, Kind};

/// The commands that have the option.
const COMMANDS: [&[&str]; 19] = [
    &["status"],
    &["disk", "list"],
    &["disk", "show"],
    &["path", "list"],
    &["path", "show"],
    &["discovery", "list"],
    &["explain"],
    &["slow"],
    &["policy", "list"],
    &["policy", "get"],
    &["policy", "show"],
    &["hedge", "show"],
    &["scheduler", "list"],
    &["scheduler", "get"],
    &["scheduler", "show"],
    &["limit", "show"],
    &["weight", "list"],
    &["inject", "list"],
    &["fence", "list"],
];

const OPTION: &str = "watch";

/// The time between two rounds, of `--watch` and of `top`.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let advice = "give a time and its unit, 100ms to 1h, such as 2s";
    let is_in_range = |time: &Duration| (Duration::from_millis(100)..=Duration::from_secs(3600)).contains(time);
    parse_time(text).map(Duration::from).filter(is_in_range).ok_or_else(|| format!("no interval; {advice}"))
}

/// Adds the option to every command that shows something.
pub(crate) fn with_option(command: Command) -> Command {
    COMMANDS.into_iter().fold(command, add)
}

fn add(command: Command, to: &[&'static str]) -> Command {
    let Some((name, rest)) = to.split_first() else {
        return command.arg(
            Arg::new(OPTION)
                .long(OPTION)
                .short('w')
                .value_name("TIME")
                .num_args(0..=1)
                .default_missing_value("2s")
                .value_parser(interval)
                .help("Show again every TIME, until interrupted [default TIME: 2s]"),
        );
    };
    command.mut_subcommand(name, |command| add(command, rest))
}

/// The time that the command line asks for.
pub(crate) fn asked(matches: &ArgMatches) -> Option<Duration> {
    let mut of_command = matches;
    while let Some((_, below)) = of_command.subcommand() {
        of_command = below;
    }
    // An error means that the command has no such option.
    of_command.try_get_one(OPTION).ok().flatten().copied()
}

/// Runs `round` again and again. Ends if the first round fails, or if a later one is refused.
pub(crate) fn repeat(
    every: Duration,
    format: Format,
    mut round: impl FnMut(&mut Output) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut shown = Shown::default();
    loop {
        // The terminal may have another size.
        let mut output = Output::collecting(format);
        match round(&mut output) {
            Ok(()) => shown.round(every, &output)?,
            Err(failure) => match failure.describe() {
                (Kind::Unreachable, _, message) if shown.has_answered => shown.failure(every, &output, message)?,
                _ => return Err(failure),
            },
        }
        thread::sleep(every);
    }
}

/// What the rounds so far have shown.
#[derive(Default)]
struct Shown {
    has_answered: bool,
    /// The error of the last round.
    error: Option<String>,
    has_cleared: bool,
}

impl Shown {
    fn round(&mut self, every: Duration, output: &Output) -> io::Result<()> {
        (self.has_answered, self.error) = (true, None);
        match output.screen() {
            Some(size) => self.frame(every, size, output.collected()),
            None => write(&document(output)),
        }
    }

    fn failure(&mut self, every: Duration, output: &Output, message: String) -> io::Result<()> {
        let said = format!("{message}; waiting for the daemon");
        match output.screen() {
            Some(size) => self.frame(every, size, &format!("mpathctl: {said}"))?,
            // Once for each outage.
            None if self.error.as_ref() != Some(&message) => note(&said),
            None => (),
        }
        self.error = Some(message);
        Ok(())
    }

    /// Writes over the last frame, without a moment in which the screen is empty.
    fn frame(&mut self, every: Duration, size: (usize, usize), text: &str) -> io::Result<()> {
        let clear = if std::mem::replace(&mut self.has_cleared, true) { "" } else { "\u{1b}[2J" };
        let head = format!("every {}, {}", humantime::format_duration(every), now());
        let lines: String =
            cut(&format!("{head}\n\n{text}"), size).into_iter().flat_map(|line| [line, "\u{1b}[K\n".into()]).collect();
        write(&format!("{clear}\u{1b}[H{lines}\u{1b}[J"))
    }
}

/// The output of one round where rounds follow each other, instead of each replacing the last on the screen.
fn document(output: &Output) -> String {
    match output.format() {
        Format::Table => format!("--- {}\n{}", now(), output.collected()),
        Format::Json => output.collected().to_owned(),
        Format::Yaml => format!("---\n{}", output.collected()),
    }
}

fn now() -> impl std::fmt::Display {
    humantime::format_rfc3339_seconds(SystemTime::now())
}

/// The lines that the screen holds. The last row is for the cursor.
fn cut(text: &str, (width, height): (usize, usize)) -> Vec<String> {
    let rows = |line: &&str| visible(line).div_ceil(width).max(1);
    let needed: usize = text.lines().map(|line| rows(&line)).sum();
    let has_room = needed < height;
    let room = height.saturating_sub(if has_room { 1 } else { 2 });
    let mut used = 0;
    let kept = text.lines().take_while(move |line| {
        used += rows(line);
        used <= room
    });
    let note = (!has_room).then(|| "(more lines than the terminal has rows)".to_owned());
    kept.map(ToOwned::to_owned).chain(note).collect()
}

/// The number of characters without those that set colours.
fn visible(line: &str) -> usize {
    let parts = line.split('\u{1b}').enumerate();
    let of_part = |(at, part): (usize, &str)| match part.split_once('m') {
        Some((_, rest)) if at > 0 => rest.chars().count(),
        _ => part.chars().count(),
    };
    parts.map(of_part).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_between_rounds() {
        assert_eq!(interval("500ms"), Ok(Duration::from_millis(500)));
        for (text, part) in
            [("2", "such as 2s"), ("status", "give a time"), ("99ms", "100ms to 1h"), ("2h", "100ms to 1h")]
        {
            assert!(interval(text).unwrap_err().contains(part), "{text}");
        }
    }

    #[test]
    fn lines_that_do_not_fit_the_screen_are_cut_and_that_is_said() {
        let text = "one\n\u{1b}[31mtwo\u{1b}[39m!\nthree";
        let kept = |height| cut(text, (4, height));
        assert_eq!(kept(5), text.lines().collect::<Vec<_>>());
        assert_eq!(kept(4), ["one", "\u{1b}[31mtwo\u{1b}[39m!", "(more lines than the terminal has rows)"]);
        assert_eq!(kept(3), ["one", "(more lines than the terminal has rows)"]);
    }
}

//! Parameters of policies and schedulers: names, bounds, and text forms.

use monotonic::Duration;

use crate::units::{decimal_text, parse_bytes, parse_decimal, parse_us, time_text};

/// The unit of a parameter's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    /// Whole numbers of this unit.
    Whole(&'static str),
    /// Thousandths of a ratio.
    Ratio,
    /// Microseconds.
    Time,
    /// Positions in this list of words.
    Word(&'static [&'static str]),
}

/// One parameter of a policy or scheduler. Its value is a number in memory, and text everywhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    name: &'static str,
    description: &'static str,
    scale: Scale,
    min: u64,
    max: u64,
    default: u64,
}

impl Param {
    /// A whole number of `unit`, for example "I/Os".
    pub(crate) const fn whole(
        name: &'static str,
        unit: &'static str,
        (min, max): (u64, u64),
        default: u64,
        description: &'static str,
    ) -> Self {
        Self { name, description, scale: Scale::Whole(unit), min, max, default }
    }

    /// A ratio. All numbers are in thousandths.
    pub(crate) const fn ratio(
        name: &'static str,
        (min, max): (u64, u64),
        default: u64,
        description: &'static str,
    ) -> Self {
        Self { name, description, scale: Scale::Ratio, min, max, default }
    }

    /// A time, in whole microseconds.
    pub(crate) const fn time(
        name: &'static str,
        (min, max): (Duration, Duration),
        default: Duration,
        description: &'static str,
    ) -> Self {
        let [min, max, default] = [min.as_micros(), max.as_micros(), default.as_micros()];
        Self { name, description, scale: Scale::Time, min, max, default }
    }

    /// One of these words. The first is the default.
    pub(crate) const fn word(name: &'static str, words: &'static [&'static str], description: &'static str) -> Self {
        Self { name, description, scale: Scale::Word(words), min: 0, max: words.len() as u64 - 1, default: 0 }
    }

    /// The name, in kebab-case.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// What the parameter does, in one line.
    #[must_use]
    pub const fn description(&self) -> &'static str {
        self.description
    }

    /// The unit of a value, or "ratio", "time" (the value names its unit: us, ms or s), or "word".
    #[must_use]
    pub const fn unit(&self) -> &'static str {
        match self.scale {
            Scale::Whole(unit) => unit,
            Scale::Ratio => "ratio",
            Scale::Time => "time",
            Scale::Word(_) => "word",
        }
    }

    /// The allowed values as text: `1 to 10`.
    #[must_use]
    pub fn range(&self) -> String {
        match self.scale {
            Scale::Word(words) => words.join(" or "),
            _ => format!("{} to {}", self.text(self.min), self.text(self.max)),
        }
    }

    /// The default as text.
    #[must_use]
    pub fn default_text(&self) -> String {
        self.text(self.default)
    }

    pub(crate) const fn default_value(&self) -> u64 {
        self.default
    }

    /// A value as text. [`Param::parse`] returns the same value for this text.
    pub(crate) fn text(&self, value: u64) -> String {
        match self.scale {
            Scale::Whole(_) => value.to_string(),
            Scale::Ratio => decimal_text(value, 3),
            Scale::Time => time_text(value),
            Scale::Word(words) => words.get(value as usize).copied().unwrap_or_default().into(),
        }
    }

    /// The value of a text; `None` if the text is no value or out of bounds. The text `default` means the default.
    pub(crate) fn parse(&self, text: &str) -> Option<u64> {
        if text == "default" {
            return Some(self.default);
        }
        let value = match self.scale {
            Scale::Whole("bytes") => parse_bytes(text),
            Scale::Whole(_) => parse_decimal(text, 0),
            Scale::Ratio => parse_decimal(text, 3),
            Scale::Time => parse_us(text),
            Scale::Word(words) => words.iter().position(|word| *word == text).map(|at| at as u64),
        }?;
        (self.min..=self.max).contains(&value).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);
    const WHOLE: Param = Param::whole("n", "I/Os", (1, 500), 7, "");
    const BYTES: Param = Param::whole("b", "bytes", (512, 1 << 20), 4096, "");
    const RATIO: Param = Param::ratio("r", (1000, 10_000), 1250, "");
    const TIME: Param = Param::time("t", (Duration::from_micros(10), S), Duration::from_millis(250), "");
    const WORD: Param = Param::word("w", &["time", "ios"], "");

    #[test]
    fn texts_and_values() {
        for (param, text, value) in [
            (WHOLE, "500", 500),
            (WHOLE, "default", 7),
            (RATIO, "1", 1000),
            (RATIO, "1.25", 1250),
            (RATIO, "9.999", 9999),
            (TIME, "10us", 10),
            (TIME, "1500us", 1500),
            (TIME, "1s", 1_000_000),
            (TIME, "250ms", 250_000),
            (BYTES, "4096", 4096),
            (WORD, "ios", 1),
        ] {
            assert_eq!(param.parse(text), Some(value), "{text}");
            let shown = if text == "default" { "7" } else { text };
            assert_eq!(param.text(value), shown);
        }
        for (param, text, shown) in
            [(RATIO, "1.500", "1.5"), (TIME, "0.0125s", "12500us"), (TIME, "1 s", "1s"), (BYTES, "64KiB", "65536")]
        {
            assert_eq!(param.text(param.parse(text).unwrap()), shown);
        }
    }

    #[test]
    fn texts_that_are_no_values() {
        for (param, texts) in [
            (WHOLE, &["0", "501", "-1", "1.5", "", "x", "1e2", "99999999999999999999999"][..]),
            (RATIO, &["0.999", "10.001", "1.2345", "1.", ".5", "inf", "NaN", "+2", "1.25x"]),
            (TIME, &["9us", "2s", "1", "ms", "1m", "1.5us", "-1s", "1 x"]),
            (WORD, &["", "Time", "0"]),
        ] {
            for text in texts {
                assert_eq!(param.parse(text), None, "{param:?} {text}");
            }
        }
    }

    #[test]
    fn ranges() {
        let ranges = [WHOLE, RATIO, TIME, WORD].map(|param| param.range());
        assert_eq!(ranges, ["1 to 500", "1 to 10", "10us to 1s", "time or ios"]);
    }
}

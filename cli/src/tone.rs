//! The colours of conditions and states. A colour only repeats what the word says.

/// How good a condition or state is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Warning,
    Bad,
}

impl Tone {
    /// The tone of a condition, or of a state as `path list` shows it.
    pub(crate) fn of(words: &str) -> Option<Self> {
        match words {
            "ok" | "live" | "connected" => Some(Self::Good),
            "failing" | "waiting" | "lost" | "refused" | "gave-up" => Some(Self::Bad),
            "degraded" | "held" | "connecting" | "draining" | "disabled" | "removing" | "starting" => {
                Some(Self::Warning)
            }
            // Live, and something else.
            _ => words.starts_with("live").then_some(Self::Warning),
        }
    }
}

#[cfg(test)]
mod tests {
    use mpath_api::types::{Condition, PathState};

    use super::*;

    #[test]
    fn every_word_but_that_of_an_absent_guest_has_a_tone() {
        let words = Condition::ALL.map(|of| of.to_string()).into_iter().chain(PathState::ALL.map(|of| of.to_string()));
        let without: Vec<_> = words.filter(|word| Tone::of(word).is_none()).collect();
        assert_eq!(without, ["no-front-end"]);
        assert_eq!(Tone::of("live/inaccessible"), Some(Tone::Warning));
        assert_eq!(Tone::of("-"), None);
    }
}

//! Decides: a key of `mpathctl top` does this, or asks first.
//!
//! Keys: what they choose, ask and change.

use mpath_api::types::{ActOnPaths, InjectedStatus, Injection, Path, PathAction, PathSelector, SetInjection};
use mpath_config::PolicyKind;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::history::Measure;
use super::state::{Focus, State};
use crate::cmd::injection_line;

/// A change that the daemon is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    Policy {
        disk: String,
        policy: PolicyKind,
    },
    Inject(SetInjection),
    /// Clears the injections of these paths of a disk.
    Clear {
        path: PathSelector,
        disk: String,
    },
    Act(ActOnPaths),
}

/// A step of the driver after a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Nothing,
    Quit,
    Ask(Change),
}

/// What the keys go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Dialog {
    Help,
    /// Choose a policy for this disk.
    Policy {
        disk: String,
        chosen: usize,
    },
    /// Choose the kind of an injection.
    Kind {
        target: Target,
        chosen: usize,
    },
    /// Edit the options of the injection, which are those of `inject set`.
    Options {
        target: Target,
        text: String,
        error: Option<String>,
    },
    /// Make the change, or not.
    Confirm {
        question: String,
        change: Change,
    },
}

/// The path that a dialog was opened for. Another one may be chosen before it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) disk: String,
    pub(super) index: u16,
    selector: PathSelector,
}

impl Target {
    fn of(path: &Path) -> Self {
        Self { disk: path.disk.clone(), index: path.index, selector: PathSelector::Address(path.address.clone()) }
    }

    pub(super) fn named(&self) -> String {
        format!("{} path {} ({})", self.disk, self.index, self.selector)
    }
}

/// The kinds of injections to choose from, with the options to begin with.
pub(super) const KINDS: [(&str, &str); 3] = [
    ("latency: every request takes longer", "--latency 30ms --for 60s"),
    ("errors: a share of the requests fails", "--error-rate 1% --for 60s"),
    ("stall: no request passes", "--stall --for 10s"),
];

impl State {
    pub(super) fn key(&mut self, key: KeyEvent) -> Step {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { Step::Quit } else { Step::Nothing };
        }
        match self.dialog.take() {
            Some(dialog) => self.key_of_dialog(dialog, key.code),
            None => self.key_of_lists(key.code),
        }
    }

    fn key_of_lists(&mut self, key: KeyCode) -> Step {
        // The line of the last outcome has been read.
        self.outcome = None;
        match key {
            KeyCode::Char('q') => return Step::Quit,
            KeyCode::Char('?') => self.dialog = Some(Dialog::Help),
            KeyCode::Up | KeyCode::Char('k') => self.move_choice(-1),
            KeyCode::Down | KeyCode::Char('j') => self.move_choice(1),
            KeyCode::Tab | KeyCode::BackTab => {
                self.focus = if self.focus == Focus::Disks { Focus::Paths } else { Focus::Disks };
            }
            KeyCode::Char('s') => {
                self.measure = if self.measure == Measure::Iops { Measure::Latency } else { Measure::Iops };
            }
            KeyCode::Char('p') => {
                self.dialog = self.owner().map(|disk| Dialog::Policy { disk: disk.into(), chosen: self.policy() });
            }
            KeyCode::Char('C') => {
                if let Some(disk) = self.owner() {
                    return Step::Ask(Change::Clear { path: PathSelector::All, disk: disk.into() });
                }
            }
            KeyCode::Char(key) => {
                if let Some(path) = self.chosen_path().cloned() {
                    return self.key_of_path(key, &path);
                }
            }
            _ => (),
        }
        Step::Nothing
    }

    fn key_of_path(&mut self, key: char, path: &Path) -> Step {
        let target = Target::of(path);
        match key {
            'i' => self.dialog = Some(Dialog::Kind { target, chosen: 0 }),
            'c' => return Step::Ask(Change::Clear { path: target.selector, disk: target.disk }),
            'e' => return Step::Ask(act(target, PathAction::Enable, false)),
            'd' => return self.take_out(path, PathAction::Drain),
            'D' => return self.take_out(path, PathAction::Disable),
            'r' => {
                let question = format!(
                    "reset {}? Writes in flight wait for the fence, and unflushed writes may fail the next flush.",
                    target.named()
                );
                self.ask(question, act(target, PathAction::Reset, false));
            }
            _ => (),
        }
        Step::Nothing
    }

    /// Drains or disables a path. Asks first if a disk has no other usable path.
    fn take_out(&mut self, path: &Path, action: PathAction) -> Step {
        let target = Target::of(path);
        let disks = self.last_usable_of(path);
        if disks.is_empty() {
            return Step::Ask(act(target, action, false));
        }
        let question =
            format!("{action} {}? No usable path is left for {}: I/O waits.", target.named(), disks.join(", "));
        self.ask(question, act(target, action, true));
        Step::Nothing
    }

    /// The disks that can use this path, and no other one.
    fn last_usable_of(&self, path: &Path) -> Vec<String> {
        let sharers = path.sharers.iter().map(|of| &of.disk);
        let is_usable = |path: &Path, disk: &str| match path.sharers.iter().find(|of| of.disk == disk) {
            Some(sharer) => sharer.unusable.is_none(),
            None => path.unusable.is_none(),
        };
        let is_last = |disk: &&String| {
            let mut usable = self.paths_of(&path.disk).filter(|other| is_usable(other, disk));
            usable.next().is_some_and(|first| first.address == path.address) && usable.next().is_none()
        };
        std::iter::once(&path.disk).chain(sharers).filter(is_last).cloned().collect()
    }

    fn ask(&mut self, question: String, change: Change) {
        self.dialog = Some(Dialog::Confirm { question, change });
    }

    /// The number of the policy in force.
    fn policy(&self) -> usize {
        let kind = self.chosen_disk().and_then(|disk| disk.policy.single()).map(mpath_config::PolicySpec::kind);
        PolicyKind::ALL.iter().position(|of| Some(*of) == kind).unwrap_or(0)
    }

    fn key_of_dialog(&mut self, dialog: Dialog, key: KeyCode) -> Step {
        if key == KeyCode::Esc {
            return Step::Nothing;
        }
        match dialog {
            // Any key closes it.
            Dialog::Help => Step::Nothing,
            Dialog::Policy { disk, chosen } if key == KeyCode::Enter => {
                Step::Ask(Change::Policy { disk, policy: PolicyKind::ALL[chosen] })
            }
            Dialog::Policy { disk, chosen } => {
                let chosen = moved(chosen, key, PolicyKind::ALL.len());
                self.stay(key, Dialog::Policy { disk, chosen })
            }
            Dialog::Kind { target, chosen } if key == KeyCode::Enter => {
                self.dialog = Some(Dialog::Options { target, text: KINDS[chosen].1.into(), error: None });
                Step::Nothing
            }
            Dialog::Kind { target, chosen } => {
                let chosen = moved(chosen, key, KINDS.len());
                self.stay(key, Dialog::Kind { target, chosen })
            }
            Dialog::Options { target, text, .. } => self.key_of_options(target, text, key),
            Dialog::Confirm { change, .. } if key == KeyCode::Char('y') => Step::Ask(change),
            Dialog::Confirm { question, change } => {
                if key != KeyCode::Char('n') {
                    self.ask(question, change);
                }
                Step::Nothing
            }
        }
    }

    /// Keeps a list open, unless the key closes it.
    fn stay(&mut self, key: KeyCode, dialog: Dialog) -> Step {
        self.dialog = (key != KeyCode::Char('q')).then_some(dialog);
        Step::Nothing
    }

    fn key_of_options(&mut self, target: Target, mut text: String, key: KeyCode) -> Step {
        if key != KeyCode::Enter {
            match key {
                KeyCode::Char(char) => text.push(char),
                KeyCode::Backspace => drop(text.pop()),
                _ => (),
            }
            self.dialog = Some(Dialog::Options { target, text, error: None });
            return Step::Nothing;
        }
        match injection_line(&text) {
            Ok((injection, for_ms)) => {
                let (path, disk) = (target.selector.clone(), Some(target.disk.clone()));
                let change = Change::Inject(SetInjection { path, disk, injection, for_ms });
                let Some(harm) = harm(&injection) else { return Step::Ask(change) };
                self.ask(format!("{injection} on {}? {harm}", target.named()), change);
            }
            Err(error) => self.dialog = Some(Dialog::Options { target, text, error: Some(error) }),
        }
        Step::Nothing
    }
}

/// The harm of an injection to the guest, if there is more than slowness.
fn harm(injection: &Injection) -> Option<&'static str> {
    match injection.status {
        _ if injection.stall => Some("I/O on the path stands still."),
        Some(InjectedStatus::MediaError | InjectedStatus::InternalErrorDnr) => Some("The guest gets these errors."),
        _ => None,
    }
}

fn act(target: Target, action: PathAction, force: bool) -> Change {
    Change::Act(ActOnPaths { path: target.selector, disk: Some(target.disk), all: false, action, force })
}

/// The entry of a list to which a key moves.
fn moved(chosen: usize, key: KeyCode, entries: usize) -> usize {
    match key {
        KeyCode::Up | KeyCode::Char('k') => chosen.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => (chosen + 1).min(entries - 1),
        _ => chosen,
    }
}

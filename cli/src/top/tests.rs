//! Keys and answers in, drawn screens and changes out.

use std::time::Duration;

use mpath_api::types::{
    ActOnPaths, AnaState, Condition, Disk, Event, EventKind, EventPath, Events, Path, PathAction, PathCounts,
    PathSelector, PathSharer, PathState, Status,
};
use mpath_config::PolicyKind;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode;
use ratatui::style::Color;

use self::data::{disk, guest, health, path, scheduling, stats};
use super::dialog::{Change, Step};
use super::draw::{HELP, Palette, draw};
use super::state::{Look, State};

#[allow(dead_code)]
#[path = "../../tests/mpathctl/fake/data.rs"]
mod data;

const SECOND: Duration = Duration::from_secs(1);

/// `disk1` is well. `disk0` has a busy path and a lost one.
fn look() -> Look {
    let mut paths = vec![
        path("disk0", 0, "tcp://192.0.2.1:4420"),
        path("disk0", 1, "tcp://192.0.2.2:4420"),
        path("disk1", 0, "tcp://[2001:db8::1]:4420"),
    ];
    (paths[0].read, paths[0].write, paths[0].io_share_1s) = (stats(9_000_000, 70), stats(1_200_000, 190), 1.0);
    paths[1].state = PathState::Lost;
    paths[1].unusable = Some("lost: Connection refused (os error 111)".into());
    paths[2].ana_state = Some(AnaState::NonOptimized);
    let degraded = Disk {
        health: health(Condition::Degraded, "1 of 2 expected paths are usable: path 1: lost"),
        connected: true,
        guest: guest(),
        queued: 3,
        path_counts: PathCounts { total: 2, expected: 2, usable: 1, missing: 0 },
        ..disk("disk0")
    };
    let address = "tcp://192.0.2.2:4420".parse().unwrap();
    let events = vec![event(1, EventKind::FrontEndConnected, None, "front-end connected"), {
        let path = Some(EventPath { index: 1, address });
        event(2, EventKind::PathLost, path, "path down: Connection refused (os error 111)")
    }];
    let (version, disks) = ("0.1.0".into(), vec![disk("disk1"), degraded]);
    Look {
        status: Status { version, pid: 4711, uptime_s: 3725, disks, discovery: vec![] },
        paths,
        scheduling: scheduling(),
        events: Events { boot_id: "first".into(), events, lost: 0, last: 2 },
    }
}

fn event(seq: u64, kind: EventKind, path: Option<EventPath>, message: &str) -> Event {
    let (time, disk) = (format!("2026-11-21T07:00:0{seq}.000Z"), Some("disk0".into()));
    Event { seq, time, kind, severity: kind.severity(), disk, path, message: message.into(), by: None, repeated: 0 }
}

/// A state that has looked twice, a second apart, while the first path read 40 MiB and wrote half a MiB.
fn state() -> State {
    let mut state = State::new(SECOND);
    state.looked(SECOND, Ok(look()));
    let mut second = look();
    second.status.disks[1].guest.guest_io[0].bytes += 40 << 20;
    second.status.disks[1].guest.guest_io[1].bytes += 1 << 19;
    second.scheduling[0].queues[0].served += 9_000;
    second.scheduling[0].queues[0].served_bytes += 40 << 20;
    second.events.events.clear();
    state.looked(2 * SECOND, Ok(second));
    state
}

fn drawn(state: &State, width: u16, height: u16, has_colour: bool) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state, Palette { has_colour })).unwrap();
    terminal
}

/// The screen, a line each, without the blanks at their ends.
fn screen(state: &State, width: u16, height: u16) -> String {
    let terminal = drawn(state, width, height, false);
    let buffer = terminal.backend().buffer();
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned() + "\n";
    (0..height).map(row).collect()
}

fn press(state: &mut State, keys: &str) -> Step {
    let mut step = Step::Nothing;
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '\u{1b}' => KeyCode::Esc,
            '\u{8}' => KeyCode::Backspace,
            key => KeyCode::Char(key),
        };
        step = state.key(code.into());
    }
    step
}

#[test]
fn the_screen_of_a_small_terminal() {
    let expected = "\
vhost-blk-mpath 0.1.0, pid 4711, up 1h 2m 5s
Disks, the worst first ─────────────────────────────────────────────────────────
  DISK     CONDITION    PATHS QUEUED  IOPS r/w MiB/s r/w     P50 r/w     P99 r/w
> disk0    degraded       1/2      3 9000/1200    40/0.5 280us/760us 840us/2.2ms
  disk1    ok             1/1      0         -         -           -           -
Paths of disk0: bdp, burst-credit; last minute: P99 up to 2.0ms ────────────────
  #  ADDRESS             STATE      1S(%)     P50 r/w     P99 r/w  BUSY/WIN ERRS
> 0  192.0.2.1:4420      live       100.0 280us/760us 840us/2.2ms      4/64    2
                                 █
  1  192.0.2.2:4420      lost         0.0           -           -      0/64    0
                                    lost: Connection refused (os error 111)
Virtqueues of disk0: weight 100, bulk ──────────────────────────────────────────
  QUEUE TIER     CREDIT  QUEUED   BUSY   IOPS  MiB/s  WAIT P50/P99
      0 bulk          0      32     13   9000     40   250us/750us
      3 sparse       17       0     13      0    0.0             -
Condition ──────────────────────────────────────────────────────────────────────
degraded: 1 of 2 expected paths are usable: path 1: lost
Last events ────────────────────────────────────────────────────────────────────
07:00:01 disk0 front-end-connected front-end connected
07:00:02 disk0 path 1 path-lost path down: Connection refused (os error 111)



q:quit ?:help p:policy i:inject c:clear d:drain D:disable e:enable r:reset
";
    assert_eq!(screen(&state(), 80, 24), expected, "\n{}", screen(&state(), 80, 24));
}

#[test]
fn a_wide_terminal_shows_more() {
    let text = screen(&state(), 140, 40);
    for part in ["OLDEST", "  1.2s ", "POLICY", "SCHEDULER", "burst-credit", "P50 r/w/other", "280us/760us/-"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let narrowest = screen(&state(), 120, 24);
    assert!(narrowest.contains("OLDEST") && narrowest.contains("> disk0"), "{narrowest}");
    assert!(!screen(&state(), 119, 24).contains("OLDEST"));
    let bars = |text: &str| text.chars().filter(|of| ('▁'..='█').contains(of)).count();
    let mut state = state();
    (3..63).for_each(|second| state.looked(second * SECOND, Ok(look())));
    assert_eq!((bars(&screen(&state, 80, 24)), bars(&screen(&state, 140, 40))), (30, 60));
}

#[test]
fn every_size_and_dialog_can_be_drawn() {
    for keys in ["", "?", "p", "i", "i\n", "i\nx\n", "r", "\t", "\td"] {
        let mut state = state();
        press(&mut state, keys);
        for (width, height) in [(1, 1), (1, 24), (9, 5), (80, 2), (80, 7), (80, 12), (80, 24), (200, 60)] {
            drawn(&state, width, height, true);
        }
        drawn(&State::new(SECOND), 80, 24, true);
    }
}

#[test]
fn colours_are_left_out_on_request() {
    let colours = |has_colour| {
        let terminal = drawn(&state(), 80, 24, has_colour);
        terminal.backend().buffer().content().iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert_eq!((colours(true), colours(false)), (true, false));
}

#[test]
fn a_daemon_that_is_away_is_told_and_comes_back() {
    let mut state = state();
    state.looked(5 * SECOND, Err("no daemon listens on /run/api.sock".into()));
    let text = screen(&state, 80, 24);
    assert!(text.contains("NO ANSWER for 3 s") && text.contains("error: no daemon listens on /run/api.sock"), "{text}");
    assert!(text.contains("degraded"), "{text}");
    let mut restarted = look();
    restarted.events = Events { boot_id: "second".into(), events: vec![], lost: 0, last: 2 };
    state.looked(6 * SECOND, Ok(restarted));
    assert!(!screen(&state, 80, 24).contains("NO ANSWER"));
    // The known number was that of an event of the earlier daemon.
    assert_eq!(state.last_event(), 0);
    // The screen also tells of a look that takes long.
    state.time(12 * SECOND);
    assert!(screen(&state, 80, 24).contains("NO ANSWER for 6 s"));
}

#[test]
fn the_choice_stays_when_the_order_changes_and_moves_when_the_disk_is_gone() {
    let mut state = state();
    assert_eq!(state.chosen_disk().unwrap().name, "disk0");
    press(&mut state, "j");
    assert_eq!(state.chosen_disk().unwrap().name, "disk1");
    let mut worse = look();
    worse.status.disks[0].health = health(Condition::Failing, "the guest got an error");
    state.looked(3 * SECOND, Ok(worse));
    assert_eq!(state.disks()[0].name, "disk1");
    assert_eq!(state.chosen_disk().unwrap().name, "disk1");
    let mut gone = look();
    gone.status.disks.remove(0);
    state.looked(4 * SECOND, Ok(gone));
    assert_eq!(state.chosen_disk().unwrap().name, "disk0");
    press(&mut state, "\tjjj");
    assert_eq!(state.chosen_path().unwrap().index, 1);
}

#[test]
fn a_policy_is_chosen_from_a_list() {
    let mut state = state();
    press(&mut state, "p");
    assert!(screen(&state, 80, 24).contains("> bdp "), "{}", screen(&state, 80, 24));
    let wanted = Change::Policy { disk: "disk0".into(), policy: PolicyKind::ServiceTime };
    assert_eq!(press(&mut state, "k\n"), Step::Ask(wanted));
    assert_eq!((press(&mut state, "p\u{1b}"), state.dialog.is_none()), (Step::Nothing, true));
}

#[test]
fn an_injection_has_the_options_of_the_command() {
    let mut state = state();
    press(&mut state, "i\n");
    assert!(screen(&state, 80, 24).contains("inject set 0 --latency 30ms --for 60s_"), "{}", screen(&state, 80, 24));
    let Step::Ask(Change::Inject(wanted)) = press(&mut state, " --class read\n") else { panic!("no injection") };
    assert_eq!((wanted.injection.to_string(), wanted.disk.as_deref()), ("latency 30ms".into(), Some("disk0")));
    assert_eq!(wanted.path.to_string(), "tcp://192.0.2.1:4420");
    assert_eq!(wanted.for_ms.map(u64::from), Some(60_000));
    // An error leaves the line to be corrected.
    press(&mut state, "i\n\u{8}x\n");
    assert!(screen(&state, 80, 24).contains("error: invalid value '60x'"), "{}", screen(&state, 80, 24));
    assert!(matches!(press(&mut state, "\u{8}s\n"), Step::Ask(Change::Inject(_))));
    // A stall is asked about.
    assert_eq!(press(&mut state, "ijj\n\n"), Step::Nothing);
    assert!(screen(&state, 80, 24).contains("stall on disk0 path 0"), "{}", screen(&state, 80, 24));
    assert!(matches!(press(&mut state, "xy"), Step::Ask(Change::Inject(of)) if of.injection.stall));
}

#[test]
fn a_path_is_drained_at_once_unless_it_is_the_last_usable_one() {
    let act = |index: u16, action, force| {
        let path = PathSelector::Address(look().paths[usize::from(index)].address.clone());
        Step::Ask(Change::Act(ActOnPaths { path, disk: Some("disk0".into()), all: false, action, force }))
    };
    let mut state = state();
    press(&mut state, "\tj");
    assert_eq!(press(&mut state, "d"), act(1, PathAction::Drain, false));
    assert_eq!(press(&mut state, "e"), act(1, PathAction::Enable, false));
    press(&mut state, "k");
    assert_eq!((press(&mut state, "d"), press(&mut state, "n")), (Step::Nothing, Step::Nothing));
    press(&mut state, "D");
    assert!(screen(&state, 80, 24).contains("No usable path is left for"), "{}", screen(&state, 80, 24));
    assert_eq!(press(&mut state, "y"), act(0, PathAction::Disable, true));
    assert_eq!((press(&mut state, "r"), press(&mut state, "y")), (Step::Nothing, act(0, PathAction::Reset, false)));
}

#[test]
fn the_last_usable_path_of_a_disk_that_shares_paths_counts_too() {
    let mut state = state();
    let mut shared = look();
    (shared.paths[1].state, shared.paths[1].unusable) = (PathState::Live, None);
    let sharer = |unusable: Option<&str>| PathSharer {
        disk: "backup".into(),
        ana_state: None,
        unusable: unusable.map(Into::into),
    };
    shared.paths[0].sharers = vec![sharer(None)];
    shared.paths[1].sharers = vec![sharer(Some("there is no namespace 2"))];
    state.looked(3 * SECOND, Ok(shared));
    press(&mut state, "d");
    assert!(screen(&state, 80, 24).contains("backup: I/O waits."), "{}", screen(&state, 80, 24));
}

#[test]
fn injections_are_cleared_of_a_path_or_of_all() {
    let mut state = state();
    let clear = |path| Step::Ask(Change::Clear { path, disk: "disk0".into() });
    assert_eq!(press(&mut state, "C"), clear(PathSelector::All));
    let first: &Path = &look().paths[0];
    assert_eq!(press(&mut state, "c"), clear(PathSelector::Address(first.address.clone())));
    assert_eq!(press(&mut state, "q"), Step::Quit);
}

#[test]
fn the_page_has_the_keys_of_the_help() {
    let page = include_str!("../../../docs/operating/top.md");
    let rows: Vec<_> = page.lines().map(|line| line.replace('`', "")).collect();
    for (key, what) in HELP {
        assert!(rows.contains(&format!("| {key} | {what} |")), "{key}: {what}");
    }
}

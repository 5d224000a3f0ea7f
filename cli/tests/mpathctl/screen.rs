//! Lists on a terminal: their width, their colours, and `--watch`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::daemon::Daemon;
use crate::fake::Fake;
use crate::terminal::Terminal;

/// What a command shows in a terminal of this width.
fn shown(daemon: &Daemon, args: &[&str], columns: u16, env: &[(&str, &str)]) -> Terminal {
    let mut terminal = Terminal::start(daemon, args, (40, columns), env);
    assert!(terminal.ended().success());
    terminal.wait_closed();
    terminal
}

#[test]
fn lists_fit_the_terminal_and_widen_with_it() {
    let daemon = Daemon::start();
    daemon.run(&["inject", "set", "0", "--latency", "30ms", "--for", "60s"]);
    for command in [
        "status",
        "status --tree",
        "disk list",
        "path list",
        "discovery list",
        "slow",
        "policy list",
        "scheduler list",
        "limit show",
        "hedge show",
        "inject list",
        "fence list",
    ] {
        let args: Vec<_> = command.split(' ').collect();
        // Lines that the terminal has broken count as one.
        let narrow = shown(&daemon, &args, 100, &[]).contents();
        assert!(narrow.lines().all(|line| line.chars().count() <= 100), "{narrow}");
        assert_eq!(shown(&daemon, &args, 220, &[]).contents().trim_end(), daemon.run(&args).trim_end());
    }
    let narrow = shown(&daemon, &["path", "list"], 100, &[]).contents();
    let columns = narrow.lines().next().unwrap();
    assert!(columns.ends_with("INJECTION") && !columns.contains("WR50"), "{narrow}");
    assert!(narrow.contains("\n(no room for 1M(%), SHARE(%), IOS, RD50(us), WR50(us), WR99(us); a wider "), "{narrow}");
}

#[test]
fn addresses_stay_whole_on_a_terminal_of_80_columns() {
    let daemon = Daemon::start();
    daemon.run(&["inject", "set", "0", "--latency", "30ms", "--for", "60s"]);
    for command in ["path list", "inject list", "discovery list", "fence list"] {
        let args: Vec<_> = command.split(' ').collect();
        let wide = daemon.run(&args);
        let narrow = shown(&daemon, &args, 80, &[]).contents();
        for address in wide.split_whitespace().filter(|word| word.starts_with("tcp://")) {
            assert!(narrow.split_whitespace().any(|word| word == address), "{command}: {address}\n{narrow}");
        }
    }
}

#[test]
fn conditions_and_states_have_colours_on_a_terminal_alone() {
    let daemon = Daemon::start();
    for args in [&["status"][..], &["path", "list"], &["status", "--tree"]] {
        assert!(shown(&daemon, args, 100, &[]).has_colours());
        assert!(!shown(&daemon, args, 100, &[("NO_COLOR", "1")]).has_colours());
        assert!(!daemon.run(args).contains('\u{1b}'));
    }
}

#[test]
fn a_watched_list_is_renewed_in_place() {
    let daemon = Daemon::start();
    let watch = Terminal::start(&daemon, &["status", "--watch", "100ms"], (24, 100), &[]);
    watch.wait_for("disk0  degraded   connected  round-robin");
    watch.wait_for("every 100ms, 2");
    daemon.run(&["policy", "set", "numa"]);
    watch.wait_for("disk0  degraded   connected  numa");
    assert_eq!(watch.contents().matches("CONDITION").count(), 1);
    let dir = daemon.stop();
    watch.wait_for("waiting for the daemon");
    watch.wait_without("degraded");
    let _daemon = Daemon::start_in(dir, Fake::new());
    watch.wait_for("disk0  degraded");
}

#[test]
fn without_a_terminal_watched_answers_follow_each_other() {
    let daemon = Daemon::start();
    let lines = |args: &[&str], count| -> Vec<String> {
        let mut command = daemon.command(&[args, &["--watch=100ms"]].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok).take(count).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        lines
    };
    for line in lines(&["path", "list", "-o", "json"], 3) {
        let paths: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(paths.as_array().unwrap().len(), 3);
    }
    let text = lines(&["policy", "get"], 8);
    assert!(text[0].starts_with("--- 2") && text[4].starts_with("--- 2"), "{text:?}");
    assert_eq!(text[1..4], ["DISK   POLICY", "disk0  round-robin", "disk1  latency-rr"]);
    assert_eq!(lines(&["policy", "get", "-o", "yaml"], 6)[0], "---");
}

#[test]
fn only_lists_are_watched_and_the_first_answer_must_come() {
    let daemon = Daemon::start();
    for (args, exit, part) in [
        (&["disk", "show", "disk9", "--watch"][..], 1, "no disk is named `disk9`"),
        (&["--api", "/nowhere", "status", "-w"], 3, "no daemon listens"),
        (&["status", "--watch", "2"], 2, "give a time and its unit"),
        (&["status", "--watch", "1ms"], 2, "100ms to 1h"),
        (&["policy", "set", "numa", "--watch"], 2, "unexpected argument '--watch'"),
    ] {
        let (code, stderr) = daemon.fail(args);
        assert!(code == exit && stderr.contains(part) && stderr.lines().count() == 1, "{args:?}: {code}: {stderr}");
    }
}

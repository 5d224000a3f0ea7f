//! `mpathctl history`

use crate::daemon::Daemon;

#[test]
fn minutes_of_a_disk() {
    let daemon = Daemon::start();
    let since = ["history", "disk0", "--from", "2026-11-25 03:00", "--to", "2026-11-25 04:00"];
    assert_eq!(
        daemon.run(&since),
        "\
MINUTE(UTC)       IOPS r/w  P50(ms) r/w  P99(ms) r/w  MAX(ms) r/w  LONG REQUESTS                HOST(ms)  OLDEST(s)  P99(ms) BY PATH
2026-11-25 03:12  2000/100    0.20/0.40    0.80/1.60  10.00/20.00  0.2 s: path 100 %                   0          -  0: 1.44, 1: 240.00
2026-11-25 03:13  4000/200    0.20/0.40    0.80/1.60  10.00/20.00  1.0 s: host 75 %, path 25 %       750         12  0: 1.44, 1: 240.00
"
    );
    assert_eq!(
        daemon.run(&["history", "disk0"]),
        "nothing is known of disk0 in this time: no request ended or waited, or no daemon ran\n"
    );
    let json = daemon.run(&[&since[..], &["-o", "json"]].concat());
    assert!(
        json.contains("\"began\": \"2026-11-25T03:13:00.000Z\"") && json.contains("\"host-stalled-ms\": 750"),
        "{json}"
    );
}

#[test]
fn a_minute_in_full() {
    let daemon = Daemon::start();
    let minute = daemon.run(&["history", "disk0", "--at", "2026-11-25 03:13:59"]);
    for line in [
        "disk0, 30 s from 2026-11-25 03:13 UTC",
        "guest                        read   120000     0.20     0.80    10.00",
        "path 1 tcp://192.0.2.2:4420  write    6000    60.00   240.00  3000.00",
        "long requests (10 ms and more): 1.0 s in all: host 75 %, path 25 %",
        "the host did not run the I/O threads for 750 ms",
        "at its end a request had had no answer for 12.4 s",
        "the slowest request:",
    ] {
        assert!(minute.lines().any(|of| of == line), "{line}\n{minute}");
    }
    assert_eq!(
        daemon.run(&["history", "disk0", "--at", "2026-11-25 03:14"]),
        "nothing is known of disk0 in this time: no request ended or waited, or no daemon ran\n"
    );
}

#[test]
fn a_picture() {
    let (daemon, place) = (Daemon::start(), tempfile::tempdir().unwrap());
    let file = place.path().join("disk0.svg");
    let path = file.to_str().unwrap();
    daemon.run(&["history", "disk0", "--from", "2026-11-25 03:00", "--to", "2026-11-25 04:00", "--svg", path]);
    let svg = std::fs::read_to_string(&file).unwrap();
    for part in
        ["disk0, 2026-11-25 03:00 to 2026-11-25 04:00 UTC", ">03:30<", "read p99", "1 tcp://192.0.2.2:4420", ">12.4<"]
    {
        assert!(svg.contains(part), "{part}\n{svg}");
    }
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    let (_, missing) = daemon.fail(&["history", "disk0", "--svg", "/nonexistent/a.svg"]);
    assert!(missing.contains("/nonexistent/a.svg: No such file"), "{missing}");
}

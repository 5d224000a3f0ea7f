//! Explanations and slow requests.

use super::*;

#[test]
fn the_history_of_a_disk_has_the_minutes_that_began_in_a_time() {
    let server = Running::start(Limits::default());
    let at = |minutes: u64| UNIX_EPOCH + Duration::from_secs(60 * minutes);
    let minutes = |from, until| -> Vec<u64> {
        let found = server.client().history("a", from, until).unwrap();
        found.iter().map(|minute| minute.host_stalled_ms).collect()
    };
    assert_eq!(minutes(at(3), at(5)), [3, 4, 5]);
    assert_eq!(minutes(at(8), SystemTime::now()), [8, 9]);
    let (status, answer) = server.request("GET", "/v1/disks/nobody/history", "");
    assert!(status == 404 && answer.contains("no disk is named `nobody`"), "{answer}");
    let (status, answer) = server.request("GET", "/v1/disks/a/history?from-s=x", "");
    assert!(status == 400 && answer.contains("query: "), "{answer}");
}

#[test]
fn a_disk_is_explained_with_its_condition() {
    let server = Running::start(Limits::default());
    let (status, answer) = server.request("GET", "/v1/disks/b/explain", "");
    let expected = r#"{"disk":"b","condition":"ok","reasons":[],"policy":"latency-rr","threads":[]}"#;
    assert_eq!((status, &*answer), (200, expected));
    assert_eq!(server.client().explain("b").unwrap().threads, []);
    let (status, answer) = server.request("GET", "/v1/disks/c/explain", "");
    assert!(status == 404 && answer.contains("unknown-disk"), "{answer}");
}

#[test]
fn the_slowest_request_comes_first() {
    let server = Running::start(Limits::default());
    let totals = |disk| server.client().slow(disk).unwrap().iter().map(|of| of.total_us).collect::<Vec<_>>();
    assert_eq!((totals(None), totals(Some("a"))), (vec![300, 200, 100], vec![200, 100]));
    let (status, answer) = server.request("GET", "/v1/slow?disk=c", "");
    assert!(status == 404 && answer.contains("unknown-disk"), "{answer}");
    let (_, answer) = server.request("GET", "/v1/slow?disk=b", "");
    assert!(
        answer.starts_with(r#"[{"disk":"b","ended":"2026-11-21T07:00:01.000Z","operation":"read","queue":0,"#),
        "{answer}"
    );
    assert!(answer.contains(r#""earlier-attempts-us":0"#) && answer.contains(r#""longest":"path""#), "{answer}");
}

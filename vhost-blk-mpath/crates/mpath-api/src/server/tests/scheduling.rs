//! Schedulers, limits and weights.

use super::*;

#[test]
fn schedulers_and_limits_are_read_and_set() {
    let server = Running::start(Limits::default());
    let client = server.client();
    let set = |body: &str| server.request("PUT", "/v1/scheduler", body);
    let answer = r#"[{"disk":"b","scheduler":{"name":"burst-credit","share":"0.5"}}]"#;
    assert_eq!(set(r#"{"scheduler":"burst-credit","params":{"share":0.5},"disk":"b"}"#), (200, answer.into()));
    for (body, part) in [
        (r#"{"scheduler":"cfq"}"#, "unknown scheduler 'cfq', expected one of: burst-credit, published, fifo"),
        (r#"{"scheduler":"fifo","params":{"share":0.5}}"#, "scheduler 'fifo' has no parameter 'share'; it has none"),
        (r#"{"scheduler":"burst-credit","params":{"share":2}}"#, "'share' is '2', expected 0.1 to 0.95"),
        (r#"{"scheduler":"fifo","queue":1}"#, "unknown field `queue`"),
        ("{}", "missing field `scheduler`"),
    ] {
        let (status, answer) = set(body);
        assert!(status == 400 && answer.contains(part), "{body}: {status} {answer}");
    }
    let (status, answer) = set(r#"{"scheduler":"fifo","disk":"c"}"#);
    assert!(status == 404 && answer.contains("`c`"), "{answer}");
    let kept = SetScheduler { scheduler: SchedulerKind::BurstCredit, params: Vec::new(), disk: None };
    let both = client.set_scheduler(&kept).unwrap();
    assert_eq!(
        both.iter().map(|of| of.scheduler.to_string()).collect::<Vec<_>>(),
        ["burst-credit", "burst-credit share=0.5"]
    );
    assert_eq!(client.scheduler(Some("b")).unwrap(), both[1..]);
    let known = client.schedulers().unwrap();
    assert_eq!(known.iter().map(|of| of.active_on.len()).collect::<Vec<_>>(), [2, 0, 0]);
    let detail = &client.scheduler_detail(Some("b")).unwrap()[0];
    let share = detail.params.iter().find(|param| param.name == "share").unwrap();
    assert_eq!((&*share.value, &*share.default, detail.tier, detail.queues.len()), ("0.5", "0.75", None, 0));

    let set = |body: &str| server.request("PUT", "/v1/limits", body);
    let left = r#""balance-ios":null,"balance-bytes":null,"throttled-ms":0"#;
    let answer = format!(r#"[{{"disk":"a","iops":500,"bandwidth":"off","burst":"1s",{left}}}]"#);
    assert_eq!(set(r#"{"iops":500,"disk":"a"}"#), (200, answer));
    let answer = format!(r#"[{{"disk":"a","iops":500,"bandwidth":1048576,"burst":"2s",{left}}}]"#);
    assert_eq!(set(r#"{"bandwidth":"1MiB","burst":"2s","disk":"a"}"#), (200, answer), "what is left out stays");
    for (body, part) in [
        (r#"{"iops":0}"#, "from 1 to 1000000000"),
        (r#"{"bandwidth":"1MB"}"#, "`1MB` is not off or a number of bytes per second from 4KiB to 1TiB"),
        (r#"{"burst":"2h"}"#, "`2h` is not a time from 0ms to 3600s"),
        (r#"{"disk":"a"}"#, "nothing to set; give iops, bandwidth or burst"),
        (r#"{"iops":1,"queue":1}"#, "unknown field `queue`"),
    ] {
        let (status, answer) = set(body);
        assert!(status == 400 && answer.contains(part), "{body}: {status} {answer}");
    }
    let lifted = SetLimits { iops: Some("off".parse().unwrap()), ..SetLimits::default() };
    assert_eq!(client.set_limits(&lifted).unwrap(), client.limits(None).unwrap());
    assert_eq!(client.limits(Some("a")).unwrap()[0].status.limits.to_string(), "iops off, bandwidth 1MiB, burst 2s");
}

#[test]
fn an_unknown_parameter_is_refused_with_the_known_ones() {
    let server = Running::start(Limits::default());
    for (scheduler, known) in [("burst-credit", "it has burst, share, gap, io-cost"), ("published", "it has none")] {
        let body = format!(r#"{{"scheduler":"{scheduler}","params":{{"rho":1}}}}"#);
        let message = format!("scheduler '{scheduler}' has no parameter 'rho'; {known}");
        let refused = format!(r#"{{"error":{{"code":"bad-request","message":"{message}"}}}}"#);
        assert_eq!(server.request("PUT", "/v1/scheduler", &body), (400, refused), "{body}");
    }
    let schedulers = server.client().scheduler(None).unwrap();
    assert!(schedulers.iter().all(|of| of.scheduler == SchedulerKind::Fifo.into()), "a refused order changes nothing");
}

#[test]
fn weights_are_read_and_set() {
    let server = Running::start_with(Fake::sharing(), Limits::default());
    let client = server.client();
    let set = |body: &str| server.request("PUT", "/v1/weights", body);
    let answer = r#"[{"disk":"shares-a","weight":25,"shares-paths-of":"a"}]"#;
    assert_eq!(set(r#"{"weight":25,"disk":"shares-a"}"#), (200, answer.into()));
    let shown = |disk| client.weights(disk).unwrap().into_iter().map(|of| (of.disk, of.weight)).collect::<Vec<_>>();
    assert_eq!(shown(None), [("a".into(), 100), ("b".into(), 100), (SHARER.into(), 25)]);
    assert_eq!(shown(Some(SHARER)), [(SHARER.into(), 25)]);
    let one = client.set_weight(&SetWeight { weight: weight(1000), disk: Some("b".into()) }).unwrap();
    assert_eq!((one.len(), &*one[0].disk, one[0].weight, one[0].shares_paths_of.as_deref()), (1, "b", 1000, None));
    for (body, part) in [
        (r#"{"weight":0,"disk":"a"}"#, "integer `0`, expected an integer from 1 to 1000"),
        (r#"{"weight":1001,"disk":"a"}"#, "integer `1001`, expected an integer from 1 to 1000"),
        (
            r#"{"weight":25}"#,
            "there are several disks, and a weight is the share of one among them; name the disk in `disk`",
        ),
        (r#"{"disk":"a"}"#, "missing field `weight`"),
        (r#"{"weight":25,"disk":"a","queue":1}"#, "unknown field `queue`"),
    ] {
        let (status, answer) = set(body);
        assert!(status == 400 && answer.contains(part), "{body}: {status} {answer}");
    }
    let (status, answer) = set(r#"{"weight":25,"disk":"c"}"#);
    assert!(status == 404 && answer.contains("no disk is named `c`"), "{answer}");
    assert_eq!(server.request("GET", "/v1/weights?disk=c", "").0, 404);
    assert_eq!(shown(Some("a")), [("a".into(), 100)], "what is refused changes nothing");

    let only = Running::start_with(Fake::with(&["a"]), Limits::default());
    let answer = r#"[{"disk":"a","weight":7,"shares-paths-of":null}]"#;
    assert_eq!(only.request("PUT", "/v1/weights", r#"{"weight":7}"#), (200, answer.into()), "there is no other one");
}

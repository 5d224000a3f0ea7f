//! Schedulers, limits and weights.

use super::*;

#[test]
fn schedulers_and_limits_are_read_and_set() {
    let server = Running::start(Limits::default());
    let client = server.client();
    let scheduler = json!({"name": "burst-credit", "params": {"share": 0.5}});
    let answer = server.set(&json!({"scheduler": scheduler, "disk": "b"}), "scheduler");
    assert_eq!(answer, [("b".into(), json!({"name": "burst-credit", "share": "0.5"}))]);
    for (scheduler, part) in [
        (json!({"name": "cfq"}), "unknown scheduler 'cfq', expected one of: burst-credit, published, fifo"),
        (json!({"name": "fifo", "params": {"share": 0.5}}), "scheduler 'fifo' has no parameter 'share'; it has none"),
        (json!({"name": "burst-credit", "params": {"share": 2}}), "'share' is '2', expected 0.1 to 0.95"),
        (json!({"name": "fifo", "queue": 1}), "unknown field `queue`"),
        (json!({}), "missing field `name`"),
    ] {
        assert_eq!(server.refuses(&json!({"scheduler": scheduler}), part), 400);
    }
    assert_eq!(server.refuses(&json!({"scheduler": {"name": "fifo"}, "disk": "c"}), "`c`"), 404);
    let kept = SetScheduler { name: SchedulerKind::BurstCredit, params: Vec::new() };
    let both = client.set(&kept.into()).unwrap();
    assert_eq!(
        both.iter().map(|of| of.scheduler.unwrap().to_string()).collect::<Vec<_>>(),
        ["burst-credit", "burst-credit share=0.5"]
    );
    assert_eq!(client.disks_with(LiveSetting::Scheduler, Some("b")).unwrap(), both[1..]);
    let known = client.schedulers().unwrap();
    assert_eq!(known.iter().map(|of| of.active_on.len()).collect::<Vec<_>>(), [2, 0, 0]);
    let detail = &client.scheduler_detail(Some("b")).unwrap()[0];
    let share = detail.params.iter().find(|param| param.name == "share").unwrap();
    assert_eq!((&*share.value, &*share.default, detail.tier, detail.queues.len()), ("0.5", "0.75", None, 0));

    let limits = |iops: Value, bandwidth: Value, burst: &str| {
        let left = json!({"balance-ios": null, "balance-bytes": null, "throttled-ms": 0});
        let mut limits = json!({"iops": iops, "bandwidth": bandwidth, "burst": burst});
        limits.as_object_mut().unwrap().extend(left.as_object().unwrap().clone());
        [("a".into(), limits)]
    };
    let set = |wanted: Value| server.set(&json!({"limits": wanted, "disk": "a"}), "limits");
    assert_eq!(set(json!({"iops": 500})), limits(500.into(), "off".into(), "1s"));
    let both = limits(500.into(), 1_048_576.into(), "2s");
    assert_eq!(set(json!({"bandwidth": "1MiB", "burst": "2s"})), both, "what is left out stays");
    for (limits, part) in [
        (json!({"iops": 0}), "from 1 to 1000000000"),
        (json!({"bandwidth": "1MB"}), "`1MB` is not off or a number of bytes per second from 4KiB to 1TiB"),
        (json!({"burst": "2h"}), "`2h` is not a time from 0ms to 3600s"),
        (json!({}), "nothing to set; give policy, scheduler, limits, weight, hedge, hedge-budget, min-paths"),
        (json!({"iops": 1, "queue": 1}), "unknown field `queue`"),
    ] {
        assert_eq!(server.refuses(&json!({"limits": limits, "disk": "a"}), part), 400);
    }
    let lifted = SetLimits { iops: Some("off".parse().unwrap()), ..SetLimits::default() };
    assert_eq!(server.refuses(&json!({"limits": {"iops": "off"}}), "this changes 2 disks (a, b); name one"), 400);
    let lifted = SetSettings { all: true, ..lifted.into() };
    assert_eq!(client.set(&lifted).unwrap(), client.disks_with(LiveSetting::Limits, None).unwrap());
    let a = &client.disks_with(LiveSetting::Limits, Some("a")).unwrap()[0];
    assert_eq!(a.limits.as_ref().unwrap().limits.to_string(), "iops off, bandwidth 1MiB, burst 2s");
}

#[test]
fn an_unknown_parameter_is_refused_with_the_known_ones() {
    let server = Running::start(Limits::default());
    for (scheduler, known) in [("burst-credit", "it has burst, share, gap, io-cost"), ("published", "it has none")] {
        let wanted = json!({"weight": 7, "disk": "a", "scheduler": {"name": scheduler, "params": {"rho": 1}}});
        let message = format!("\"scheduler '{scheduler}' has no parameter 'rho'; {known}\"");
        assert_eq!(server.refuses(&wanted, &message), 400);
    }
    let disks = server.client().disks(None).unwrap();
    let is_unchanged = |of: &Disk| (of.scheduler, of.weight) == (Some(SchedulerKind::Fifo.into()), 100);
    assert!(disks.iter().all(is_unchanged), "a refused order changes nothing");
}

#[test]
fn weights_are_read_and_set() {
    let server = Running::start_with(Fake::sharing(), Limits::default());
    let client = server.client();
    let changed = server.set(&json!({"weight": 25, "disk": SHARER}), "weight");
    assert_eq!(changed, [(SHARER.into(), json!(25))]);
    let shown = |disk| {
        let disks = client.disks_with(LiveSetting::Weight, disk).unwrap();
        disks.into_iter().map(|of| (of.name, of.weight)).collect::<Vec<_>>()
    };
    assert_eq!(shown(None), [("a".into(), 100), ("b".into(), 100), (SHARER.into(), 25)]);
    assert_eq!(shown(Some(SHARER)), [(SHARER.into(), 25)]);
    let weights = SetSettings { weight: Some(weight(1000)), ..SetSettings::default() };
    let one = client.set(&weights.of("b")).unwrap();
    assert_eq!((one.len(), &*one[0].name, one[0].weight, one[0].shares_paths_of.as_deref()), (1, "b", 1000, None));
    for (wanted, part) in [
        (json!({"weight": 0, "disk": "a"}), "integer `0`, expected an integer from 1 to 1000"),
        (json!({"weight": 1001, "disk": "a"}), "integer `1001`, expected an integer from 1 to 1000"),
        (
            json!({"weight": 25}),
            "this changes 3 disks (a, b, shares-a); name one (`disk`; mpathctl: --disk NAME) or say that you mean all",
        ),
        (json!({"policy": {"name": "numa"}, "disk": "a", "all": true}), "give `disk` or `all`, not both"),
        (json!({"disk": "a"}), "nothing to set"),
        (json!({"weight": 25, "disk": "a", "queue": 1}), "unknown field `queue`"),
    ] {
        assert_eq!(server.refuses(&wanted, part), 400);
    }
    assert_eq!(server.refuses(&json!({"weight": 25, "disk": "c"}), "no disk is named `c`"), 404);
    assert_eq!(server.request("GET", "/v1/disks?setting=weight&disk=c", "").0, 404);
    assert_eq!(shown(Some("a")), [("a".into(), 100)], "what is refused changes nothing");

    let only = Running::start_with(Fake::with(&["a"]), Limits::default());
    assert_eq!(only.set(&json!({"weight": 7}), "weight"), [("a".into(), json!(7))], "there is no other one");
}

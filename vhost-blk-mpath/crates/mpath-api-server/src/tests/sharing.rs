//! A disk that shares the paths of another.

use super::*;

#[test]
fn changes_of_paths_are_refused_for_a_disk_that_shares_paths() {
    let server = Running::start_with(Fake::sharing(), Limits::default());
    let client = server.client();
    let injection = r#"{"path":"0","injection":{"latency-us":5},"disk":"shares-a"}"#;
    for (method, target, body) in [
        ("PUT", "/v1/settings", r#"{"policy":{"name":"numa"},"disk":"shares-a"}"#),
        ("PUT", "/v1/settings", r#"{"hedge":"p95","disk":"shares-a"}"#),
        ("PUT", "/v1/settings", r#"{"scheduler":{"name":"burst-credit"},"limits":{"iops":9},"disk":"shares-a"}"#),
        ("PUT", "/v1/paths", r#"{"path":"0","action":"drain","disk":"shares-a"}"#),
        ("POST", "/v1/disks/shares-a/paths", r#"{"address":"tcp://127.0.0.1:4420"}"#),
        ("DELETE", "/v1/disks/shares-a/paths/0", ""),
        ("PUT", "/v1/injections", injection),
        ("DELETE", "/v1/injections?disk=shares-a&path=0", ""),
    ] {
        let message = "disk `shares-a` shares the paths, policy, scheduler and hedging of `a`; name `a`";
        let refused = format!(r#"{{"error":{{"code":"shares-paths","message":"{message}"}}}}"#);
        assert_eq!(server.request(method, target, body), (409, refused), "{method} {target}");
    }

    // What is read are the paths of the other disk.
    for target in [
        "/v1/disks?disk={}&setting=policy",
        "/v1/policy/detail?disk={}",
        "/v1/disks?disk={}&setting=hedge-budget",
        "/v1/disks?disk={}&setting=scheduler",
        "/v1/paths?disk={}",
        "/v1/paths?disk={}&path=0",
        "/v1/injections?disk={}",
    ] {
        let answer = |disk| server.request("GET", &target.replace("{}", disk), "");
        assert_eq!((answer(SHARER), answer(SHARER).0), (answer("a"), 200), "{target}");
    }

    // Without a named disk, a change applies to every disk that has paths, and the answer lists these disks.
    let set = |wanted: SetSettings| client.set(&wanted).unwrap().into_iter().map(|of| of.name).collect::<Vec<_>>();
    assert_eq!(set(PolicyKind::Numa.into()), ["a", "b"]);
    assert_eq!(set(SetSettings { hedge: Some(Hedge::Quantile(950)), ..SetSettings::default() }), ["a", "b"]);
    assert_eq!(set(SetScheduler { name: SchedulerKind::BurstCredit, params: vec![] }.into()), ["a", "b"]);
    assert_eq!(client.policy_detail(None).unwrap().len(), 2);
    let active: Vec<_> = client.policies().unwrap().into_iter().flat_map(|policy| policy.active_on).collect();
    assert_eq!(active, ["a", "b"]);
    let active: Vec<_> = client.schedulers().unwrap().into_iter().flat_map(|of| of.active_on).collect();
    assert_eq!(active, ["a", "b"]);

    // The disk's limits and virtqueues are its own. They are shown with the scheduler of the disk that has the paths.
    let limits = |iops: &str| SetSettings::from(SetLimits { iops: iops.parse().ok(), ..SetLimits::default() });
    assert_eq!(set(limits("500").of(SHARER)), [SHARER]);
    let details = client.scheduler_detail(None).unwrap();
    let shown = |of: &SchedulerDetail| (of.scheduler.to_string(), of.limits.limits.iops.to_string());
    assert_eq!(details.iter().map(|of| &*of.disk).collect::<Vec<_>>(), ["a", "b", SHARER]);
    assert_eq!(
        (shown(&details[0]), shown(&details[2])),
        (("burst-credit".into(), "off".into()), ("burst-credit".into(), "500".into()))
    );
    assert_eq!(details[2].shares_paths_of.as_deref(), Some("a"));
    assert_eq!(client.scheduler_detail(Some(SHARER)).unwrap(), details[2..]);
    assert_eq!(set(SetSettings { all: true, ..limits("7") }).len(), 3, "every disk has limits");
    let both = SetSettings { policy: Some(PolicyKind::Bdp.into()), all: true, ..limits("8") };
    assert_eq!(set(both), ["a", "b", SHARER]);
    let shown = client.disks_with(LiveSetting::Limits, None).unwrap();
    assert!(shown.iter().all(|of| of.policy == PolicyKind::Bdp.into() && of.limits.as_ref().unwrap().limits.iops.to_string() == "8"));
    assert_eq!(client.disks_with(LiveSetting::Policy, None).unwrap().len(), 2);
    let disks = client.status().unwrap().disks;
    assert_eq!(disks.iter().map(|disk| disk.shares_paths_of.as_deref()).collect::<Vec<_>>(), [None, None, Some("a")]);
}

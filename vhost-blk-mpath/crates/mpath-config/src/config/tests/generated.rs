//! Properties of generated configurations and texts.

use proptest::prelude::*;

use super::*;

fn bounded<const MIN: u32, const MAX: u32>() -> impl Strategy<Value = Bounded<MIN, MAX>> {
    (MIN..=MAX).prop_map(|value| Bounded::new(value).unwrap())
}

fn paths() -> impl Strategy<Value = Vec<crate::PathAddress>> {
    proptest::collection::hash_set("tcp://[a-z]{1,8}(:[1-9][0-9]{0,3})?", 1..5)
        .prop_map(|texts| texts.iter().map(|text| text.parse().unwrap()).collect::<std::collections::BTreeSet<_>>())
        .prop_map(|paths| paths.into_iter().collect())
}

/// Where there is a namespace, two disks with the next ones.
fn sharers(disk: usize, namespace: Option<NamespaceId>) -> Vec<SharerConfig> {
    let next = |n: u32| NamespaceId::new(namespace?.get().checked_add(n)?);
    let sharer = |n: u32| {
        let (name, socket) = (format!("disk{disk}-{n}"), format!("/run/{disk}-{n}.sock"));
        let sharer = SharerConfig::new(name.parse().unwrap(), socket.parse().unwrap(), next(n)?);
        let limits = LimitsConfig { iops: n.to_string().parse().unwrap(), ..LimitsConfig::default() };
        Some(SharerConfig {
            limits,
            read_only: n == 2,
            weight: Weight::new(n).unwrap(),
            mpath_window: n == 1,
            ..sharer
        })
    };
    (1..=2).filter_map(sharer).collect()
}

fn disk(index: usize) -> impl Strategy<Value = DiskConfig> {
    let identity = ("nqn\\.[a-z:.0-9]{1,40}", proptest::option::of(bounded()), paths());
    let numbers = (bounded(), bounded(), bounded(), 65_536_u32..=1 << 30, 1_u32..=600, 1_u32..=600);
    let tmo = (proptest::option::of(1_u32..=86_400), 50_u32..=60_000, proptest::option::of(1_u32..=86_400));
    let kinds =
        (proptest::sample::select(PolicyKind::ALL.to_vec()), proptest::sample::select(SchedulerKind::ALL.to_vec()));
    let rest = (kinds, any::<[bool; 6]>(), tmo);
    (identity, numbers, rest).prop_map(move |((nqn, namespace, paths), numbers, (kinds, flags, tmo))| DiskConfig {
        name: format!("disk{index}").parse().unwrap(),
        socket_path: format!("/run/{index}.sock").parse().unwrap(),
        socket_mode: tmo.0.map(|tmo| format!("0{:03o}", tmo % 0o1000).parse().unwrap()),
        socket_owner: tmo.0.map(|tmo| tmo.to_string().parse().unwrap()),
        socket_group: tmo.2.map(|tmo| format!("g{tmo}").parse().unwrap()),
        subsystem: nqn.parse().unwrap(),
        namespace,
        share_paths_with: if flags[4] { vec![] } else { sharers(index, namespace) },
        discovery: if flags[3] { vec![format!("tcp://discovery{index}:8010").parse().unwrap()] } else { vec![] },
        paths,
        policy: kinds.0.into(),
        scheduler: kinds.1.into(),
        limits: LimitsConfig {
            iops: tmo.0.map_or_else(Default::default, |iops| iops.to_string().parse().unwrap()),
            bandwidth: tmo.2.map_or_else(Default::default, |kib| format!("{}KiB", kib + 4).parse().unwrap()),
            burst: format!("{}ms", tmo.1).parse().unwrap(),
        },
        weight: Weight::new(1 + tmo.1 % 1000).unwrap(),
        read_only: flags[0],
        queues: numbers.0,
        queue_size: numbers.1,
        max_transfer: tmo.0.map(|tmo| (4095 + tmo).to_string().parse().unwrap()),
        window: WindowConfig { ios: numbers.2, bytes: numbers.3.to_string().parse().unwrap() },
        poll_us: if flags[5] { PollUs::Auto } else { (1 + tmo.1 % 1000).to_string().parse().unwrap() },
        hdr_digest: flags[1],
        data_digest: flags[2],
        tls_key_file: tmo.2.filter(|_| !flags[4]).map(|tmo| format!("/run/key-{tmo}").parse().unwrap()),
        discovery_tls_key_file: tmo
            .1
            .checked_add(1)
            .filter(|_| flags[3])
            .map(|tmo| format!("/run/{tmo}").parse().unwrap()),
        dhchap_secret_file: tmo.0.map(|tmo| format!("/run/secret-{tmo}").parse().unwrap()),
        dhchap_ctrl_secret_file: tmo.0.filter(|_| flags[3]).map(|tmo| format!("/run/ctrl-{tmo}").parse().unwrap()),
        concat: flags[2] && !flags[4] && tmo.0.is_some() && tmo.2.is_none(),
        keep_alive_tmo: numbers.4.to_string().parse().unwrap(),
        reconnect_delay: numbers.5.to_string().parse().unwrap(),
        suspect_timeout: format!("{}ms", tmo.1).parse().unwrap(),
        io_timeout: format!("{}s", numbers.4).parse().unwrap(),
        hedge: if flags[4] { Hedge::Quantile(500 + tmo.1 as u16 % 500) } else { Hedge::Off },
        hedge_budget: format!("{}.{}%", tmo.1 % 5, 1 + tmo.1 % 9).parse().unwrap(),
        min_paths: if flags[1] { MinPaths::Auto } else { (1 + tmo.1 % 64).to_string().parse().unwrap() },
        fast_io_fail_tmo: tmo.0.map(|tmo| tmo.to_string().parse().unwrap()),
        ctrl_loss_tmo: tmo.2.map(|tmo| tmo.to_string().parse().unwrap()),
        shared_write_cache: flags[3],
        drain_fence: flags[4],
        mpath_window: flags[5],
    })
}

proptest! {
    #[test]
    fn any_configuration_survives_the_file(
        disks in (disk(0), disk(1), disk(2)),
        count in 1_usize..=3,
        io_threads in bounded(),
        has_pool: bool,
        history_mib in 1_u32..=1024,
        wait_for in proptest::sample::select(vec![WaitFor::None, WaitFor::Any, WaitFor::All]),
        hostid in proptest::option::of(1_u128..),
    ) {
        let mut config = Config::new([disks.0, disks.1, disks.2].into_iter().take(count).collect());
        (config.io_threads, config.wait_for) = (io_threads, wait_for);
        config.io_thread_pool = has_pool.then_some(io_threads);
        config.history_size = format!("{history_mib}MiB").parse().unwrap();
        config.hostid = hostid.map(|id| uuid::Uuid::from_u128(id).to_string().parse().unwrap());
        config.metrics_address = hostid.map(|id| format!("[::{:x}]:9464", id % 0xffff).parse().unwrap());
        config.hostnqn = hostid.map(|id| format!("nqn.{id}").parse().unwrap());
        prop_assert_eq!(parse(&serde_yaml::to_string(&config).unwrap()), config);
    }

    #[test]
    fn no_text_panics(at in 0..SAMPLE.len(), noise in "\\PC{0,8}|[ \\n\\t:\\-\\[{&*!|]{1,8}") {
        // Splicing noise into a valid file gets further than noise alone.
        let at = (0..=at).rev().find(|&at| SAMPLE.is_char_boundary(at)).unwrap();
        let (head, tail) = SAMPLE.split_at(at);
        let _ = Config::parse(&format!("{head}{noise}{tail}")).map_err(|error| error.to_string());
    }
}

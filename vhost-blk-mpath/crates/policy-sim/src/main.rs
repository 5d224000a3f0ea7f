//! `policy-sim`: tables of policies on modelled paths.
use std::time::Duration;

use mpath_core::PolicyKind;
use policy_sim::{Sim, Workload, bound, scenario};

fn main() {
    let filter: Vec<String> = std::env::args().skip(1).collect();
    let gbits: f64 = filter.first().map_or(1.0, |g| g.parse().unwrap());
    let kind = filter.get(1).map_or("small", String::as_str);
    let only = filter.get(2).cloned().unwrap_or_default();
    let depth_only: Option<u32> = filter.get(3).map(|d| d.parse().unwrap());
    let name_only = filter.get(4).cloned().unwrap_or_default();
    for (name, paths) in scenario::two_paths(gbits) {
        for depth in [1, 4, 8, 32, 64, 256] {
            if depth_only.is_some_and(|d| d != depth) || !name.contains(&name_only) { continue }
            let w = match kind { "small" => Workload::small(depth), "medium" => Workload::medium(depth), _ => Workload::mixed(depth) };
            let b = bound(&paths, &w);
            for p in PolicyKind::ALL {
                if !only.is_empty() && p.name() != only { continue }
                let mut sim = Sim::new(p, &paths, w, 1);
                sim.run(Duration::from_secs(2));
                let mut m = sim.run(Duration::from_secs(5));
                println!("{gbits} {kind} {name:22} {depth:4} {:12} {:9.0} IOPS {:7.1} MB/s {:5.1}% p50 {:?} p99 {:?} p99.9 {:?} {:.3?} probes {:.4}", p.name(), m.iops(), m.bytes_per_s()/1e6, 100.0*m.bytes_per_s()/b, m.quantile(0.5), m.quantile(0.99), m.quantile(0.999), m.shares(), m.probe_share());
            }
        }
    }
}

use burst_sim::scenario::*;
use burst_sim::targets::{MANY, alone_and_beside, sustained};
use mpath_core::{SchedulerKind, SchedulerSpec};
#[test]
fn scan() {
    for share in ["0.7", "0.71"] {
        for gap in ["110ms", "120ms", "140ms"] {
            let spec = SchedulerSpec::new(SchedulerKind::BurstCreditDrr, [("share", share), ("gap", gap)]).unwrap();
            for seed in 1..=3 {
                let worst = MANY.map(|m| {
                    let (a, b) = alone_and_beside(spec, m, seed);
                    (b / a * 100.0).round() / 100.0
                });
                let least = sustained()
                    .iter()
                    .map(|(_, front)| {
                        measure(&uniform(spec, [front.clone(), bulk(16)].concat(), seed))
                            .least_share(|f| f >= front.len())
                    })
                    .fold(1.0, f64::min);
                let n128 = against(spec, 128, 16, seed);
                println!(
                    "{share} {gap} {seed}: {worst:?} least {least:.4} n128 {:.1} {:.1}",
                    n128.burst_ms([0], 0.5),
                    n128.burst_ms([0], 0.99)
                );
            }
        }
    }
}

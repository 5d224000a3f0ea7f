//! The paths of the scenarios.

use monotonic::Duration;

use super::Model;

/// A link with this delay there and back.
pub fn link(gbit_per_s: f64, delay_ms: f64) -> Model {
    Model::pipe(gbit_per_s, Duration::from_secs_f64(delay_ms / 1000.0))
}

/// Pairs of links by name. The first link of each pair has `gbit_per_s` Gb/s.
pub fn two_paths(gbit_per_s: f64) -> Vec<(&'static str, Vec<Model>)> {
    let near = link(gbit_per_s, 0.2);
    vec![
        ("equal", vec![near, near]),
        ("+2 ms on the second", vec![near, link(gbit_per_s, 2.2)]),
        ("+30 ms on the second", vec![near, link(gbit_per_s, 30.2)]),
        ("+30 ms on the first", vec![link(gbit_per_s, 30.2), near]),
        ("4:1", vec![near, link(gbit_per_s / 4.0, 0.2)]),
    ]
}

/// The path with the shortest delay.
pub fn fastest(paths: &[Model]) -> Model {
    *paths.iter().min_by_key(|path| path.delay).expect("a scenario has paths")
}

/// Eight disks: three fast ones, two medium, two slow, one awful.
pub fn eight_disks() -> Vec<Model> {
    [5.5, 5.5, 5.5, 9.0, 9.0, 14.0, 14.0, 60.0].map(|ms| Model::disk(1, Duration::from_secs_f64(ms / 1000.0))).into()
}

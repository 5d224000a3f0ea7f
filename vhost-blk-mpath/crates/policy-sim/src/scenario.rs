//! Paths that are looked at.

use std::time::Duration;

use crate::Model;

/// Two links, the first of `gbit_per_s` Gb/s; by name.
#[must_use]
pub fn two_paths(gbit_per_s: f64) -> Vec<(&'static str, Vec<Model>)> {
    let path = |gbit_per_s, ms: f64| Model::pipe(gbit_per_s, Duration::from_secs_f64(ms / 1000.0));
    let near = path(gbit_per_s, 0.2);
    vec![
        ("equal", vec![near, near]),
        ("+2 ms on the second", vec![near, path(gbit_per_s, 2.2)]),
        ("+30 ms on the second", vec![near, path(gbit_per_s, 30.2)]),
        ("+30 ms on the first", vec![path(gbit_per_s, 30.2), near]),
        ("4:1", vec![near, path(gbit_per_s / 4.0, 0.2)]),
    ]
}

/// Eight disks: three fast ones, two medium, two slow, one awful.
#[must_use]
pub fn eight_disks() -> Vec<Model> {
    [5.5, 5.5, 5.5, 9.0, 9.0, 14.0, 14.0, 60.0].map(|ms| Model::disk(1, Duration::from_secs_f64(ms / 1000.0))).into()
}

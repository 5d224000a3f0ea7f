//! The output of `mpathctl policy show` for one disk.

use mpath_api::types::{PathEstimate, PathView, PolicyDetail, PolicyInForce};

use super::parameter;
use crate::output::{Column, Text, or_dash, table};

pub(super) fn for_people(detail: &PolicyDetail) -> Text {
    let mut text = Text::default();
    for policy in &detail.policies {
        let PolicyInForce { class, name, description, params } = policy;
        text = text.then(format!("{}, {class} requests: {name}: {description}\n", detail.disk));
        if !params.is_empty() {
            text = text.then("\n").then(parameter::all(params));
        }
        text = text.then("\n");
    }
    if let Some(change) = &detail.changed {
        text = text.then(format!("changed {change}\n\n"));
    }
    text.then(table(PATHS, detail.paths.iter().map(path)).without_empty_from(OF_POLICIES))
}

const PATHS: [Column; 14] = [
    Column::Text("CLASS"),
    Column::Number("#"),
    Column::Text("ADDRESS"),
    Column::State("STATE"),
    Column::Number("1S(%)"),
    Column::SpareNumber("1M(%)"),
    Column::Number("WEIGHT"),
    Column::Number("EST(ms)"),
    Column::Number("WINDOW(KiB)"),
    Column::Number("AGE"),
    Column::Number("IGNORED"),
    Column::SpareNumber("CKPTS"),
    Column::SpareNumber("CKPT-IOS"),
    Column::SpareNumber("CKPT-AVG(ms)"),
];

/// The first column of [`PATHS`] that not all policies have. Columns that no listed policy has are left out.
const OF_POLICIES: usize = 6;

fn path(path: &PathView) -> [String; 14] {
    let [weight, estimate, window, age, ignored, checkpoints, ios, average] = estimate(&path.estimate);
    [
        path.class.clone(),
        path.index.to_string(),
        path.address.to_string(),
        path.state.to_string(),
        format!("{:.1}", path.share_1s * 100.0),
        format!("{:.1}", path.share_60s * 100.0),
        weight,
        estimate,
        window,
        age,
        ignored,
        checkpoints,
        ios,
        average,
    ]
}

/// Weight, estimate (ms), window (KiB), age, ignored, checkpoints, their I/Os, and their average (ms).
pub(super) fn estimate(of: &PathEstimate) -> [String; 8] {
    let ms = |us: Option<f64>| or_dash(us.map(|us| format!("{:.3}", us / 1000.0)));
    [
        or_dash(of.weight),
        ms(of.latency_us),
        or_dash(of.window_bytes.map(|bytes| bytes >> 10)),
        or_dash(of.age),
        or_dash(of.ignored),
        or_dash(of.checkpoints),
        or_dash(of.checkpoint_ios),
        ms(of.checkpoint_avg_us),
    ]
}

//! The policies that are measured, and what they are compared with.

use crate::paths::Paths;
use crate::tables::Table;
use serde::Deserialize;
use std::fmt;
use std::time::Duration;
use vublk_bench::control::{Control, ControlError};
use vublk_bench::harness::Failure;

/// A policy as the daemon lists it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Listed {
    name: String,
    #[serde(default)]
    params: Vec<ListedParam>,
}

#[derive(Debug, Clone, Deserialize)]
struct ListedParam {
    name: String,
}

impl Listed {
    /// Every policy the daemon has, in its order.
    pub(crate) fn all(control: &Control) -> Result<Vec<Self>, ControlError> {
        control.daemon_json(&["policy", "list"])
    }
}

/// A policy as it is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Contender {
    /// In the tables.
    pub(crate) name: String,
    pub(crate) policy: String,
    /// `NAME=VALUE` that differ from the defaults.
    pub(crate) params: Vec<String>,
    /// Whether the path with the least delay comes first, in place of the row's order.
    is_fast_first: bool,
}

/// `bdp` with the objective latency.
pub(crate) const BDP_FOR_LATENCY: &str = "bdp objective=latency";
/// `numa` uses the first path only. With the fast path first, this measures the fast path alone, with the same daemon and target.
pub(crate) const FAST_ALONE: &str = "fast path alone";

/// A policy and the parameter that has to fit the length of a measurement.
const SCALED: (&str, &str) = ("adaptive", "interval");

/// The parameter's value. Ten intervals pass before a measurement begins, so that the average, to which each adds an eighth, is
/// about right.
fn scaled_interval(warmup: Duration) -> Duration {
    Duration::from_millis((warmup.as_millis() as u64 / 10).max(10))
}

impl Contender {
    /// A policy with its defaults.
    pub(crate) fn plain(policy: &str) -> Self {
        Self { name: policy.into(), policy: policy.into(), params: Vec::new(), is_fast_first: false }
    }

    fn new(listed: &Listed, warmup: Duration) -> Self {
        let scaled = listed.name == SCALED.0 && listed.params.iter().any(|param| param.name == SCALED.1);
        let interval = scaled.then(|| format!("{}={}ms", SCALED.1, scaled_interval(warmup).as_millis()));
        Self { params: interval.into_iter().collect(), ..Self::plain(&listed.name) }
    }

    /// Puts it into force.
    pub(crate) fn set(&self, control: &Control) -> Result<(), ControlError> {
        control.set("policy", &self.policy, &self.params)
    }

    /// The changed parameters of a policy, for the document.
    pub(crate) fn changed(&self) -> Option<String> {
        let is_changed = self.name == self.policy && !self.params.is_empty();
        is_changed.then(|| format!("`{}` ran with `{}`", self.name, self.params.join(" ")))
    }

    /// The paths of a row in this contender's order.
    pub(crate) fn paths(&self, paths: &Paths) -> Paths {
        let mut paths = paths.clone();
        if self.is_fast_first {
            paths.sort_by_key(|path| path.delay);
        }
        paths
    }
}

/// Whether a name is that of a policy with its defaults, and not of something to compare with.
pub(crate) fn is_policy(name: &str) -> bool {
    ![BDP_FOR_LATENCY, FAST_ALONE].contains(&name)
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

/// The `wanted` policies, or all, in the daemon's order. Table a has what they are compared with as well.
pub(crate) fn contenders(
    listed: &[Listed],
    wanted: &[String],
    table: Table,
    warmup: Duration,
) -> Result<Vec<Contender>, Failure> {
    if let Some(name) = wanted.iter().find(|name| listed.iter().all(|policy| policy.name != **name)) {
        let offered: Vec<&str> = listed.iter().map(|policy| &*policy.name).collect();
        let offered = offered.join(", ");
        return Err(Failure::Usage(format!("--policies {name}: the daemon has no such policy; it has {offered}")));
    }
    let chosen = listed.iter().filter(|policy| wanted.is_empty() || wanted.contains(&policy.name));
    let mut contenders: Vec<Contender> = chosen.map(|policy| Contender::new(policy, warmup)).collect();
    if table == Table::A {
        if contenders.iter().any(|contender| contender.name == "bdp") {
            let params = vec!["objective=latency".to_owned()];
            contenders.push(Contender { name: BDP_FOR_LATENCY.into(), params, ..Contender::plain("bdp") });
        }
        contenders.push(Contender { name: FAST_ALONE.into(), is_fast_first: true, ..Contender::plain("numa") });
    }
    Ok(contenders)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::{FAR, NEAR};

    const LISTED: &str = r#"[{"name": "numa", "description": "x", "active-on": []},
        {"name": "adaptive", "params": [{"name": "shift"}, {"name": "interval", "value": "15s"}]}, {"name": "bdp"}]"#;

    fn chosen(wanted: &[&str], table: Table) -> Result<Vec<Contender>, Failure> {
        let listed: Vec<Listed> = serde_json::from_str(LISTED).unwrap();
        let wanted: Vec<String> = wanted.iter().map(|&name| name.to_owned()).collect();
        contenders(&listed, &wanted, table, Duration::from_millis(500))
    }

    fn chosen_names(wanted: &[&str], table: Table) -> Vec<String> {
        chosen(wanted, table).unwrap().into_iter().map(|contender| contender.name).collect()
    }

    #[test]
    fn the_policies_asked_for_in_the_daemons_order() {
        assert_eq!(chosen_names(&[], Table::B), ["numa", "adaptive", "bdp"]);
        assert_eq!(chosen_names(&["bdp", "numa"], Table::B), ["numa", "bdp"]);
        assert!(
            matches!(chosen(&["bpd"], Table::B), Err(Failure::Usage(text)) if text.ends_with("it has numa, adaptive, bdp"))
        );
    }

    #[test]
    fn one_policy_is_scaled() {
        let contenders = chosen(&[], Table::B).unwrap();
        assert_eq!(contenders[0], Contender::plain("numa"));
        assert_eq!(contenders[1].changed().unwrap(), "`adaptive` ran with `interval=50ms`");
    }

    #[test]
    fn table_a_has_something_to_compare_with() {
        assert_eq!(chosen_names(&["numa"], Table::A), ["numa", FAST_ALONE]);
        let contenders = chosen(&["bdp"], Table::A).unwrap();
        let [bdp, for_latency, alone] = &contenders[..] else { panic!("{contenders:?}") };
        assert_eq!([bdp, for_latency, alone].map(|contender| is_policy(&contender.name)), [true, false, false]);
        assert_eq!((&*for_latency.policy, &*for_latency.params[0]), ("bdp", "objective=latency"));
        assert_eq!(alone.policy, "numa");
        let paths = vec![FAR, NEAR];
        assert_eq!((bdp.paths(&paths), alone.paths(&paths)), (vec![FAR, NEAR], vec![NEAR, FAR]));
    }
}

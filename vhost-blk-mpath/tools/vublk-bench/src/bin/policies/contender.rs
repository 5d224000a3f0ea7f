//! The contenders: the policies that are measured, and the references with which they are compared.

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
}

/// A policy as it is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Contender {
    /// The name in the tables.
    pub(crate) name: String,
    pub(crate) policy: String,
    /// The parameters that differ from the defaults, as `NAME=VALUE`.
    pub(crate) params: Vec<String>,
    /// Whether the path with the least delay comes first, in place of the row's order.
    is_fast_first: bool,
}

/// `bdp` with the objective latency.
pub(crate) const BDP_FOR_LATENCY: &str = "bdp objective=latency";
/// `numa` uses the first path only. With the fast path first, this measures the fast path alone, with the same daemon and target.
pub(crate) const FAST_ALONE: &str = "fast path alone";

impl Contender {
    pub(crate) fn plain(policy: &str) -> Self {
        Self { name: policy.into(), policy: policy.into(), params: Vec::new(), is_fast_first: false }
    }

    /// A policy whose parameters fit the length of a measurement. Ten intervals of `adaptive` pass before a measurement begins.
    /// Each interval adds an eighth to the average, so the average is about right by then.
    fn scaled(policy: &str, warmup: Duration) -> Self {
        let interval = format!("interval={}ms", (warmup.as_millis() / 10).max(10));
        let params = if policy == "adaptive" { vec![interval] } else { Vec::new() };
        Self { params, ..Self::plain(policy) }
    }

    /// Puts the contender's policy into force.
    pub(crate) fn set(&self, control: &Control) -> Result<(), ControlError> {
        control.set("policy", &self.policy, &self.params)
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

/// The `wanted` policies, or all policies, in the daemon's order. Table a also has the references with which they are compared.
pub(crate) fn contenders(
    listed: &[Listed],
    wanted: &[String],
    table: Table,
    warmup: Duration,
) -> Result<Vec<Contender>, Failure> {
    let names: Vec<&str> = listed.iter().map(|policy| &*policy.name).collect();
    if let Some(name) = wanted.iter().find(|name| !names.contains(&&***name)) {
        let names = names.join(", ");
        return Err(Failure::Usage(format!("--policies {name}: the daemon has no such policy; it has {names}")));
    }
    let chosen = names.into_iter().filter(|name| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name));
    let mut contenders: Vec<Contender> = chosen.map(|name| Contender::scaled(name, warmup)).collect();
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
        {"name": "adaptive", "params": [{"name": "shift"}]}, {"name": "bdp"}]"#;

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
        assert_eq!(contenders[1].params, ["interval=50ms"]);
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

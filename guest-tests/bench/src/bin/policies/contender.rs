//! Who is measured: the daemon's policies, and what they are compared with.

use crate::scene::{PathSpec, Scene};
use crate::tables::Table;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::time::Duration;
use vublk_bench::control::{Control, ControlError};

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
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Contender {
    /// As the tables call it.
    pub(crate) name: String,
    pub(crate) policy: String,
    /// `NAME=VALUE` that differ from the defaults.
    pub(crate) params: Vec<String>,
    pub(crate) order: Order,
}

/// In which order it meets the paths of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Order {
    AsListed,
    /// The path with the least delay is the first.
    FastFirst,
}

/// `bdp` where latency counts most.
pub(crate) const BDP_FOR_LATENCY: &str = "bdp objective=latency";
/// `numa` uses the first path only. Put in front, the fast one is measured without the other, and with the same daemon and target.
pub(crate) const FAST_ALONE: &str = "fast path alone";

/// The policy whose window has to fit the length of a measurement, and that parameter.
const SCALED: (&str, &str) = ("adaptive", "interval");

/// Its value: ten of them pass before a measurement begins, so that the average, of which each is an eighth, is about right.
fn scaled_interval(warmup: Duration) -> Duration {
    Duration::from_millis((warmup.as_millis() as u64 / 10).max(10))
}

impl Contender {
    /// A policy with its defaults.
    pub(crate) fn plain(policy: &str) -> Self {
        Self { name: policy.into(), policy: policy.into(), params: Vec::new(), order: Order::AsListed }
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

    /// Whether it is a policy as it comes, rather than something to compare with.
    pub(crate) fn is_a_policy(&self) -> bool {
        self.name == self.policy
    }

    /// The paths of a row as it meets them.
    pub(crate) fn scene<'a>(&self, scene: &'a Scene) -> Cow<'a, [PathSpec]> {
        match self.order {
            Order::AsListed => Cow::Borrowed(scene),
            Order::FastFirst => {
                let mut scene = scene.clone();
                scene.sort_by_key(|path| path.delay);
                Cow::Owned(scene)
            }
        }
    }
}

/// Those of `listed` that are `wanted`, in the daemon's order, all if none are named; and in table a what they are compared with.
/// Otherwise the name that the daemon does not have.
pub(crate) fn contenders(
    listed: &[Listed],
    wanted: &[String],
    table: Table,
    warmup: Duration,
) -> Result<Vec<Contender>, String> {
    if let Some(name) = wanted.iter().find(|name| listed.iter().all(|policy| policy.name != **name)) {
        return Err(name.clone());
    }
    let chosen = listed.iter().filter(|policy| wanted.is_empty() || wanted.contains(&policy.name));
    let mut contenders: Vec<Contender> = chosen.map(|policy| Contender::new(policy, warmup)).collect();
    if table == Table::A {
        if contenders.iter().any(|contender| contender.name == "bdp") {
            let params = vec!["objective=latency".to_owned()];
            contenders.push(Contender { name: BDP_FOR_LATENCY.into(), params, ..Contender::plain("bdp") });
        }
        contenders.push(Contender { name: FAST_ALONE.into(), order: Order::FastFirst, ..Contender::plain("numa") });
    }
    Ok(contenders)
}

/// The names, for an error.
pub(crate) fn names(listed: Vec<Listed>) -> Vec<String> {
    listed.into_iter().map(|policy| policy.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::{FAR, NEAR};

    const LISTED: &str = r#"[{"name": "numa", "description": "x", "active-on": []},
        {"name": "adaptive", "params": [{"name": "shift"}, {"name": "interval", "value": "15s"}]}, {"name": "bdp"}]"#;

    fn chosen(wanted: &[&str], table: Table) -> Result<Vec<Contender>, String> {
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
        assert_eq!(chosen(&["bpd"], Table::B).unwrap_err(), "bpd");
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
        assert!(bdp.is_a_policy() && !for_latency.is_a_policy() && !alone.is_a_policy());
        assert_eq!((&*for_latency.policy, &*for_latency.params[0]), ("bdp", "objective=latency"));
        assert_eq!(alone.policy, "numa");
        let scene = vec![FAR, NEAR];
        assert_eq!(*bdp.scene(&scene), [FAR, NEAR]);
        assert_eq!(*alone.scene(&scene), [NEAR, FAR]);
    }
}

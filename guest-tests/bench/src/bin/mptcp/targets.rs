//! What the tables are to show, and whether they do.

use crate::line::Table;
use crate::outage::{Kind, Outage, longest};
use crate::results::{Cell, Results, Row, Workload};
use vublk_bench::publish::{Case, Limit, Target};

const TCP_1: &str = "tcp-1";
const TCP_N: &str = "tcp-N bdp";
const MPTCP_1: &str = "mptcp-1";
const MPTCP_N: &str = "mptcp-N bdp";
/// What docs/mptcp.md recommends where links are unequal.
const UNEQUAL: &str = "mptcp-N numa";

/// How methods are called beside which `mpathctl mptcp follow` runs.
const FOLLOWED: &str = " followed";

/// Of sockets alone with as many connections, or of what the links carry, in percent.
const OF_RAW: f64 = 95.0;
const OF_UNEQUAL: f64 = 92.0;
const P99_OF_BETTER: f64 = 150.0;
/// By links: what MPTCP aims at, in percent of one TCP connection on one link.
const AIMS: [(usize, f64); 2] = [(2, 190.0), (4, 370.0)];
const REST_AFTER_S: f64 = 1.0;
const ALL_AFTER_S: f64 = 3.0;

/// All of them.
pub(crate) fn targets(results: &Results) -> Vec<Target> {
    let equal: Vec<&Row> = results.rows(Table::A).filter(|row| row.links.len() > 1).collect();
    let unequal: Vec<&Row> = results.rows(Table::B).collect();
    let of_raw = |method, raw| cases(&equal, |row, workload| of_method(row, workload, method, raw, OF_RAW));
    let of_links = |rows: &[&Row], method, limit| cases(rows, |row, workload| of_links(row, workload, method, limit));
    let outages = |of: &dyn Fn(&Outage) -> Option<Case>| results.outages.iter().filter_map(of).collect();
    vec![
        Target::new(
            "equal links: `mptcp-1` ≥ 95 % of one plain MPTCP socket, the part of it in percent",
            of_raw(MPTCP_1, "raw mptcp-1"),
        ),
        Target::new("equal links: `mptcp-N bdp` ≥ 95 % of N plain MPTCP sockets", of_raw(MPTCP_N, "raw mptcp-N")),
        Target::new("equal links: `tcp-N bdp` ≥ 95 % of N plain TCP sockets", of_raw(TCP_N, "raw tcp-N")),
        Target::new(
            "equal links: `tcp-N bdp` ≥ 95 % of the payload that the links can carry",
            of_links(&equal, TCP_N, OF_RAW),
        ),
        Target::new(
            "aim: MPTCP on 2 links ≥ 190 %, on 4 links ≥ 370 % of one TCP connection",
            [MPTCP_1, MPTCP_N]
                .iter()
                .flat_map(|method| cases(&equal, |row, workload| aim(row, workload, method)))
                .collect(),
        ),
        Target::new(
            "1:4: `mptcp-N numa` ≥ 92 % of the payload that the links can carry",
            of_links(&unequal, UNEQUAL, OF_UNEQUAL),
        ),
        Target::new(
            "1:4: p99 of `mptcp-N numa` ≤ 150 % of the better of `tcp-N bdp` and `mptcp-1`",
            cases(&unequal, p99_of_better),
        ),
        Target::new("a lost link: no error, no wrong block", outages(&|outage| Some(wrong(outage)))),
        Target::new(
            "a pulled cable, `tcp-N bdp` and followed: throughput is that of the rest within 1 s, in every round",
            outages(&|outage| is_noticed(outage).then(|| time(outage, &outage.rest_after_s, REST_AFTER_S))),
        ),
        Target::new(
            "a link that is back after 3 s: throughput is that of all within 3 s, in every round",
            outages(&|outage| Some(time(outage, &outage.all_after_s, ALL_AFTER_S))),
        ),
    ]
}

fn cases(rows: &[&Row], case: impl Fn(&Row, Workload) -> Option<Case>) -> Vec<Case> {
    let workloads = [Workload::Read, Workload::Write];
    rows.iter().flat_map(|row| workloads.map(|workload| case(row, workload))).flatten().collect()
}

fn name(row: &Row, workload: Workload) -> String {
    let what = match workload {
        Workload::Read => "read",
        Workload::Write => "write",
        Workload::Randread => "4k randread",
    };
    format!("{what}, {}", row.name)
}

fn of_method(row: &Row, workload: Workload, method: &str, other: &str, limit: f64) -> Option<Case> {
    let (ours, other) = (row.cell(method, workload)?, row.cell(other, workload)?);
    let percent = ours.mib_s.median / other.mib_s.median * 100.0;
    Some(Case::new(&name(row, workload), method, Some(percent), Limit::AtLeast(limit), "%"))
}

fn of_links(row: &Row, workload: Workload, method: &str, limit: f64) -> Option<Case> {
    let percent = row.cell(method, workload)?.mib_s.median / row.payload_mib_s * 100.0;
    Some(Case::new(&name(row, workload), method, Some(percent), Limit::AtLeast(limit), "%"))
}

fn aim(row: &Row, workload: Workload, method: &str) -> Option<Case> {
    let (_, percent) = AIMS.into_iter().find(|(links, _)| *links == row.links.len())?;
    of_method(row, workload, method, TCP_1, percent)
}

fn p99_of_better(row: &Row, workload: Workload) -> Option<Case> {
    let p99 = |method| row.cell(method, workload).and_then(|cell: &Cell| Some(cell.daemon?.p99_ms.median));
    let percent = p99(UNEQUAL)? / p99(TCP_N)?.min(p99(MPTCP_1)?) * 100.0;
    Some(Case::new(&name(row, workload), UNEQUAL, Some(percent), Limit::AtMost(P99_OF_BETTER), "%"))
}

fn lost(outage: &Outage) -> &'static str {
    match outage.kind {
        Kind::Down => "cable pulled",
        Kind::Silence => "silence",
    }
}

/// A cable is pulled, and that is noticed by more than timeouts of the kernel's, as docs/mptcp.md recommends.
fn is_noticed(outage: &Outage) -> bool {
    outage.kind == Kind::Down && (outage.method == TCP_N || outage.method.ends_with(FOLLOWED))
}

fn wrong(outage: &Outage) -> Case {
    Case::new(lost(outage), &outage.method, Some(outage.wrong as f64), Limit::AtMost(0.0), "errors")
}

fn time(outage: &Outage, times: &[Option<f64>], limit: f64) -> Case {
    Case::new(lost(outage), &outage.method, longest(times), Limit::AtMost(limit), "s")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outage::tests::outage;
    use crate::results::tests::{results, row};
    use serde_json::Value;

    fn met(rows: &[Value], outages: &[Value]) -> Vec<Option<bool>> {
        targets(&results(rows, outages)).into_iter().map(|target| target.met).collect()
    }

    fn equal(links: usize, tcp_n: f64, mptcp_1: f64, mptcp_n: f64) -> Value {
        let raw = 22.6 * links as f64;
        let reads = [
            (TCP_1, 22.5),
            (TCP_N, tcp_n),
            (MPTCP_1, mptcp_1),
            (MPTCP_N, mptcp_n),
            ("raw tcp-N", raw),
            ("raw mptcp-1", raw),
            ("raw mptcp-N", raw),
        ];
        row("a", &vec![200.0; links], &reads)
    }

    #[test]
    fn equal_links_can_meet_and_miss() {
        let good = [equal(2, 45.0, 44.0, 44.0), equal(4, 90.0, 89.0, 89.0)];
        assert_eq!(met(&good, &[])[..5], [Some(true); 5]);
        // Each below 95 % of its own sockets; the links could carry 45.6, one TCP connection carries 22.5.
        let each = |values: [f64; 3]| met(&[equal(2, values[0], values[1], values[2])], &[])[..5].to_vec();
        assert_eq!(each([45.0, 42.95, 44.0]), [true, true, true, true, true].map(Some));
        assert_eq!(each([45.0, 42.8, 44.0]), [false, true, true, true, true].map(Some));
        assert_eq!(each([45.0, 44.0, 42.8]), [true, false, true, true, true].map(Some));
        assert_eq!(each([42.8, 44.0, 44.0]), [true, true, false, false, true].map(Some));
        assert_eq!(each([43.2, 44.0, 44.0]), [true, true, true, false, true].map(Some));
        assert_eq!(each([45.0, 44.0, 42.5])[4], Some(false));
    }

    #[test]
    fn four_links_aim_higher() {
        let aims = |links, mib_s| met(&[equal(links, 90.0, mib_s, mib_s)], &[])[4];
        assert_eq!(
            (aims(4, 83.0), aims(4, 83.5), aims(2, 43.0), aims(2, 42.5)),
            (Some(false), Some(true), Some(true), Some(false))
        );
    }

    #[test]
    fn one_link_is_no_case() {
        assert_eq!(met(&[row("a", &[200.0], &[(TCP_1, 1.0), (MPTCP_1, 1.0), ("raw mptcp-1", 22.0)])], &[]), [None; 10]);
    }

    #[test]
    fn unequal_links_can_meet_and_miss() {
        // They can carry 28.5.
        let unequal = |mib_s| row("b", &[200.0, 50.0], &[(TCP_N, 28.0), (MPTCP_1, 28.0), (UNEQUAL, mib_s)]);
        assert_eq!(met(&[unequal(26.3)], &[])[5..7], [Some(true), Some(true)]);
        let mut slow = unequal(26.1);
        for sample in slow["cells"][2]["samples"].as_array_mut().unwrap() {
            sample["p99_ms"] = 120.1.into();
        }
        assert_eq!(met(&[slow.clone()], &[])[5..7], [Some(false), Some(false)]);
        // The better one counts.
        for sample in slow["cells"][0]["samples"].as_array_mut().unwrap() {
            sample["p99_ms"] = 300.0.into();
        }
        assert_eq!(met(&[slow], &[])[6], Some(false));
    }

    #[test]
    fn outages_can_meet_and_miss() {
        let good = [outage("down", TCP_N, 9, 29, 0), outage("silence", MPTCP_1, 20, 29, 0)];
        assert_eq!(met(&[], &good)[7..], [Some(true); 3]);
        let bad = [outage("down", TCP_N, 11, 0, 1)];
        assert_eq!(met(&[], &bad)[7..], [Some(false), Some(false), Some(true)]);
        // Of what Linux does by itself nothing is promised.
        let pulled = |method: &str| met(&[], &[outage("down", method, 11, 0, 0)])[8];
        assert_eq!([pulled("mptcp-1 followed"), pulled(MPTCP_1)], [Some(false), None]);
        let late = [outage("silence", TCP_N, 0, 31, 0)];
        assert_eq!(met(&[], &late)[7..], [Some(true), None, Some(false)]);
    }
}

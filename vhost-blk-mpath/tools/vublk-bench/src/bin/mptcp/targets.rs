//! The targets of the tables.

use vublk_bench::harness::{Case, Limit, Results, Row, Target};

const TCP_1: &str = "tcp-1";
const TCP_N: &str = "tcp-N bdp";
const MPTCP_1: &str = "mptcp-1";
const MPTCP_N: &str = "mptcp-N bdp";
/// The method that docs/mptcp.md recommends for unequal links.
const UNEQUAL: &str = "mptcp-N numa";
/// The end of the names of methods with which `mpathctl mptcp follow` runs.
const FOLLOWED: &str = " followed";

/// MPTCP's aims by the number of links, in percent of one TCP connection on one link.
const AIMS: [(f64, f64); 2] = [(2.0, 190.0), (4.0, 370.0)];

pub(crate) fn targets(results: &Results) -> Vec<Target> {
    let sequential = |row: &&Row| row.table != "d" && !row.name.ends_with(": randread");
    let rows: Vec<&Row> = results.rows.iter().filter(sequential).collect();
    let equal = |row: &Row| row.table == "a" && row.fact("links") > 1.0;
    let unequal = |row: &Row| row.table == "b";
    let part = |row: &Row, method: &str, of: Option<f64>| Some(row.median(method, "mib_s")? / of?);
    let of_sockets = |row: &Row, method: &'static str, sockets: &str| {
        percent(row, method, part(row, method, row.median(sockets, "mib_s")), Limit::AtLeast(95.0))
    };
    let of_links = |row: &Row, method: &'static str, limit| {
        percent(row, method, part(row, method, Some(row.fact("payload_mib_s"))), Limit::AtLeast(limit))
    };
    let aim = |row: &Row| {
        let aim = AIMS.into_iter().find(|(links, _)| (row.fact("links") - links).abs() < 0.5);
        let case = |method| percent(row, method, part(row, method, row.median(TCP_1, "mib_s")), Limit::AtLeast(aim?.1));
        [MPTCP_1, MPTCP_N].map(case)
    };
    let p99 = |row: &Row| {
        let better = row.median(TCP_N, "p99_ms")?.min(row.median(MPTCP_1, "p99_ms")?);
        percent(row, UNEQUAL, Some(row.median(UNEQUAL, "p99_ms")? / better), Limit::AtMost(150.0))
    };
    let judged = |description: &str, is_judged: &dyn Fn(&Row) -> bool, case: &dyn Fn(&Row) -> Option<Case>| {
        Target::new(description, rows.iter().filter(|row| is_judged(row)).filter_map(|row| case(row)))
    };
    let lost = results.table("d");
    let outages = |description: &str, is_judged: &dyn Fn(&Row, &str) -> bool, figure: &str, most: f64, unit| {
        let cells = lost.iter().flat_map(|row| row.cells.iter().map(move |cell| (row, cell)));
        let cases = cells.filter(|(row, cell)| is_judged(row, &cell.contender)).map(|(row, cell)| {
            let worst_round = cell.get(figure).map_or(f64::INFINITY, |spread| spread.max);
            Case::new(&row.name, &cell.contender, worst_round, Limit::AtMost(most), unit)
        });
        Target::new(description, cases)
    };
    // docs/mptcp.md recommends these methods where a cable may be pulled. The other methods wait for timeouts of the kernel.
    let is_noticed =
        |row: &Row, method: &str| row.name == "cable pulled" && (method == TCP_N || method.ends_with(FOLLOWED));
    vec![
        judged("equal links: `mptcp-1` ≥ 95 % of one plain MPTCP socket", &equal, &|row| {
            of_sockets(row, MPTCP_1, "raw mptcp-1")
        }),
        judged("equal links: `mptcp-N bdp` ≥ 95 % of N plain MPTCP sockets", &equal, &|row| {
            of_sockets(row, MPTCP_N, "raw mptcp-N")
        }),
        judged("equal links: `tcp-N bdp` ≥ 95 % of N plain TCP sockets", &equal, &|row| {
            of_sockets(row, TCP_N, "raw tcp-N")
        }),
        judged("equal links: `tcp-N bdp` ≥ 95 % of the payload that the links can carry", &equal, &|row| {
            of_links(row, TCP_N, 95.0)
        }),
        Target::new(
            "aim: MPTCP on 2 links ≥ 190 %, on 4 links ≥ 370 % of one TCP connection",
            rows.iter().filter(|row| equal(row)).flat_map(|row| aim(row)).flatten(),
        ),
        judged("1:4: `mptcp-N numa` ≥ 92 % of the payload that the links can carry", &unequal, &|row| {
            of_links(row, UNEQUAL, 92.0)
        }),
        judged("1:4: p99 of `mptcp-N numa` ≤ 150 % of the better of `tcp-N bdp` and `mptcp-1`", &unequal, &p99),
        outages("a lost link: no error, no wrong block", &|_, _| true, "wrong", 0.0, "errors"),
        outages(
            "a pulled cable, `tcp-N bdp` and followed: throughput is that of the rest within 1 s, in every round",
            &is_noticed,
            "rest_after_s",
            1.0,
            "s",
        ),
        outages(
            "a link that is back after 3 s: throughput is that of all within 3 s, in every round",
            &|_, _| true,
            "all_after_s",
            3.0,
            "s",
        ),
    ]
}

fn percent(row: &Row, method: &str, part: Option<f64>, limit: Limit) -> Option<Case> {
    Some(Case::new(&row.name, method, part? * 100.0, limit, "%"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vublk_bench::harness::{Machine, Sample};

    fn row(table: &str, name: &str, links: f64, methods: &[(&str, f64)]) -> Row {
        let mut row = Row::new(table, name, methods.iter().map(|(method, _)| *method));
        row.facts = [("links".to_owned(), links), ("payload_mib_s".to_owned(), 22.8 * links)].into();
        for (cell, (_, mib_s)) in row.cells.iter_mut().zip(methods) {
            cell.add(Sample::new(&[("mib_s", *mib_s), ("p99_ms", 80.0)]));
        }
        row
    }

    fn met(rows: Vec<Row>) -> Vec<Option<bool>> {
        let mut results = Results::new(Machine::look(None), &[]);
        results.rows = rows;
        targets(&results).iter().map(Target::is_met).collect()
    }

    fn equal(links: f64, [tcp_n, mptcp_1, mptcp_n]: [f64; 3]) -> Row {
        let raw = 22.6 * links;
        let methods = [(TCP_1, 22.5), (TCP_N, tcp_n), (MPTCP_1, mptcp_1), (MPTCP_N, mptcp_n)];
        let sockets = ["raw tcp-N", "raw mptcp-1", "raw mptcp-N"].map(|name| (name, raw));
        row("a", "links: read", links, &[&methods[..], &sockets].concat())
    }

    #[test]
    fn equal_links_can_meet_and_miss() {
        let of = |links, values| met(vec![equal(links, values)])[..5].to_vec();
        assert_eq!(of(2.0, [45.0, 44.0, 44.0]), [Some(true); 5]);
        // Each below 95 % of its own sockets. The links can carry 45.6, one TCP connection carries 22.5.
        assert_eq!(of(2.0, [45.0, 42.8, 44.0]), [false, true, true, true, true].map(Some));
        assert_eq!(of(2.0, [45.0, 44.0, 42.8]), [true, false, true, true, true].map(Some));
        assert_eq!(of(2.0, [43.2, 44.0, 44.0]), [true, true, true, false, true].map(Some));
        assert_eq!(of(2.0, [42.8, 44.0, 42.5]), [true, false, false, false, false].map(Some));
        assert_eq!((of(4.0, [90.0, 83.0, 83.0])[4], of(4.0, [90.0, 83.5, 83.5])[4]), (Some(false), Some(true)));
        assert_eq!(of(1.0, [22.0, 22.0, 22.0]), [None; 5]);
    }

    #[test]
    fn unequal_links_can_meet_and_miss() {
        let unequal = |mib_s, p99| {
            let mut row = row("b", "links: read", 1.25, &[(TCP_N, 28.0), (MPTCP_1, 28.0), (UNEQUAL, mib_s)]);
            row.cells[2].set("p99_ms", p99);
            met(vec![row])[5..7].to_vec()
        };
        assert_eq!(unequal(26.3, 119.0), [Some(true); 2]);
        assert_eq!(unequal(26.1, 120.1), [Some(false); 2]);
    }

    #[test]
    fn outages_can_meet_and_miss() {
        let outage = |name: &str, method: &str, [rest, all, wrong]: [f64; 3]| {
            let mut row = row("d", name, 2.0, &[(method, 40.0)]);
            // The worst round counts.
            for times in [[0.0, 0.0], [rest, all]] {
                row.cells[0].add(Sample::new(&[("rest_after_s", times[0]), ("all_after_s", times[1])]));
            }
            row.cells[0].set("wrong", wrong);
            met(vec![row])[7..].to_vec()
        };
        assert_eq!(outage("cable pulled", TCP_N, [0.9, 2.9, 0.0]), [Some(true); 3]);
        assert_eq!(outage("cable pulled", "mptcp-1 followed", [1.1, f64::INFINITY, 1.0]), [Some(false); 3]);
        // Without `mpathctl mptcp follow` nothing is promised.
        assert_eq!(outage("cable pulled", MPTCP_1, [1.1, 0.0, 0.0]), [Some(true), None, Some(true)]);
        assert_eq!(outage("silent", TCP_N, [1.1, 3.1, 0.0]), [Some(true), None, Some(false)]);
    }
}

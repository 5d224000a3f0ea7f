//! Decides: a connection fell back to TCP, a subflow came or went (`events`).
//!
//! The connections of one association: their state for the API, and changes of MPTCP connections for the log.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use mpath_api::types::{self, EventKind};
use mpath_config::PathAddress;
use mpath_config::address::Transport;
use mptcp::{Connection, DiagError, MptcpOptions, State};

/// The sockets whose state the kernel is asked for, by cookie.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    mptcp: BTreeSet<u64>,
    /// By remote port.
    tcp: BTreeMap<u16, BTreeSet<u64>>,
}

impl Wanted {
    /// Asks the kernel. Blocks for milliseconds if the host has many sockets. Returns the connections by cookie.
    pub(crate) fn ask(&self) -> Result<BTreeMap<u64, Connection>, DiagError> {
        let mut connections = mptcp::mptcp_connections(&self.mptcp)?;
        for (port, cookies) in &self.tcp {
            connections.extend(mptcp::tcp_connections(*port, cookies)?);
        }
        Ok(connections.into_iter().map(|connection| (connection.cookie, connection)).collect())
    }
}

/// The connections of one association.
#[derive(Debug)]
pub(crate) struct Connections {
    transport: Transport,
    remote_port: u16,
    /// The kernel's socket cookies by queue, the admin queue first.
    cookies: Vec<u64>,
    /// The last state by queue; `None` before the first.
    last: Option<BTreeMap<u16, Connection>>,
    /// Why there is no newer state.
    error: Option<String>,
}

impl Connections {
    /// The connections to this address with these socket cookies, the admin queue first.
    pub(crate) fn new(address: &PathAddress, cookies: Vec<u64>) -> Self {
        Self { transport: address.transport(), remote_port: address.port(), cookies, last: None, error: None }
    }

    pub(crate) fn add_to(&self, wanted: &mut Wanted) {
        let cookies = match self.transport {
            Transport::Mptcp => &mut wanted.mptcp,
            _ => wanted.tcp.entry(self.remote_port).or_default(),
        };
        cookies.extend(&self.cookies);
    }

    /// Takes the state of all connections from the kernel. Returns the events to report.
    pub(crate) fn update(&mut self, all: &Result<BTreeMap<u64, Connection>, String>) -> Vec<ConnectionEvent> {
        let all = match all {
            Ok(all) => all,
            Err(error) => {
                self.error = Some(error.clone());
                return Vec::new();
            }
        };
        self.error = None;
        let now: BTreeMap<u16, Connection> =
            (0..).zip(&self.cookies).filter_map(|(queue, cookie)| Some((queue, all.get(cookie)?.clone()))).collect();
        let events = match self.transport {
            Transport::Mptcp => events(self.last.as_ref(), &now),
            _ => Vec::new(),
        };
        self.last = Some(now);
        events
    }

    /// The last state for the API.
    pub(crate) fn for_api(&self) -> Vec<types::Connection> {
        let connections = self.last.iter().flatten().map(|(queue, connection)| types::Connection {
            queue: *queue,
            fallback: is_fallback(connection),
            subflows_max: connection.mptcp.as_ref().map(|mptcp| mptcp.subflows_max),
            subflows: connection.subflows.iter().map(subflow).collect(),
        });
        connections.collect()
    }

    /// Why there is no newer state.
    pub(crate) fn error(&self) -> Option<String> {
        self.error.clone()
    }
}

fn subflow(subflow: &mptcp::Subflow) -> types::Subflow {
    types::Subflow {
        local: subflow.local,
        remote: subflow.remote,
        state: match subflow.state {
            State::Connecting => types::SubflowState::Connecting,
            State::Established => types::SubflowState::Established,
            State::Closing => types::SubflowState::Closing,
        },
        backup: subflow.options.as_ref().map(MptcpOptions::is_backup),
        rtt_us: subflow.rtt.map(|rtt| rtt.as_micros() as u64),
        rtt_var_us: subflow.rtt_var.map(|rtt_var| rtt_var.as_micros() as u64),
        cwnd_segments: subflow.cwnd_segments,
        mss_bytes: subflow.mss_bytes,
        bytes_sent: subflow.bytes_sent,
        bytes_received: subflow.bytes_received,
        bytes_retransmitted: subflow.bytes_retransmitted,
        retransmitted_segments: subflow.retransmitted_segments,
        lost_segments: subflow.lost_segments,
    }
}

/// MPTCP was wanted, and the connection is plain TCP.
fn is_fallback(connection: &Connection) -> bool {
    connection.mptcp.as_ref().is_some_and(|mptcp| mptcp.fallback)
}

/// A change of a path's connections.
pub(crate) type ConnectionEvent = (EventKind, String);

/// From a local address to an address of the target, over any number of connections.
type Route = (IpAddr, SocketAddr);

/// The changes between two states. Subflows are reported by route, because all connections of a path gain and lose them
/// together. Subflows of the first state are not reported.
fn events(before: Option<&BTreeMap<u16, Connection>>, now: &BTreeMap<u16, Connection>) -> Vec<ConnectionEvent> {
    let mut events = Vec::new();
    let was_fallback = |queue| before.and_then(|before| before.get(queue)).is_some_and(is_fallback);
    let fallen: Vec<_> = now.iter().filter(|(queue, now)| is_fallback(now) && !was_fallback(queue)).collect();
    if !fallen.is_empty() {
        let message = format!(
            "{} of {} connections are plain TCP: the target, or a middlebox on the way to it, does not support MPTCP",
            fallen.len(),
            now.len()
        );
        events.push((EventKind::MptcpFallback, message));
    }
    let Some(before) = before else { return events };
    for (kind, what, from, to) in
        [(EventKind::SubflowDown, "down", before, now), (EventKind::SubflowUp, "up", now, before)]
    {
        let gone = established(from).difference(&established(to)).copied().collect::<Vec<_>>();
        let mut routes: BTreeMap<Route, usize> = BTreeMap::new();
        for (queue, local, remote) in gone {
            // A connection that is gone has not lost its subflows.
            if to.contains_key(&queue) {
                *routes.entry((local.ip(), remote)).or_default() += 1;
            }
        }
        for ((local, remote), connections) in routes {
            events.push((kind, format!("subflow from {local} to {remote} {what}, on {connections} connections")));
        }
    }
    events
}

fn established(connections: &BTreeMap<u16, Connection>) -> BTreeSet<(u16, SocketAddr, SocketAddr)> {
    let of = |(queue, connection): (&u16, &Connection)| {
        let up = connection.subflows.iter().filter(|subflow| subflow.state == State::Established);
        up.map(|subflow| (*queue, subflow.local, subflow.remote)).collect::<Vec<_>>()
    };
    connections.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mptcp::Mptcp;

    use super::*;

    /// A connection with subflows given by network card, or a fallback to plain TCP.
    fn connection(cookie: u64, fallback: bool, cards: &[(u8, State)]) -> Connection {
        let subflow = |&(card, state): &(u8, State)| mptcp::Subflow {
            local: ([10, 77, card, 1], 40_000).into(),
            remote: ([10, 77, card, 2], 4420).into(),
            state,
            options: None,
            rtt: Some(Duration::from_micros(1500)),
            rtt_var: Some(Duration::ZERO),
            cwnd_segments: Some(10),
            mss_bytes: Some(1448),
            bytes_sent: Some(1),
            bytes_acked: None,
            bytes_received: Some(2),
            bytes_retransmitted: Some(3),
            lost_segments: Some(4),
            retransmitted_segments: Some(5),
        };
        Connection {
            cookie,
            local: ([10, 77, 0, 1], 40_000).into(),
            remote: ([10, 77, 0, 2], 4420).into(),
            mptcp: Some(Mptcp { token: 0, fallback, subflows_max: 8, checksum: false, totals: None }),
            subflows: cards.iter().map(subflow).collect(),
        }
    }

    const UP: State = State::Established;

    fn over(transport: &str, cookies: &[u64]) -> Connections {
        let address = format!("{transport}://10.77.0.2:4421").parse().expect("an address");
        Connections::new(&address, cookies.to_vec())
    }

    #[test]
    fn the_kernel_is_asked_for_tcp_sockets_by_port() {
        let mut wanted = Wanted::default();
        for (transport, cookies) in [("tcp", [1, 2]), ("mptcp", [3, 4]), ("tcp", [5, 6])] {
            over(transport, &cookies).add_to(&mut wanted);
        }
        assert_eq!(wanted.mptcp, BTreeSet::from([3, 4]));
        assert_eq!(wanted.tcp, BTreeMap::from([(4421, BTreeSet::from([1, 2, 5, 6]))]));
    }

    #[test]
    fn tcp_connections_are_shown_and_not_reported() {
        let mut of = over("tcp", &[7, 9]);
        let tcp = |cookie, state| Connection { mptcp: None, ..connection(cookie, false, &[(0, state)]) };
        assert_eq!(messages(&mut of, &[tcp(7, UP), tcp(9, UP)]), [""; 0]);
        assert_eq!(messages(&mut of, &[tcp(7, State::Closing)]), [""; 0]);
        let shown = of.for_api();
        assert_eq!(
            (shown.len(), shown[0].fallback, shown[0].subflows_max, shown[0].subflows.len()),
            (1, false, None, 1)
        );
    }

    fn messages(of: &mut Connections, all: &[Connection]) -> Vec<String> {
        let all = all.iter().map(|connection| (connection.cookie, connection.clone())).collect();
        of.update(&Ok(all)).into_iter().map(|(kind, message)| format!("{kind}: {message}")).collect()
    }

    #[test]
    fn subflow_changes_are_reported_once_for_all_connections() {
        let mut of = over("mptcp", &[7, 9]);
        let both = |cards: &[(u8, State)]| [connection(9, false, cards), connection(7, false, cards)];
        assert_eq!(messages(&mut of, &both(&[(0, UP)])), [""; 0], "what there is at first");
        assert_eq!(messages(&mut of, &both(&[(0, UP), (1, State::Connecting)])), [""; 0]);
        let up = ["subflow-up: subflow from 10.77.1.1 to 10.77.1.2:4420 up, on 2 connections"];
        assert_eq!(messages(&mut of, &both(&[(0, UP), (1, UP)])), up);
        assert_eq!(messages(&mut of, &both(&[(0, UP), (1, UP)])), [""; 0]);
        let down = ["subflow-down: subflow from 10.77.0.1 to 10.77.0.2:4420 down, on 2 connections"];
        assert_eq!(messages(&mut of, &both(&[(0, State::Closing), (1, UP)])), down);
        // One connection is gone as a whole, the other has its subflow back.
        let up = ["subflow-up: subflow from 10.77.0.1 to 10.77.0.2:4420 up, on 1 connections"];
        assert_eq!(messages(&mut of, &both(&[(0, UP), (1, UP)])[..1]), up);
    }

    #[test]
    fn a_fallback_is_reported_once() {
        let mut of = over("mptcp", &[7, 9]);
        let fallen = [connection(7, true, &[(0, UP)]), connection(9, false, &[(0, UP)])];
        let said = messages(&mut of, &fallen);
        assert_eq!(said.len(), 1);
        assert!(said[0].starts_with("mptcp-fallback: 1 of 2 connections are plain TCP"), "{said:?}");
        assert_eq!(messages(&mut of, &fallen), [""; 0]);
        assert_eq!(of.for_api().iter().filter(|connection| connection.fallback).count(), 1);
    }

    #[test]
    fn the_last_state_is_shown_with_the_error_since() {
        let mut of = over("mptcp", &[7, 9]);
        assert_eq!((of.for_api(), of.error()), (vec![], None));
        messages(&mut of, &[connection(9, false, &[(3, UP), (4, State::Closing)])]);
        let shown = of.for_api();
        assert_eq!((shown.len(), shown[0].queue, shown[0].subflows_max, shown[0].subflows.len()), (1, 1, Some(8), 2));
        let expected = types::Subflow {
            local: ([10, 77, 3, 1], 40_000).into(),
            remote: ([10, 77, 3, 2], 4420).into(),
            state: types::SubflowState::Established,
            backup: None,
            rtt_us: Some(1500),
            rtt_var_us: Some(0),
            cwnd_segments: Some(10),
            mss_bytes: Some(1448),
            bytes_sent: Some(1),
            bytes_received: Some(2),
            bytes_retransmitted: Some(3),
            retransmitted_segments: Some(5),
            lost_segments: Some(4),
        };
        assert_eq!(shown[0].subflows[0], expected);
        assert_eq!(of.update(&Err("no".into())), []);
        assert_eq!((of.error().as_deref(), of.for_api()), (Some("no"), shown));
    }
}

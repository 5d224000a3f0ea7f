//! The MPTCP connections of one association: their state for the API, and their changes for the log.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use mpath_api::types::{self, EventKind};
use mptcp::{Connection, MptcpOptions, State};

/// The MPTCP connections of one association.
#[derive(Debug)]
pub(crate) struct Connections {
    /// The kernel's socket cookies by queue, the admin queue first.
    cookies: Vec<u64>,
    /// The last state by queue; `None` before the first.
    last: Option<BTreeMap<u16, Connection>>,
    /// Why there is no newer state.
    error: Option<String>,
}

impl Connections {
    /// The connections with these socket cookies, the admin queue first.
    pub(crate) fn new(cookies: Vec<u64>) -> Self {
        Self { cookies, last: None, error: None }
    }

    pub(crate) fn cookies(&self) -> &[u64] {
        &self.cookies
    }

    /// Takes the state of all connections from the kernel. Returns the events to report.
    pub(crate) fn update(&mut self, all: &Result<Vec<Connection>, String>) -> Vec<ConnectionEvent> {
        let all = match all {
            Ok(all) => all,
            Err(error) => {
                self.error = Some(error.clone());
                return Vec::new();
            }
        };
        self.error = None;
        let find = |cookie: &u64| all.iter().find(|connection| connection.cookie == *cookie).cloned();
        let now: BTreeMap<u16, Connection> =
            (0..).zip(&self.cookies).filter_map(|(queue, cookie)| Some((queue, find(cookie)?))).collect();
        let events = events(self.last.as_ref(), &now);
        self.last = Some(now);
        events
    }

    /// The state for the API.
    pub(crate) fn shown(&self) -> types::Mptcp {
        let connections = self.last.iter().flatten().map(|(queue, connection)| types::MptcpConnection {
            queue: *queue,
            fallback: connection.fallback,
            subflows_max: connection.subflows_max,
            subflows: connection.subflows.iter().map(subflow).collect(),
        });
        types::Mptcp { connections: connections.collect(), error: self.error.clone() }
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
        rtt_us: subflow.rtt.as_micros() as u64,
        rtt_var_us: subflow.rtt_var.as_micros() as u64,
        cwnd_segments: subflow.cwnd_segments,
        mss_bytes: subflow.mss_bytes,
        bytes_sent: subflow.bytes_sent,
        bytes_received: subflow.bytes_received,
        bytes_retransmitted: subflow.bytes_retransmitted,
        lost_segments: subflow.lost_segments,
    }
}

/// A change of a path's connections.
pub(crate) type ConnectionEvent = (EventKind, String);

/// From a local address to an address of the target, over any number of connections.
type Route = (IpAddr, SocketAddr);

/// The changes between two states. Subflows are reported by route, as all connections of a path gain and lose them
/// together. Subflows of the first state are not reported.
fn events(before: Option<&BTreeMap<u16, Connection>>, now: &BTreeMap<u16, Connection>) -> Vec<ConnectionEvent> {
    let mut events = Vec::new();
    let was_fallback = |queue| before.and_then(|before| before.get(queue)).is_some_and(|before| before.fallback);
    let fallen: Vec<_> = now.iter().filter(|(queue, now)| now.fallback && !was_fallback(queue)).collect();
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

    use super::*;

    /// A connection with subflows given by network card, or a fallback to plain TCP.
    fn connection(cookie: u64, fallback: bool, cards: &[(u8, State)]) -> Connection {
        let subflow = |&(card, state): &(u8, State)| mptcp::Subflow {
            local: ([10, 77, card, 1], 40_000).into(),
            remote: ([10, 77, card, 2], 4420).into(),
            state,
            options: None,
            rtt: Duration::from_micros(1500),
            rtt_var: Duration::ZERO,
            cwnd_segments: 10,
            mss_bytes: 1448,
            bytes_sent: 1,
            bytes_acked: 0,
            bytes_received: 2,
            bytes_retransmitted: 3,
            lost_segments: 4,
            retransmitted_segments: 0,
        };
        Connection {
            cookie,
            token: 0,
            fallback,
            local: ([10, 77, 0, 1], 40_000).into(),
            remote: ([10, 77, 0, 2], 4420).into(),
            subflows_max: 8,
            checksum: false,
            totals: None,
            subflows: cards.iter().map(subflow).collect(),
        }
    }

    const UP: State = State::Established;

    fn messages(of: &mut Connections, all: &[Connection]) -> Vec<String> {
        of.update(&Ok(all.to_vec())).into_iter().map(|(kind, message)| format!("{kind}: {message}")).collect()
    }

    #[test]
    fn subflow_changes_are_reported_once_for_all_connections() {
        let mut of = Connections::new(vec![7, 9]);
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
        let mut of = Connections::new(vec![7, 9]);
        let fallen = [connection(7, true, &[(0, UP)]), connection(9, false, &[(0, UP)])];
        let said = messages(&mut of, &fallen);
        assert_eq!(said.len(), 1);
        assert!(said[0].starts_with("mptcp-fallback: 1 of 2 connections are plain TCP"), "{said:?}");
        assert_eq!(messages(&mut of, &fallen), [""; 0]);
        assert_eq!(of.shown().fallbacks(), 1);
    }

    #[test]
    fn the_last_state_is_shown_with_the_error_since() {
        let mut of = Connections::new(vec![7, 9]);
        assert_eq!(of.shown(), types::Mptcp::default());
        messages(&mut of, &[connection(9, false, &[(3, UP), (4, State::Closing)])]);
        let shown = of.shown();
        assert_eq!((shown.connections.len(), shown.connections[0].queue, shown.established()), (1, 1, 1));
        let subflow = &shown.connections[0].subflows[0];
        assert_eq!((subflow.rtt_us, subflow.cwnd_segments, subflow.mss_bytes), (1500, 10, 1448));
        assert_eq!((subflow.bytes_sent, subflow.bytes_received, subflow.bytes_retransmitted), (1, 2, 3));
        assert_eq!((subflow.lost_segments, subflow.backup), (4, None));
        assert_eq!(of.update(&Err("no".into())), []);
        assert_eq!((of.shown().error.as_deref(), of.shown().connections), (Some("no"), shown.connections));
    }
}

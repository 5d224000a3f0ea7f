//! The MPTCP connections of one association: what they are made of, for the API, and what has changed, for the log.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use mpath_api::types::{self, EventKind};
use mptcp::{Connection, MptcpOptions, State};

/// What is known of the connections of one association.
#[derive(Debug)]
pub(crate) struct Connections {
    /// By which the kernel knows their sockets; by queue, the admin queue's first.
    cookies: Vec<u64>,
    /// By queue, what was told last; none before the first time.
    told: Option<BTreeMap<u16, Connection>>,
    /// Why nothing is told at present.
    error: Option<String>,
}

impl Connections {
    /// Of sockets with these cookies, the admin queue's first.
    pub(crate) fn new(cookies: Vec<u64>) -> Self {
        Self { cookies, told: None, error: None }
    }

    pub(crate) fn cookies(&self) -> &[u64] {
        &self.cookies
    }

    /// Takes in what the kernel tells of all connections; what there is to be told of it.
    pub(crate) fn update(&mut self, all: &Result<Vec<Connection>, String>) -> Vec<News> {
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
        let news = news(self.told.as_ref(), &now);
        self.told = Some(now);
        news
    }

    /// For the API.
    pub(crate) fn shown(&self) -> types::Mptcp {
        let connections = self.told.iter().flatten().map(|(queue, connection)| types::MptcpConnection {
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
        backup: subflow.options.as_ref().map(MptcpOptions::backup),
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

/// What has happened to the connections of a path.
pub(crate) type News = (EventKind, String);

/// From one address here to one of the target, over however many connections.
type Way = (IpAddr, SocketAddr);

/// What has changed. Subflows are told of by the way they take, as all connections of a path get and lose them together; those
/// that there are at first are nothing new.
fn news(before: Option<&BTreeMap<u16, Connection>>, now: &BTreeMap<u16, Connection>) -> Vec<News> {
    let mut news = Vec::new();
    let was_fallback = |queue| before.and_then(|before| before.get(queue)).is_some_and(|before| before.fallback);
    let fallen: Vec<_> = now.iter().filter(|(queue, now)| now.fallback && !was_fallback(queue)).collect();
    if !fallen.is_empty() {
        let message = format!(
            "{} of {} connections are plain TCP: the target, or something on the way to it, has no MPTCP",
            fallen.len(),
            now.len()
        );
        news.push((EventKind::MptcpFallback, message));
    }
    let Some(before) = before else { return news };
    for (kind, what, from, to) in
        [(EventKind::SubflowDown, "down", before, now), (EventKind::SubflowUp, "up", now, before)]
    {
        let gone = established(from).difference(&established(to)).copied().collect::<Vec<_>>();
        let mut ways: BTreeMap<Way, usize> = BTreeMap::new();
        for (queue, local, remote) in gone {
            // A connection that is not there is no matter of its subflows.
            if to.contains_key(&queue) {
                *ways.entry((local.ip(), remote)).or_default() += 1;
            }
        }
        for ((local, remote), connections) in ways {
            news.push((kind, format!("subflow from {local} to {remote} {what}, on {connections} connections")));
        }
    }
    news
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

    /// Subflows by local and remote card, or a connection that is plain TCP.
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

    fn told(of: &mut Connections, all: &[Connection]) -> Vec<String> {
        of.update(&Ok(all.to_vec())).into_iter().map(|(kind, message)| format!("{kind}: {message}")).collect()
    }

    #[test]
    fn subflows_that_come_and_go_are_told_of_once_for_all_connections() {
        let mut of = Connections::new(vec![7, 9]);
        let both = |cards: &[(u8, State)]| [connection(9, false, cards), connection(7, false, cards)];
        assert_eq!(told(&mut of, &both(&[(0, UP)])), [""; 0], "what there is at first");
        assert_eq!(told(&mut of, &both(&[(0, UP), (1, State::Connecting)])), [""; 0]);
        let up = ["subflow-up: subflow from 10.77.1.1 to 10.77.1.2:4420 up, on 2 connections"];
        assert_eq!(told(&mut of, &both(&[(0, UP), (1, UP)])), up);
        assert_eq!(told(&mut of, &both(&[(0, UP), (1, UP)])), [""; 0]);
        let down = ["subflow-down: subflow from 10.77.0.1 to 10.77.0.2:4420 down, on 2 connections"];
        assert_eq!(told(&mut of, &both(&[(0, State::Closing), (1, UP)])), down);
        // One connection is gone as a whole, the other one has its subflow back.
        let up = ["subflow-up: subflow from 10.77.0.1 to 10.77.0.2:4420 up, on 1 connections"];
        assert_eq!(told(&mut of, &both(&[(0, UP), (1, UP)])[..1]), up);
    }

    #[test]
    fn a_fallback_is_told_of_once_also_at_first() {
        let mut of = Connections::new(vec![7, 9]);
        let fallen = [connection(7, true, &[(0, UP)]), connection(9, false, &[(0, UP)])];
        let said = told(&mut of, &fallen);
        assert_eq!(said.len(), 1);
        assert!(said[0].starts_with("mptcp-fallback: 1 of 2 connections are plain TCP"), "{said:?}");
        assert_eq!(told(&mut of, &fallen), [""; 0]);
        assert_eq!(of.shown().fallbacks(), 1);
    }

    #[test]
    fn what_is_shown_is_what_was_told_last_and_why_there_is_nothing_newer() {
        let mut of = Connections::new(vec![7, 9]);
        assert_eq!(of.shown(), types::Mptcp::default());
        told(&mut of, &[connection(9, false, &[(3, UP), (4, State::Closing)])]);
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

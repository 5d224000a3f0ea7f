//! Decides which endpoints to delete and to add, from the state of links, addresses and endpoints. Has no side effects.

use std::collections::BTreeMap;
use std::mem;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use mptcp::LinkEvent;

use crate::mptcp::host::{Endpoint, Interface};

/// The most endpoints remembered. The kernel has 8 at a time. More come only from another program that keeps adding endpoints on dead links.
const HELD_MAX: usize = 64;
/// How long a link must be up before its address is announced again. By then the peer's own endpoint should exist. A subflow that the
/// peer opens from its endpoint is not opened again for the announcement. In the other order it is opened twice.
const ANNOUNCED_AFTER: Duration = Duration::from_millis(500);
/// Pause before another attempt to add an endpoint whose link is up.
const RETRY: Duration = Duration::from_secs(1);

/// What must be read again after an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reread {
    Nothing,
    /// The endpoints.
    Endpoints,
    /// Links and addresses, then the endpoints.
    Interfaces,
}

/// A change to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Delete the endpoint: its link is down.
    Remove(DeletedEndpoint),
    /// Add the endpoint: its link is up and has the address.
    Add(DeletedEndpoint),
    /// Forget the endpoint: another program has added one with its address.
    Abandon(DeletedEndpoint),
}

/// An endpoint to add again, and its link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeletedEndpoint {
    pub(super) endpoint: Endpoint,
    pub(super) link: String,
    /// Whether the kernel chooses the id: another endpoint has the old one, or the kernel has made an implicit endpoint of the address,
    /// which can be replaced only in this way.
    pub(super) any_id: bool,
}

impl DeletedEndpoint {
    fn is_of(&self, endpoint: &Endpoint) -> bool {
        (self.endpoint.address, self.endpoint.port) == (endpoint.address, endpoint.port)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Link {
    name: String,
    /// When the link came up, as far as is known. `None` if it is down.
    up: Option<Instant>,
}

/// The last link and state of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    link: String,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Usable,
    /// On the link, but duplicate address detection has not finished.
    Tentative,
    /// Gone: IPv6 addresses go when their link is switched off, and link managers remove others.
    Missing,
}

/// The state of links and addresses, and the endpoints deleted from links that are down.
#[derive(Debug, Default)]
pub(super) struct Follower {
    /// The links to follow. All if empty.
    devs: Vec<String>,
    links: BTreeMap<u32, Link>,
    addresses: BTreeMap<IpAddr, Seen>,
    held: Vec<DeletedEndpoint>,
}

impl Follower {
    /// Follows `devs`, or all links if empty.
    pub(super) fn new(devs: &[String]) -> Self {
        Self { devs: devs.to_vec(), ..Self::default() }
    }

    /// Handles an event.
    pub(super) fn event(&mut self, event: LinkEvent, now: Instant) -> Reread {
        match event {
            LinkEvent::Link { index, name, up } => self.link(index, name, up, now),
            LinkEvent::Deleted { index } => self.links.remove(&index).map_or(Reread::Nothing, |_| Reread::Endpoints),
            LinkEvent::Addresses | LinkEvent::Missed => Reread::Interfaces,
        }
    }

    fn link(&mut self, index: u32, name: String, up: bool, now: Instant) -> Reread {
        let known = self.links.get(&index).cloned();
        if known.as_ref().is_some_and(|known| known.name == name && known.up.is_some() == up) {
            return Reread::Nothing;
        }
        self.note(index, name, up, known, now);
        // The endpoint of a lost link must not wait until all addresses are read.
        if up { Reread::Interfaces } else { Reread::Endpoints }
    }

    fn note(&mut self, index: u32, name: String, up: bool, known: Option<Link>, now: Instant) {
        let since = known.as_ref().and_then(|known| known.up);
        if let Some(known) = known.filter(|known| known.name != name) {
            self.rename(&known.name, &name);
        }
        self.links.insert(index, Link { name, up: up.then(|| since.unwrap_or(now)) });
    }

    fn rename(&mut self, from: &str, to: &str) {
        let of_held = self.held.iter_mut().map(|held| &mut held.link);
        let of_addresses = self.addresses.values_mut().map(|seen| &mut seen.link);
        of_held.chain(of_addresses).filter(|link| *link == from).for_each(|link| to.clone_into(link));
    }

    /// Takes over the present links and addresses.
    pub(super) fn look(&mut self, interfaces: &[Interface], now: Instant) {
        let mut known = mem::take(&mut self.links);
        for Interface { index, name, up, .. } in interfaces {
            self.note(*index, name.clone(), *up, known.remove(index), now);
        }
        self.addresses.values_mut().for_each(|seen| seen.state = State::Missing);
        // An address on several links counts for a link that is up.
        for up in [false, true] {
            for interface in interfaces.iter().filter(|interface| interface.up == up) {
                for address in &interface.all_addresses {
                    let tentative = interface.tentative.contains(address);
                    let state = if tentative { State::Tentative } else { State::Usable };
                    self.addresses.insert(*address, Seen { link: interface.name.clone(), state });
                }
            }
        }
    }

    /// The changes to make to the present endpoints.
    pub(super) fn actions(&mut self, endpoints: &[Endpoint], now: Instant) -> Vec<Action> {
        // Forget addresses that are gone and have no endpoint, so that they do not accumulate.
        let held = &self.held;
        let of_endpoint = |address: &IpAddr| {
            endpoints.iter().chain(held.iter().map(|held| &held.endpoint)).any(|endpoint| endpoint.address == *address)
        };
        self.addresses.retain(|address, seen| seen.state != State::Missing || of_endpoint(address));

        let dead: Vec<DeletedEndpoint> =
            endpoints.iter().filter_map(|endpoint| self.on_a_dead_link(endpoint)).collect();
        let back = self.held.iter().filter(|held| dead.iter().all(|dead| !held.is_of(&dead.endpoint)));
        let back: Vec<Action> = back.filter_map(|held| self.of_held(held, endpoints, now)).collect();
        let room = HELD_MAX.saturating_sub(self.held.len());
        dead.into_iter().take(room).map(Action::Remove).chain(back).collect()
    }

    /// The endpoint to remember, if its link is followed and down. Implicit endpoints, which the kernel makes for subflows without an
    /// endpoint, end with those subflows.
    fn on_a_dead_link(&self, endpoint: &Endpoint) -> Option<DeletedEndpoint> {
        let by_address = || self.addresses.get(&endpoint.address).map(|seen| &seen.link);
        // The kernel shows a link that is gone by its number.
        let dev = endpoint.dev.as_ref().filter(|dev| self.links.values().any(|link| link.name == **dev));
        let link = dev.or_else(by_address)?.clone();
        let followed = self.devs.is_empty() || self.devs.contains(&link);
        (followed && !endpoint.implicit && !self.is_up(&link)).then(|| DeletedEndpoint {
            endpoint: endpoint.clone(),
            link,
            any_id: false,
        })
    }

    fn of_held(&self, held: &DeletedEndpoint, endpoints: &[Endpoint], now: Instant) -> Option<Action> {
        let same = endpoints.iter().find(|endpoint| held.is_of(endpoint));
        if same.is_some_and(|same| !same.implicit) {
            return Some(Action::Abandon(held.clone()));
        }
        let usable = |seen: &Seen| seen.link == held.link && seen.state == State::Usable;
        let due = self.due(held).is_some_and(|due| due <= now);
        let ready = due && self.addresses.get(&held.endpoint.address).is_some_and(usable);
        ready.then(|| Action::Add(as_added(held, endpoints)))
    }

    fn is_up(&self, name: &str) -> bool {
        self.up_since(name).is_some()
    }

    fn up_since(&self, name: &str) -> Option<Instant> {
        self.links.values().find(|link| link.name == name)?.up
    }

    /// When an endpoint may be added again. `None` if its link is down.
    fn due(&self, held: &DeletedEndpoint) -> Option<Instant> {
        let wait = if held.endpoint.signal { ANNOUNCED_AFTER } else { Duration::ZERO };
        Some(self.up_since(&held.link)? + wait)
    }

    /// Remembers an endpoint before it is deleted: a failed attempt may have deleted it too.
    pub(super) fn hold(&mut self, held: &DeletedEndpoint) {
        self.forget(held);
        self.held.push(held.clone());
    }

    /// Forgets an endpoint that exists again.
    pub(super) fn forget(&mut self, held: &DeletedEndpoint) {
        self.held.retain(|other| !other.is_of(&held.endpoint));
    }

    /// The longest wait until the changes must be computed again, even without events.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        let until = |due: Instant| Some(due.saturating_duration_since(now)).filter(|left| !left.is_zero());
        self.held.iter().filter_map(|held| self.due(held)).map(|due| until(due).unwrap_or(RETRY)).min()
    }

    /// The endpoints to add at the end: all deleted ones that do not exist again, whatever the state of their links.
    pub(super) fn at_the_end(&self, endpoints: &[Endpoint]) -> Vec<DeletedEndpoint> {
        let there =
            |held: &&DeletedEndpoint| endpoints.iter().any(|endpoint| held.is_of(endpoint) && !endpoint.implicit);
        self.held.iter().filter(|held| !there(held)).map(|held| as_added(held, endpoints)).collect()
    }
}

/// The endpoint with the present name of its link, and with its id if the id is free.
fn as_added(held: &DeletedEndpoint, endpoints: &[Endpoint]) -> DeletedEndpoint {
    let dev = held.endpoint.dev.as_ref().map(|_| held.link.clone());
    let any_id = endpoints.iter().any(|endpoint| held.is_of(endpoint) || endpoint.id == held.endpoint.id);
    DeletedEndpoint { endpoint: Endpoint { dev, ..held.endpoint.clone() }, any_id, ..held.clone() }
}

#[cfg(test)]
mod tests;

//! What a running target is doing.

use std::sync::atomic::Ordering;

use mpath_api::address::Transport;
use serde::{Deserialize, Serialize};

use super::TargetServer;
use super::listener::Listener;
use super::shared::Shared;
use crate::setting::{Hold, Setting};

/// One listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerStatus {
    /// Port id, from 1.
    pub port: u16,
    /// Where it listens, or would.
    pub address: String,
    /// What its connections are.
    pub transport: Transport,
    /// Whether it takes connections.
    pub listening: bool,
    /// Connections it has.
    pub connections: usize,
    /// ANA state of each group.
    pub ana: Vec<AnaGroupStatus>,
    /// Time that each I/O command takes at least.
    pub delay_us: u64,
    /// I/O data that it carries per second, in bytes.
    pub rate: Option<u64>,
    /// Whether commands that arrive now and change data are held.
    pub holding: bool,
    /// Commands held at the moment, those of lost connections included.
    pub held: usize,
    /// Held commands that were executed after their connection was lost, since the start.
    pub executed_late: u64,
    /// `stall` or `mute`.
    pub black_hole: Option<String>,
    /// I/O commands still to fail.
    pub failing: u32,
    /// Commands still to be lost, or answered wrongly, as settings.
    pub answers: Vec<String>,
    /// Header digests still to be wrong.
    pub header_digests: u32,
    /// Data digests still to be wrong.
    pub data_digests: u32,
    /// What namespaces show in place of their own, as settings.
    pub shown: Vec<String>,
}

/// One ANA group of a listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnaGroupStatus {
    /// Its id.
    pub group: u32,
    /// Its state.
    pub state: String,
}

/// The discovery service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscoveryStatus {
    /// Where it listens, or would.
    pub address: String,
    /// Whether it takes connections.
    pub listening: bool,
    /// Connections it has.
    pub connections: usize,
    /// GENCTR of its log.
    pub generation: u64,
}

impl TargetServer {
    /// Every listener, in the order of the configuration.
    #[must_use]
    pub fn status(&self) -> Vec<ListenerStatus> {
        self.listeners.iter().map(|listener| status(&self.shared, listener)).collect()
    }

    /// The discovery service, if there is one.
    #[must_use]
    pub fn discovery_status(&self) -> Option<DiscoveryStatus> {
        let discovery = self.discovery.as_ref()?;
        Some(DiscoveryStatus {
            address: discovery.listener.addr.to_string(),
            listening: discovery.listener.is_listening(),
            connections: discovery.shared.registry.connections(discovery.listener.port.listener),
            generation: discovery.generation(),
        })
    }
}

fn status(shared: &Shared, listener: &Listener) -> ListenerStatus {
    let (port, faults) = (&listener.port, &listener.port.faults);
    let (shown, shift) = (listener.shown().clone(), shared.block_shift());
    let ana = shared.control().ana(port.id);
    let group = |(state, group): (&nvme_tcp::wire::AnaState, u32)| AnaGroupStatus { group, state: state.to_string() };
    let answers = faults.answers.remaining().into_iter();
    ListenerStatus {
        port: port.id,
        address: listener.addr.to_string(),
        transport: listener.transport,
        listening: listener.is_listening(),
        connections: shared.registry.connections(port.listener),
        ana: ana.iter().zip(1..).map(group).collect(),
        delay_us: u64::try_from(faults.delay().as_micros()).unwrap_or(u64::MAX),
        rate: faults.pipe.rate(),
        holding: faults.hold() != Hold::Off,
        held: faults.held.load(Ordering::Acquire),
        executed_late: faults.late.load(Ordering::Acquire),
        black_hole: faults.black_hole().map(|black_hole| black_hole.to_string()),
        failing: faults.failures(),
        answers: answers.map(|(fault, commands)| Setting::Answer { fault, commands }.into()).collect(),
        header_digests: faults.digests.header.load(Ordering::Relaxed),
        data_digests: faults.digests.data.load(Ordering::Relaxed),
        shown: shown.iter().flat_map(|(&nsid, shown)| shown.settings(nsid, shift)).map(String::from).collect(),
    }
}

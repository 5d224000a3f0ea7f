//! The status of a running target.

use std::sync::atomic::Ordering;

use mpath_config::address::Transport;
use serde::{Deserialize, Serialize};

use super::TargetServer;
use super::listener::Listener;
use super::shared::Shared;
use crate::setting::{BLACK_HOLES, Hold, Setting, word};

/// The status of one listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerStatus {
    /// Port ID, from 1.
    pub port: u16,
    /// The address of the listener, whether it listens or not.
    pub address: String,
    pub transport: Transport,
    pub listening: bool,
    pub connections: usize,
    pub ana: Vec<AnaGroupStatus>,
    /// The delay of each I/O command, in microseconds.
    pub delay_us: u64,
    /// The limit of I/O data, in bytes per second.
    pub rate: Option<u64>,
    /// Whether arriving commands that change data are held.
    pub holding: bool,
    /// Commands that are held now, including those of lost connections.
    pub held: usize,
    /// Held commands that were executed after their connection was lost, since the start.
    pub executed_late: u64,
    /// `stall` or `mute`.
    pub black_hole: Option<String>,
    /// The number of I/O commands that will fail.
    pub failing: u32,
    /// Pending answer faults, as settings.
    pub answers: Vec<String>,
    /// The number of header digests that will be wrong.
    pub header_digests: u32,
    /// The number of data digests that will be wrong.
    pub data_digests: u32,
    /// The properties that namespaces report instead of their own, as settings.
    pub namespace_overrides: Vec<String>,
}

/// One ANA group of a listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnaGroupStatus {
    pub group: u32,
    pub state: String,
}

/// The status of the discovery service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscoveryStatus {
    /// The address of the listener, whether it listens or not.
    pub address: String,
    pub listening: bool,
    pub connections: usize,
    /// GENCTR of its log.
    pub generation: u64,
}

impl TargetServer {
    /// The status of all listeners, in the order of the configuration.
    pub fn status(&self) -> Vec<ListenerStatus> {
        self.listeners.iter().map(|listener| status(&self.shared, listener)).collect()
    }

    /// The status of the discovery service, if there is one.
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
    let (overrides, shift) = (listener.overrides().clone(), shared.block_shift());
    let ana = shared.control().ana(port.id);
    let group = |(state, group): (&nvme_tcp::wire::AnaState, u32)| AnaGroupStatus { group, state: state.to_string() };
    let answers = faults.answers.remaining().into_iter();
    let black_hole = faults.black_hole();
    ListenerStatus {
        port: port.id,
        address: listener.addr.to_string(),
        transport: listener.transport,
        listening: listener.is_listening(),
        connections: shared.registry.connections(port.listener),
        ana: ana.iter().zip(1..).map(group).collect(),
        delay_us: faults.delay().as_micros(),
        rate: faults.rate_limiter.rate(),
        holding: faults.hold() != Hold::Off,
        held: faults.held.load(Ordering::Acquire),
        executed_late: faults.executed_late.load(Ordering::Acquire),
        black_hole: black_hole.is_some().then(|| word(&BLACK_HOLES, &black_hole).to_owned()),
        failing: faults.failures(),
        answers: answers.map(|(fault, commands)| Setting::Answer { fault, commands }.to_string()).collect(),
        header_digests: faults.digests.header.load(Ordering::Relaxed),
        data_digests: faults.digests.data.load(Ordering::Relaxed),
        namespace_overrides: overrides
            .iter()
            .flat_map(|(&nsid, reported)| reported.settings(nsid, shift))
            .map(|setting| setting.to_string())
            .collect(),
    }
}

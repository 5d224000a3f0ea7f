//! A discovery subsystem: it has a list of subsystem addresses, and neither namespaces nor I/O queues.

use nvme_tcp::wire::{DiscoveryEntry, DiscoveryHeader, IdentifyController, Nqn};

use super::subsystem::{Subsystem, SubsystemConfig};
use super::{EventKind, QueueLimits};

/// CNTRLTYPE: discovery.
const CNTRLTYPE_DISCOVERY: u8 = 2;
/// DCTYPE: direct discovery controller.
const DCTYPE_DIRECT: u8 = 1;

/// The contents of the Discovery log page.
#[derive(Debug, Default)]
pub(super) struct Records {
    generation: u64,
    entries: Vec<DiscoveryEntry>,
}

impl Subsystem {
    /// A discovery subsystem with the well-known name, one port and no entries.
    #[must_use]
    pub fn discovery(serial: String, limits: QueueLimits, seed: u64) -> Self {
        let mut subsystem = Self::new(SubsystemConfig {
            nqn: Nqn::discovery(),
            serial,
            namespaces: Vec::new(),
            ports: vec![nvme_tcp::wire::AnaState::Optimized],
            limits,
            max_entries: 32,
            keeps_flow_control: false,
            max_io_queues: 0,
            anatt_seconds: 0,
            seed,
            authentication: None,
        });
        subsystem.records = Some(Records::default());
        subsystem
    }

    /// Sets the entries of the discovery log. If they differ, the generation increases, and hosts with enabled events are
    /// notified. No effect on other subsystems.
    pub fn set_discovery_entries(&mut self, entries: Vec<DiscoveryEntry>) {
        let Some(records) = self.records.as_mut().filter(|records| records.entries != entries) else {
            return;
        };
        records.generation += 1;
        records.entries = entries;
        self.controllers.values_mut().for_each(|controller| controller.events.raise(EventKind::Discovery));
    }

    /// GENCTR of the discovery log; `None` for other subsystems.
    #[must_use]
    pub fn discovery_generation(&self) -> Option<u64> {
        self.records.as_ref().map(|records| records.generation)
    }

    pub(super) fn is_discovery(&self) -> bool {
        self.records.is_some()
    }

    pub(super) fn identify_discovery(identify: &mut IdentifyController) {
        identify.cntrltype = CNTRLTYPE_DISCOVERY;
        identify.dctype = DCTYPE_DIRECT;
        identify.lpa = IdentifyController::LPA_EXTENDED;
    }
}

impl Records {
    pub(super) fn emit(&self) -> Vec<u8> {
        let header = DiscoveryHeader { generation: self.generation, records: self.entries.len() as u64 };
        let mut log = header.emit().to_vec();
        log.extend(self.entries.iter().flat_map(DiscoveryEntry::emit));
        log
    }
}

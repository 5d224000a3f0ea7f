//! Applying settings to the listeners of a running target.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nvme_tcp_target::Namespace;
use uuid::Uuid;

use super::listener::Listener;
use super::shared::Shared;
use super::{StartError, TargetServer};
use crate::setting::{Setting, check_for_discovery, check_for_target};

/// The properties that a namespace reports instead of its own.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct NamespaceOverride {
    uuid: Option<Uuid>,
    nguid: Option<Uuid>,
    blocks: Option<u64>,
}

impl NamespaceOverride {
    /// The settings that lead to this override.
    pub(super) fn settings(self, nsid: u32, block_shift: u8) -> impl Iterator<Item = Setting> {
        let uuid = self.uuid.map(|uuid| Setting::Uuid { nsid, uuid: Some(uuid) });
        let nguid = self.nguid.map(|nguid| Setting::Nguid { nsid, nguid: Some(nguid) });
        let size = self.blocks.map(|blocks| Setting::Size { nsid, bytes: Some(blocks << block_shift) });
        [uuid, nguid, size].into_iter().flatten()
    }
}

/// The overrides of a port, by NSID.
pub(super) type NamespaceOverrides = BTreeMap<u32, NamespaceOverride>;

impl Listener {
    /// Applies a setting that was checked. On return it is in effect for all commands that are not executed yet.
    pub(super) fn apply(&self, shared: &Arc<Shared>, setting: &Setting) -> Result<(), StartError> {
        let (port, faults) = (&self.port, &self.port.faults);
        match *setting {
            Setting::Ana { group, state } => shared.control().set_ana(port.id, group, state),
            Setting::Delay(delay) => faults.set_delay(delay),
            Setting::Rate(rate) => faults.rate_limiter.set_rate(rate),
            Setting::Hold(hold) => faults.set_hold(hold),
            Setting::BlackHole(black_hole) => faults.set_black_hole(black_hole),
            Setting::CrossReset(cross_reset) => faults.set_cross_reset(cross_reset),
            Setting::Listen(true) => self.resume(shared)?,
            Setting::Listen(false) => self.stop_listening(),
            Setting::Reset(queues) => shared.registry.end(port.listener, queues),
            Setting::HeaderDigests(count) => faults.digests.header.store(count, Ordering::Relaxed),
            Setting::DataDigests(count) => faults.digests.data.store(count, Ordering::Relaxed),
            Setting::Fail { count, status } => faults.set_failures(count, status),
            Setting::Answer { fault, commands } => faults.answers.set(fault, commands),
            Setting::Uuid { nsid, uuid } => self.override_namespace(shared, nsid, |reported| reported.uuid = uuid),
            Setting::Nguid { nsid, nguid } => self.override_namespace(shared, nsid, |reported| reported.nguid = nguid),
            Setting::Size { nsid, bytes } => {
                let shift = shared.block_shift();
                self.override_namespace(shared, nsid, |reported| reported.blocks = bytes.map(|bytes| bytes >> shift));
            }
        }
        shared.notify(port.listener);
        Ok(())
    }

    /// Changes the properties that a namespace reports on this port.
    fn override_namespace(&self, shared: &Shared, nsid: u32, change: impl FnOnce(&mut NamespaceOverride)) {
        let Some(&real) = shared.namespaces.get((nsid as usize).wrapping_sub(1)) else { return };
        let mut all = self.overrides();
        let reported = all.entry(nsid).or_default();
        change(reported);
        let namespace = Namespace {
            blocks: reported.blocks.unwrap_or(real.blocks),
            uuid: reported.uuid.map_or(real.uuid, Uuid::into_bytes),
            nguid: reported.nguid.map_or(real.nguid, Uuid::into_bytes),
            ..real
        };
        shared.control().override_namespace(self.port.id, nsid, Some(namespace));
    }
}

impl TargetServer {
    /// Applies settings in order to one listener. `listener` is its index in the configuration. If a setting is not possible with
    /// this target, none is applied.
    pub fn apply(&self, listener: usize, settings: &[Setting]) -> Result<(), StartError> {
        let block_size = self.block_size;
        let check = |setting: &Setting| check_for_target(setting, self.shared.namespaces.len(), block_size);
        settings.iter().try_for_each(check)?;
        for setting in settings {
            self.listeners[listener].apply(&self.shared, setting)?;
            if matches!(setting, Setting::Listen(_)) {
                self.update_discovery_log();
            }
        }
        Ok(())
    }

    /// Applies settings to the discovery service. No effect without one.
    pub fn apply_to_discovery(&self, settings: &[Setting]) -> Result<(), StartError> {
        settings.iter().try_for_each(check_for_discovery)?;
        if let Some(discovery) = &self.discovery {
            settings.iter().try_for_each(|setting| discovery.listener.apply(&discovery.shared, setting))?;
        }
        Ok(())
    }
}

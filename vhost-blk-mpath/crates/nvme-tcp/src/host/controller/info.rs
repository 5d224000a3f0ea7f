//! Decides: a fence takes this long (`fence_time`).
//! Decides: an I/O queue has this many entries (`queue_entries`).
//!
//! The configuration of an association, and the facts that the controller reports.

use monotonic::Duration;

use super::{CrossResetOutcome, NamespaceError};
use crate::authentication::{Authenticated, Authentication};
use crate::host::{
    CommandLimits, HostIdentity, NamespaceIdentity, NamespaceLimits, QueueConfig, UNKNOWN_MAX_TRANSFER_BYTES,
};
use crate::wire::{AnaState, Capabilities, ControllerInstance, Digests, IdentifyController, Nqn, Version};

/// How to establish an association.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerConfig {
    /// The identity of this host.
    pub host: HostIdentity,
    /// The subsystem.
    pub subnqn: Nqn,
    /// The namespaces, each once. If empty, the only active namespace.
    pub nsids: Vec<u32>,
    /// KATO, at least 1 ms. The fence of a lost association depends on it.
    pub keep_alive_tmo: Duration,
    /// Digests to request, on all queues.
    pub digests: Digests,
    /// Requested I/O queues, at least 1. The controller may grant fewer.
    pub io_queues: u16,
    /// Requested entries of an I/O queue. The controller may allow fewer.
    pub queue_entries: u16,
    /// The most data of one read or write in bytes, and never more than MDTS. `None` means MDTS or, if the controller reports
    /// none, [`UNKNOWN_MAX_TRANSFER_BYTES`].
    pub max_transfer_bytes: Option<u32>,
    /// The longest any admin command may take. On a live association, at least half of KATO.
    pub command_timeout: Duration,
    /// The secrets of the authentication, if this host has some. All queues are authenticated if the controller asks for it. With a
    /// secret of the controller, a controller that does not ask is an error.
    pub authentication: Option<Authentication>,
    /// All connections use TLS.
    pub is_encrypted: bool,
}

/// The facts about a live association.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of the controller")]
pub struct ControllerInfo {
    /// CNTLID.
    pub cntlid: u16,
    /// How the admin queue was authenticated. `None` if the controller did not ask for it.
    pub authenticated: Option<Authenticated>,
    /// VS.
    pub version: Version,
    /// SN.
    pub serial: String,
    /// MN.
    pub model: String,
    /// FR.
    pub firmware: String,
    /// CIU: Controller Instance Uniquifier, for Cross-Controller Reset; zero if not reported.
    pub ciu: u8,
    /// CIRN: Controller Instance Random Number, for Cross-Controller Reset.
    pub cirn: u64,
    /// CCRL: Cross-Controller Resets that this controller carries out at once; zero if it does not support the command.
    pub cross_resets: u8,
    /// CQT: how long the controller may go on processing commands after an association is lost; zero if not reported.
    pub cqt: Duration,
    /// KATO as the controller applies it: rounded up to its granularity (KAS).
    pub kato: Duration,
    /// TBKAS: any traffic restarts the keep-alive timer. The fence is then three KATO instead of two.
    pub tbkas: bool,
    /// CRDT1 to CRDT3: the retry delay for a status with CRD 1 to 3.
    pub retry_delays: [Duration; 3],
    /// The most data of one read or write in bytes: see [`ControllerConfig::max_transfer_bytes`].
    pub max_transfer_bytes: u32,
    /// The controller reports MDTS.
    pub reports_max_transfer: bool,
    /// Limits of Write Zeroes and Dataset Management.
    pub command_limits: CommandLimits,
    /// Bytes of data that a command capsule may carry.
    pub in_capsule_bytes: u32,
    /// I/O queues granted.
    pub io_queues: u16,
    /// Entries of an I/O queue.
    pub queue_entries: u16,
    /// VWC: the controller has a volatile write cache, so flushes matter.
    pub volatile_write_cache: bool,
    /// ONCS: Write Zeroes is supported.
    pub write_zeroes: bool,
    /// ONCS: Dataset Management is supported.
    pub dataset_management: bool,
    /// ANATT: the longest time in ANA state "change"; zero without ANA.
    pub anatt: Duration,
    /// The namespaces in the order of [`ControllerConfig::nsids`], each with its error if it is unusable. At least one is usable
    /// when the association becomes live.
    pub namespaces: Vec<Result<Namespace, NamespaceError>>,
}

/// A namespace that is usable on this controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespace {
    /// Its identity and properties.
    pub identity: NamespaceIdentity,
    /// Its ANA state; optimized without ANA reporting.
    pub ana: AnaState,
}

impl Namespace {
    /// The limits that a queue pair needs.
    #[must_use]
    pub fn limits(&self) -> NamespaceLimits {
        let NamespaceIdentity { nsid, block_bytes, blocks, noiob_blocks, .. } = self.identity;
        NamespaceLimits { nsid, block_bytes, namespace_blocks: blocks, noiob_blocks }
    }
}

/// An event of an association.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControllerEvent {
    /// The connect sequence is complete; I/O queues can be connected.
    Live(Box<ControllerInfo>),
    /// The ANA log was read again, after an asynchronous event or on request. One event follows for each usable namespace, even
    /// if its state is unchanged.
    AnaChanged {
        /// The position in [`ControllerInfo::namespaces`].
        namespace: usize,
        /// The ANA state.
        state: AnaState,
    },
    /// The namespaces were identified again after an asynchronous event. One event follows for each namespace, even if it is
    /// unchanged. The event also reports a namespace that became usable or unusable for another reason. When a namespace
    /// becomes usable, [`AnaChanged`](Self::AnaChanged) follows.
    NamespaceChanged {
        /// The position in [`ControllerInfo::namespaces`].
        namespace: usize,
        /// Its identity, or why it is unusable.
        identity: Box<Result<NamespaceIdentity, NamespaceError>>,
    },
    /// The result of [`HostController::cross_controller_reset`](super::HostController::cross_controller_reset).
    CrossControllerReset(CrossResetOutcome),
    /// The controller has shut down; the connections can be closed.
    ShutdownComplete,
}

/// Facts about the controller, from its properties, Identify data and features.
#[derive(Debug, Clone)]
pub(super) struct ControllerFacts {
    pub(super) cap: Capabilities,
    pub(super) version: Version,
    pub(super) identify: Box<IdentifyController>,
    pub(super) io_queues: u16,
    pub(super) command_limits: CommandLimits,
}

/// ANATT for a controller that reports ANA without ANATT, which violates the specification. Linux nvmet reports this value.
const ANATT_UNKNOWN: Duration = Duration::from_secs(10);

fn tenths_of_seconds(tenths: u16) -> Duration {
    Duration::from_millis(u64::from(tenths) * 100)
}

impl ControllerFacts {
    pub(super) fn has_ana(&self) -> bool {
        self.identify.cmic & IdentifyController::CMIC_ANA != 0
    }

    pub(super) fn tbkas(&self) -> bool {
        self.identify.ctratt.get() & IdentifyController::CTRATT_TBKAS != 0
    }

    /// The KATO that the controller applies: `asked`, rounded up to a multiple of KAS (Base 2.0, 3.9.1).
    fn kato(&self, asked: Duration) -> Duration {
        // `apply_identify_controller` refuses a controller with KAS zero.
        let unit = tenths_of_seconds(self.identify.kas.get().max(1));
        // KATO fits 32 bits of milliseconds, and so does the quotient.
        let units = asked.as_nanos().div_ceil(unit.as_nanos());
        unit.saturating_mul(units as u32)
    }

    /// MDTS in bytes.
    pub(super) fn mdts_bytes(&self) -> Option<u32> {
        self.identify.max_transfer_bytes(self.cap.mpsmin())
    }

    /// The most data of one read or write in bytes.
    pub(super) fn max_transfer_bytes(&self, config: &ControllerConfig) -> u32 {
        match self.mdts_bytes() {
            Some(mdts) => config.max_transfer_bytes.unwrap_or(mdts).min(mdts),
            None => config.max_transfer_bytes.unwrap_or(UNKNOWN_MAX_TRANSFER_BYTES),
        }
    }

    /// Whether to read the limits of Write Zeroes and Dataset Management. The controller must support one of these commands.
    /// CNS is a whole byte since version 1.2. An older controller may accept an unknown value instead of refusing it.
    pub(super) fn may_limit_commands(&self) -> bool {
        let limited = IdentifyController::ONCS_WRITE_ZEROES | IdentifyController::ONCS_DSM;
        self.identify.oncs.get() & limited != 0 && self.version.0 >= Version::new(1, 2).0
    }

    pub(super) fn anatt(&self) -> Duration {
        match self.identify.anatt {
            0 => ANATT_UNKNOWN,
            seconds => Duration::from_secs(seconds.into()),
        }
    }

    /// Entries of an I/O queue: `wanted`, limited by CAP.MQES and MAXCMD.
    pub(super) fn queue_entries(&self, wanted: u16) -> u16 {
        let mqes = self.cap.mqes().saturating_add(1);
        let maxcmd = match self.identify.maxcmd.get() {
            0 => u16::MAX,
            commands => commands.saturating_add(1),
        };
        wanted.min(mqes).min(maxcmd)
    }

    pub(super) fn info(
        &self,
        config: &ControllerConfig,
        (cntlid, authenticated): (u16, Option<Authenticated>),
        namespaces: Vec<Result<Namespace, NamespaceError>>,
    ) -> ControllerInfo {
        let identify = &self.identify;
        let oncs = identify.oncs.get();
        ControllerInfo {
            cntlid,
            authenticated,
            version: self.version,
            serial: IdentifyController::text(&identify.sn),
            model: IdentifyController::text(&identify.mn),
            firmware: IdentifyController::text(&identify.fr),
            ciu: identify.ciu,
            cirn: u64::from_le_bytes(identify.cirn),
            cross_resets: identify.ccrl,
            cqt: Duration::from_millis(identify.cqt.get().into()),
            kato: self.kato(config.keep_alive_tmo),
            tbkas: self.tbkas(),
            retry_delays: identify.crdt.map(|crdt| tenths_of_seconds(crdt.get())),
            max_transfer_bytes: self.max_transfer_bytes(config),
            reports_max_transfer: self.mdts_bytes().is_some(),
            command_limits: self.command_limits,
            in_capsule_bytes: identify.in_capsule_bytes(),
            io_queues: self.io_queues,
            queue_entries: self.queue_entries(config.queue_entries),
            volatile_write_cache: identify.vwc & 1 != 0,
            write_zeroes: oncs & IdentifyController::ONCS_WRITE_ZEROES != 0,
            dataset_management: oncs & IdentifyController::ONCS_DSM != 0,
            anatt: if self.has_ana() { self.anatt() } else { Duration::ZERO },
            namespaces,
        }
    }
}

/// The quiesce time of a controller that reports no command quiesce time (CQT, TP 4129). Linux nvmet took up to 3.7 s in
/// measurements, with a slow device; this is longer.
const UNKNOWN_QUIESCE_TIME: Duration = Duration::from_secs(5);

fn fence_time(kato: Duration, cqt: Duration, tbkas: bool) -> Duration {
    // With traffic-based keep-alive, a controller may check its timer only once per KATO.
    let periods = if tbkas { 3 } else { 2 };
    let quiesce = if cqt.is_zero() { UNKNOWN_QUIESCE_TIME } else { cqt };
    kato * periods + quiesce
}

impl ControllerInfo {
    /// The controller instance, as Cross-Controller Reset names it; `None` if the controller does not report it.
    #[must_use]
    pub fn instance(&self) -> Option<ControllerInstance> {
        (self.ciu != 0).then_some(ControllerInstance { cntlid: self.cntlid, ciu: self.ciu, cirn: self.cirn })
    }

    /// How long the controller may execute commands of this association after its last socket was closed. The controller must
    /// notice the loss by its keep-alive timer, and then quiesce (NVMe base specification 2.1, section 9.6).
    #[must_use]
    pub fn fence_time(&self) -> Duration {
        fence_time(self.kato, self.cqt, self.tbkas)
    }

    /// The configuration of I/O queue `qid`, from 1 to [`io_queues`](Self::io_queues). `config` is that of the association.
    #[must_use]
    pub fn queue_config(&self, config: &ControllerConfig, qid: u16) -> QueueConfig {
        QueueConfig {
            qid,
            entries: self.queue_entries,
            host: config.host.clone(),
            subnqn: config.subnqn.clone(),
            cntlid: self.cntlid,
            digests: config.digests,
            max_transfer_bytes: self.max_transfer_bytes,
            reports_max_transfer: self.reports_max_transfer,
            command_limits: self.command_limits,
            in_capsule_bytes: self.in_capsule_bytes,
            namespaces: self
                .namespaces
                .iter()
                .map(|namespace| namespace.as_ref().ok().map(Namespace::limits))
                .collect(),
            authentication: config.authentication.clone(),
            is_encrypted: config.is_encrypted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kato_is_rounded_up_to_the_controllers_granularity() {
        let mut identify = Box::new(IdentifyController::blank());
        identify.kas = 10.into();
        let facts = ControllerFacts {
            cap: Capabilities::default(),
            version: Version::default(),
            identify,
            io_queues: 1,
            command_limits: CommandLimits::NONE,
        };
        let ms = Duration::from_millis;
        assert_eq!(facts.kato(ms(1)), ms(1000));
        assert_eq!(facts.kato(ms(5000)), ms(5000));
        assert_eq!(facts.kato(ms(5001)), ms(6000));
    }

    #[test]
    fn a_fence_takes_two_keep_alive_times_and_the_quiesce_time() {
        let ms = Duration::from_millis;
        assert_eq!(fence_time(ms(5000), ms(300), false), ms(10_300));
        assert_eq!(fence_time(ms(5000), ms(300), true), ms(15_300));
        // A controller that reports no CQT gets the default.
        assert_eq!(fence_time(ms(5000), ms(0), false), ms(15_000));
        assert_eq!(fence_time(ms(1000), ms(0), true), ms(8_000));
    }
}

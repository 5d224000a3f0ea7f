//! The steps: what each sends, and what follows its answer.

use std::time::Instant;

use super::{ControllerError, HostController, POLL_INTERVAL, Pending, Step, Unsupported};
use crate::host::ControllerEvent;
use crate::host::admin_queue::Owner;
use crate::wire::{
    AdminCommand, AnaLog, AsyncEventMask, Capabilities, Cns, ControllerConfiguration, ControllerStatus, FabricsCommand,
    FeatureId, IDENTIFY_BYTES, IdentifyController, LogPage, NumberOfQueues, PropertyOffset, PropertySize, Sgl,
    ShutdownStatus, Status, Version,
};

/// The longest ANA log that is read with its namespaces; beyond, only its groups are.
const ANA_LOG_MAX: u32 = 256 * 1024;

/// LSP of the ANA log: Return Groups Only.
const ANA_LSP_GROUPS_ONLY: u8 = 1;

/// The namespace field of a log that is not about a namespace.
const NSID_ALL: u32 = u32::MAX;

impl HostController {
    /// Starts a step: its deadline begins, and its first command is queued.
    pub(super) fn start(&mut self, now: Instant, step: Step) {
        let after = match step {
            Step::Ready => self.facts.cap.timeout().max(self.config.command_timeout),
            _ => self.config.command_timeout,
        };
        if step == Step::Shutdown {
            self.shutdown_sent = true;
            self.wants = super::Wants::default();
            self.namespaces.stop_timers();
            self.keep_alive.stop();
        }
        if step == Step::AnaLog {
            self.wants.ana = false;
        }
        self.pending = Some(Pending { step, deadline: now + after, after, poll_at: None });
        self.send(step);
    }

    /// Queues the command of a step.
    pub(super) fn send(&mut self, step: Step) {
        let identify = |cns, nsid| AdminCommand::Identify { cns, nsid, cntid: 0, csi: 0 };
        let property_get = |size, offset| FabricsCommand::PropertyGet { size, offset }.to_sqe(0, Sgl::NONE);
        let cc = |value: ControllerConfiguration| {
            let (size, offset) = (PropertySize::Four, PropertyOffset::CC);
            FabricsCommand::PropertySet { size, offset, value: value.0.into() }.to_sqe(0, Sgl::NONE)
        };
        let admin = |command: AdminCommand| command.to_sqe(0, Sgl::NONE);
        let page = IDENTIFY_BYTES as u32;
        let (sqe, data_len) = match step {
            // The pair does the first by itself, and keep-alives are no step.
            Step::Connect | Step::KeepAlive => return,
            Step::Capabilities => (property_get(PropertySize::Eight, PropertyOffset::CAP), 0),
            Step::Version => (property_get(PropertySize::Four, PropertyOffset::VS), 0),
            Step::Enable => (cc(ControllerConfiguration::ENABLED), 0),
            Step::Shutdown => (cc(ControllerConfiguration::SHUTDOWN), 0),
            Step::Ready | Step::ShutdownStatus => (property_get(PropertySize::Four, PropertyOffset::CSTS), 0),
            Step::IdentifyController => (admin(identify(Cns::CONTROLLER, 0)), page),
            // The command set is NVM: CSI 0.
            Step::CommandLimits => (admin(identify(Cns::CSI_CONTROLLER, 0)), page),
            Step::NumberOfQueues => {
                let wanted = self.config.io_queues - 1;
                let value = NumberOfQueues { submission: wanted, completion: wanted }.to_value();
                (admin(set_feature(FeatureId::NUMBER_OF_QUEUES, value)), 0)
            }
            Step::ActiveNamespaces => {
                (admin(identify(Cns::ACTIVE_LIST, self.active.last().copied().unwrap_or(0))), page)
            }
            Step::IdentifyNamespace => (admin(identify(Cns::NAMESPACE, self.nsid())), page),
            Step::NamespaceDescriptors => (admin(identify(Cns::DESCRIPTORS, self.nsid())), page),
            Step::AsyncEventConfiguration => {
                (admin(set_feature(FeatureId::ASYNC_EVENT_CONFIGURATION, self.event_mask().0)), 0)
            }
            Step::AnaLog => {
                let (lsp, bytes) = self.ana_log_request();
                (admin(get_log(LogPage::ANA, lsp, bytes)), bytes)
            }
            Step::ChangedNamespaces => (admin(get_log(LogPage::CHANGED_NAMESPACES, 0, page)), page),
        };
        self.queue.submit(Owner::Step, sqe, data_len);
    }

    /// A step's command has ended.
    pub(super) fn on_step(
        &mut self,
        now: Instant,
        pending: Pending,
        status: Status,
        result: u64,
    ) -> Result<(), ControllerError> {
        let step = pending.step;
        check_status(step, status)?;
        let next = match step {
            Step::Connect | Step::KeepAlive => None,
            Step::Capabilities => {
                self.facts.cap = Capabilities(result);
                Some(Step::Version)
            }
            Step::Version => {
                self.facts.version = Version(result as u32);
                Some(Step::Enable)
            }
            Step::Enable => Some(Step::Ready),
            Step::Ready => {
                let csts = ControllerStatus(result as u32);
                if csts.fatal() {
                    return Err(ControllerError::FatalStatus);
                }
                if !csts.ready() {
                    self.pending = Some(Pending { poll_at: Some(now + POLL_INTERVAL), ..pending });
                    return Ok(());
                }
                self.keep_alive.start(now, self.config.keep_alive_tmo, false);
                Some(Step::IdentifyController)
            }
            Step::IdentifyController => {
                self.learn_controller()?;
                self.keep_alive.start(now, self.config.keep_alive_tmo, self.facts.tbkas());
                Some(if self.facts.may_limit_commands() { Step::CommandLimits } else { Step::NumberOfQueues })
            }
            Step::CommandLimits => {
                self.learn_command_limits(status);
                Some(Step::NumberOfQueues)
            }
            Step::NumberOfQueues => {
                let NumberOfQueues { submission, completion } = NumberOfQueues::from_value(result as u32);
                let granted = submission.min(completion).saturating_add(1);
                self.facts.io_queues = granted.min(self.config.io_queues);
                Some(self.step_before_namespaces())
            }
            Step::ActiveNamespaces => self.learn_active_list()?,
            Step::IdentifyNamespace => match self.learn_namespace(status) {
                Ok(()) => Some(Step::NamespaceDescriptors),
                Err(error) => {
                    self.round.push(Err(error));
                    self.identify_next()?
                }
            },
            Step::NamespaceDescriptors => {
                let identified = self.learn_descriptors(status);
                self.round.push(identified);
                self.identify_next()?
            }
            Step::AsyncEventConfiguration => {
                if status.is_success() {
                    self.await_event();
                }
                Some(Step::ActiveNamespaces)
            }
            Step::AnaLog => {
                self.learn_ana(now)?;
                None
            }
            Step::ChangedNamespaces => self.identify_next()?,
            Step::Shutdown => Some(Step::ShutdownStatus),
            Step::ShutdownStatus => {
                if ControllerStatus(result as u32).shutdown() != ShutdownStatus::Complete {
                    self.pending = Some(Pending { poll_at: Some(now + POLL_INTERVAL), ..pending });
                    return Ok(());
                }
                self.events.push_back(ControllerEvent::ShutdownComplete);
                None
            }
        };
        self.go_on(now, next);
        Ok(())
    }

    /// What comes before anything is learned of the namespaces: of all that changes after it was read there is an event.
    fn step_before_namespaces(&self) -> Step {
        if self.event_mask() == AsyncEventMask::default() {
            Step::ActiveNamespaces
        } else {
            Step::AsyncEventConfiguration
        }
    }

    /// What follows each identification of the namespaces.
    pub(super) fn step_after_namespaces(&mut self) -> Result<Option<Step>, ControllerError> {
        if self.facts.has_ana() {
            return Ok(Some(Step::AnaLog));
        }
        self.settle(None)?;
        Ok(None)
    }

    /// The events that are both offered and wanted.
    fn event_mask(&self) -> AsyncEventMask {
        let wanted = AsyncEventMask::NAMESPACE_ATTRIBUTE.or(AsyncEventMask::ANA_CHANGE);
        AsyncEventMask(self.facts.identify.oaes.get()).and(wanted)
    }

    /// LSP and bytes of the ANA log to ask for.
    fn ana_log_request(&self) -> (u8, u32) {
        let max = u64::from(self.facts.mdts_bytes().unwrap_or(u32::MAX).min(ANA_LOG_MAX));
        match u32::try_from(ana_log_bytes(&self.facts.identify, true)) {
            Ok(bytes) if u64::from(bytes) <= max => (0, bytes),
            // Checked when the controller was identified.
            _ => (ANA_LSP_GROUPS_ONLY, ana_log_bytes(&self.facts.identify, false) as u32),
        }
    }

    /// Checks that the ANA log can be read.
    pub(super) fn check_ana_log(&self) -> Result<(), Unsupported> {
        let least = ana_log_bytes(&self.facts.identify, false);
        if least > u64::from(self.facts.mdts_bytes().unwrap_or(u32::MAX).min(ANA_LOG_MAX)) {
            return Err(Unsupported::AnaLog(least));
        }
        Ok(())
    }
}

/// Not every step must succeed.
fn check_status(step: Step, status: Status) -> Result<(), ControllerError> {
    match step {
        // Without events ANA errors of I/O still lead to reading the ANA log. The changed namespace list is read only to arm
        // its event again; the namespaces are identified anew in any case. What is wrong with one of them is no matter of the
        // others. Limits of commands that nobody tells are none.
        Step::CommandLimits
        | Step::AsyncEventConfiguration
        | Step::ChangedNamespaces
        | Step::IdentifyNamespace
        | Step::NamespaceDescriptors => Ok(()),
        _ => status.result().map_err(|status| ControllerError::Command { step, status }),
    }
}

/// Bytes the ANA log has at most, with its namespaces or without.
fn ana_log_bytes(identify: &IdentifyController, namespaces: bool) -> u64 {
    let listed = match (namespaces, identify.mnan.get()) {
        (false, _) => 0,
        (true, 0) => identify.nn.get(),
        (true, mnan) => mnan,
    };
    AnaLog::len_for(0, 0) as u64 + u64::from(identify.nanagrpid.get()) * 32 + u64::from(listed) * 4
}

fn set_feature(fid: FeatureId, value: u32) -> AdminCommand {
    AdminCommand::SetFeatures { fid, save: false, nsid: 0, value }
}

fn get_log(lid: LogPage, lsp: u8, bytes: u32) -> AdminCommand {
    AdminCommand::GetLogPage { lid, nsid: NSID_ALL, lsp, rae: false, bytes: bytes.into(), offset: 0 }
}

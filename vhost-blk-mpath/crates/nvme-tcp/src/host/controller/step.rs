//! The steps of an association: the command of each step, and the step that follows its answer.

use monotonic::Instant;

use super::ana_log::{AnaLogReader, Part};
use super::{ControllerError, HostController, Step, Wanted};
use crate::host::ControllerEvent;
use crate::wire::{
    AdminCommand, AsyncEventMask, Capabilities, Cns, FeatureId, IDENTIFY_BYTES, LogPage, NumberOfQueues, Sgl, Sqe,
    Status, Version,
};

/// NSID of a log page that covers all namespaces.
const NSID_ALL: u32 = u32::MAX;

impl HostController {
    /// Starts a step: its deadline begins, and its command is queued.
    pub(super) fn start(&mut self, now: Instant, step: Step) {
        match step {
            Step::Shutdown => {
                self.wanted = Wanted::default();
                self.namespaces.stop_timers();
            }
            Step::ChangedNamespaces => (self.wanted.namespaces, self.wanted.identification) = (false, false),
            Step::IdentifyNamespace if self.identified.is_empty() => self.wanted.identification = false,
            // An event during a reading leads to another one.
            Step::AnaLog if self.ana_reader.is_none() => {
                self.wanted.ana_log = false;
                self.ana_reader = Some(AnaLogReader::new(&self.facts.identify, self.facts.mdts_bytes()));
            }
            _ => {}
        }
        if let Some((sqe, data_len)) = step.command().or_else(|| self.command(step)) {
            self.session.start(now, step, sqe, data_len);
        }
    }

    /// The command of a step with parameters, and the bytes of data that it returns.
    fn command(&self, step: Step) -> Option<(Sqe, u32)> {
        let identify = |cns, nsid| (AdminCommand::Identify { cns, nsid, cntid: 0, csi: 0 }, IDENTIFY_BYTES as u32);
        let set_feature = |fid, value| (AdminCommand::SetFeatures { fid, save: false, nsid: 0, value }, 0);
        let get_log = |lid, Part { offset, bytes, lsp, retain_event: rae }| {
            (AdminCommand::GetLogPage { lid, nsid: NSID_ALL, lsp, rae, bytes: bytes.into(), offset }, bytes)
        };
        let (command, data_len) = match step {
            Step::NumberOfQueues => {
                let wanted = self.config.io_queues - 1;
                let value = NumberOfQueues { submission: wanted, completion: wanted }.to_value();
                set_feature(FeatureId::NUMBER_OF_QUEUES, value)
            }
            Step::ActiveNamespaces => identify(Cns::ACTIVE_LIST, self.active.last().copied().unwrap_or(0)),
            Step::IdentifyNamespace => identify(Cns::NAMESPACE, self.nsid()),
            Step::NamespaceDescriptors => identify(Cns::DESCRIPTORS, self.nsid()),
            Step::AsyncEventConfiguration => set_feature(FeatureId::ASYNC_EVENT_CONFIGURATION, self.event_mask().0),
            Step::AnaLog => get_log(LogPage::ANA, self.ana_reader.as_ref()?.next()),
            Step::AnaGroup => identify(Cns::NAMESPACE, *self.nsids.get(self.ana_update.as_ref()?.groups_known)?),
            Step::ChangedNamespaces => {
                let whole = Part { offset: 0, bytes: IDENTIFY_BYTES as u32, lsp: 0, retain_event: false };
                get_log(LogPage::CHANGED_NAMESPACES, whole)
            }
            _ => return None,
        };
        Some((command.to_sqe(0, Sgl::NONE), data_len))
    }

    /// Takes the answer of a step. Returns the step that follows.
    pub(super) fn on_step(
        &mut self,
        now: Instant,
        step: Step,
        status: Status,
        result: u64,
    ) -> Result<Option<Step>, ControllerError> {
        Ok(match step {
            Step::Connect => Some(Step::Capabilities),
            Step::Capabilities => {
                self.facts.cap = Capabilities(result);
                Some(Step::Version)
            }
            Step::Version => {
                self.facts.version = Version(result as u32);
                Some(Step::Enable)
            }
            Step::Enable => Some(Step::Ready),
            Step::Ready => Some(Step::IdentifyController),
            Step::IdentifyController => {
                self.apply_identify_controller()?;
                self.session.start_keep_alive(now, self.facts.tbkas());
                Some(if self.facts.may_limit_commands() { Step::CommandLimits } else { Step::NumberOfQueues })
            }
            Step::CommandLimits => {
                self.apply_command_limits(status);
                Some(Step::NumberOfQueues)
            }
            Step::NumberOfQueues => {
                let NumberOfQueues { submission, completion } = NumberOfQueues::from_value(result as u32);
                let granted = submission.min(completion).saturating_add(1);
                self.facts.io_queues = granted.min(self.config.io_queues);
                Some(self.step_before_namespaces())
            }
            Step::AsyncEventConfiguration => Some(Step::ActiveNamespaces),
            Step::ActiveNamespaces => self.apply_active_list()?,
            Step::IdentifyNamespace => match self.apply_identify_namespace(status) {
                Ok(()) => Some(Step::NamespaceDescriptors),
                Err(error) => {
                    self.identified.push(Err(error));
                    self.identify_next()?
                }
            },
            Step::NamespaceDescriptors => {
                let identified = self.apply_descriptors(status);
                self.identified.push(identified);
                self.identify_next()?
            }
            Step::AnaLog => self.apply_ana_log(now, status)?,
            Step::AnaGroup => {
                self.apply_ana_group(status);
                self.next_ana_group()?
            }
            Step::ChangedNamespaces => self.identify_next()?,
            Step::Shutdown => Some(Step::ShutdownStatus),
            Step::ShutdownStatus => {
                self.events.push_back(ControllerEvent::ShutdownComplete);
                None
            }
            Step::DiscoveryLog | Step::KeepAlive => None,
        })
    }

    /// The step before any namespace is read. Events are configured first: then an event announces each later change.
    fn step_before_namespaces(&self) -> Step {
        if self.event_mask() == AsyncEventMask::default() {
            Step::ActiveNamespaces
        } else {
            Step::AsyncEventConfiguration
        }
    }

    /// The step after all namespaces are identified.
    pub(super) fn step_after_namespaces(&mut self) -> Result<Option<Step>, ControllerError> {
        if self.facts.has_ana() {
            return Ok(Some(Step::AnaLog));
        }
        self.update_namespaces(None)?;
        Ok(None)
    }

    /// The events that the controller offers and this host uses.
    fn event_mask(&self) -> AsyncEventMask {
        let wanted = AsyncEventMask::NAMESPACE_ATTRIBUTE.or(AsyncEventMask::ANA_CHANGE);
        AsyncEventMask(self.facts.identify.oaes.get()).and(wanted)
    }
}

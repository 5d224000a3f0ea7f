//! The steps of a discovery session: the command of each step, and the step that follows its answer.

use monotonic::Instant;

use super::{DiscoveryError, DiscoveryEvent, HostDiscovery, Step};
use crate::host::AdminError;
use crate::wire::{AdminCommand, AsyncEventMask, Capabilities, FeatureId, IdentifyController, LogPage, Nqn, Sgl};

/// CNTRLTYPE of a controller that does not report its type.
const CNTRLTYPE_UNKNOWN: u8 = 0;
/// CNTRLTYPE of a discovery controller.
const CNTRLTYPE_DISCOVERY: u8 = 2;

impl HostDiscovery {
    /// Starts a step: its deadline begins, and its command is queued.
    pub(super) fn start(&mut self, now: Instant, step: Step) {
        let command = step.command().or_else(|| match step {
            Step::AsyncEventConfiguration => {
                let (fid, value) = (FeatureId::ASYNC_EVENT_CONFIGURATION, AsyncEventMask::DISCOVERY_CHANGE.0);
                Some((AdminCommand::SetFeatures { fid, save: false, nsid: 0, value }.to_sqe(0, Sgl::NONE), 0))
            }
            Step::DiscoveryLog => {
                let part = self.reader.next();
                let get = AdminCommand::GetLogPage {
                    lid: LogPage::DISCOVERY,
                    nsid: 0,
                    lsp: 0,
                    rae: part.retain_event,
                    bytes: part.bytes.into(),
                    offset: part.offset,
                };
                Some((get.to_sqe(0, Sgl::NONE), part.bytes))
            }
            _ => None,
        });
        if let Some((sqe, data_len)) = command {
            self.session.start(now, step, sqe, data_len);
        }
    }

    /// Takes the answer of a step. Returns the step that follows.
    pub(super) fn on_step(&mut self, now: Instant, step: Step, result: u64) -> Result<Option<Step>, DiscoveryError> {
        Ok(match step {
            Step::Connect => Some(Step::Capabilities),
            Step::Capabilities => {
                self.facts.cap = Capabilities(result);
                Some(Step::Enable)
            }
            Step::Enable => Some(Step::Ready),
            Step::Ready => Some(Step::IdentifyController),
            Step::IdentifyController => {
                self.apply_identify_controller(now)?;
                // Events are of use only on a persistent connection.
                let uses_events = self.facts.has_change_events && self.config.keep_alive_tmo.is_some();
                self.is_ready = !uses_events;
                uses_events.then_some(Step::AsyncEventConfiguration)
            }
            Step::AsyncEventConfiguration => {
                self.is_ready = true;
                None
            }
            Step::DiscoveryLog => match self.reader.take(self.session.queue.data())? {
                Some(log) => {
                    self.events.push_back(DiscoveryEvent::Log(Box::new(log)));
                    None
                }
                None => Some(Step::DiscoveryLog),
            },
            Step::Shutdown => Some(Step::ShutdownStatus),
            Step::ShutdownStatus => {
                self.events.push_back(DiscoveryEvent::ShutdownComplete);
                None
            }
            _ => None,
        })
    }

    fn apply_identify_controller(&mut self, now: Instant) -> Result<(), DiscoveryError> {
        let identify = IdentifyController::parse(self.session.queue.data()).expect("the buffer holds a whole page");
        let (cntrltype, subnqn) = (identify.cntrltype, identify.subnqn().ok());
        if !matches!(cntrltype, CNTRLTYPE_UNKNOWN | CNTRLTYPE_DISCOVERY) {
            return Err(DiscoveryError::NotDiscovery { cntrltype });
        }
        // The subsystem behind the well-known name may have a unique name of its own.
        if self.config.subnqn != Nqn::discovery() && subnqn.as_ref() != Some(&self.config.subnqn) {
            return Err(AdminError::WrongSubsystem { got: IdentifyController::text(&identify.subnqn) }.into());
        }
        self.facts.max_transfer_bytes = identify.max_transfer_bytes(self.facts.cap.mpsmin()).unwrap_or(u32::MAX);
        self.facts.has_log_offsets = identify.lpa & IdentifyController::LPA_EXTENDED != 0;
        self.facts.has_change_events = AsyncEventMask(identify.oaes.get()).has(AsyncEventMask::DISCOVERY_CHANGE);
        let tbkas = identify.ctratt.get() & IdentifyController::CTRATT_TBKAS != 0;
        self.session.start_keep_alive(now, tbkas);
        Ok(())
    }
}

//! The steps: what each sends, and what follows its answer.

use std::time::{Duration, Instant};

use super::{DiscoveryError, DiscoveryEvent, DiscoveryStep, HostDiscovery, Pending};
use crate::host::admin_queue::Owner;
use crate::wire::{
    AdminCommand, AsyncEventMask, Capabilities, Cns, ControllerConfiguration, ControllerStatus, FabricsCommand,
    FeatureId, IDENTIFY_BYTES, IdentifyController, LogPage, Nqn, PropertyOffset, PropertySize, Sgl, ShutdownStatus,
    Sqe, Status,
};

/// How often CSTS is read while waiting for it to change.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// CNTRLTYPE of a controller that does not say what it is, and of a discovery controller.
const CNTRLTYPE_UNKNOWN: u8 = 0;
const CNTRLTYPE_DISCOVERY: u8 = 2;

impl HostDiscovery {
    /// Starts a step: its deadline begins, and its first command is queued.
    pub(super) fn start(&mut self, now: Instant, step: DiscoveryStep) {
        let after = match step {
            DiscoveryStep::Ready => self.facts.cap.timeout().max(self.config.command_timeout),
            _ => self.config.command_timeout,
        };
        if step == DiscoveryStep::Shutdown {
            self.shutdown_sent = true;
            self.wants.shutdown = false;
            self.keep_alive.stop();
        }
        self.pending = Some(Pending { step, deadline: now + after, after, poll_at: None });
        self.send(step);
    }

    /// Queues the command of a step.
    pub(super) fn send(&mut self, step: DiscoveryStep) {
        let (sqe, data_len) = match step {
            // The pair does the first by itself, and keep-alives are no step.
            DiscoveryStep::Connect | DiscoveryStep::KeepAlive => return,
            DiscoveryStep::Capabilities => (property_get(PropertySize::Eight, PropertyOffset::CAP), 0),
            DiscoveryStep::Enable => (configure(ControllerConfiguration::ENABLED), 0),
            DiscoveryStep::Shutdown => (configure(ControllerConfiguration::SHUTDOWN), 0),
            DiscoveryStep::Ready | DiscoveryStep::ShutdownStatus => {
                (property_get(PropertySize::Four, PropertyOffset::CSTS), 0)
            }
            DiscoveryStep::IdentifyController => {
                let identify = AdminCommand::Identify { cns: Cns::CONTROLLER, nsid: 0, cntid: 0, csi: 0 };
                (identify.to_sqe(0, Sgl::NONE), IDENTIFY_BYTES as u32)
            }
            DiscoveryStep::AsyncEventConfiguration => {
                let fid = FeatureId::ASYNC_EVENT_CONFIGURATION;
                let value = AsyncEventMask::DISCOVERY_CHANGE.0;
                (AdminCommand::SetFeatures { fid, save: false, nsid: 0, value }.to_sqe(0, Sgl::NONE), 0)
            }
            DiscoveryStep::Log => {
                let part = self.reader.next();
                let get = AdminCommand::GetLogPage {
                    lid: LogPage::DISCOVERY,
                    nsid: 0,
                    lsp: 0,
                    rae: part.retain_event,
                    bytes: part.bytes.into(),
                    offset: part.offset,
                };
                (get.to_sqe(0, Sgl::NONE), part.bytes)
            }
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
    ) -> Result<(), DiscoveryError> {
        let step = pending.step;
        // Without events the log is read again from time to time.
        if step != DiscoveryStep::AsyncEventConfiguration {
            status.result().map_err(|status| DiscoveryError::Command { step, status })?;
        }
        let poll_again = Some(Pending { poll_at: Some(now + POLL_INTERVAL), ..pending });
        let next = match step {
            DiscoveryStep::Connect | DiscoveryStep::KeepAlive => None,
            DiscoveryStep::Capabilities => {
                self.facts.cap = Capabilities(result);
                Some(DiscoveryStep::Enable)
            }
            DiscoveryStep::Enable => Some(DiscoveryStep::Ready),
            DiscoveryStep::Ready => {
                let csts = ControllerStatus(result as u32);
                if csts.fatal() {
                    return Err(DiscoveryError::FatalStatus);
                }
                if !csts.ready() {
                    self.pending = poll_again;
                    return Ok(());
                }
                self.keep_alive_from(now, false);
                Some(DiscoveryStep::IdentifyController)
            }
            DiscoveryStep::IdentifyController => {
                self.learn_controller(now)?;
                // Who does not stay has no use for events.
                if self.facts.offers_events && self.config.keep_alive_tmo.is_some() {
                    Some(DiscoveryStep::AsyncEventConfiguration)
                } else {
                    self.ready = true;
                    None
                }
            }
            DiscoveryStep::AsyncEventConfiguration => {
                if status.is_success() {
                    self.await_event();
                }
                self.ready = true;
                None
            }
            DiscoveryStep::Log => match self.reader.take(self.queue.data())? {
                Some(log) => {
                    self.events.push_back(DiscoveryEvent::Log(Box::new(log)));
                    None
                }
                None => Some(DiscoveryStep::Log),
            },
            DiscoveryStep::Shutdown => Some(DiscoveryStep::ShutdownStatus),
            DiscoveryStep::ShutdownStatus => {
                if ControllerStatus(result as u32).shutdown() != ShutdownStatus::Complete {
                    self.pending = poll_again;
                    return Ok(());
                }
                self.events.push_back(DiscoveryEvent::ShutdownComplete);
                None
            }
        };
        self.go_on(now, next);
        Ok(())
    }

    fn learn_controller(&mut self, now: Instant) -> Result<(), DiscoveryError> {
        let identify = IdentifyController::parse(self.queue.data()).expect("a page was asked for");
        let (cntrltype, subnqn) = (identify.cntrltype, identify.subnqn().ok());
        if !matches!(cntrltype, CNTRLTYPE_UNKNOWN | CNTRLTYPE_DISCOVERY) {
            return Err(DiscoveryError::NotDiscovery { cntrltype });
        }
        // Behind the well-known name is a subsystem that may have a name of its own.
        if self.config.subnqn != Nqn::discovery() && subnqn.as_ref() != Some(&self.config.subnqn) {
            return Err(DiscoveryError::WrongSubsystem { got: IdentifyController::text(&identify.subnqn) });
        }
        self.facts.max_transfer_bytes = identify.max_transfer_bytes(self.facts.cap.mpsmin()).unwrap_or(u32::MAX);
        self.facts.offsets = identify.lpa & IdentifyController::LPA_EXTENDED != 0;
        self.facts.offers_events = AsyncEventMask(identify.oaes.get()).has(AsyncEventMask::DISCOVERY_CHANGE);
        let tbkas = identify.ctratt.get() & IdentifyController::CTRATT_TBKAS != 0;
        self.keep_alive_from(now, tbkas);
        Ok(())
    }

    fn keep_alive_from(&mut self, now: Instant, tbkas: bool) {
        if let Some(kato) = self.config.keep_alive_tmo {
            self.keep_alive.start(now, kato, tbkas);
        }
    }
}

fn property_get(size: PropertySize, offset: PropertyOffset) -> Sqe {
    FabricsCommand::PropertyGet { size, offset }.to_sqe(0, Sgl::NONE)
}

fn configure(value: ControllerConfiguration) -> Sqe {
    let (size, offset) = (PropertySize::Four, PropertyOffset::CC);
    FabricsCommand::PropertySet { size, offset, value: value.0.into() }.to_sqe(0, Sgl::NONE)
}

//! Admin and fabrics commands of an established admin queue.

use std::time::{Duration, Instant};

use super::command::{CommandToken, TargetCommand};
use super::controller::{Controller, Written};
use super::subsystem::Subsystem;
use crate::wire::{
    AdminCommand, AsyncEventMask, Capabilities, ControllerConfiguration, ControllerInstance, FabricsCommand, FeatureId,
    NumberOfQueues, Opcode, PropertyOffset, PropertySize, Status, Version,
};

/// CAP.TO in units of 500 ms. Nothing here takes any time, but a busy machine may.
const READY_TIMEOUT_UNITS: u8 = 15;
/// VS: the Base Specification 1.4 is what the data structures follow.
pub(super) const VERSION: Version = Version::new(1, 4);
/// Bytes of Host Behavior Support.
const HOST_BEHAVIOR_BYTES: usize = 512;
/// Abort: "the command was not aborted" (Base 5.1).
const NOT_ABORTED: u64 = 1;

/// How an admin command is to be completed.
#[derive(Debug)]
pub enum AdminReply {
    /// With this status and result.
    Done {
        /// The command.
        token: CommandToken,
        /// Its status.
        status: Status,
        /// Its result.
        result: u64,
    },
    /// Successfully, with this data.
    Data {
        /// The command.
        token: CommandToken,
        /// As long as the host expects.
        data: Vec<u8>,
    },
    /// Successfully, but only when all namespaces are flushed: the controller is shut down.
    Shutdown {
        /// The command.
        token: CommandToken,
    },
    /// Another controller is reset: with result [`CROSS_RESET_DONE`](crate::wire::CROSS_RESET_DONE), once no command of that instance can be executed any
    /// more. The subsystem has given the controller up already, if it was still there.
    ResetController {
        /// The command.
        token: CommandToken,
        /// The life of a controller that ends.
        instance: ControllerInstance,
    },
    /// Later, by [`Subsystem::poll_event`].
    Held,
}

impl Subsystem {
    /// Answers a command of controller `cntlid`'s admin queue.
    pub fn admin(&mut self, now: Instant, cntlid: u16, command: TargetCommand) -> AdminReply {
        let TargetCommand { token, sqe, payload, expects_bytes } = command;
        let fabrics = Opcode(sqe.opcode) == Opcode::FABRICS;
        let outcome = if fabrics {
            FabricsCommand::parse(&sqe).and_then(|command| self.fabrics(now, cntlid, command))
        } else {
            AdminCommand::parse(&sqe)
                .and_then(|command| self.admin_command(now, cntlid, command, &payload, expects_bytes))
        };
        match outcome {
            Ok(Outcome::Result(result)) => AdminReply::Done { token, status: Status::SUCCESS, result },
            Ok(Outcome::Data(data)) => AdminReply::Data { token, data },
            Ok(Outcome::Shutdown) => AdminReply::Shutdown { token },
            Ok(Outcome::ResetController(instance)) => AdminReply::ResetController { token, instance },
            Ok(Outcome::Hold) => self.hold(cntlid, token),
            Err(status) => AdminReply::Done { token, status, result: 0 },
        }
    }

    fn hold(&mut self, cntlid: u16, token: CommandToken) -> AdminReply {
        let Some(controller) = self.controllers.get_mut(&cntlid) else {
            let status = Status::COMMAND_SEQUENCE_ERROR.with_dnr();
            return AdminReply::Done { token, status, result: 0 };
        };
        match controller.events.hold_request(token) {
            Ok(()) => AdminReply::Held,
            Err(token) => {
                let status = Status::ASYNC_EVENT_LIMIT_EXCEEDED;
                AdminReply::Done { token, status, result: 0 }
            }
        }
    }

    fn controller(&mut self, cntlid: u16) -> Result<&mut Controller, Status> {
        self.controllers.get_mut(&cntlid).ok_or(Status::COMMAND_SEQUENCE_ERROR.with_dnr())
    }

    fn fabrics(&mut self, now: Instant, cntlid: u16, command: FabricsCommand) -> Result<Outcome, Status> {
        use PropertySize::{Eight, Four};
        let max_entries = self.config.max_entries;
        let controller = self.controller(cntlid)?;
        let value = match command {
            FabricsCommand::PropertyGet { size: Eight, offset: PropertyOffset::CAP } => {
                Capabilities::new(max_entries - 1, READY_TIMEOUT_UNITS).0
            }
            FabricsCommand::PropertyGet { size: Four, offset: PropertyOffset::VS } => VERSION.0.into(),
            FabricsCommand::PropertyGet { size: Four, offset: PropertyOffset::CC } => controller.configuration.0.into(),
            FabricsCommand::PropertyGet { size: Four, offset: PropertyOffset::CSTS } => controller.status().0.into(),
            FabricsCommand::PropertySet { size: Four, offset: PropertyOffset::CC, value } => {
                let value = ControllerConfiguration(value as u32);
                match controller.write_configuration(now, value) {
                    Written::Plain => 0,
                    Written::Reset => {
                        let hostnqn = controller.hostnqn.clone();
                        let instance = self.instances.next(cntlid, &hostnqn);
                        self.controller(cntlid)?.instance = instance;
                        0
                    }
                    Written::Shutdown => return Ok(Outcome::Shutdown),
                }
            }
            FabricsCommand::Connect(_) => return Err(Status::COMMAND_SEQUENCE_ERROR.with_dnr()),
            FabricsCommand::PropertyGet { .. } | FabricsCommand::PropertySet { .. } => {
                return Err(Status::INVALID_FIELD.with_dnr());
            }
        };
        Ok(Outcome::Result(value))
    }

    fn admin_command(
        &mut self,
        now: Instant,
        cntlid: u16,
        command: AdminCommand,
        payload: &[u8],
        expects_bytes: u32,
    ) -> Result<Outcome, Status> {
        let controller = self.controller(cntlid)?;
        if !controller.is_ready() {
            return Err(Status::COMMAND_SEQUENCE_ERROR.with_dnr());
        }
        match command {
            AdminCommand::Identify { cns, nsid, csi, .. } => {
                let data = self.identify(cntlid, cns, nsid, csi)?;
                as_expected(data, expects_bytes)
            }
            AdminCommand::GetLogPage { lid, nsid, lsp, rae, bytes, offset } => {
                if bytes != u64::from(expects_bytes) {
                    return Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr());
                }
                let log = self.log_page(cntlid, lid, nsid, lsp)?;
                let start = usize::try_from(offset).ok().filter(|&start| start <= log.len() && start % 4 == 0);
                let mut data = log[start.ok_or(Status::INVALID_FIELD.with_dnr())?..].to_vec();
                data.resize(expects_bytes as usize, 0);
                if !rae {
                    self.controller(cntlid)?.events.log_was_read(lid);
                }
                Ok(Outcome::Data(data))
            }
            AdminCommand::SetFeatures { fid, save, value, .. } => {
                if save {
                    return Err(Status::FEATURE_NOT_SAVEABLE.with_dnr());
                }
                self.set_feature(now, cntlid, fid, value, payload).map(Outcome::Result)
            }
            AdminCommand::GetFeatures { fid, .. } => self.get_feature(cntlid, fid, expects_bytes),
            AdminCommand::KeepAlive => {
                controller.kept_alive(now);
                Ok(Outcome::Result(0))
            }
            AdminCommand::AsyncEventRequest => Ok(Outcome::Hold),
            AdminCommand::CrossControllerReset(instance) => self.reset_other(cntlid, instance),
            // Commands are executed as they come; one that can still be named has its completion on the way.
            AdminCommand::Abort { .. } => Ok(Outcome::Result(NOT_ABORTED)),
        }
    }

    fn set_feature(
        &mut self,
        now: Instant,
        cntlid: u16,
        fid: FeatureId,
        value: u32,
        payload: &[u8],
    ) -> Result<u64, Status> {
        let (discovery, events) = (self.is_discovery(), self.events());
        let max_io_queues = self.config.max_io_queues;
        let controller = self.controller(cntlid)?;
        match fid {
            FeatureId::NUMBER_OF_QUEUES if !discovery => {
                let wanted = NumberOfQueues::from_value(value);
                if wanted.submission == u16::MAX || wanted.completion == u16::MAX {
                    return Err(Status::INVALID_FIELD.with_dnr());
                }
                if !controller.io_queues.is_empty() {
                    return Err(Status::COMMAND_SEQUENCE_ERROR.with_dnr());
                }
                // A queue here is always a pair.
                let granted = wanted.submission.min(wanted.completion).min(max_io_queues - 1);
                controller.io_queues_granted = Some(granted + 1);
                Ok(NumberOfQueues { submission: granted, completion: granted }.to_value().into())
            }
            FeatureId::KEEP_ALIVE_TIMER => {
                controller.set_keep_alive(now, Duration::from_millis(value.into()));
                Ok(0)
            }
            FeatureId::ASYNC_EVENT_CONFIGURATION => {
                controller.events.mask = AsyncEventMask(value).and(events);
                Ok(0)
            }
            FeatureId::HOST_BEHAVIOR if !discovery => {
                let data: &[u8; HOST_BEHAVIOR_BYTES] =
                    payload.try_into().map_err(|_| Status::DATA_SGL_LENGTH_INVALID.with_dnr())?;
                controller.retry_delays = data[0] == 1;
                Ok(0)
            }
            FeatureId::VOLATILE_WRITE_CACHE if !discovery => {
                controller.write_cache = value & 1 != 0;
                Ok(0)
            }
            _ => Err(Status::INVALID_FIELD.with_dnr()),
        }
    }

    fn get_feature(&mut self, cntlid: u16, fid: FeatureId, expects_bytes: u32) -> Result<Outcome, Status> {
        let (discovery, max_io_queues) = (self.is_discovery(), self.config.max_io_queues);
        let controller = self.controller(cntlid)?;
        let value = match fid {
            FeatureId::NUMBER_OF_QUEUES if !discovery => {
                let granted = controller.io_queues_granted.unwrap_or(max_io_queues) - 1;
                NumberOfQueues { submission: granted, completion: granted }.to_value()
            }
            FeatureId::KEEP_ALIVE_TIMER => controller.keep_alive_timeout.as_millis() as u32,
            FeatureId::ASYNC_EVENT_CONFIGURATION => controller.events.mask.0,
            FeatureId::HOST_BEHAVIOR if !discovery => {
                let mut data = vec![0; HOST_BEHAVIOR_BYTES];
                data[0] = controller.retry_delays.into();
                return as_expected(data, expects_bytes);
            }
            FeatureId::VOLATILE_WRITE_CACHE if !discovery => u32::from(controller.write_cache),
            FeatureId::HOST_ID => return as_expected(controller.hostid.to_vec(), expects_bytes),
            _ => return Err(Status::INVALID_FIELD.with_dnr()),
        };
        Ok(Outcome::Result(value.into()))
    }

    /// Resets another controller of the same host.
    ///
    /// One that is gone may have left commands behind, and these are ended all the same. But of one that never was here
    /// nothing can be promised: it may belong to another node that serves the same subsystem.
    fn reset_other(&mut self, cntlid: u16, instance: ControllerInstance) -> Result<Outcome, Status> {
        let hostnqn = &self.controllers.get(&cntlid).ok_or(Status::COMMAND_SEQUENCE_ERROR.with_dnr())?.hostnqn;
        if self.is_discovery() || instance.cntlid == cntlid || !self.instances.is_known(instance, hostnqn) {
            return Err(Status::INVALID_FIELD.with_dnr());
        }
        if self.instance(instance.cntlid) == Some(instance) {
            self.controllers.remove(&instance.cntlid);
        }
        Ok(Outcome::ResetController(instance))
    }

    /// Events that the host may ask for.
    pub(super) fn events(&self) -> AsyncEventMask {
        if self.is_discovery() {
            return AsyncEventMask::DISCOVERY_CHANGE;
        }
        AsyncEventMask::ANA_CHANGE.or(AsyncEventMask::NAMESPACE_ATTRIBUTE)
    }
}

enum Outcome {
    Result(u64),
    Data(Vec<u8>),
    Shutdown,
    ResetController(ControllerInstance),
    Hold,
}

/// Data of a fixed length, if the host expects just that.
fn as_expected(data: Vec<u8>, expects_bytes: u32) -> Result<Outcome, Status> {
    if data.len() != expects_bytes as usize {
        return Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr());
    }
    Ok(Outcome::Data(data))
}

//! Admin and fabrics commands of an established admin queue.

use monotonic::{Duration, Instant};
use nvme_tcp::wire::{
    AdminCommand, AsyncEventMask, Capabilities, ControllerConfiguration, ControllerInstance, FabricsCommand, FeatureId,
    NumberOfQueues, Opcode, PropertyOffset, PropertySize, Status, Version,
};

use super::command::{CommandToken, TargetCommand};
use super::controller::{ConfigurationAction, Controller};
use super::subsystem::Subsystem;

/// CAP.TO in units of 500 ms. Enabling takes no time itself; this allows for a busy machine.
const READY_TIMEOUT_UNITS: u8 = 15;
/// VS: the data structures follow Base Specification 1.4.
pub(super) const VERSION: Version = Version::new(1, 4);
/// Bytes of Host Behavior Support.
const HOST_BEHAVIOR_BYTES: usize = 512;
/// Abort: "the command was not aborted" (Base 5.1).
const NOT_ABORTED: u64 = 1;

/// How to complete an admin command.
#[derive(Debug)]
pub enum AdminReply {
    /// Complete it with this status and result.
    Done {
        /// The command.
        token: CommandToken,
        /// Its status.
        status: Status,
        /// Its result.
        result: u64,
    },
    /// Complete it with success and this data.
    Data {
        /// The command.
        token: CommandToken,
        /// The data, of the length that the host expects.
        data: Vec<u8>,
    },
    /// Flush all namespaces, then complete it with success: the controller shuts down.
    Shutdown {
        /// The command.
        token: CommandToken,
    },
    /// Another controller is reset. Complete the command with result [`CROSS_RESET_DONE`](nvme_tcp::wire::CROSS_RESET_DONE), once no
    /// command of that instance can be executed. The subsystem has already removed the controller.
    ResetController {
        /// The command.
        token: CommandToken,
        /// The instance that ends.
        instance: ControllerInstance,
    },
    /// [`Subsystem::poll_event`] completes it later.
    Deferred,
}

impl Subsystem {
    /// Answers a command on the admin queue of controller `cntlid`.
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
            Ok(Outcome::Defer) => self.defer(cntlid, token),
            Err(status) => AdminReply::Done { token, status, result: 0 },
        }
    }

    fn defer(&mut self, cntlid: u16, token: CommandToken) -> AdminReply {
        let Some(controller) = self.controllers.get_mut(&cntlid) else {
            let status = Status::COMMAND_SEQUENCE_ERROR.with_dnr();
            return AdminReply::Done { token, status, result: 0 };
        };
        match controller.events.add_request(token) {
            Ok(()) => AdminReply::Deferred,
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
                    ConfigurationAction::None => 0,
                    ConfigurationAction::Reset => {
                        let hostnqn = controller.hostnqn.clone();
                        let instance = self.instances.next(cntlid, &hostnqn);
                        self.controller(cntlid)?.instance = instance;
                        0
                    }
                    ConfigurationAction::Shutdown => return Ok(Outcome::Shutdown),
                }
            }
            FabricsCommand::Connect(_) => return Err(Status::COMMAND_SEQUENCE_ERROR.with_dnr()),
            FabricsCommand::PropertyGet { .. } | FabricsCommand::PropertySet { .. } => {
                return Err(Status::INVALID_FIELD.with_dnr());
            }
            // The queue answers these commands if Connect has asked for authentication.
            FabricsCommand::AuthenticationSend { .. } | FabricsCommand::AuthenticationReceive { .. } => {
                return Err(Status::INVALID_OPCODE.with_dnr());
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
                data_of_expected_length(data, expects_bytes)
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
                controller.restart_keep_alive(now);
                Ok(Outcome::Result(0))
            }
            AdminCommand::AsyncEventRequest => Ok(Outcome::Defer),
            AdminCommand::CrossControllerReset(instance) => self.reset_other(cntlid, instance),
            // Commands are executed in order of arrival, so a command that the host can name is already being completed.
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
                // Submission and completion queues are always paired.
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
                return data_of_expected_length(data, expects_bytes);
            }
            FeatureId::VOLATILE_WRITE_CACHE if !discovery => u32::from(controller.write_cache),
            FeatureId::HOST_ID => return data_of_expected_length(controller.hostid.to_vec(), expects_bytes),
            _ => return Err(Status::INVALID_FIELD.with_dnr()),
        };
        Ok(Outcome::Result(value.into()))
    }

    /// Resets another controller of the same host.
    ///
    /// A removed controller may have left commands, which the reset ends too. An unknown instance is refused: another node of
    /// the same subsystem may run it.
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

    /// The events that a host can enable.
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
    Defer,
}

/// Data of a fixed length. Fails if the host expects another length.
fn data_of_expected_length(data: Vec<u8>, expects_bytes: u32) -> Result<Outcome, Status> {
    if data.len() != expects_bytes as usize {
        return Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr());
    }
    Ok(Outcome::Data(data))
}

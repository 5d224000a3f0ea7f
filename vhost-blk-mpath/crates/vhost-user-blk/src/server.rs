//! One front-end connection from accept to hang-up.

use std::ops::ControlFlow::{self, Break, Continue};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use vhost::vhost_user::message::{FrontendReq, MAX_MSG_SIZE};
use vhost::vhost_user::{
    BackendReqHandler, Error as MessageError, Result as MessageResult, VhostUserBackendReqHandlerMut,
    VhostUserProtocolFeatures,
};

use crate::connection::{Connection, RequestFailure};
use crate::disk::VirtioDisk;
use crate::error::ServeError;
use crate::frontend_channel::FrontendChannel;
use crate::notify::{Alarm, Wake};
use crate::queue_runner::QueueRunner;
use crate::{mem_table, raw_message};

/// Serves one front-end until it hangs up, which is `Ok`. At the end all queues are stopped and drained, except after
/// [`ServeError::NotDrained`]. The caller can then serve the next connection with the same disk and runner.
///
/// Blocks. To end it from outside, shut down a clone of the stream.
pub fn serve_connection(
    stream: UnixStream,
    disk: &Arc<VirtioDisk>,
    runner: &dyn QueueRunner,
) -> Result<(), ServeError> {
    let mut connection = FrontEndConnection::new(stream, disk, Box::new(runner))?;
    loop {
        match connection.serve(Duration::from_secs(3600)) {
            Continue(quiet) => connection = quiet,
            Break(end) => return end,
        }
    }
}

/// The connection of a front-end, which needs a thread only while it is [served](Self::serve).
///
/// Do not drop one that `serve` has given back: its queues would go on.
pub struct FrontEndConnection<'a> {
    socket: UnixStream,
    disk: Arc<VirtioDisk>,
    alarm: Arc<Alarm>,
    connection: Arc<Mutex<Connection<'a>>>,
    messages: BackendReqHandler<Mutex<Connection<'a>>>,
}

impl<'a> FrontEndConnection<'a> {
    /// The connection of a front-end that has just connected.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new(
        stream: UnixStream,
        disk: &Arc<VirtioDisk>,
        runner: Box<dyn QueueRunner + 'a>,
    ) -> Result<Self, ServeError> {
        let socket = stream.try_clone().map_err(ServeError::Socket)?;
        let hang_up = stream.try_clone().map_err(ServeError::Socket)?;
        let alarm = Arc::new(Alarm::new().map_err(ServeError::Socket)?);
        let connection = Connection::new(Arc::clone(disk), runner, hang_up, Arc::clone(&alarm));
        let connection = Arc::new(Mutex::new(connection));
        let messages = BackendReqHandler::from_stream(stream, Arc::clone(&connection));
        Ok(Self { socket, disk: Arc::clone(disk), alarm, connection, messages })
    }

    /// Serves the front-end until nothing has come for `quiet`, which gives the connection back. Otherwise as
    /// [`serve_connection`].
    pub fn serve(mut self, quiet: Duration) -> ControlFlow<Result<(), ServeError>, Self> {
        let outcome = loop {
            if self.lock().memory_fault().is_some() {
                break Ok(());
            }
            if self.alarm.has_blocked() {
                break Err(ServeError::Blocked);
            }
            match self.alarm.wait_or_input(&self.socket, quiet) {
                Ok(Wake::Input) => {}
                Ok(Wake::Alarm) => continue,
                Ok(Wake::Quiet) => return Continue(self),
                Err(error) => break Err(ServeError::Socket(error)),
            }
            let number = raw_message::peek_request(&self.socket);
            let Err(error) = self.handle_next(number) else { continue };
            let failure = self.lock().take_failure();
            match (failure, error) {
                (Some(RequestFailure::Refused(error)), _) => tracing::warn!(%error, "front-end request refused"),
                (Some(RequestFailure::Fatal(error)), _) => break Err(error),
                (None, MessageError::Disconnected | MessageError::SocketBroken(_)) => break Ok(()),
                (None, MessageError::SocketRetry(_)) => {}
                (None, error) => break Err(ServeError::message(number, error)),
            }
        };
        self.disk.front_end_left();
        let stopped = self.lock().stop_all();
        // A memory fault explains other failures, so it is reported first.
        let fault = self.lock().memory_fault();
        Break(fault.map_or_else(|| outcome.and(stopped), |fault| Err(fault.into())))
    }

    /// The descriptors of which one is readable when there is something to [serve](Self::serve).
    #[must_use]
    pub fn wakers(&self) -> [BorrowedFd<'_>; 2] {
        [self.socket.as_fd(), self.alarm.as_fd()]
    }

    fn lock(&self) -> MutexGuard<'_, Connection<'a>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the next message, whose request has this number, and carries it out.
    fn handle_next(&mut self, number: Option<u32>) -> MessageResult<()> {
        let has = |feature| self.lock().has_protocol_feature(feature);
        let answer = |request, wanted: bool| {
            let wanted = wanted && has(VhostUserProtocolFeatures::REPLY_ACK);
            if wanted { raw_message::answer(&self.socket, request) } else { Ok(()) }
        };
        let request = match number.and_then(|number| FrontendReq::try_from(number).ok()) {
            Some(request @ FrontendReq::SET_MEM_TABLE) => {
                let message = raw_message::receive(&self.socket, MAX_MSG_SIZE)?;
                let wanted = message.answer_wanted;
                let (regions, files) = mem_table::regions(message)?;
                self.lock().set_mem_table(&regions, files, None)?;
                return answer(request, wanted);
            }
            Some(request @ FrontendReq::SET_BACKEND_REQ_FD) if has(VhostUserProtocolFeatures::BACKEND_REQ) => request,
            _ => return self.messages.handle_request(),
        };
        let message = raw_message::receive(&self.socket, 0)?;
        let wanted = message.answer_wanted;
        let has_unreported_change = self.disk.set_channel(FrontendChannel::from_message(message)?);
        answer(request, wanted)?;
        // After the answer: a front-end that reads the configuration space on the notification must not find the answer
        // first.
        if has_unreported_change {
            self.disk.notify_config_change();
        }
        Ok(())
    }
}

//! One front-end connection from accept to hang-up.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use vhost::vhost_user::message::{FrontendReq, MAX_MSG_SIZE};
use vhost::vhost_user::{
    BackendReqHandler, Error as MessageError, VhostUserBackendReqHandlerMut, VhostUserProtocolFeatures,
};

use crate::connection::{Connection, RequestFailure};
use crate::disk::VirtioDisk;
use crate::error::ServeError;
use crate::frontend_channel::FrontendChannel;
use crate::notify::Alarm;
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
    let socket = stream.try_clone().map_err(ServeError::Socket)?;
    let hang_up = stream.try_clone().map_err(ServeError::Socket)?;
    let alarm = Arc::new(Alarm::new().map_err(ServeError::Socket)?);
    let connection = Connection::new(Arc::clone(disk), runner, hang_up, Arc::clone(&alarm));
    let connection = Arc::new(Mutex::new(connection));
    let mut messages = BackendReqHandler::from_stream(stream, Arc::clone(&connection));
    let lock = || connection.lock().unwrap_or_else(PoisonError::into_inner);
    let mut handle_next = |number: Option<u32>| {
        let has = |feature| lock().has_protocol_feature(feature);
        let answer = |request, wanted: bool| {
            let wanted = wanted && has(VhostUserProtocolFeatures::REPLY_ACK);
            if wanted { raw_message::answer(&socket, request) } else { Ok(()) }
        };
        let request = match number.and_then(|number| FrontendReq::try_from(number).ok()) {
            Some(request @ FrontendReq::SET_MEM_TABLE) => {
                let message = raw_message::receive(&socket, MAX_MSG_SIZE)?;
                let wanted = message.answer_wanted;
                let (regions, files) = mem_table::regions(message)?;
                lock().set_mem_table(&regions, files, None)?;
                return answer(request, wanted);
            }
            Some(request @ FrontendReq::SET_BACKEND_REQ_FD) if has(VhostUserProtocolFeatures::BACKEND_REQ) => request,
            _ => return messages.handle_request(),
        };
        let message = raw_message::receive(&socket, 0)?;
        let wanted = message.answer_wanted;
        let has_unreported_change = disk.set_channel(FrontendChannel::from_message(message)?);
        answer(request, wanted)?;
        // After the answer: a front-end that reads the configuration space on the notification must not find the answer
        // first.
        if has_unreported_change {
            disk.notify_config_change();
        }
        Ok(())
    };
    let outcome = loop {
        if lock().memory_fault().is_some() {
            break Ok(());
        }
        match alarm.wait_or_input(&socket) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(error) => break Err(ServeError::Socket(error)),
        }
        let number = raw_message::peek_request(&socket);
        let Err(error) = handle_next(number) else { continue };
        let failure = lock().take_failure();
        match (failure, error) {
            (Some(RequestFailure::Refused(error)), _) => tracing::warn!(%error, "front-end request refused"),
            (Some(RequestFailure::Fatal(error)), _) => break Err(error),
            (None, MessageError::Disconnected | MessageError::SocketBroken(_)) => break Ok(()),
            (None, MessageError::SocketRetry(_)) => {}
            (None, error) => break Err(ServeError::message(number, error)),
        }
    };
    disk.front_end_left();
    let stopped = lock().stop_all();
    // A memory fault explains other failures, so it is reported first.
    let fault = lock().memory_fault();
    fault.map_or_else(|| outcome.and(stopped), |fault| Err(fault.into()))
}

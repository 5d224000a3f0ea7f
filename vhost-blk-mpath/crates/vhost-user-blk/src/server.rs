//! One front-end connection from accept to hang-up.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use vhost::vhost_user::message::{FrontendReq, MAX_MSG_SIZE};
use vhost::vhost_user::{
    BackendReqHandler, Error as MessageError, VhostUserBackendReqHandlerMut, VhostUserProtocolFeatures,
};

use crate::channel::FrontendChannel;
use crate::connection::{Connection, Verdict};
use crate::disk::Disk;
use crate::error::ServeError;
use crate::notify::Alarm;
use crate::sink::QueueSink;
use crate::{mem_table, message};

/// Serves one front-end until it hangs up, which is `Ok`. In any case, all queues are stopped and drained at the end (but for
/// [`ServeError::NotDrained`]), and the caller can serve the next connection with the same disk and sink.
///
/// Blocks; to end it from outside, shut down a clone of the stream.
pub fn serve_connection(stream: UnixStream, disk: &Arc<Disk>, sink: &dyn QueueSink) -> Result<(), ServeError> {
    let socket = stream.try_clone().map_err(ServeError::Socket)?;
    let hang_up = stream.try_clone().map_err(ServeError::Socket)?;
    let alarm = Arc::new(Alarm::new().map_err(ServeError::Socket)?);
    let connection = Connection::new(Arc::clone(disk), sink, hang_up, Arc::clone(&alarm));
    let connection = Arc::new(Mutex::new(connection));
    let mut messages = BackendReqHandler::from_stream(stream, Arc::clone(&connection));
    let lock = || connection.lock().unwrap_or_else(PoisonError::into_inner);
    let mut handle_next = || {
        let has = |feature| lock().has_protocol_feature(feature);
        let answer = |request, wanted: bool| {
            let wanted = wanted && has(VhostUserProtocolFeatures::REPLY_ACK);
            if wanted { message::answer(&socket, request) } else { Ok(()) }
        };
        let request = match message::next(&socket) {
            Some(request @ FrontendReq::SET_MEM_TABLE) => {
                let message = message::receive(&socket, MAX_MSG_SIZE)?;
                let wanted = message.answer_wanted;
                let (regions, files) = mem_table::regions(message)?;
                lock().set_mem_table(&regions, files, None)?;
                return answer(request, wanted);
            }
            Some(request @ FrontendReq::SET_BACKEND_REQ_FD) if has(VhostUserProtocolFeatures::BACKEND_REQ) => request,
            _ => return messages.handle_request(),
        };
        let message = message::receive(&socket, 0)?;
        let wanted = message.answer_wanted;
        let is_news = disk.set_channel(FrontendChannel::of(message)?);
        answer(request, wanted)?;
        // Not before: who reads the space when told to must not find the answer in place of it.
        if is_news {
            disk.tell_of_change();
        }
        Ok(())
    };
    let outcome = loop {
        if lock().memory_fault().is_some() {
            break Ok(());
        }
        match alarm.wait_beside(&socket) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(error) => break Err(ServeError::Socket(error)),
        }
        let Err(error) = handle_next() else { continue };
        let verdict = lock().take_verdict();
        match (verdict, error) {
            (Some(Verdict::Refused(error)), _) => tracing::warn!(%error, "front-end request refused"),
            (Some(Verdict::End(error)), _) => break Err(error),
            (None, MessageError::Disconnected | MessageError::SocketBroken(_)) => break Ok(()),
            (None, MessageError::SocketRetry(_)) => {}
            (None, error) => break Err(ServeError::Message(error)),
        }
    };
    disk.forget_front_end();
    let stopped = lock().stop_all();
    // Whatever else was found in memory that could not be accessed.
    let fault = lock().memory_fault();
    fault.map_or_else(|| outcome.and(stopped), |fault| Err(fault.into()))
}

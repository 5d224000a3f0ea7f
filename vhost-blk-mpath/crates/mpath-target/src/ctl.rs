//! `mpath-target ctl`: asks a running target, or tells it.

use std::time::Duration;

use mpath_api::client::{Client, ClientError, Method};
use mpath_api::config::SocketPath;
use mpath_target::api::{Change, Status};

use crate::args::CtlCommand;

/// Time for a whole call.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Why nothing came of it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CtlError {
    /// Nobody listens there.
    #[error("no mpath-target is running with --api {0}")]
    NotRunning(SocketPath),
    /// The call failed.
    #[error(transparent)]
    Client(ClientError),
    /// A client cannot be had.
    #[error("cannot start: {0}")]
    System(#[from] std::io::Error),
}

/// Runs a command; what to print.
pub(crate) fn run(api: &SocketPath, command: CtlCommand) -> Result<String, CtlError> {
    let client = Client::new(api.as_path(), TIMEOUT)?;
    let called = match command {
        CtlCommand::Status => client.call::<Status>(Method::GET, "/v1/status".into(), None::<&()>).map(Some),
        CtlCommand::Set { port, settings } => {
            let change = Change { port, settings };
            client.call::<Status>(Method::PUT, "/v1/settings".into(), Some(&change)).map(|_| None)
        }
    };
    match called {
        Ok(Some(status)) => {
            let mut text = serde_json::to_string_pretty(&status).expect("the API's own types are JSON");
            text.push('\n');
            Ok(text)
        }
        Ok(None) => Ok(String::new()),
        Err(ClientError::NotRunning { .. }) => Err(CtlError::NotRunning(api.clone())),
        Err(error) => Err(CtlError::Client(error)),
    }
}

//! `mpath-target ctl`: controls a running target.

use std::time::Duration;

use mpath_api::client::{Client, ClientError, Method};
use mpath_config::SocketPath;
use mpath_target::api::{SettingsRequest, Status};
use mpath_target::args::CtlCommand;

/// The time limit for a call.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CtlError {
    #[error("no mpath-target is running with --api {0}")]
    NotRunning(SocketPath),
    #[error(transparent)]
    Client(ClientError),
    #[error("cannot start: {0}")]
    System(#[from] std::io::Error),
}

/// Runs a command. Returns the text to print.
pub(crate) fn run(api: &SocketPath, command: CtlCommand) -> Result<String, CtlError> {
    let client = Client::new(api.as_path(), TIMEOUT)?;
    let failed = |error| match error {
        ClientError::NotRunning { .. } => CtlError::NotRunning(api.clone()),
        error => CtlError::Client(error),
    };
    match command {
        CtlCommand::Status => {
            let status: Status = client.call(Method::GET, "/v1/status".into(), None::<&()>).map_err(failed)?;
            Ok(serde_json::to_string_pretty(&status).expect("API types can be serialised") + "\n")
        }
        CtlCommand::Set { port, settings } => {
            let request = SettingsRequest { port, settings };
            client.call::<Status>(Method::PUT, "/v1/settings".into(), Some(&request)).map_err(failed)?;
            Ok(String::new())
        }
    }
}

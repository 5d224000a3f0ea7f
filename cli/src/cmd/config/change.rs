//! `mpathctl config diff` and `config reload`

use std::path::Path;

use mpath_api::client::Client;
use mpath_api::types::{FailedChange, Reload};
use mpath_config::{Change, Config, difference, read_file};

use super::effective;
use crate::output::Output;
use crate::{Failure, Kind};

/// Prints what a reload of the daemon's file, or of `file`, would change.
pub(super) fn diff(client: &Client, file: Option<&Path>, output: &mut Output) -> Result<(), Failure> {
    let changes = if let Some(file) = file {
        let wanted = Config::check_file(file, &read_file(file)?).map_err(Failure::Errors)?;
        difference(&effective(&client.configuration()?)?, &wanted)
    } else {
        let Reload { applied, not_live, .. } = client.reload(true, false)?;
        applied.into_iter().chain(not_live).collect()
    };
    output.print(&changes, |changes| match &changes[..] {
        [] => "no differences\n".into(),
        changes => lines("", changes),
    })?;
    if changes.is_empty() { Ok(()) } else { Err(Failure::Reported(Kind::Problems)) }
}

pub(super) fn reload(client: &Client, dry_run: bool, force: bool, output: &mut Output) -> Result<(), Failure> {
    let reload = client.reload(dry_run, force)?;
    output.print(&reload, as_lines)?;
    if reload.failed.is_empty() { Ok(()) } else { Err(Failure::Reported(Kind::Refused)) }
}

fn as_lines(reload: &Reload) -> String {
    let Reload { file, dry_run, applied, failed, not_live } = reload;
    let done = if *dry_run { "would be applied: " } else { "applied: " };
    let failed: String = failed
        .iter()
        .map(|FailedChange { change, reason }| ["failed: ", &change.to_string(), ": ", reason, "\n"].concat())
        .collect();
    let all = [lines(done, applied), failed, lines("not live: ", not_live)].concat();
    if all.is_empty() { format!("{file}: no differences\n") } else { all }
}

fn lines(begin: &str, changes: &[Change]) -> String {
    changes.iter().map(|change| [begin, &change.to_string(), "\n"].concat()).collect()
}

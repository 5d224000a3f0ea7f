//! The last change of a value that can be changed while I/O runs.

use std::fmt;

use mpath_core::words;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Caller;

words! {
    /// What has changed a value.
    ChangeSource as "ChangeSource", "source of changes", {
        /// A request of the API, such as a command of `mpathctl`.
        Operator = "operator",
        /// A reload of the configuration file.
        Reload = "reload",
        /// The front-end of the disk.
        FrontEnd = "front-end",
    }
}

/// The last change of a value since the daemon started. A value without one is that of the daemon's start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct LastChange {
    /// The time, by the host's clock: UTC, RFC 3339 with milliseconds.
    pub at: String,
    /// What has changed the value.
    pub source: ChangeSource,
    /// The client of the API whose request it was. Left out if it comes from no request, such as a reload by SIGHUP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Caller>,
}

impl LastChange {
    /// Who has changed the value: the client, or the source without one.
    #[must_use]
    pub fn who(&self) -> String {
        let source = || self.source.to_string();
        self.by.as_ref().map_or_else(source, |by| match self.source {
            ChangeSource::Operator => by.to_string(),
            ChangeSource::Reload | ChangeSource::FrontEnd => format!("{}, {by}", self.source),
        })
    }
}

impl fmt::Display for LastChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", self.at, self.who())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_names_its_client_or_else_its_source() {
        let of = |source, by| LastChange { at: "2026-11-25T03:12:00.000Z".into(), source, by };
        let caller = || Some(Caller::new(7, Some(812)));
        let operator = of(ChangeSource::Operator, caller());
        assert_eq!(operator.to_string(), "2026-11-25T03:12:00.000Z by uid 7, pid 812");
        assert_eq!(of(ChangeSource::Reload, caller()).who(), "reload, uid 7, pid 812");
        assert_eq!(of(ChangeSource::Reload, None).who(), "reload");
        assert_eq!(of(ChangeSource::FrontEnd, None).who(), "front-end");
    }
}

//! Decides: an injection ends by itself.
//!
//! Injections of paths: set and cleared by the operator, and ended by themselves after a time.

use std::sync::Arc;

use monotonic::{Duration, Instant};
use mpath_api::types::{EventKind, Injection};
use mpath_api_server::ControlError;
use mpath_core::PathId;
use tokio::sync::oneshot;
use tokio::task;

use crate::clock::sleep_until;
use crate::io_threads::{injection, tell_threads};
use crate::subsystem::Subsystem;
use crate::subsystem::path_injection::{PathInjection, Timer};

impl Subsystem {
    /// Sets an injection on a path, which ends by itself after `time`. The returned receivers resolve once the I/O
    /// threads have it.
    pub(crate) fn set_injection(
        self: &Arc<Self>,
        path: PathId,
        injection: Injection,
        time: Option<Duration>,
    ) -> Result<Vec<oneshot::Receiver<()>>, ControlError> {
        let mut state = self.state();
        let status = state.path_mut(path).ok_or_else(|| ControlError::UnknownPath(self.path_ref(path)))?;
        // Only clearing is possible then: such a path may still hold injected requests.
        if status.is_removing() {
            return Err(ControlError::Removing(self.path_ref(path)));
        }
        status.injections.retain(|other| !injection.replaces(&other.injection));
        let timer = time.map(|time| self.end_injection_after(path, time));
        status.injections.push(PathInjection::new(injection, timer));
        let ends =
            time.map_or(String::new(), |time| format!("; ends after {}", humantime::format_duration(time.into())));
        let message = format!("injection set: {}{ends}", in_full(&injection));
        self.event(Some(status.named()), EventKind::InjectionSet, message);
        injection::set(self.threads(), path, &injection);
        Ok(tell_threads(self.threads(), |_| ()))
    }

    /// Clears the injections of a path. The returned receivers resolve once the I/O threads have done so.
    pub(crate) fn clear_injections(&self, path: PathId) -> Result<Vec<oneshot::Receiver<()>>, ControlError> {
        let mut state = self.state();
        let status = state.path_mut(path).ok_or_else(|| ControlError::UnknownPath(self.path_ref(path)))?;
        if !status.injections.is_empty() {
            status.injections.clear();
            self.event(Some(status.named()), EventKind::InjectionCleared, "injection cleared");
        }
        Ok(tell_threads(self.threads(), |thread| thread.clear_injection(path)))
    }

    fn end_injection_after(self: &Arc<Self>, path: PathId, time: Duration) -> Timer {
        // The timer must not keep a removed subsystem alive.
        let (subsystem, ends) = (Arc::downgrade(self), Instant::now() + time);
        let task = tokio::spawn(async move {
            sleep_until(ends).await;
            if let Some(subsystem) = subsystem.upgrade() {
                subsystem.end_injection(path, task::id(), time);
            }
        });
        Timer::new(ends, task.abort_handle())
    }

    /// Ends the injection of this timer.
    fn end_injection(&self, path: PathId, timer: task::Id, time: Duration) {
        let mut state = self.state();
        let Some(status) = state.path_mut(path) else { return };
        // The operator may have replaced or cleared the injection at the same moment.
        let Some(ended) = status.injections.iter().position(|of| of.has_timer(timer)) else { return };
        let injection = status.injections.remove(ended).injection;
        let message =
            format!("injection ended after {}: {}", humantime::format_duration(time.into()), in_full(&injection));
        self.event(Some(status.named()), EventKind::InjectionEnded, message);
        injection::end(self.threads(), path, &injection);
    }
}

/// An injection as events tell of it.
fn in_full(injection: &Injection) -> String {
    let class = injection.class.map_or("all".into(), |class| class.to_string());
    format!("{injection}; class {class}, direction {}, seed {}", injection.direction, injection.seed)
}

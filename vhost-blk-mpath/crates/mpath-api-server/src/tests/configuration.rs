//! The routes of the configuration.

use super::*;

#[test]
fn the_configuration_is_shown() {
    let server = Running::start(Limits::default());
    let shown = server.client().configuration().unwrap();
    assert_eq!((shown.file.as_deref(), &shown.effective["io-threads"]), (Some("/etc/c.yaml"), &1.into()));
}

#[test]
fn a_reload_answers_with_what_was_done_or_with_all_errors() {
    let server = Running::start(Limits::default());
    let done = server.client().reload(true, false).unwrap();
    assert!(done.dry_run && !server.client().reload(false, false).unwrap().dry_run);
    assert_eq!((done.failed[0].change.clone(), &*done.failed[0].reason), (done.applied[0].clone(), "no path"));
    let answer = (ErrorCode::ConfigInvalid, "c.yaml:1:1: a\nc.yaml:2:1: b".into());
    assert_eq!(refused(server.client().reload(false, true)), answer);
    let wrong = server.client().call::<Reload>(Method::POST, "/v1/config/reload?dry_run=true".into(), None::<&()>);
    assert_eq!(refused(wrong).0, ErrorCode::BadRequest);
}

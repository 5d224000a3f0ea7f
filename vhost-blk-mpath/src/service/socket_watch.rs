//! Decides: the file of a socket is lost (`look`).
//!
//! Looks at sockets and their files every few seconds. A program may remove or replace a file, and clients then cannot connect although
//! the daemon listens. And a front-end may wait on the socket of a disk that has one already.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use mpath_api::types::EventKind;
use mpath_api_server::socket::ListeningSocket;
use mpath_config::SocketPath;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::events::EventLog;
use crate::service::Service;
use crate::service::disks::Disks;

const PERIOD: Duration = Duration::from_secs(5);

/// Why the file of a socket does not lead to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LostFile {
    Gone,
    /// Another file is there.
    Replaced,
}

/// The file of a socket as the daemon has created it: device and inode.
type SocketFile = (SocketPath, (u64, u64));

/// Watches the sockets of all disks and of the API. The files of passed sockets belong to another process, and are not watched.
pub(crate) async fn watch(disks: Arc<Disks>, apis: Vec<(SocketPath, Weak<ListeningSocket>)>) {
    // A file system that does not answer holds up only the watch of files.
    tokio::join!(watch_front_ends(&disks), watch_files(&disks, apis));
}

async fn watch_front_ends(disks: &Disks) {
    loop {
        sleep(PERIOD).await;
        disks.services().iter().for_each(|service| service.look_for_waiting_front_ends());
    }
}

async fn watch_files(disks: &Disks, apis: Vec<(SocketPath, Weak<ListeningSocket>)>) {
    let mut lost_apis = vec![None; apis.len()];
    loop {
        sleep(PERIOD).await;
        let identity = |socket: &Weak<ListeningSocket>| socket.upgrade()?.file_identity();
        let files = apis.iter().filter_map(|(path, socket)| Some((path.clone(), identity(socket)?))).collect();
        let mut found = look_at(files).await;
        // The server may have ended meanwhile, and removed the file.
        found.retain(|(path, _)| apis.iter().any(|(of, socket)| of == path && socket.strong_count() > 0));
        if found.len() == lost_apis.len() {
            tell_of_apis(&disks.common.events, &mut lost_apis, &found);
        }
        for service in disks.services() {
            let files =
                service.sockets().into_iter().filter_map(|of| Some((of.path, of.socket.file_identity()?))).collect();
            let found = look_at(files).await;
            if !disks.is_leaving(&service.subsystem) {
                tell_of_disks(&service, &found);
            }
        }
    }
}

/// Looks at files. A file system that does not answer holds up only this.
async fn look_at(files: Vec<SocketFile>) -> Vec<(SocketPath, Option<LostFile>)> {
    let look = move || {
        let look = |(path, identity): SocketFile| {
            let lost = look(path.as_path(), identity);
            (path, lost)
        };
        files.into_iter().map(look).collect()
    };
    spawn_blocking(look).await.unwrap_or_default()
}

/// `None` if the file is there, or if nothing can be said of it.
fn look(path: &Path, identity: (u64, u64)) -> Option<LostFile> {
    match std::fs::symlink_metadata(path) {
        Ok(found) => ((found.dev(), found.ino()) != identity).then_some(LostFile::Replaced),
        Err(error) => (error.kind() == io::ErrorKind::NotFound).then_some(LostFile::Gone),
    }
}

fn tell_of_apis(events: &EventLog, lost: &mut [Option<LostFile>], found: &[(SocketPath, Option<LostFile>)]) {
    for (before, (path, now)) in lost.iter_mut().zip(found) {
        if let (None, Some(file)) = (std::mem::replace(before, *now), now) {
            let what = match file {
                LostFile::Gone => "is gone",
                LostFile::Replaced => "was replaced by another file",
            };
            let message = format!(
                "API socket {path} {what}, so no client can connect; restart the daemon, which creates the socket again"
            );
            events.record_of_daemon(EventKind::SocketLost, message);
        }
    }
}

fn tell_of_disks(service: &Service, found: &[(SocketPath, Option<LostFile>)]) {
    for disk in &service.subsystem.disks {
        let of_disk = found.iter().find(|(path, _)| *path == disk.settings.socket_path);
        let message = of_disk.and_then(|(path, lost)| {
            Some(match (*lost)? {
                LostFile::Gone => format!(
                    "socket {path} is gone, so no front-end can connect, and a connected one goes on; `mpathctl upgrade` creates the \
                     socket again, or a restart if the API socket is gone, too"
                ),
                LostFile::Replaced => format!(
                    "socket {path} was replaced by another file, so no front-end can connect, and a connected one goes on; remove that \
                     file, then `mpathctl upgrade` creates the socket again"
                ),
            })
        });
        let before = std::mem::replace(&mut disk.health().lost_socket, message.clone());
        if let (None, Some(message)) = (before, message) {
            disk.event(EventKind::SocketLost, message);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use mpath_api::types::Condition;

    use super::*;
    use crate::service::testing::service;

    #[test]
    fn a_lost_socket_is_told_once_and_degrades_its_disk_until_it_is_back() {
        let place = tempfile::tempdir().unwrap();
        let (service, _disks) = service(&place.path().join("disk.sock"), None);
        let disk = &service.subsystem.disks[0];
        let told = || {
            let events = service.subsystem.events.kept().1;
            events
                .into_iter()
                .filter(|event| event.kind == EventKind::SocketLost)
                .map(|event| event.message)
                .collect::<Vec<_>>()
        };
        let degraded = || {
            let reasons = service.check_health(disk, 0, false).0.reasons.into_iter();
            reasons
                .filter(|reason| reason.condition == Condition::Degraded)
                .map(|reason| reason.message)
                .collect::<Vec<_>>()
        };
        let find = |lost| tell_of_disks(&service, &[(disk.settings.socket_path.clone(), lost)]);
        find(None);
        assert_eq!((told(), degraded()), (vec![], vec![]));
        find(Some(LostFile::Gone));
        find(Some(LostFile::Gone));
        assert!(
            told().len() == 1 && told()[0].contains("is gone") && told()[0].contains("mpathctl upgrade"),
            "{:?}",
            told()
        );
        assert_eq!(degraded(), told());
        find(None);
        assert_eq!((told().len(), degraded()), (1, vec![]));
    }

    #[test]
    fn a_lost_socket_of_the_api_is_told_once() {
        let (events, mut lost) = (EventLog::new(), vec![None]);
        let mut find = |file| tell_of_apis(&events, &mut lost, &[("/run/api.sock".parse().unwrap(), file)]);
        find(None);
        find(Some(LostFile::Replaced));
        find(Some(LostFile::Replaced));
        find(None);
        find(Some(LostFile::Gone));
        let told: Vec<_> = events.kept().1.into_iter().map(|event| event.message).collect();
        assert!(
            told.len() == 2 && told[0].contains("/run/api.sock was replaced") && told[1].contains("is gone"),
            "{told:?}"
        );
    }

    #[test]
    fn a_file_is_lost_when_it_is_gone_or_another_one() {
        let place = tempfile::tempdir().unwrap();
        let (path, other) = (place.path().join("a"), place.path().join("b"));
        fs::write(&path, "").unwrap();
        fs::write(&other, "").unwrap();
        let found = fs::metadata(&path).unwrap();
        let identity = (found.dev(), found.ino());
        assert_eq!(look(&path, identity), None);
        fs::rename(&other, &path).unwrap();
        assert_eq!(look(&path, identity), Some(LostFile::Replaced));
        fs::remove_file(&path).unwrap();
        assert_eq!(look(&path, identity), Some(LostFile::Gone));
        assert_eq!(look(&other.join("below"), identity), Some(LostFile::Gone));
    }
}

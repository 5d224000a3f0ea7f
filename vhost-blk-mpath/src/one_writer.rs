//! No two disks of a daemon write to one namespace: their guests know nothing of each other, and what one of them has written the other
//! would overwrite. Whose namespace it is, paths tell: the same one may be configured by its number, or as the subsystem's only one.

use nvme_tcp::host::NamespaceIdentity;

use crate::disk::{Disk, Served};
use crate::service::StartError;
use crate::subsystem::Subsystem;

/// Checks that the disks of one subsystem write to nothing that those of others write to.
pub(crate) fn check<'a>(new: &Subsystem, mut others: impl Iterator<Item = &'a Subsystem>) -> Result<(), StartError> {
    others.try_for_each(|other| {
        let clash = writers(new).find_map(|ours| Some((ours, writers(other).find(|theirs| is_same(&ours, theirs))?)));
        match clash {
            Some(((disk, nqn, namespace), (of, ..))) => Err(StartError::SameNamespace {
                disk: disk.into(),
                of: of.into(),
                nsid: namespace.nsid,
                subsystem: nqn.into(),
            }),
            None => Ok(()),
        }
    })
}

/// The name of a disk, and what it writes to.
type Writer<'a> = (&'a str, &'a str, NamespaceIdentity);

fn writers(subsystem: &Subsystem) -> impl Iterator<Item = Writer<'_>> {
    let nqn = subsystem.config.subsystem.as_str();
    let writes = |disk: &&Disk| !disk.settings.read_only;
    let served = move |disk: &Disk| disk.served().map(|Served { namespace, .. }| *namespace);
    subsystem.disks.iter().filter(writes).filter_map(move |disk| Some((disk.name(), nqn, served(disk)?)))
}

/// By its identifiers, which are the same whichever subsystem has it; without any by its number.
fn is_same((_, nqn, ours): &Writer<'_>, (_, of, theirs): &Writer<'_>) -> bool {
    let identifiers = |of: &NamespaceIdentity| (of.uuid, of.nguid, of.eui64);
    let none = ([0; 16], [0; 16], [0; 8]);
    identifiers(ours) == identifiers(theirs) && (identifiers(ours) != none || (nqn, ours.nsid) == (of, theirs.nsid))
}

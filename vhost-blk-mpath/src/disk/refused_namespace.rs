//! Namespaces that a disk must not use, although a path leads there.

use std::path::PathBuf;

use mpath_lifecycle::NamespaceName;

use crate::disk::geometry::LostProperty;

/// Why a disk must not use the namespace that a path leads to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RefusedNamespace {
    #[error(
        "disk {disk}: disk {of} already uses namespace {nsid} of `subsystem` {subsystem}, and both would write to it; give each its own \
         `namespace`, or set `read-only` for one of them"
    )]
    HasWriter {
        disk: String,
        /// The disk that a path led there first.
        of: String,
        nsid: u32,
        subsystem: String,
    },
    #[error(
        "disk {disk}: cannot serve {namespace}: this socket last served {before}, whose guest may come back and repeat its requests in flight on the \
         wrong namespace; give the disk another `socket-path`; or, once that guest cannot come back, use `mpathctl fence clear {disk}`, or \
         without a daemon remove {} when the `fence_ms` in the file have passed", file.display()
    )]
    OfOtherGuest {
        disk: String,
        namespace: Box<NamespaceName>,
        before: Box<NamespaceName>,
        /// The fence record.
        file: PathBuf,
    },
    #[error(
        "disk {disk}: cannot serve {namespace}: the front-ends of this socket were shown {before}; if no guest of that namespace can \
         come back, remove the disk; then delete {} while no daemon serves the socket, and add the disk again", file.display()
    )]
    NotShown {
        disk: String,
        namespace: Box<NamespaceName>,
        before: Box<NamespaceName>,
        /// The file that describes the disk.
        file: PathBuf,
    },
    #[error(
        "disk {disk}: cannot serve {namespace} as the front-ends of this socket were shown it: {lost}; if that is intended, detach the disk from \
         its guest and remove the disk; then delete {} while no daemon serves the socket, and add the disk again", file.display()
    )]
    Changed {
        disk: String,
        namespace: Box<NamespaceName>,
        lost: LostProperty,
        /// The file that describes the disk.
        file: PathBuf,
    },
}

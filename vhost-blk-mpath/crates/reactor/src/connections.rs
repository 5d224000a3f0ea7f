//! The connections of an I/O thread, at most one a path.

use mpath_core::PathId;

use crate::by_id::{ById, paths_of};
use crate::connection::Connection;
use crate::ring::Ring;

/// The connections by path. A turn looks only at those that were used since the last turn.
pub(crate) struct Connections<R: Ring> {
    connections: ById<PathId, Connection<R>>,
    /// The paths whose connections may have something to send, or may have ended, as a bit set.
    used: u64,
}

impl<R: Ring> Default for Connections<R> {
    fn default() -> Self {
        Self { connections: ById::default(), used: 0 }
    }
}

impl<R: Ring> Connections<R> {
    #[inline]
    pub(crate) fn get(&self, path: PathId) -> Option<&Connection<R>> {
        self.connections.get(path)
    }

    /// The connection of a path, to use it.
    #[inline]
    pub(crate) fn get_mut(&mut self, path: PathId) -> Option<&mut Connection<R>> {
        self.used |= 1 << path.0;
        self.connections.get_mut(path)
    }

    /// The connection of a path, unless it is closing.
    #[inline]
    pub(crate) fn open_mut(&mut self, path: PathId) -> Option<&mut Connection<R>> {
        self.get_mut(path).filter(|connection| !connection.is_closing())
    }

    pub(crate) fn insert(&mut self, path: PathId, connection: Connection<R>) {
        self.used |= 1 << path.0;
        self.connections.insert(path, connection);
    }

    /// Removes a closing connection of which the kernel holds no buffer.
    pub(crate) fn take_quiescent(&mut self) -> Option<(PathId, Connection<R>)> {
        let is_quiescent = |path: &PathId| self.get(*path).is_some_and(Connection::is_quiescent);
        let path = paths_of(self.used).find(is_quiescent)?;
        self.used &= !(1 << path.0);
        Some((path, self.connections.remove(path)?))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = PathId> {
        self.connections.iter().map(|(path, _)| path)
    }

    /// The paths whose connections may have something to send. They count as used until they [rest](Self::rest).
    pub(crate) fn used(&self) -> impl Iterator<Item = PathId> + use<R> {
        paths_of(self.used)
    }

    /// Notes that the connection of a path has nothing to send before it is used again. A closing one ends some time.
    pub(crate) fn rest(&mut self, path: PathId) {
        if !self.get(path).is_some_and(Connection::is_closing) {
            self.used &= !(1 << path.0);
        }
    }
}

//! The target's side of a connection.

//! The Unix sockets of disks and API: location, socket activation, and the threads that serve front-ends.

pub(crate) mod activation;
pub(crate) mod frontend;
pub(crate) mod frontend_source;
pub(crate) mod location;

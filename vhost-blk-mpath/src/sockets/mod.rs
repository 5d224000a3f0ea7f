//! The Unix sockets of disks and API: location, socket activation, and serving front-ends.

pub(crate) mod activation;
pub(crate) mod frontend;
pub(crate) mod frontend_source;
pub(crate) mod location;
mod readiness;
pub(crate) mod served_disk;

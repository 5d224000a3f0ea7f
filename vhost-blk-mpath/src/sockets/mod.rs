//! The Unix sockets of disks and of the API: where they are, who hands them over, and the threads that serve front-ends there.

pub(crate) mod activation;
pub(crate) mod door;
pub(crate) mod frontend;
pub(crate) mod place;

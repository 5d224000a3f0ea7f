//! The Unix sockets of disks and of the API: which there are, where they are, and who hands them over.

pub(crate) mod activation;
pub(crate) mod door;
pub(crate) mod place;

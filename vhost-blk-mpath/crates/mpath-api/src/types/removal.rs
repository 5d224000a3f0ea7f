//! Disks that go.

use serde::{Deserialize, Serialize};

/// `DELETE /v1/disks/{disk}`: one of the disks that are gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedDisk {
    /// The disk's name.
    pub disk: String,
    /// For how much longer writes to its namespace may be executed, from the moment of the answer, because it was removed while their fate
    /// was not known. Until then another daemon must not be given the namespace; this one has whatever it is given with that socket or
    /// namespace wait. `null` if there are no such writes.
    pub in_doubt_ms: Option<u64>,
}

//! The identity of a namespace, and the check that two paths lead to the same one.

use crate::wire::{IdentifyNamespace, NamespaceDescriptors};

/// A namespace as one controller describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of the namespace")]
pub struct NamespaceIdentity {
    /// NSID.
    pub nsid: u32,
    /// NSZE: blocks.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// UUID; zero if there is none.
    pub uuid: [u8; 16],
    /// NGUID; zero if there is none.
    pub nguid: [u8; 16],
    /// EUI64; zero if there is none.
    pub eui64: [u8; 8],
    /// CSI: 0 for the NVM command set.
    pub csi: u8,
    /// NMIC: the namespace may be attached to several controllers.
    pub shared: bool,
    /// NSATTR: currently write protected.
    pub write_protected: bool,
    /// ANAGRPID; 0 without ANA.
    pub anagrpid: u32,
    /// NOIOB in blocks; 0 for none.
    pub noiob_blocks: u16,
    /// NPDG in blocks: the preferred granularity of deallocation.
    pub npdg_blocks: u32,
    /// DLFEAT: deallocated blocks read as zeroes.
    pub deallocated_reads_zeroes: bool,
    /// DLFEAT: Write Zeroes may deallocate (DEAC).
    pub write_zeroes_deallocates: bool,
}

/// The difference between two descriptions that should be of one namespace, or the reason against multipath.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdentityMismatch {
    /// NSID.
    #[error("NSID {0} and {1}")]
    Nsid(u32, u32),
    /// UUID, NGUID or EUI64.
    #[error("different UUID, NGUID or EUI64")]
    Identifier,
    /// The controller reports none of the identifiers that are known of the namespace, so it may be another one.
    #[error("no UUID, NGUID or EUI64 to compare; the controller is asked again")]
    Unverified,
    /// UUID, NGUID and EUI64 are all zero, so the namespace cannot be recognised over another path.
    #[error("no UUID, NGUID or EUI64 that identifies the namespace")]
    Unidentified,
    /// CSI.
    #[error("command set {0} and {1}")]
    CommandSet(u8, u8),
    /// NSZE.
    #[error("{0} and {1} blocks")]
    Blocks(u64, u64),
    /// LBA format.
    #[error("blocks of {0} and {1} bytes")]
    BlockBytes(u32, u32),
    /// NMIC does not say that the namespace is shared.
    #[error("not a shared namespace (NMIC)")]
    NotShared,
}

impl IdentityMismatch {
    /// Whether the controller has told no identity, which is no other identity. It may tell one when it is asked again.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Unverified | Self::Unidentified)
    }
}

impl NamespaceIdentity {
    /// The identity from Identify data. `block_bytes` was read from `namespace` and checked.
    pub(super) fn new(
        nsid: u32,
        block_bytes: u32,
        namespace: &IdentifyNamespace,
        descriptors: &NamespaceDescriptors,
    ) -> Self {
        let granularity = namespace.nsfeat >> 4 & 1 != 0;
        Self {
            nsid,
            blocks: namespace.nsze.get(),
            block_bytes,
            uuid: descriptors.uuid.unwrap_or_default(),
            // Older controllers report these in Identify Namespace only.
            nguid: descriptors.nguid.unwrap_or(namespace.nguid),
            eui64: descriptors.eui64.unwrap_or(namespace.eui64),
            csi: descriptors.csi.unwrap_or(0),
            shared: namespace.nmic & IdentifyNamespace::NMIC_SHARED != 0,
            write_protected: namespace.nsattr & IdentifyNamespace::NSATTR_WRITE_PROTECTED != 0,
            anagrpid: namespace.anagrpid.get(),
            noiob_blocks: namespace.noiob.get(),
            npdg_blocks: if granularity { u32::from(namespace.npdg.get()) + 1 } else { 1 },
            deallocated_reads_zeroes: namespace.dlfeat & 7 == IdentifyNamespace::DLFEAT_READ_ZEROES,
            write_zeroes_deallocates: namespace.dlfeat & IdentifyNamespace::DLFEAT_DEAC != 0,
        }
    }

    /// Checks that `other`, from another path or another time, is this namespace and not smaller. It may be larger: namespaces
    /// grow, and controllers may report it at different times.
    pub fn check_same(&self, other: &Self) -> Result<(), IdentityMismatch> {
        if self.nsid != other.nsid {
            return Err(IdentityMismatch::Nsid(self.nsid, other.nsid));
        }
        // Only kinds that both have can be compared: one controller may list a UUID, and another an NGUID too.
        let mut known = self.identifiers().zip(other.identifiers()).filter(|(ours, theirs)| *ours != 0 && *theirs != 0);
        if known.clone().any(|(ours, theirs)| ours != theirs) {
            return Err(IdentityMismatch::Identifier);
        }
        if known.next().is_none() && (self.has_identifier() || other.has_identifier()) {
            return Err(IdentityMismatch::Unverified);
        }
        if self.csi != other.csi {
            return Err(IdentityMismatch::CommandSet(self.csi, other.csi));
        }
        // Before the number of blocks, which cannot be compared if the block sizes differ.
        if self.block_bytes != other.block_bytes {
            return Err(IdentityMismatch::BlockBytes(self.block_bytes, other.block_bytes));
        }
        if other.blocks < self.blocks {
            return Err(IdentityMismatch::Blocks(self.blocks, other.blocks));
        }
        Ok(())
    }

    /// Checks that this namespace can be used over several paths: it must be shared and have an identifier.
    pub fn check_multipath(&self) -> Result<(), IdentityMismatch> {
        if !self.shared {
            return Err(IdentityMismatch::NotShared);
        }
        if !self.has_identifier() {
            return Err(IdentityMismatch::Unidentified);
        }
        Ok(())
    }

    /// Whether there is a UUID, NGUID or EUI64.
    #[must_use]
    pub fn has_identifier(&self) -> bool {
        self.identifiers().any(|identifier| identifier != 0)
    }

    /// UUID, NGUID and EUI64, each as a number, which is zero if there is none.
    fn identifiers(&self) -> impl Iterator<Item = u128> + Clone {
        let eui64 = u64::from_be_bytes(self.eui64).into();
        [u128::from_be_bytes(self.uuid), u128::from_be_bytes(self.nguid), eui64].into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_same_reports_each_difference() {
        let mut data = IdentifyNamespace::blank();
        data.nsze = 100.into();
        data.nmic = 1;
        let descriptors = NamespaceDescriptors { uuid: Some([7; 16]), ..Default::default() };
        let ours = NamespaceIdentity::new(1, 512, &data, &descriptors);
        assert_eq!((ours.check_same(&ours), ours.check_multipath()), (Ok(()), Ok(())));
        let cases = [
            (NamespaceIdentity { nsid: 2, ..ours }, IdentityMismatch::Nsid(1, 2)),
            (NamespaceIdentity { uuid: [8; 16], ..ours }, IdentityMismatch::Identifier),
            (NamespaceIdentity { uuid: [0; 16], ..ours }, IdentityMismatch::Unverified),
            (NamespaceIdentity { uuid: [0; 16], nguid: [7; 16], ..ours }, IdentityMismatch::Unverified),
            (NamespaceIdentity { csi: 2, ..ours }, IdentityMismatch::CommandSet(0, 2)),
            (NamespaceIdentity { blocks: 99, ..ours }, IdentityMismatch::Blocks(100, 99)),
            (NamespaceIdentity { block_bytes: 4096, ..ours }, IdentityMismatch::BlockBytes(512, 4096)),
            (NamespaceIdentity { block_bytes: 4096, blocks: 12, ..ours }, IdentityMismatch::BlockBytes(512, 4096)),
        ];
        for (theirs, mismatch) in cases {
            assert_eq!(ours.check_same(&theirs), Err(mismatch));
        }
        assert_eq!(ours.check_same(&NamespaceIdentity { blocks: 101, ..ours }), Ok(()), "grown");
        // Kinds that only one of them has say nothing, and each kind that both have must be equal.
        let more = NamespaceIdentity { nguid: [8; 16], eui64: [8; 8], ..ours };
        assert_eq!((ours.check_same(&more), more.check_same(&ours)), (Ok(()), Ok(())));
        let other = NamespaceIdentity { nguid: [9; 16], eui64: [0; 8], ..more };
        assert_eq!(more.check_same(&other), Err(IdentityMismatch::Identifier));
        let nameless = NamespaceIdentity { uuid: [0; 16], ..ours };
        assert_eq!(
            (nameless.check_same(&nameless), nameless.check_same(&ours)),
            (Ok(()), Err(IdentityMismatch::Unverified))
        );
        let unshared = NamespaceIdentity { shared: false, ..ours };
        assert_eq!(unshared.check_multipath(), Err(IdentityMismatch::NotShared));
        let anonymous = NamespaceIdentity { uuid: [0; 16], ..ours };
        assert_eq!(anonymous.check_multipath(), Err(IdentityMismatch::Unidentified));
    }
}

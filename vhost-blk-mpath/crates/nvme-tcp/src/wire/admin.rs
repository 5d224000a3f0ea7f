//! Admin commands (Base 5).

use super::sqe::{high, join, low};
use super::{FeatureId, Opcode, Sgl, Sqe, Status};

/// CNS of Identify: the requested data structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cns(pub u8);

impl Cns {
    /// Identify Namespace of the NVM command set.
    pub const NAMESPACE: Self = Self(0x00);
    /// Identify Controller.
    pub const CONTROLLER: Self = Self(0x01);
    /// Active namespace list.
    pub const ACTIVE_LIST: Self = Self(0x02);
    /// Namespace identification descriptors.
    pub const DESCRIPTORS: Self = Self(0x03);
    /// Namespace, command set specific.
    pub const CSI_NAMESPACE: Self = Self(0x05);
    /// Controller, command set specific.
    pub const CSI_CONTROLLER: Self = Self(0x06);
}

/// LID of Get Log Page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPage(pub u8);

impl LogPage {
    /// Error Information.
    pub const ERROR: Self = Self(0x01);
    /// SMART / Health Information.
    pub const SMART: Self = Self(0x02);
    /// Firmware Slot Information.
    pub const FIRMWARE_SLOT: Self = Self(0x03);
    /// Changed Namespace List.
    pub const CHANGED_NAMESPACES: Self = Self(0x04);
    /// Commands Supported and Effects.
    pub const COMMAND_EFFECTS: Self = Self(0x05);
    /// Asymmetric Namespace Access.
    pub const ANA: Self = Self(0x0c);
    /// Cross-Controller Reset.
    pub const CROSS_CONTROLLER_RESET: Self = Self(0x1e);
    /// Discovery.
    pub const DISCOVERY: Self = Self(0x70);
}

/// A command of the admin command set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdminCommand {
    /// Identify; returns [`IDENTIFY_BYTES`](super::IDENTIFY_BYTES).
    Identify {
        /// The data structure.
        cns: Cns,
        /// The namespace, or the one after which a list starts.
        nsid: u32,
        /// Controller identifier, for structures that need one.
        cntid: u16,
        /// Command Set Identifier, for structures that need one.
        csi: u8,
    },
    /// Get Log Page.
    GetLogPage {
        /// The log.
        lid: LogPage,
        /// The namespace, or `FFFFFFFFh`.
        nsid: u32,
        /// LSP: log specific parameter (7 bits).
        lsp: u8,
        /// RAE: the asynchronous event of the log stays outstanding.
        rae: bool,
        /// Bytes to return: a multiple of four, from 4 to 2³⁴.
        bytes: u64,
        /// LPO: the start offset, in bytes.
        offset: u64,
    },
    /// Set Features.
    SetFeatures {
        /// The feature.
        fid: FeatureId,
        /// SV: save the value over a reset.
        save: bool,
        /// The namespace, for features that have one.
        nsid: u32,
        /// Dword 11, the value of most features.
        value: u32,
    },
    /// Get Features. The result of the completion is the value.
    GetFeatures {
        /// The feature.
        fid: FeatureId,
        /// SEL: 0 current, 1 default, 2 saved, 3 capabilities.
        sel: u8,
        /// The namespace, for features that have one.
        nsid: u32,
    },
    /// Keep Alive.
    KeepAlive,
    /// Asynchronous Event Request. It completes when an event occurs.
    AsyncEventRequest,
    /// Abort, best effort.
    Abort {
        /// The queue of the command.
        sqid: u16,
        /// CID of the command.
        cid: u16,
    },
    /// Cross-Controller Reset (Base 2.3, 5.4.3): resets another controller of the subsystem. Bit 0 of the result says that the
    /// reset is done.
    CrossControllerReset(ControllerInstance),
}

/// A controller instance, as Cross-Controller Reset names it. Each reset of a controller starts another instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControllerInstance {
    /// Controller Identifier.
    pub cntlid: u16,
    /// CIU: Controller Instance Uniquifier; never 0 if Cross-Controller Reset is supported.
    pub ciu: u8,
    /// CIRN: Controller Instance Random Number.
    pub cirn: u64,
}

/// IRS, bit 0 of the result of Cross-Controller Reset: the other controller is reset. Without it the reset is under way.
pub const CROSS_RESET_DONE: u64 = 1;

impl AdminCommand {
    /// The submission queue entry.
    #[must_use]
    pub fn to_sqe(&self, cid: u16, sgl: Sgl) -> Sqe {
        let (opcode, nsid, cdw) = match *self {
            Self::Identify { cns, nsid, cntid, csi } => {
                (Opcode::IDENTIFY, nsid, [u32::from(cns.0) | u32::from(cntid) << 16, u32::from(csi) << 24, 0, 0, 0, 0])
            }
            Self::GetLogPage { lid, nsid, lsp, rae, bytes, offset } => {
                let numd = (bytes / 4).saturating_sub(1) as u32;
                let cdw10 = u32::from(lid.0) | u32::from(lsp & 0x7f) << 8 | u32::from(rae) << 15 | numd << 16;
                (Opcode::GET_LOG_PAGE, nsid, [cdw10, numd >> 16, low(offset), high(offset), 0, 0])
            }
            Self::SetFeatures { fid, save, nsid, value } => {
                (Opcode::SET_FEATURES, nsid, [u32::from(fid.0) | u32::from(save) << 31, value, 0, 0, 0, 0])
            }
            Self::GetFeatures { fid, sel, nsid } => {
                (Opcode::GET_FEATURES, nsid, [u32::from(fid.0) | u32::from(sel & 7) << 8, 0, 0, 0, 0, 0])
            }
            Self::KeepAlive => (Opcode::KEEP_ALIVE, 0, [0; 6]),
            Self::AsyncEventRequest => (Opcode::ASYNC_EVENT_REQUEST, 0, [0; 6]),
            Self::CrossControllerReset(ControllerInstance { cntlid, ciu, cirn }) => {
                let cdw10 = u32::from(cntlid) | u32::from(ciu) << 16;
                (Opcode::CROSS_CONTROLLER_RESET, 0, [cdw10, 0, low(cirn), high(cirn), 0, 0])
            }
            Self::Abort { sqid, cid } => (Opcode::ABORT, 0, [u32::from(sqid) | u32::from(cid) << 16, 0, 0, 0, 0, 0]),
        };
        Sqe::new(opcode, cid, nsid, sgl).with_cdw(cdw)
    }

    /// Parses the entry of an admin queue.
    ///
    /// # Errors
    /// The status to answer with.
    pub fn parse(sqe: &Sqe) -> Result<Self, Status> {
        let [cdw10, cdw11, cdw12, cdw13, ..] = sqe.cdw();
        let nsid = sqe.nsid.get();
        match Opcode(sqe.opcode) {
            Opcode::IDENTIFY => Ok(Self::Identify {
                cns: Cns(cdw10 as u8),
                nsid,
                cntid: (cdw10 >> 16) as u16,
                csi: (cdw11 >> 24) as u8,
            }),
            Opcode::GET_LOG_PAGE => Ok(Self::GetLogPage {
                lid: LogPage(cdw10 as u8),
                nsid,
                lsp: (cdw10 >> 8) as u8 & 0x7f,
                rae: cdw10 >> 15 & 1 != 0,
                bytes: (u64::from(cdw10 >> 16 | cdw11 << 16) + 1) * 4,
                offset: join(cdw12, cdw13),
            }),
            Opcode::SET_FEATURES => {
                Ok(Self::SetFeatures { fid: FeatureId(cdw10 as u8), save: cdw10 >> 31 != 0, nsid, value: cdw11 })
            }
            Opcode::GET_FEATURES => {
                Ok(Self::GetFeatures { fid: FeatureId(cdw10 as u8), sel: (cdw10 >> 8) as u8 & 7, nsid })
            }
            Opcode::KEEP_ALIVE => Ok(Self::KeepAlive),
            Opcode::ASYNC_EVENT_REQUEST => Ok(Self::AsyncEventRequest),
            Opcode::CROSS_CONTROLLER_RESET => Ok(Self::CrossControllerReset(ControllerInstance {
                cntlid: cdw10 as u16,
                ciu: (cdw10 >> 16) as u8,
                cirn: join(cdw12, cdw13),
            })),
            Opcode::ABORT => Ok(Self::Abort { sqid: cdw10 as u16, cid: (cdw10 >> 16) as u16 }),
            _ => Err(Status::INVALID_OPCODE.with_dnr()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    fn any_command() -> impl Strategy<Value = AdminCommand> {
        prop_oneof![
            any::<(u8, u32, u16, u8)>()
                .prop_map(|(cns, nsid, cntid, csi)| { AdminCommand::Identify { cns: Cns(cns), nsid, cntid, csi } }),
            (any::<(u8, u32, bool, u32, u64)>(), 0u8..128).prop_map(|((lid, nsid, rae, numd, offset), lsp)| {
                let bytes = (u64::from(numd) + 1) * 4;
                AdminCommand::GetLogPage { lid: LogPage(lid), nsid, lsp, rae, bytes, offset }
            }),
            any::<(u8, bool, u32, u32)>().prop_map(|(fid, save, nsid, value)| {
                AdminCommand::SetFeatures { fid: FeatureId(fid), save, nsid, value }
            }),
            (any::<(u8, u32)>(), 0u8..8).prop_map(|((fid, nsid), sel)| AdminCommand::GetFeatures {
                fid: FeatureId(fid),
                sel,
                nsid
            }),
            Just(AdminCommand::KeepAlive),
            Just(AdminCommand::AsyncEventRequest),
            any::<(u16, u16)>().prop_map(|(sqid, cid)| AdminCommand::Abort { sqid, cid }),
            any::<(u16, u8, u64)>().prop_map(|(cntlid, ciu, cirn)| {
                AdminCommand::CrossControllerReset(ControllerInstance { cntlid, ciu, cirn })
            }),
        ]
    }

    proptest! {
        #[test]
        fn parse_inverts_emit(command in any_command(), cid: u16, length: u32) {
            let sqe = command.to_sqe(cid, Sgl::Transport { length });
            prop_assert_eq!(sqe.cid.get(), cid);
            prop_assert_eq!(Sgl::parse(&sqe.dptr), Ok(Sgl::Transport { length }));
            prop_assert_eq!(AdminCommand::parse(&sqe), Ok(command));
        }

        #[test]
        fn any_bytes_parse_or_fail(bytes: [u8; 64]) {
            let _ = AdminCommand::parse(&zerocopy::transmute!(bytes));
        }
    }

    #[test]
    fn log_page_field_offsets_match_the_specification() {
        let command = AdminCommand::GetLogPage {
            lid: LogPage::ANA,
            nsid: 0xffff_ffff,
            lsp: 1,
            rae: true,
            bytes: 4096,
            offset: 0x1_0000_0002,
        };
        let sqe = command.to_sqe(1, Sgl::Transport { length: 4096 });
        let bytes = sqe.as_bytes();
        assert_eq!(bytes[..8], [2, 0x40, 1, 0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(bytes[24..40], [0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0x5a]);
        assert_eq!(bytes[40..56], [0x0c, 0x81, 0xff, 3, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0]);
    }

    #[test]
    fn the_instance_of_a_cross_controller_reset_matches_the_specification() {
        let instance = ControllerInstance { cntlid: 0x1234, ciu: 0x56, cirn: 0x1122_3344_5566_7788 };
        let sqe = AdminCommand::CrossControllerReset(instance).to_sqe(1, Sgl::NONE);
        let bytes = sqe.as_bytes();
        assert_eq!((bytes[0], &bytes[40..44]), (0x38, &[0x34, 0x12, 0x56, 0][..]));
        assert_eq!(bytes[48..56], [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
    }
}

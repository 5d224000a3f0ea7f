//! Log pages.

use nvme_tcp::wire::{ActiveList, AnaGroup, AnaLog, LogPage, Opcode, Status};

use super::namespace::NSID_ALL;
use super::subsystem::Subsystem;

/// LSP of the ANA log: groups only, without their namespaces (Base 5.16.1.13).
const ANA_GROUPS_ONLY: u8 = 1;
/// The Cross-Controller Reset log: a header and up to 63 entries of 32 bytes each.
const CROSS_RESET_LOG_BYTES: usize = 2048;
/// CSUPP of the effects log: the command is supported.
const EFFECT_SUPPORTED: u32 = 1;
/// LBCC of the effects log: the command may change logical blocks.
const EFFECT_CONTENT: u32 = 1 << 1;

impl Subsystem {
    /// The whole log `lid` of controller `cntlid`.
    pub(super) fn log_page(&self, cntlid: u16, lid: LogPage, nsid: u32, lsp: u8) -> Result<Vec<u8>, Status> {
        if let Some(records) = &self.records {
            return match lid {
                LogPage::DISCOVERY => Ok(records.emit()),
                _ => Err(Status::INVALID_LOG_PAGE.with_dnr()),
            };
        }
        match lid {
            // One empty entry: no error is recorded.
            LogPage::ERROR => Ok(vec![0; 64]),
            LogPage::SMART if matches!(nsid, 0 | NSID_ALL) => Ok(smart()),
            LogPage::SMART => Err(Status::INVALID_FIELD.with_dnr()),
            LogPage::FIRMWARE_SLOT => Ok(firmware_slot()),
            LogPage::CHANGED_NAMESPACES => {
                let changed = self.controllers.get(&cntlid).map(|controller| &controller.events.changed_nsids);
                let nsids = changed.into_iter().flatten().copied();
                Ok(ActiveList(nsids.collect()).emit().to_vec())
            }
            // An empty list: a reset is done when its command completes, so none is ever under way.
            LogPage::CROSS_CONTROLLER_RESET => Ok(vec![0; CROSS_RESET_LOG_BYTES]),
            LogPage::COMMAND_EFFECTS => Ok(effects()),
            LogPage::ANA => Ok(self.ana_log(cntlid, lsp & ANA_GROUPS_ONLY != 0).emit()),
            _ => Err(Status::INVALID_LOG_PAGE.with_dnr()),
        }
    }

    /// The ANA log of controller `cntlid`, empty if there is no such controller.
    #[must_use]
    pub fn ana_log(&self, cntlid: u16, groups_only: bool) -> AnaLog {
        let controller = self.controllers.get(&cntlid);
        let Some(port) = controller.and_then(|controller| self.port(controller.port)) else {
            return AnaLog::default();
        };
        let groups = port.groups.iter().zip(1..).map(|(group, id)| AnaGroup {
            id,
            change_count: group.change_count,
            state: group.state,
            nsids: if groups_only { vec![] } else { vec![id] },
        });
        AnaLog { change_count: port.change_count, groups: groups.collect() }
    }
}

/// SMART: healthy, room temperature, all spare capacity available (Base, figure 207).
fn smart() -> Vec<u8> {
    const KELVIN: u16 = 293;
    let mut log = vec![0; 512];
    log[1..3].copy_from_slice(&KELVIN.to_le_bytes());
    log[3] = 100;
    log[4] = 10;
    log
}

/// Firmware slots: slot 1 is active.
fn firmware_slot() -> Vec<u8> {
    let mut log = vec![0; 512];
    log[0] = 1;
    let revision = env!("CARGO_PKG_VERSION").as_bytes();
    log[8..16].fill(b' ');
    for (to, from) in log[8..16].iter_mut().zip(revision) {
        *to = *from;
    }
    log
}

/// The supported commands: 256 dwords for admin commands, 256 for I/O commands.
fn effects() -> Vec<u8> {
    const ADMIN: [Opcode; 8] = [
        Opcode::GET_LOG_PAGE,
        Opcode::IDENTIFY,
        Opcode::ABORT,
        Opcode::SET_FEATURES,
        Opcode::GET_FEATURES,
        Opcode::ASYNC_EVENT_REQUEST,
        Opcode::KEEP_ALIVE,
        Opcode::CROSS_CONTROLLER_RESET,
    ];
    const IO: [(Opcode, u32); 5] = [
        (Opcode::FLUSH, EFFECT_SUPPORTED),
        (Opcode::READ, EFFECT_SUPPORTED),
        (Opcode::WRITE, EFFECT_SUPPORTED | EFFECT_CONTENT),
        (Opcode::WRITE_ZEROES, EFFECT_SUPPORTED | EFFECT_CONTENT),
        (Opcode::DATASET_MANAGEMENT, EFFECT_SUPPORTED | EFFECT_CONTENT),
    ];
    let mut log = vec![0; 4096];
    let mut set = |at: usize, value: u32| log[at..at + 4].copy_from_slice(&value.to_le_bytes());
    for opcode in ADMIN {
        set(usize::from(opcode.0) * 4, EFFECT_SUPPORTED);
    }
    for (opcode, effect) in IO {
        set(1024 + usize::from(opcode.0) * 4, effect);
    }
    log
}

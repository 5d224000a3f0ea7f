//! Identify data structures.

use nvme_tcp::wire::{
    ACTIVE_LIST_MAX, ActiveList, Cns, IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, LbaFormat,
    NamespaceDescriptors, Status,
};
use zerocopy::IntoBytes;

use super::admin::VERSION;
use super::controller::KEEP_ALIVE_GRANULARITY;
use super::events::MAX_EVENT_REQUESTS;
use super::namespace::Namespace;
use super::subsystem::Subsystem;

/// Command Set Identifier of the NVM command set.
const CSI_NVM: u8 = 0;
/// ANACAP: all five states are reported (bits 0–4), and a namespace never changes its group (bit 6).
const ANA_CAPABILITIES: u8 = 0b0101_1111;
/// CMIC: several ports (bit 0) and several controllers (bit 1).
const CMIC_MULTI: u8 = 0b11;
/// CQT: a lost connection executes no command once its thread notices the loss. This is ample time for that.
const QUIESCE_MILLISECONDS: u16 = 100;
/// LPA: commands supported and effects (bit 1).
const LPA_EFFECTS: u8 = 1 << 1;
/// VWC: present (bit 0), Flush accepts the NSID for all namespaces (bits 2:1 = 11b).
const WRITE_CACHE: u8 = 0b111;
/// SGLS: supported without alignment rules (bits 1:0 = 01b), offsets in the capsule (bit 20), transport data blocks
/// (bit 21).
const SGL_SUPPORT: u32 = 1 | 1 << 20 | 1 << 21;
/// NSFEAT: thin provisioning.
const NSFEAT_THIN: u8 = 1;
const CNTRLTYPE_IO: u8 = 1;
/// CRDT1 to CRDT3, in units of 100 ms.
const RETRY_DELAYS: [u16; 3] = [1, 5, 20];
/// CCRL: each reset is done when its command completes, and an admin queue has one thread.
const CROSS_RESETS: u8 = 1;

impl Subsystem {
    /// The data structure `cns` for controller `cntlid`.
    pub(super) fn identify(&self, cntlid: u16, cns: Cns, nsid: u32, csi: u8) -> Result<Vec<u8>, Status> {
        match cns {
            _ if self.is_discovery() && cns != Cns::CONTROLLER => Err(Status::INVALID_FIELD.with_dnr()),
            Cns::NAMESPACE => Ok(identify_namespace(nsid, self.namespace(cntlid, nsid)?).as_bytes().to_vec()),
            Cns::CONTROLLER => Ok(self.identify_controller(cntlid).as_bytes().to_vec()),
            Cns::ACTIVE_LIST => self.active_list(nsid),
            Cns::DESCRIPTORS => {
                let &Namespace { uuid, nguid, .. } = self.namespace(cntlid, nsid)?;
                let nguid = (nguid != [0; 16]).then_some(nguid);
                let list = NamespaceDescriptors { uuid: Some(uuid), nguid, csi: Some(CSI_NVM), ..Default::default() };
                Ok(list.emit().to_vec())
            }
            // All zeroes: no limits specific to the NVM command set, no protection information.
            Cns::CSI_NAMESPACE if csi == CSI_NVM => self.namespace(cntlid, nsid).map(|_| vec![0; IDENTIFY_BYTES]),
            Cns::CSI_CONTROLLER if csi == CSI_NVM => Ok(vec![0; IDENTIFY_BYTES]),
            _ => Err(Status::INVALID_FIELD.with_dnr()),
        }
    }

    /// A namespace as the controller's port reports it.
    fn namespace(&self, cntlid: u16, nsid: u32) -> Result<&Namespace, Status> {
        let port = self.controllers.get(&cntlid).and_then(|controller| self.port(controller.port));
        if let Some(namespace) = port.and_then(|port| port.overrides.get(&nsid)) {
            return Ok(namespace);
        }
        let index = (nsid as usize).checked_sub(1);
        let namespace = index.and_then(|index| self.config.namespaces.get(index));
        namespace.ok_or(Status::INVALID_NAMESPACE.with_dnr())
    }

    fn active_list(&self, after: u32) -> Result<Vec<u8>, Status> {
        if after >= 0xffff_fffe {
            return Err(Status::INVALID_NAMESPACE.with_dnr());
        }
        let all = 1..=self.config.namespaces.len() as u32;
        let list = ActiveList(all.filter(|&nsid| nsid > after).take(ACTIVE_LIST_MAX).collect());
        Ok(list.emit().to_vec())
    }

    fn identify_controller(&self, cntlid: u16) -> IdentifyController {
        let config = &self.config;
        let mut identify = IdentifyController::blank();
        identify.sn = IdentifyController::padded(&config.serial);
        identify.mn = IdentifyController::padded("mpath-target");
        identify.fr = IdentifyController::padded(env!("CARGO_PKG_VERSION"));
        identify.mdts = (config.limits.max_transfer_bytes / 4096).ilog2() as u8;
        identify.cntlid = cntlid.into();
        identify.ver = VERSION.0.into();
        identify.oaes = self.events().0.into();
        identify.aerl = (MAX_EVENT_REQUESTS - 1) as u8;
        identify.kas = ((KEEP_ALIVE_GRANULARITY.as_millis() / 100) as u16).into();
        identify.maxcmd = config.max_entries.into();
        identify.sgls = SGL_SUPPORT.into();
        identify.ioccsz = ((64 + config.limits.in_capsule_bytes) / 16).into();
        identify.iorcsz = 1.into();
        identify.msdbd = 1;
        identify.set_subnqn(&config.nqn);
        if self.is_discovery() {
            Self::identify_discovery(&mut identify);
        } else {
            self.identify_io(cntlid, &mut identify);
        }
        identify
    }

    /// The fields that only I/O controllers have.
    fn identify_io(&self, cntlid: u16, identify: &mut IdentifyController) {
        let config = &self.config;
        let namespaces = config.namespaces.len() as u32;
        identify.cntrltype = CNTRLTYPE_IO;
        identify.cmic = CMIC_MULTI | IdentifyController::CMIC_ANA;
        identify.acl = 3;
        identify.lpa = LPA_EFFECTS | IdentifyController::LPA_EXTENDED;
        identify.crdt = RETRY_DELAYS.map(Into::into);
        identify.anatt = config.anatt_seconds;
        identify.anacap = ANA_CAPABILITIES;
        identify.anagrpmax = namespaces.into();
        identify.nanagrpid = namespaces.into();
        identify.cqt = QUIESCE_MILLISECONDS.into();
        identify.sqes = 0x66;
        identify.cqes = 0x44;
        identify.nn = namespaces.into();
        identify.mnan = namespaces.into();
        identify.oncs = (IdentifyController::ONCS_DSM | IdentifyController::ONCS_WRITE_ZEROES).into();
        identify.vwc = WRITE_CACHE;
        identify.ccrl = CROSS_RESETS;
        if let Some(instance) = self.instance(cntlid) {
            identify.ciu = instance.ciu;
            identify.cirn = instance.cirn.to_le_bytes();
        }
    }
}

fn identify_namespace(nsid: u32, namespace: &Namespace) -> IdentifyNamespace {
    let mut identify = IdentifyNamespace::blank();
    identify.nsze = namespace.blocks.into();
    identify.ncap = namespace.blocks.into();
    identify.nuse = namespace.blocks.into();
    identify.nsfeat = NSFEAT_THIN;
    identify.nmic = IdentifyNamespace::NMIC_SHARED;
    identify.dlfeat = IdentifyNamespace::DLFEAT_READ_ZEROES | IdentifyNamespace::DLFEAT_DEAC;
    identify.anagrpid = nsid.into();
    identify.nguid = namespace.nguid;
    identify.lbaf[0] = LbaFormat { lbads: namespace.block_shift, ..LbaFormat::default() };
    identify
}

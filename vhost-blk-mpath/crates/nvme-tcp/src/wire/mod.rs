//! Wire formats of NVMe/TCP: NVM Express TCP Transport Specification 1.0, and the parts of the Base Specification 2.0 and NVM
//! Command Set Specification 1.0 that are used with it.
//!
//! Each format can be parsed and emitted, because the target emits what the host parses. Fixed layouts are little-endian
//! structures with a checked size ([`Sqe`], [`Cqe`], [`IdentifyController`], …). Formats with further rules (PDU headers,
//! commands, logs) have a plain representation, and their `parse` refuses violations. No parser panics on any input.

mod active_list;
mod admin;
mod ana_log;
mod async_event;
mod connect;
mod cqe;
mod dataset;
mod descriptors;
mod digest;
mod discovery_entry;
mod discovery_log;
mod fabrics;
mod features;
mod framing;
mod header;
mod identify_controller;
mod identify_namespace;
mod identify_nvm_controller;
mod init;
mod nqn;
mod nvm;
mod pdu;
mod property;
mod sgl;
mod sqe;
mod status;
mod status_table;
mod term;
mod transfer;

pub use active_list::{ACTIVE_LIST_MAX, ActiveList};
pub use admin::{AdminCommand, CROSS_RESET_DONE, Cns, ControllerInstance, LogPage};
pub use ana_log::{ANA_LOG_PART_MIN, AnaGroup, AnaLog, AnaLogError, AnaLogParser, AnaState};
pub use async_event::AsyncEvent;
pub use connect::{CNTLID_ANY, ConnectData, ConnectField, ConnectResult};
pub use cqe::Cqe;
pub use dataset::{DSM_RANGES_MAX, DsmRange};
pub use descriptors::{DescriptorError, NamespaceDescriptors};
pub use digest::{Digest, crc32c};
pub use discovery_entry::{
    AddressFamily, DiscoveryEntry, DiscoveryEntryError, DiscoveryField, SecurityType, SubsystemType, TransportType,
};
pub use discovery_log::{DISCOVERY_ENTRY_BYTES, DiscoveryHeader, DiscoveryHeaderError};
pub use fabrics::{Connect, FabricsCommand, PropertySize};
pub use features::{AsyncEventMask, FeatureId, NumberOfQueues};
pub use framing::{Framing, Layout};
pub use header::{CommonHeader, PduError, PduField, PduFlags, PduType};
pub use identify_controller::IdentifyController;
pub use identify_namespace::{IdentifyNamespace, LbaFormat};
pub use identify_nvm_controller::IdentifyNvmController;
pub use init::{Digests, IcReq, IcResp, MAXH2CDATA_MIN, PDU_ALIGNMENT_MAX};
pub use nqn::{NQN_LEN_MAX, Nqn, NqnError};
pub use nvm::{BLOCKS_MAX, NvmCommand};
pub use pdu::Pdu;
pub use property::{Capabilities, ControllerConfiguration, ControllerStatus, PropertyOffset, ShutdownStatus, Version};
pub use sgl::Sgl;
pub use sqe::{Opcode, Sqe};
pub use status::Status;
pub use status_table::{Answer, Subject};
pub use term::{FatalError, TERM_DATA_MAX, TermReq};
pub use transfer::{C2hData, H2cData, R2t};

/// Size of each data structure that Identify returns, in bytes.
pub const IDENTIFY_BYTES: usize = 4096;

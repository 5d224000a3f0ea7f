//! Feature bits of virtio and vhost-user, as words with one bit.

/// `VIRTIO_BLK_F_FLUSH`.
pub const FLUSH: u64 = 1 << 9;
/// `VIRTIO_BLK_F_CONFIG_WCE`.
pub const CONFIG_WCE: u64 = 1 << 11;
/// `VIRTIO_BLK_F_DISCARD`.
pub const DISCARD: u64 = 1 << 13;
/// `VIRTIO_BLK_F_WRITE_ZEROES`.
pub const WRITE_ZEROES: u64 = 1 << 14;
/// `VHOST_F_LOG_ALL`: the device marks its writes in a dirty log.
pub const LOG_ALL: u64 = 1 << 26;
/// `VIRTIO_F_INDIRECT_DESC`.
pub const INDIRECT_DESC: u64 = 1 << 28;
/// `VIRTIO_F_EVENT_IDX`.
pub const EVENT_IDX: u64 = 1 << 29;
/// `VHOST_USER_F_PROTOCOL_FEATURES`.
pub const PROTOCOL_FEATURES: u64 = 1 << 30;
/// `VIRTIO_F_VERSION_1`.
pub const VERSION_1: u64 = 1 << 32;
/// `VIRTIO_F_RING_PACKED`.
pub const PACKED: u64 = 1 << 34;

/// The features that make a ring of each format.
pub const FORMATS: [u64; 2] = [0, PACKED];

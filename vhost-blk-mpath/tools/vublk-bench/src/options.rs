//! The command line, and what must hold between its options.

use crate::front_end::{DeviceInfo, QueueShape};
use crate::sizes::Sizes;
use crate::units::{parse_duration, parse_size};
use clap::{Args, Parser, ValueEnum};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use virtio_driver::VirtioBlkFeatureFlags;

/// The largest ring that is asked for. Every request takes three entries of it.
const LARGEST_RING: u16 = 1024;
const DESCRIPTORS_A_REQUEST: u16 = 3;

/// The largest request.
const LARGEST_BYTES: u64 = 16 << 20;

/// The largest part of the disk that a verification covers, unless `--size` says otherwise. Its model keeps 40 bytes for every
/// block.
const DEFAULT_VERIFY_BYTES: u64 = 1 << 30;

/// The workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Sequential reads, every queue in its own share of the bytes
    Read,
    /// Sequential writes
    Write,
    /// Random reads
    Randread,
    /// Random writes
    Randwrite,
    /// Random reads and writes, half of each
    Randrw,
    /// Random mixture with every byte checked, and a full read-back at the end
    Verify,
}

impl Mode {
    fn writes(self) -> bool {
        !matches!(self, Self::Read | Self::Randread)
    }
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Output {
    /// For people
    Table,
    /// For programs
    Json,
}

fn duration_ms<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(duration.as_millis() as u64)
}

/// Drives a vhost-user-blk back-end without a guest: measures a fixed load, or verifies every byte of a random one.
#[derive(Parser)]
#[command(
    version,
    after_help = "Exit status: 0 all well; 1 I/O errors, wrong data, lost or doubly completed requests; \
    2 bad options, or options that do not fit the disk; 3 cannot connect; 130 interrupted, nothing wrong up to then."
)]
pub struct Line {
    #[command(flatten)]
    pub options: Options,

    /// Format of the results on stdout
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: Output,
}

/// What to run.
#[derive(Debug, Clone, Args, Serialize)]
pub struct Options {
    /// The back-end's vhost-user socket
    #[arg(long, value_name = "PATH")]
    pub socket_path: PathBuf,

    /// The workload
    #[arg(long, value_enum)]
    pub rw: Mode,

    /// Request size; with --rw verify the largest one, sizes are random up to it
    #[arg(long, default_value = "4k", value_name = "BYTES", value_parser = parse_size)]
    #[serde(rename = "bs_bytes")]
    pub bs: u64,

    /// Sizes in place of `bs`. Not for verify.
    #[arg(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sizes: Option<Sizes>,

    /// Requests in flight on each queue
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=341))]
    pub iodepth: u16,

    /// Virtqueues, each driven by its own thread
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub queues: u16,

    /// How long to measure (ms, s, m, h; a bare number is seconds)
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = parse_duration)]
    #[serde(rename = "time_ms", serialize_with = "duration_ms")]
    pub time: Duration,

    /// How long to run before measuring
    #[arg(long, default_value = "0s", value_name = "TIME", value_parser = parse_duration)]
    #[serde(rename = "warmup_ms", serialize_with = "duration_ms")]
    pub warmup: Duration,

    /// Bytes of the disk to use, from its start [default: all of it; with --rw verify at most 1 GiB]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    #[serde(rename = "size_bytes")]
    pub size: Option<u64>,

    /// Makes the requests repeatable [default: a new one each time; it is in the results]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// A request that takes longer is lost, and the run has failed
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = parse_duration)]
    #[serde(rename = "timeout_ms", serialize_with = "duration_ms")]
    pub timeout: Duration,

    /// How long to wait for the socket to appear
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = parse_duration)]
    #[serde(rename = "connect_timeout_ms", serialize_with = "duration_ms")]
    pub connect_timeout: Duration,

    /// Refuse the flush feature: the back-end has to make each write durable before it completes it
    #[arg(long)]
    pub write_through: bool,
}

/// Options that do not fit each other or the disk.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    #[error("--time and --timeout must be longer than 0")]
    NoTime,
    #[error("--bs {bs} is not a multiple of the disk's block size {block_bytes} between that and 16 MiB")]
    BadBlockSize { bs: u64, block_bytes: u32 },
    #[error("--bs {bs} is larger than the disk takes in one segment ({size_max})")]
    SegmentTooLarge { bs: u64, size_max: u32 },
    #[error("the disk reports a block size of {0}, which is no power of two from 512 to 65536")]
    StrangeDisk(u32),
    #[error("--size {size} is not a multiple of the disk's block size {block_bytes}")]
    Unaligned { size: u64, block_bytes: u32 },
    #[error("--size {size} must hold one request (--bs) for every queue and lie inside the disk ({capacity} bytes)")]
    BadSize { size: u64, capacity: u64 },
    #[error("--queues {wanted}, but the back-end offers {offered}")]
    TooFewQueues { wanted: u16, offered: u16 },
    #[error("the disk is read-only")]
    ReadOnly,
}

impl Options {
    /// Block features that the disk may offer and that are not taken.
    pub fn refused_features(&self) -> VirtioBlkFeatureFlags {
        if self.write_through { VirtioBlkFeatureFlags::FLUSH } else { VirtioBlkFeatureFlags::empty() }
    }

    /// This workload with every other option at its default.
    pub fn with_defaults(socket_path: &Path, rw: Mode) -> Self {
        let line = Line::try_parse_from(["vublk-bench", "--socket-path", "socket", "--rw", "read"]);
        let options = line.expect("the defaults of the options parse").options;
        Self { socket_path: socket_path.to_owned(), rw, ..options }
    }

    pub fn largest_request(&self) -> u64 {
        self.sizes.as_ref().map_or(self.bs, |sizes| sizes.largest().into())
    }

    /// Checks what can be checked before connecting.
    pub fn check(&self) -> Result<(), OptionsError> {
        if self.time.is_zero() || self.timeout.is_zero() {
            return Err(OptionsError::NoTime);
        }
        if self.bs == 0 || self.bs > LARGEST_BYTES || !self.bs.is_multiple_of(512) {
            return Err(OptionsError::BadBlockSize { bs: self.bs, block_bytes: 512 });
        }
        Ok(())
    }

    /// Checks the options against this disk, and returns how many bytes of it are used, from the first one on.
    pub fn region_bytes(&self, disk: &DeviceInfo) -> Result<u64, OptionsError> {
        let block_bytes = disk.block_bytes;
        if !block_bytes.is_power_of_two() || !(512..=65536).contains(&block_bytes) {
            return Err(OptionsError::StrangeDisk(block_bytes));
        }
        if disk.read_only && self.rw.writes() {
            return Err(OptionsError::ReadOnly);
        }
        if self.queues > disk.queues_offered {
            return Err(OptionsError::TooFewQueues { wanted: self.queues, offered: disk.queues_offered });
        }
        // All others are multiples of the smallest.
        let smallest = self.sizes.as_ref().map_or(self.bs, |sizes| sizes.smallest().into());
        if !smallest.is_multiple_of(u64::from(block_bytes)) {
            return Err(OptionsError::BadBlockSize { bs: smallest, block_bytes });
        }
        let largest = self.largest_request();
        if disk.size_max != 0 && largest > u64::from(disk.size_max) {
            return Err(OptionsError::SegmentTooLarge { bs: largest, size_max: disk.size_max });
        }
        let capacity = disk.capacity_bytes;
        let default = if self.rw == Mode::Verify { capacity.min(DEFAULT_VERIFY_BYTES) } else { capacity };
        let size = self.size.unwrap_or(default / u64::from(block_bytes) * u64::from(block_bytes));
        if !size.is_multiple_of(u64::from(block_bytes)) {
            return Err(OptionsError::Unaligned { size, block_bytes });
        }
        if size > capacity || size < largest * u64::from(self.queues) {
            return Err(OptionsError::BadSize { size, capacity });
        }
        Ok(size)
    }

    /// The rings and buffers this needs.
    pub fn queue_shape(&self) -> QueueShape {
        QueueShape {
            queues: self.queues,
            ring_size: (self.iodepth * DESCRIPTORS_A_REQUEST).next_power_of_two().min(LARGEST_RING),
            slots: self.iodepth,
            slot_bytes: (self.largest_request() as usize).next_multiple_of(4096),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str) -> Options {
        let line = format!("x --socket-path s {line}");
        Line::try_parse_from(line.split_whitespace()).map(|line| line.options).unwrap()
    }

    fn disk() -> DeviceInfo {
        DeviceInfo {
            capacity_bytes: 8 << 30,
            block_bytes: 4096,
            size_max: 0,
            queues_offered: 4,
            read_only: false,
            flush: true,
            event_idx: true,
            discard: false,
            max_discard_sectors: 0,
            discard_sector_alignment: 0,
            write_zeroes: false,
            max_write_zeroes_sectors: 0,
            write_zeroes_may_unmap: false,
        }
    }

    #[test]
    fn defaults_are_those_of_the_command_line() {
        let made = Options::with_defaults(Path::new("s"), Mode::Randread);
        let typed = options("--rw randread");
        assert_eq!(serde_json::to_value(made).unwrap(), serde_json::to_value(typed).unwrap());
    }

    #[test]
    fn regions() {
        let region = |line: &str| options(line).region_bytes(&disk());
        assert_eq!(region("--rw randread"), Ok(8 << 30));
        assert_eq!(region("--rw verify"), Ok(1 << 30));
        assert_eq!(region("--rw verify --size 2G"), Ok(2 << 30));
        assert!(matches!(region("--rw read --size 9G"), Err(OptionsError::BadSize { .. })));
        assert!(matches!(region("--rw read --queues 4 --size 12k"), Err(OptionsError::BadSize { .. })));
        assert!(matches!(region("--rw read --size 4608"), Err(OptionsError::Unaligned { .. })));
        assert!(matches!(region("--rw read --bs 512"), Err(OptionsError::BadBlockSize { .. })));
        assert!(matches!(region("--rw read --queues 5"), Err(OptionsError::TooFewQueues { wanted: 5, offered: 4 })));
        let mut read_only = disk();
        read_only.read_only = true;
        assert_eq!(options("--rw verify").region_bytes(&read_only), Err(OptionsError::ReadOnly));
        assert!(options("--rw read").region_bytes(&read_only).is_ok());
    }

    #[test]
    fn options_out_of_range() {
        assert_eq!(options("--rw read --time 0").check(), Err(OptionsError::NoTime));
        assert!(matches!(options("--rw read --bs 100").check(), Err(OptionsError::BadBlockSize { .. })));
        assert!(options("--rw randrw").check().is_ok());
    }

    #[test]
    fn mixed_sizes_need_room_for_the_largest() {
        let of = |kib| Options { sizes: Some(Sizes::mixed(kib)), ..options("--rw randread --queues 4") };
        let mixed = of(&[(4, 50), (512, 50)]);
        assert!(mixed.check().is_ok());
        assert_eq!(mixed.queue_shape().slot_bytes, 512 << 10);
        assert!(mixed.region_bytes(&disk()).is_ok());
        let small = Options { size: Some(1 << 20), ..mixed.clone() };
        assert!(matches!(small.region_bytes(&disk()), Err(OptionsError::BadSize { .. })));
        let unaligned = of(&[(2, 50), (4, 50)]).region_bytes(&disk());
        assert_eq!(unaligned, Err(OptionsError::BadBlockSize { bs: 2048, block_bytes: 4096 }));
    }

    #[test]
    fn three_descriptors_fit_for_every_request() {
        for depth in 1..=341u16 {
            let shape = options(&format!("--rw read --iodepth {depth}")).queue_shape();
            assert!(shape.ring_size >= 3 * depth && shape.ring_size.is_power_of_two());
        }
    }
}

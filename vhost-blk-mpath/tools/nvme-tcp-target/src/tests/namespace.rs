//! I/O commands to namespaces.

use nvme_tcp::wire::{AnaState, DsmRange, NvmCommand, Sgl, Sqe, Status};

use crate::command::CommandToken;
use crate::{ByteRange, IoScope, IoTask, IoView, Namespace, TargetCommand, check_io};
use proptest::prelude::*;

const NAMESPACES: [Namespace; 2] = [
    Namespace { blocks: 100, block_shift: 9, uuid: [1; 16], nguid: [1; 16] },
    Namespace { blocks: 10, block_shift: 12, uuid: [2; 16], nguid: [2; 16] },
];

fn view() -> IoView {
    IoView { enabled: true, write_cache: true, ana: vec![AnaState::Optimized, AnaState::NonOptimized], expires: None }
}

fn command(nvm: NvmCommand, nsid: u32, payload: Vec<u8>, expects_bytes: u32) -> TargetCommand {
    let sqe = nvm.to_sqe(1, nsid, Sgl::NONE);
    TargetCommand { token: CommandToken { slot: 0 }, sqe, payload, expects_bytes }
}

fn check(nvm: NvmCommand, nsid: u32, payload: usize, expects: u32) -> Result<(IoScope, IoTask), Status> {
    check_io(&command(nvm, nsid, vec![0; payload], expects), &NAMESPACES, &view())
}

#[test]
fn reads_and_writes_become_byte_ranges() {
    let read = check(NvmCommand::Read { slba: 92, blocks: 8 }, 1, 0, 4096);
    assert_eq!(read, Ok((IoScope::One(0), IoTask::Read(ByteRange { offset: 92 * 512, bytes: 4096 }))));
    let write = check(NvmCommand::Write { slba: 9, blocks: 1, fua: true }, 2, 4096, 0);
    let range = ByteRange { offset: 9 * 4096, bytes: 4096 };
    assert_eq!(write, Ok((IoScope::One(1), IoTask::Write { range, fua: true })));
}

#[test]
fn ranges_beyond_the_end_are_refused() {
    let out = Err(Status::LBA_OUT_OF_RANGE.with_dnr());
    assert_eq!(check(NvmCommand::Read { slba: 93, blocks: 8 }, 1, 0, 4096), out);
    assert_eq!(check(NvmCommand::Read { slba: u64::MAX, blocks: 8 }, 1, 0, 4096), out);
    assert_eq!(check(NvmCommand::Write { slba: 10, blocks: 1, fua: false }, 2, 4096, 0), out);
}

#[test]
fn the_sgl_length_must_match_the_blocks() {
    let bad = Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr());
    assert_eq!(check(NvmCommand::Read { slba: 0, blocks: 8 }, 1, 0, 2048), bad);
    assert_eq!(check(NvmCommand::Write { slba: 0, blocks: 1, fua: false }, 1, 1024, 0), bad);
    assert_eq!(check(NvmCommand::DatasetManagement { ranges: 2, deallocate: true }, 1, 31, 0), bad);
}

#[test]
fn unknown_namespaces_are_refused() {
    let bad = Err(Status::INVALID_NAMESPACE.with_dnr());
    for nsid in [0, 3, u32::MAX - 1, u32::MAX] {
        assert_eq!(check(NvmCommand::Read { slba: 0, blocks: 8 }, nsid, 0, 4096), bad);
    }
    assert_eq!(check(NvmCommand::Flush, 3, 0, 0), bad);
    assert_eq!(check(NvmCommand::Flush, u32::MAX, 0, 0), Ok((IoScope::All, IoTask::Flush)));
}

#[test]
fn unusable_ana_states_answer_with_their_status() {
    for (state, status) in [
        (AnaState::Inaccessible, Status::ANA_INACCESSIBLE),
        (AnaState::PersistentLoss, Status::ANA_PERSISTENT_LOSS),
        (AnaState::Change, Status::ANA_TRANSITION),
    ] {
        let view = IoView { ana: vec![AnaState::Optimized, state], ..view() };
        let flush = |nsid| check_io(&command(NvmCommand::Flush, nsid, vec![], 0), &NAMESPACES, &view);
        assert!(flush(1).is_ok());
        assert_eq!(flush(2), Err(status));
        assert_eq!(flush(u32::MAX), Err(status));
    }
}

#[test]
fn without_write_cache_all_changes_are_written_through() {
    let view = IoView { write_cache: false, ..view() };
    let write = NvmCommand::Write { slba: 0, blocks: 1, fua: false };
    let task = check_io(&command(write, 1, vec![0; 512], 0), &NAMESPACES, &view);
    assert!(matches!(task, Ok((_, IoTask::Write { fua: true, .. }))));
}

#[test]
fn only_dataset_management_with_deallocate_has_an_effect() {
    use zerocopy::IntoBytes;
    let ranges = [DsmRange::new(0, 4), DsmRange::new(96, 4)];
    for deallocate in [false, true] {
        let dsm = NvmCommand::DatasetManagement { ranges: 2, deallocate };
        // Linux always sends 256 ranges.
        let mut payload = ranges.as_bytes().to_vec();
        payload.resize(4096, 0xff);
        let (_, task) = check_io(&command(dsm, 1, payload, 0), &NAMESPACES, &view()).unwrap();
        let both = vec![ByteRange { offset: 0, bytes: 2048 }, ByteRange { offset: 96 * 512, bytes: 2048 }];
        assert_eq!(task, IoTask::Deallocate(if deallocate { both } else { vec![] }));
    }
}

proptest! {
    #[test]
    fn no_command_reaches_beyond_its_namespace(
        sqe: [u8; 64], payload in proptest::collection::vec(any::<u8>(), 0..600), expects_bytes: u32, nsid in 0u32..4,
        opcode in 0u8..10,
    ) {
        let mut sqe: Sqe = zerocopy::transmute!(sqe);
        sqe.opcode = opcode;
        sqe.nsid = nsid.into();
        let command = TargetCommand { token: CommandToken { slot: 0 }, sqe, payload, expects_bytes };
        if let Ok((IoScope::One(index), task)) = check_io(&command, &NAMESPACES, &view()) {
            let ranges = match task {
                IoTask::Read(range) | IoTask::Write { range, .. } | IoTask::WriteZeroes { range, .. } => vec![range],
                IoTask::Flush => vec![],
                IoTask::Deallocate(ranges) => ranges,
            };
            for range in ranges {
                prop_assert!(range.offset + range.bytes <= NAMESPACES[index].bytes());
            }
        }
    }
}

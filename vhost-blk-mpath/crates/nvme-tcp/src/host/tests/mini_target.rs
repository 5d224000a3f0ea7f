//! Test helpers: a minimal target with random but legal behaviour: any order, fragmentation and number of R2Ts, with or without
//! data digests.

use zerocopy::IntoBytes;

use super::Dice;
use crate::host::NamespaceLimits;
use crate::wire::{
    C2hData, CommonHeader, Connect, ConnectData, ConnectResult, Cqe, Digests, DsmRange, FabricsCommand, Framing,
    H2cData, IcResp, NvmCommand, Opcode, Pdu, R2t, Sgl, Sqe, Status, crc32c,
};

/// A parser of the PDU stream from the host.
#[derive(Debug, Default)]
pub(super) struct PduReader {
    bytes: Vec<u8>,
    pub(super) framing: Framing,
}

impl PduReader {
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next complete PDU and its data, with verified digests.
    pub(super) fn next(&mut self) -> Option<(Pdu, Vec<u8>)> {
        let common = CommonHeader::parse(self.bytes.first_chunk::<8>()?).unwrap();
        if self.bytes.len() < common.plen as usize {
            return None;
        }
        let rest = self.bytes.split_off(common.plen as usize);
        let whole = std::mem::replace(&mut self.bytes, rest);
        assert!(!common.pdu.is_from_controller());
        let layout = self.framing.layout(&common).unwrap();
        let pdu = Pdu::parse(&common, &layout, &whole).unwrap();
        let header_len = layout.header_len as usize;
        if layout.header_digest {
            assert_eq!(whole[header_len..header_len + 4], crc32c(&whole[..header_len]).to_le_bytes());
        }
        let start = layout.data_start() as usize;
        let data = whole[start..start + layout.data_len as usize].to_vec();
        if layout.data_digest {
            assert_eq!(whole[start + data.len()..], crc32c(&data).to_le_bytes());
        }
        Some((pdu, data))
    }
}

/// A command in flight.
#[derive(Debug)]
struct Active {
    cid: u16,
    nsid: u32,
    command: NvmCommand,
    /// The data to read, or the data written so far.
    data: Vec<u8>,
    /// Bytes sent or requested.
    asked: usize,
    /// Incompletely answered R2Ts: TTAG, next offset, remaining bytes.
    transfers: Vec<(u16, u32, u32)>,
    fail: Option<Status>,
}

/// Identifies the request of a command: NSID and first block. Flushes have no block.
pub(super) type Place = (u32, u64);

/// The data of a namespace.
#[derive(Debug, Clone)]
pub(super) struct Disk {
    pub(super) limits: NamespaceLimits,
    pub(super) bytes: Vec<u8>,
}

impl Disk {
    fn new(limits: NamespaceLimits) -> Self {
        let bytes = limits.namespace_blocks as usize * limits.block_bytes as usize;
        Self { limits, bytes: (0..bytes).map(|i| (i / 512) as u8 ^ i as u8 ^ limits.nsid as u8).collect() }
    }

    pub(super) fn blocks(&mut self, slba: u64, blocks: u32) -> &mut [u8] {
        let block_bytes = self.limits.block_bytes as usize;
        &mut self.bytes[slba as usize * block_bytes..][..blocks as usize * block_bytes]
    }
}

/// Options of the target's behaviour.
#[derive(Debug, Clone, Copy)]
pub(super) struct Habits {
    pub(super) digests: Digests,
    pub(super) cpda: u8,
    pub(super) maxh2cdata: u32,
    pub(super) success_flag: bool,
    /// The most outstanding R2Ts of one command.
    pub(super) r2ts: usize,
    /// One in this many commands fails; 0 for none.
    pub(super) fail_one_in: usize,
    /// One in this many `C2HData` has a wrong data digest; 0 for none.
    pub(super) corrupt_one_in: usize,
}

/// A minimal target with random but legal behaviour.
#[derive(Debug)]
pub(super) struct MiniTarget {
    habits: Habits,
    dice: Dice,
    reader: PduReader,
    active: Vec<Active>,
    ttag: u16,
    pub(super) disks: Vec<Disk>,
    pub(super) out: Vec<u8>,
    /// Commands received, by CID.
    pub(super) begun: Vec<(u16, Place)>,
    /// Answered commands: the CID, and the end of the answer as position in the whole output.
    pub(super) answered: Vec<(u16, usize)>,
    /// Bytes taken from `out` by [`take`](Self::take).
    pub(super) taken: usize,
    pub(super) failures: Vec<(Place, Status)>,
}

impl MiniTarget {
    pub(super) fn new(habits: Habits, seed: u64, namespaces: impl Iterator<Item = NamespaceLimits>) -> Self {
        Self {
            habits,
            dice: Dice(seed),
            reader: PduReader::default(),
            active: Vec::new(),
            ttag: 0,
            disks: namespaces.map(Disk::new).collect(),
            out: Vec::new(),
            begun: Vec::new(),
            answered: Vec::new(),
            taken: 0,
            failures: Vec::new(),
        }
    }

    fn framing(&self) -> Framing {
        // The host requests no alignment (HPDA 0), but padding of whole dwords is legal.
        Framing { digests: self.reader.framing.digests, alignment: self.habits.cpda }
    }

    fn send(&mut self, pdu: Pdu, data: &[u8]) {
        let framing = self.framing();
        pdu.emit(&framing, data, &mut self.out);
    }

    /// Up to `count` bytes for the host.
    pub(super) fn take(&mut self, count: usize) -> Vec<u8> {
        let count = count.min(self.out.len());
        self.taken += count;
        self.out.drain(..count).collect()
    }

    pub(super) fn receive(&mut self, bytes: &[u8]) {
        self.reader.feed(bytes);
        while let Some((pdu, data)) = self.reader.next() {
            match pdu {
                Pdu::IcReq(icreq) => {
                    assert_eq!((icreq.hpda, icreq.digests), (0, self.habits.digests));
                    let Habits { digests, cpda, maxh2cdata, .. } = self.habits;
                    self.send(Pdu::IcResp(IcResp { cpda, digests, maxh2cdata }), &[]);
                    self.reader.framing = Framing { digests, alignment: cpda };
                }
                Pdu::CapsuleCmd(sqe) if sqe.opcode == Opcode::FABRICS.0 => {
                    self.on_connect(&sqe, &data);
                }
                Pdu::CapsuleCmd(sqe) => self.on_command(&sqe, data),
                Pdu::H2cData(header) => self.on_data(header, &data),
                other => panic!("a host does not send {other:?}"),
            }
        }
    }

    fn on_connect(&mut self, sqe: &Sqe, data: &[u8]) {
        let FabricsCommand::Connect(connect) = FabricsCommand::parse(sqe).unwrap() else { panic!("not Connect") };
        let data = ConnectData::parse(data.try_into().unwrap()).unwrap();
        assert_eq!((connect.qid, connect.sqsize, connect.kato_ms, data.cntlid), (1, 7, 0, 5));
        assert_eq!(connect.cattr, Connect::NO_SQ_FLOW_CONTROL);
        let result =
            ConnectResult { cntlid: 5, authentication_required: false, secure_channel_required: false }.to_result();
        self.send(Pdu::CapsuleResp(Cqe::new(sqe.cid.get(), 0, Status::SUCCESS, result)), &[]);
    }

    /// The namespace of a command. Its blocks are those of this namespace.
    fn disk(&mut self, nsid: u32) -> &mut Disk {
        self.disks.iter_mut().find(|disk| disk.limits.nsid == nsid).expect("a namespace of ours")
    }

    fn on_command(&mut self, sqe: &Sqe, in_capsule: Vec<u8>) {
        let (cid, nsid) = (sqe.cid.get(), sqe.nsid.get());
        assert_eq!(sqe.flags, Sqe::FLAGS_SGL);
        assert!(self.active.iter().all(|active| active.cid != cid), "a CID in use is given again");
        assert!(self.active.len() < 7, "more commands than the queue has entries");
        let command = NvmCommand::parse(sqe).unwrap();
        let sgl = Sgl::parse(&sqe.dptr).unwrap();
        let (asked, data) = match sgl {
            Sgl::InCapsule { offset, length } => {
                assert_eq!((offset, length as usize), (0, in_capsule.len()));
                (in_capsule.len(), in_capsule)
            }
            Sgl::Transport { length } => (0, vec![0; length as usize]),
        };
        let data = match command {
            NvmCommand::Read { slba, blocks } => {
                let data = self.disk(nsid).blocks(slba, blocks).to_vec();
                assert_eq!(sgl, Sgl::Transport { length: data.len() as u32 });
                data
            }
            _ => data,
        };
        let fail = self.habits.fail_one_in > 0 && self.dice.one_in(self.habits.fail_one_in);
        let fail = fail.then(|| [Status::INTERNAL_ERROR, Status::ANA_INACCESSIBLE][self.dice.below(2)]);
        // Ranges that have not arrived identify no request.
        let known = if asked == data.len() { &data[..] } else { &[] };
        self.begun.push((cid, (nsid, Self::first_block(command, known))));
        self.active.push(Active { cid, nsid, command, data, asked, transfers: Vec::new(), fail });
    }

    fn first_block(command: NvmCommand, data: &[u8]) -> u64 {
        match command {
            NvmCommand::Read { slba, .. } | NvmCommand::Write { slba, .. } | NvmCommand::WriteZeroes { slba, .. } => {
                slba
            }
            NvmCommand::DatasetManagement { .. } => DsmRange::slice(data).first().map_or(u64::MAX, |r| r.slba.get()),
            NvmCommand::Flush => u64::MAX,
        }
    }

    fn on_data(&mut self, header: H2cData, data: &[u8]) {
        assert!(header.length <= self.habits.maxh2cdata && header.length > 0);
        // A command may have failed before its data arrive.
        let Some(active) = self.active.iter_mut().find(|active| active.cid == header.cid) else {
            return;
        };
        let index = active.transfers.iter().position(|&(ttag, ..)| ttag == header.ttag).expect("an R2T of ours");
        let (_, offset, left) = &mut active.transfers[index];
        assert_eq!(header.offset, *offset);
        assert!(header.length <= *left);
        let start = header.offset as usize;
        active.data[start..start + data.len()].copy_from_slice(data);
        *offset += header.length;
        *left -= header.length;
        assert_eq!(header.last, *left == 0, "LAST ends an R2T");
        if header.last {
            active.transfers.remove(index);
        }
    }

    /// Takes a random step for one of the commands in flight, if there are any.
    pub(super) fn step(&mut self) {
        if self.active.is_empty() {
            return;
        }
        let index = self.dice.below(self.active.len());
        let Habits { r2ts, success_flag, corrupt_one_in, .. } = self.habits;
        let active = &mut self.active[index];
        let cid = active.cid;
        let missing = active.data.len() - active.asked;
        let is_read = matches!(active.command, NvmCommand::Read { .. });
        let is_dsm = matches!(active.command, NvmCommand::DatasetManagement { .. });
        let complete = missing == 0 && active.transfers.is_empty();
        if let Some(status) = active.fail
            && (complete || (!is_dsm && self.dice.one_in(3)))
        {
            let active = self.active.swap_remove(index);
            self.failures.push(((active.nsid, Self::first_block(active.command, &active.data)), status));
            self.send(Pdu::CapsuleResp(Cqe::new(cid, 0, status, 0)), &[]);
            self.answered.push((cid, self.taken + self.out.len()));
            return;
        }
        // Whole dwords, as the specification requires.
        let chunk = if self.dice.one_in(2) { missing } else { ((self.dice.below(missing + 1) + 3) & !3).min(missing) };
        let offset = active.asked as u32;
        if missing > 0 && chunk > 0 && is_read {
            let data = active.data[active.asked..active.asked + chunk].to_vec();
            active.asked += chunk;
            let last = chunk == missing;
            let success = last && success_flag && active.fail.is_none();
            self.send(Pdu::C2hData(C2hData { cid, offset, length: chunk as u32, last, success }), &data);
            if self.habits.digests.data && corrupt_one_in > 0 && self.dice.one_in(corrupt_one_in) {
                let (end, active) = (self.out.len() - 1, &self.active[index]);
                self.out[end] ^= 0x40;
                let place = (active.nsid, Self::first_block(active.command, &[]));
                self.failures.push((place, Status::TRANSIENT_TRANSPORT_ERROR));
            }
            if success {
                self.active.swap_remove(index);
                self.answered.push((cid, self.taken + self.out.len()));
            }
        } else if missing > 0 && chunk > 0 && active.transfers.len() < r2ts {
            self.ttag = self.ttag.wrapping_add(1);
            active.transfers.push((self.ttag, offset, chunk as u32));
            active.asked += chunk;
            let r2t = R2t { cid, ttag: self.ttag, offset, length: chunk as u32 };
            self.send(Pdu::R2t(r2t), &[]);
        } else if complete {
            let active = self.active.swap_remove(index);
            self.execute(&active);
            self.send(Pdu::CapsuleResp(Cqe::new(cid, 0, Status::SUCCESS, 0)), &[]);
            self.answered.push((cid, self.taken + self.out.len()));
        }
    }

    fn execute(&mut self, active: &Active) {
        let disk = self.disk(active.nsid);
        match active.command {
            NvmCommand::Write { slba, blocks, .. } => disk.blocks(slba, blocks).copy_from_slice(&active.data),
            NvmCommand::WriteZeroes { slba, blocks, .. } => disk.blocks(slba, blocks).fill(0),
            NvmCommand::DatasetManagement { ranges, deallocate } => {
                assert!(deallocate);
                let list = DsmRange::slice(&active.data);
                assert_eq!((ranges, list.len(), list.as_bytes().len()), (1, 1, active.data.len()));
                disk.blocks(list[0].slba.get(), list[0].blocks.get()).fill(0);
            }
            NvmCommand::Read { .. } | NvmCommand::Flush => {}
        }
    }
}

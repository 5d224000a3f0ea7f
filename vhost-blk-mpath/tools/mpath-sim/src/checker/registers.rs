//! Every block as a register with concurrent operations, seen from the guest alone.
//!
//! A write may take effect at any moment between its submission and its answer, more than once if it was repeated, and not
//! at all if it failed. It has certainly taken effect when it has succeeded, or when an answered read has returned its data.
//!
//! So a read must not return an overwritten value. The value of a write is overwritten if that write was answered before a newer
//! write was submitted, and the newer write had taken effect before the read was submitted.

use std::collections::BTreeMap;
use std::ops::Range;

use super::history::Moment;
use crate::blocks::Origin;

#[derive(Debug, Clone, Copy)]
struct Write {
    submitted: Moment,
    zeroes: bool,
    answered: Option<Moment>,
}

#[derive(Debug, Default, Clone)]
struct Register {
    /// When the newest write that is known to have taken effect was submitted.
    floor: Moment,
    /// When a crash last undid writes legally. Reads that were submitted before may return any version.
    reverted: Moment,
    /// Unanswered requests that zero the block.
    zeroing: u32,
    /// When the last request that zeroed the block was answered; 0 for the initial zeroes.
    zeroed: Moment,
}

impl Register {
    fn took_effect(&mut self, submitted: Moment) {
        // A write from before a crash may have been undone by it, even if its completion was on its way already.
        if submitted > self.reverted {
            self.floor = self.floor.max(submitted);
        }
    }
}

/// The blocks of a disk, with the reads and writes of the run.
#[derive(Debug)]
pub(super) struct Registers {
    blocks: Vec<Register>,
    writes: BTreeMap<u64, Write>,
    /// For each read under way: the floors at its submission, and the moment.
    reads: BTreeMap<u64, (Moment, u64, Vec<Moment>)>,
    moment: Moment,
}

impl Registers {
    pub(super) fn new(blocks: u64) -> Self {
        Self {
            blocks: vec![Register::default(); blocks as usize],
            writes: BTreeMap::new(),
            reads: BTreeMap::new(),
            moment: 0,
        }
    }

    pub(super) fn read_submitted(&mut self, id: u64, range: Range<u64>) {
        let start = range.start;
        let floors = range.map(|lba| self.blocks[lba as usize].floor).collect();
        self.reads.insert(id, (self.moment, start, floors));
    }

    pub(super) fn read_over(&mut self, id: u64) {
        self.reads.remove(&id);
    }

    pub(super) fn write_submitted(&mut self, id: u64, range: Range<u64>, zeroes: bool, moment: Moment) {
        self.moment = moment;
        self.writes.insert(id, Write { submitted: moment, zeroes, answered: None });
        if zeroes {
            range.for_each(|lba| self.blocks[lba as usize].zeroing += 1);
        }
    }

    pub(super) fn write_answered(&mut self, id: u64, range: Range<u64>, moment: Moment, succeeded: bool) {
        self.moment = moment;
        let write = self.writes.get_mut(&id).expect("it was submitted");
        write.answered = Some(moment);
        for lba in range {
            let register = &mut self.blocks[lba as usize];
            if succeeded {
                register.took_effect(write.submitted);
            }
            if write.zeroes {
                register.zeroing -= 1;
                register.zeroed = moment;
            }
        }
    }

    /// Judges a block that an answered read has returned, given the origin of the block.
    pub(super) fn read(&mut self, id: u64, lba: u64, origin: Origin, moment: Moment) -> Result<(), String> {
        let (submitted, start, floors) = self.reads.get(&id).expect("it was submitted");
        let register = &mut self.blocks[lba as usize];
        let reverted = register.reverted > *submitted;
        let floor = if reverted { 0 } else { floors[(lba - start) as usize] };
        self.moment = moment;
        match origin {
            Origin::Initial if register.zeroing > 0 || register.zeroed >= floor => Ok(()),
            Origin::Initial => Err(format!(
                "stale read: block {lba} is zeroes, but a write submitted at moment {floor} had taken effect since the last that zeroed it"
            )),
            Origin::Request(writer) => {
                let Some(write) = self.writes.get(&writer) else {
                    return Err(format!(
                        "block {lba} was read as written by #{writer}, which the guest never submitted"
                    ));
                };
                if write.answered.is_some_and(|answered| answered < floor) {
                    return Err(format!(
                        "stale read: block {lba} is as #{writer} wrote it, but a write submitted after its answer had taken effect"
                    ));
                }
                register.took_effect(write.submitted);
                Ok(())
            }
        }
    }

    /// Notes that a crash has legally taken the visible content of a block.
    pub(super) fn reverted(&mut self, lba: u64, moment: Moment) {
        let register = &mut self.blocks[lba as usize];
        register.floor = 0;
        register.reverted = moment;
        self.moment = moment;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One block, its moments counted.
    struct Case(Registers, Moment);

    impl Case {
        fn new() -> Self {
            Self(Registers::new(1), 0)
        }
        fn tick(&mut self) -> Moment {
            self.1 += 1;
            self.1
        }
        fn write(&mut self, id: u64) {
            let moment = self.tick();
            self.0.write_submitted(id, 0..1, false, moment);
        }
        fn done(&mut self, id: u64, succeeded: bool) {
            let moment = self.tick();
            self.0.write_answered(id, 0..1, moment, succeeded);
        }
        fn read(&mut self, id: u64) {
            self.0.read_submitted(id, 0..1);
        }
        fn returns(&mut self, id: u64, origin: Origin) -> bool {
            let moment = self.tick();
            self.0.read(id, 0, origin, moment).is_ok()
        }
    }

    #[test]
    fn what_was_overwritten_does_not_come_back() {
        let mut case = Case::new();
        case.write(1);
        case.done(1, true);
        case.write(2);
        case.read(10);
        assert!(case.returns(10, Origin::Request(1)), "the second write is under way");
        case.read(11);
        case.done(2, true);
        assert!(case.returns(11, Origin::Request(1)), "the read began before");
        case.read(12);
        assert!(!case.returns(12, Origin::Request(1)));
        case.read(13);
        assert!(!case.returns(13, Origin::Initial));
        case.read(14);
        assert!(case.returns(14, Origin::Request(2)));
    }

    #[test]
    fn what_was_read_has_taken_effect() {
        let mut case = Case::new();
        case.write(1);
        case.done(1, true);
        case.write(2);
        case.read(10);
        assert!(case.returns(10, Origin::Request(2)));
        case.read(11);
        assert!(!case.returns(11, Origin::Request(1)), "not even while the second is not answered");
        case.done(2, false);
        case.read(12);
        assert!(case.returns(12, Origin::Request(2)), "it failed, and yet it was seen");
    }

    #[test]
    fn writes_at_the_same_time_have_no_order() {
        let mut case = Case::new();
        case.write(1);
        case.write(2);
        case.done(2, true);
        case.done(1, true);
        for (read, origin) in [(10, 1), (11, 2), (12, 1)] {
            case.read(read);
            assert!(case.returns(read, Origin::Request(origin)));
        }
    }

    #[test]
    fn a_crash_lets_old_values_back_until_the_next_write() {
        let mut case = Case::new();
        case.write(1);
        case.done(1, true);
        case.write(2);
        case.done(2, true);
        case.write(4);
        case.read(10);
        let moment = case.tick();
        case.0.reverted(0, moment);
        assert!(case.returns(10, Origin::Request(1)));
        case.done(4, true);
        case.read(11);
        assert!(case.returns(11, Origin::Request(1)), "the last one was undone before its answer arrived");
        case.write(3);
        case.done(3, true);
        case.read(12);
        assert!(!case.returns(12, Origin::Request(1)));
    }
}

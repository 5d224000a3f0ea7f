//! Chains that are malformed.

use super::*;

const IOERR: u8 = BlkStatus::IoErr as u8;

fn outcome(features: u64, lay_out: impl FnOnce(&mut TestDriver)) -> (u8, u32) {
    let mut driver = driver(features);
    lay_out(&mut driver);
    answered(&mut driver)
}

#[test]
fn buffers_outside_of_memory() {
    for format in FORMATS {
        for address in [MEMORY_BYTES, MEMORY_BYTES - 1, u64::MAX, u64::MAX - 4000] {
            let chain = [(HEADER, 16, 0), (address, 4096, WRITE), (STATUS, 1, WRITE)];
            assert_eq!(outcome(format, |driver| driver.chain(0, &chain)), (IOERR, 0), "{address:#x}");
            let readable = [(address, 16, 0), (STATUS, 1, WRITE)];
            assert_eq!(outcome(format, |driver| driver.chain(0, &readable)), (IOERR, 0), "{address:#x}");
        }
    }
}

#[test]
fn a_status_outside_of_memory() {
    for format in FORMATS {
        let chain = [(HEADER, 16, 0), (DATA, 4096, WRITE), (MEMORY_BYTES, 1, WRITE)];
        assert_eq!(outcome(format, |driver| driver.chain(0, &chain)), (UNTOUCHED, 0));
    }
}

#[test]
fn a_readable_buffer_after_a_writable_one() {
    for format in FORMATS {
        let chain = [(HEADER, 16, 0), (STATUS, 1, WRITE), (DATA, 512, 0)];
        assert_eq!(outcome(format, |driver| driver.chain(0, &chain)), (IOERR, 0));
    }
}

#[test]
fn a_short_header() {
    for format in FORMATS {
        assert_eq!(outcome(format, |driver| driver.chain(0, &[(HEADER, 15, 0), (STATUS, 1, WRITE)])), (IOERR, 1));
        assert_eq!(outcome(format, |driver| driver.chain(0, &[(STATUS, 1, WRITE)])), (IOERR, 1));
    }
}

#[test]
fn no_writable_byte() {
    for format in FORMATS {
        assert_eq!(outcome(format, |driver| driver.chain(0, &[(HEADER, 16, 0), (DATA, 512, 0)])), (UNTOUCHED, 0));
        assert_eq!(outcome(format, |driver| driver.chain(0, &[(HEADER, 0, 0)])), (UNTOUCHED, 0));
    }
}

#[test]
fn endless_chains() {
    let looped = outcome(0, |driver| {
        driver.descriptor(0, (HEADER, 16, NEXT, 1));
        driver.descriptor(1, (STATUS, 1, WRITE | NEXT, 0));
    });
    assert_eq!(looped, (UNTOUCHED, 0));
    let looped_in_table = outcome(INDIRECT_DESC, |driver| {
        driver.indirect_chain(0, TABLE, &READ);
        driver.descriptor_at(TABLE + 32, (STATUS, 1, WRITE | NEXT, 2));
    });
    assert_eq!(looped_in_table, (UNTOUCHED, 0));
}

#[test]
fn links_out_of_the_table() {
    let direct = outcome(0, |driver| driver.descriptor(0, (STATUS, 1, WRITE | NEXT, SIZE)));
    assert_eq!(direct, (UNTOUCHED, 0));
    let indirect = outcome(INDIRECT_DESC, |driver| {
        driver.indirect_chain(0, TABLE, &READ);
        driver.descriptor_at(TABLE + 32, (STATUS, 1, WRITE | NEXT, 3));
    });
    assert_eq!(indirect, (UNTOUCHED, 0));
}

#[test]
fn bad_indirect_tables() {
    let table = |features: u64, chain: &[(u64, u32, u16)]| {
        outcome(features, |driver| {
            driver.indirect_chain(0, TABLE, &READ);
            driver.chain(0, chain);
        })
    };
    let unanswered = (UNTOUCHED, 0);
    for format in FORMATS {
        let indirect = format | INDIRECT_DESC;
        assert_eq!(table(format, &[(TABLE, 48, INDIRECT)]), unanswered, "not negotiated");
        assert_eq!(table(indirect, &[(TABLE, 48, INDIRECT), (STATUS, 1, WRITE)]), unanswered, "not the last");
        assert_eq!(table(indirect, &[(TABLE, 47, INDIRECT)]), unanswered, "half a descriptor");
        assert_eq!(table(indirect, &[(TABLE, 0, INDIRECT)]), unanswered, "empty");
        assert_eq!(table(indirect, &[(MEMORY_BYTES - 16, 48, INDIRECT)]), unanswered, "not in memory");
        let long = outcome(indirect, |driver| driver.indirect_chain(0, TABLE, &[(STATUS, 1, WRITE); 129]));
        assert_eq!(long, unanswered, "longer than advertised");
    }
    let after_others = [(HEADER, 16, 0), (TABLE + 16, 32, INDIRECT)];
    assert_eq!(table(PACKED | INDIRECT_DESC, &after_others), unanswered, "not alone, in a packed ring");
    let nested = outcome(INDIRECT_DESC, |driver| {
        driver.indirect_chain(0, TABLE, &READ);
        driver.descriptor_at(TABLE + 16, (TABLE, 48, INDIRECT, 0));
    });
    assert_eq!(nested, unanswered);
}

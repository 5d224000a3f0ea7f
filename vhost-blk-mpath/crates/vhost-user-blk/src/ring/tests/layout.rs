//! Chains in any valid layout.

use super::*;

fn assert_popped_as_read(driver: &mut TestDriver) {
    driver.make_available(0);
    let mut queue = driver.queue(&disk());
    assert_is_read(&pop(&mut queue));
}

#[test]
fn the_header_may_be_split() {
    for format in FORMATS {
        let mut driver = driver(format);
        let split = [(HEADER, 3, 0), (HEADER + 3, 1, 0), (HEADER + 4, 12, 0), (DATA, 4096, WRITE), (STATUS, 1, WRITE)];
        driver.chain(0, &split);
        assert_popped_as_read(&mut driver);
    }
}

#[test]
fn data_and_status_may_share_a_buffer() {
    for format in FORMATS {
        let mut driver = driver(format);
        driver.chain(0, &[(HEADER, 16, 0), (DATA, 4097, WRITE)]);
        driver.make_available(0);
        let mut queue = driver.queue(&disk());
        let request = pop(&mut queue);
        assert_is_read(&request);
        queue.complete(request, BlkStatus::Unsupp);
        assert_eq!(driver.read(DATA + 4096, 1), [2]);
    }
}

#[test]
fn empty_descriptors_do_not_matter() {
    for format in FORMATS {
        let mut driver = driver(format);
        let empty = [(HEADER, 16, 0), (0, 0, 0), (DATA, 4096, WRITE), (0, 0, WRITE), (STATUS, 1, WRITE), (9, 0, WRITE)];
        driver.chain(0, &empty);
        assert_popped_as_read(&mut driver);
    }
}

#[test]
fn a_buffer_may_span_regions() {
    for format in FORMATS {
        let mut driver = driver(format);
        let across = MEMORY_BYTES / 2 - 100;
        driver.chain(0, &[(HEADER, 16, 0), (across, 4096, WRITE), (STATUS, 1, WRITE)]);
        assert_popped_as_read(&mut driver);
    }
}

#[test]
fn an_indirect_table_may_be_anywhere_and_misaligned() {
    for format in FORMATS {
        let mut driver = driver(format | INDIRECT_DESC);
        driver.indirect_chain(0, TABLE + 3, &READ);
        assert_popped_as_read(&mut driver);
    }
}

#[test]
fn an_indirect_table_may_follow_descriptors_and_its_write_flag_means_nothing() {
    let mut driver = driver(INDIRECT_DESC);
    driver.indirect_chain(5, TABLE, &READ[1..]);
    driver.descriptor(5, (TABLE, 32, INDIRECT | WRITE, 0));
    driver.descriptor(0, (HEADER, 16, NEXT, 5));
    assert_popped_as_read(&mut driver);
}

#[test]
fn an_indirect_chain_may_be_as_long_as_advertised() {
    for format in FORMATS {
        let mut driver = driver(format | INDIRECT_DESC);
        // 126 segments, in a queue of 16.
        let mut buffers = vec![(HEADER, 16, 0)];
        buffers.extend((0..126).map(|i| (DATA + 512 * i, 512, WRITE)));
        buffers.push((STATUS + 0x1_0000, 1, WRITE));
        driver.indirect_chain(0, TABLE + 0x1_0000, &buffers);
        driver.make_available(0);
        let request = pop(&mut driver.queue(&disk()));
        assert_eq!(request.bytes, 126 * 512);
    }
}

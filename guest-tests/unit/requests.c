/* Every type of request, and what a device answers to those it does not know (virtio 1.2, 5.2.6). */
#include "suite.h"

static void read_write(void)
{
    static const u32 sizes[] = { 512, 4096, 12 << 10, 64 << 10, 1 << 20 };
    u8 *data = area + PAGE_BYTES;
    for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
        u32 bytes = sizes[i], all_bytes = bytes + 2 * PAGE_BYTES;
        u64 seed = fresh_seed(), seed_around = fresh_seed();
        /* There is a page of other data on either side, on the disk and in memory. */
        data_fill(area, all_bytes, seed_around);
        assert(disk_write(0, 2040, area, all_bytes).status == S_OK);
        data_fill(data, bytes, seed);
        check_outcome(disk_write(0, 2048, data, bytes), S_OK, 1, "%u bytes are written", bytes);
        memset(area, 0, all_bytes);
        check_outcome(disk_read(1, 2048, data, bytes), S_OK, bytes + 1, "%u bytes are read", bytes);
        report(data_is(data, bytes, seed), "%u bytes come back", bytes);
        report(all_bytes_are(area, PAGE_BYTES, 0) && all_bytes_are(data + bytes, PAGE_BYTES, 0),
               "a read of %u bytes changes no others", bytes);
        assert(disk_read(0, 2040, area, all_bytes).status == S_OK);
        report(data_is(area, PAGE_BYTES, seed_around) &&
                   data_is_from(data + bytes, PAGE_BYTES, seed_around, PAGE_BYTES + bytes),
               "a write of %u bytes changes no others", bytes);
    }
}

/* The data of a read or write must be whole sectors. */
static void odd_lengths(void)
{
    static const u32 lengths[] = { 1, 100, 511, 513, 4095 };
    u64 seed = fresh_seed();
    data_fill(area, 2 * PAGE_BYTES, seed);
    assert(disk_write(0, 64, area, 2 * PAGE_BYTES).status == S_OK);
    for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
        memset(area, 0x55, 2 * PAGE_BYTES);
        check_status(disk_read(0, 64, area, lengths[i]), S_IOERR, "a read of %u bytes is refused", lengths[i]);
        check_status(disk_write(0, 64, area, lengths[i]), S_IOERR, "a write of %u bytes is refused", lengths[i]);
    }
    assert(disk_read(0, 64, area, 2 * PAGE_BYTES).status == S_OK);
    report(data_is(area, 2 * PAGE_BYTES, seed), "nothing was written");
}

static void no_data(void)
{
    check_status(disk_request(0, T_IN, 0, NULL, 0), S_OK, "a read of nothing succeeds");
    check_status(disk_request(0, T_OUT, 0, NULL, 0), S_OK, "a write of nothing succeeds");
}

static void flush(void)
{
    check_outcome(disk_request(0, T_FLUSH, 0, NULL, 0), S_OK, 1, "a flush succeeds");
    check_status(disk_request(1, T_FLUSH, 0, NULL, 0), S_OK, "a flush on another queue succeeds");
    data_fill(area, PAGE_BYTES, fresh_seed());
    check_status(disk_write(0, 64, area, PAGE_BYTES), S_OK, "a write before a flush succeeds");
    check_status(disk_request(0, T_FLUSH, 0, NULL, 0), S_OK, "a flush after a write succeeds");
}

static void get_id(void)
{
    struct descriptor descriptor = writable(area, ID_BYTES);
    memset(area, 0x55, 2 * ID_BYTES);
    check_status(disk_request(0, T_GET_ID, 0, &descriptor, 1), S_OK, "the id is read");
    unsigned length = 0;
    bool is_text = true;
    for (; length < ID_BYTES && area[length] != '\0'; length++)
        is_text = is_text && area[length] >= ' ' && area[length] <= '~';
    report(length > 0 && is_text, "the id is text");
    report(all_bytes_are(area + ID_BYTES, ID_BYTES, 0x55), "the id has 20 bytes at most");

    u8 *shorter = area + 64, *longer = area + 128;
    memset(shorter, 0x55, 256);
    descriptor = writable(shorter, 8);
    check_status(disk_request(0, T_GET_ID, 0, &descriptor, 1), S_OK, "an id for 8 bytes is read");
    report(memcmp(area, shorter, MIN(length, 8)) == 0 && shorter[8] == 0x55, "it is the first 8 bytes of the id");
    descriptor = writable(longer, 64);
    check_status(disk_request(0, T_GET_ID, 0, &descriptor, 1), S_OK, "an id for 64 bytes is read");
    report(memcmp(area, longer, length) == 0, "it is the same id");
}

static void unknown_types(void)
{
    /* Types that the device does not know. Among them are SCSI commands, lifetime, secure erase and zones. */
    static const u32 types[] = { 2, 3, 5, 6, 7, 9, 10, 12, 14, 15, 16, 18, 20, 22, 24, 26, 99, 0x1000000, 0x7fffffff };
    struct descriptor descriptor = writable(area, SECTOR_BYTES);
    bool all_unsupported = true, all_untouched = true;
    for (unsigned i = 0; i < ARRAY_SIZE(types); i++) {
        memset(area, 0x55, SECTOR_BYTES);
        struct outcome outcome = disk_request(0, types[i], 0, &descriptor, 1);
        if (outcome.status != S_UNSUPP) {
            report_info("type %u ended with status %#x", types[i], outcome.status);
            all_unsupported = false;
        }
        all_untouched = all_untouched && all_bytes_are(area, SECTOR_BYTES, 0x55);
    }
    report(all_unsupported, "types that there are not are unsupported");
    report(all_untouched, "nothing is written into their buffers");
    /* Bit 31 is a barrier in the legacy interface. VERSION_1 has no barriers. */
    check_status(disk_read(0, 0, area, SECTOR_BYTES), S_OK, "the next request succeeds");
    check_status(disk_request(0, 0x80000000, 0, &descriptor, 1), S_UNSUPP,
                 "a read with the old barrier bit is unsupported");
    check_status(disk_request(0, 0xffffffff, 0, &descriptor, 1), S_UNSUPP, "type 0xffffffff is unsupported");
}

/* A driver sets the reserved field to 0. The device must ignore it. */
static void reserved_field(void)
{
    u64 seed = fresh_seed();
    data_fill(area, PAGE_BYTES, seed);
    assert(disk_write(0, 64, area, PAGE_BYTES).status == S_OK);
    memset(area, 0, PAGE_BYTES);
    struct descriptor list[] = {
        readable(&one.header, sizeof(one.header)),
        writable(area, PAGE_BYTES),
        writable(&one.status, 1),
    };
    request_init(&one, T_IN, 64);
    one.header.reserved = 0xffffffff;
    check_status(one_send(0, list, ARRAY_SIZE(list)), S_OK, "a request with the reserved field set succeeds");
    report(data_is(area, PAGE_BYTES, seed), "its data comes back");
}

static const struct test_case cases[] = {
    { "read-write", read_write },
    { "odd-lengths", odd_lengths },
    { "no-data", no_data },
    { "flush", flush },
    { "get-id", get_id },
    { "unknown-types", unknown_types },
    { "reserved-field", reserved_field },
};

int main(int argument_count, char **arguments)
{
    return RUN_SUITE("requests", cases);
}

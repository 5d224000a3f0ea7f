/* Chains that no driver may build, in rings of either format. malformed.h says what the device must do with them. */
#include "malformed.h"

/* An address behind all memory of this guest, without a device. */
#define NOWHERE (1ull << 40)
#define TAIL_BYTES 64u

static void indirect_lengths(void)
{
    static const struct {
        u32 length;
        const char *name;
    } lengths[] = {
        { 0, "an empty table" },
        { 15, "a table of 15 bytes" },
        { 3 * sizeof(struct descriptor) + 1, "a table with a byte too many" },
        { 0xfffffff0, "a table of nearly 4 GiB" },
    };
    for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
        struct descriptor table = make_table();
        table.length = lengths[i].length;
        check_stops(&table, 1, lengths[i].name);
    }
}

/* A read of BYTES in a table with so many entries. The last data buffer has what is left. */
static struct descriptor make_long_table(u32 entries)
{
    static struct descriptor list[INDIRECT_MAX];
    assert(entries <= INDIRECT_MAX);
    make_read(list);
    list[entries - 1] = list[2];
    for (u32 i = 1; i < entries - 1; i++)
        list[i] = writable(area + i - 1, i < entries - 2 ? 1 : BYTES - i + 1);
    return ring_table(&disk.ring[0], indirect_table, list, entries);
}

/* Drivers send more segments than queue and disk allow, and set the status to success before. */
static void indirect_too_long(void)
{
    static const u32 lengths[] = { 129, 131, 517, 1024 };
    u64 seed = write_data();
    for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
        struct descriptor table = make_long_table(lengths[i]);
        check_outcome(one_send(0, &table, 1), S_OK, BYTES + 1, "a table of %u entries", lengths[i]);
        report(data_is(area, BYTES, seed), "its data comes back");
    }
    struct descriptor table = make_long_table(1025);
    check_refused(one_send(0, &table, 1), "a table of 1025 entries");
}

static void indirect_and_next(void)
{
    struct descriptor list[] = { make_table(), writable(&one.status, 1) };
    check_stops(list, ARRAY_SIZE(list), "a table with a link behind it");
}

static void indirect_not_negotiated(void)
{
    assert(disk_start(F_ALL & ~F_INDIRECT_DESC));
    struct descriptor table = make_table();
    check_stops(&table, 1, "a table where none was agreed on");
}

/* The end of this guest's memory, as QEMU's configuration device says (key 3). */
static u64 memory_end(void)
{
    u64 bytes = 0;
    outw(3, 0x510);
    for (int i = 0; i < 8; i++)
        bytes |= (u64)inb(0x511) << (8 * i);
    assert(bytes < 2ul << 30);
    return bytes;
}

/* The last bytes of memory. */
static volatile u8 *memory_tail(void)
{
    return (u8 *)memory_end() - TAIL_BYTES;
}

/*
 * Tries addresses from which fewer than 2 * TAIL_BYTES bytes are memory. The bytes that are memory must not be written.
 */
static void each_wild_address(void (*try)(u64 address))
{
    const struct {
        u64 address;
        const char *name;
    } wild[] = {
        { NOWHERE, "nowhere" },
        { memory_end(), "behind the end of memory" },
        { memory_end() - TAIL_BYTES, "over the end of memory" },
        { -(u64)TAIL_BYTES, "over the end of all addresses" },
        { 1ull << 63, "at 2^63" },
        { disk.virtio.common_address, "in a device" },
    };
    for (unsigned i = 0; i < ARRAY_SIZE(wild); i++) {
        report_prefix_push(wild[i].name);
        memset((void *)memory_tail(), 0x55, TAIL_BYTES);
        try(wild[i].address);
        report_prefix_pop();
    }
}

static void check_tail(void)
{
    report(all_bytes_are(memory_tail(), TAIL_BYTES, 0x55), "the part that is memory is not written");
}

/* Each of the following requests would be good if all of its buffers were memory. */
static void try_data(u64 address)
{
    struct descriptor list[3];
    make_read(list);
    list[1].address = address;
    check_refused(one_send(0, list, 3), "a read");
    make_read(list);
    list[1].address = address;
    check_refused(one_send_indirect(0, list, 3), "an indirect read");
    check_tail();
    make_read(list);
    one.header.type = T_OUT;
    list[1].address = address;
    list[1].flags = 0;
    check_refused(one_send(0, list, 3), "a write");
}

static void wild_data(void)
{
    u64 seed = write_data();
    each_wild_address(try_data);
    assert(disk_read(1, SECTOR, area, BYTES).status == S_OK);
    report(data_is(area, BYTES, seed), "the data on disk is as it was");
}

static void try_header(u64 address)
{
    struct descriptor list[3];
    make_read(list);
    list[0].address = address;
    list[0].length = 2 * TAIL_BYTES;
    memcpy((void *)memory_tail(), &one.header, sizeof(one.header));
    check_refused(one_send(0, list, 3), "a header");
}

static void wild_headers(void)
{
    each_wild_address(try_header);
}

static void try_status(u64 address)
{
    struct descriptor list[3];
    make_read(list);
    list[1].length = BYTES + 1 - 2 * TAIL_BYTES;
    list[2].address = address;
    list[2].length = 2 * TAIL_BYTES;
    check_stops(list, 3, "a request with its status");
    check_tail();
}

static void wild_status(void)
{
    each_wild_address(try_status);
}

static void try_table(u64 address)
{
    struct descriptor table = make_table();
    memcpy((void *)memory_tail(), indirect_table, 3 * sizeof(struct descriptor));
    table.address = address;
    table.length = 2 * TAIL_BYTES;
    check_stops(&table, 1, "a table");
}

static void wild_tables(void)
{
    each_wild_address(try_table);
}

static void too_long(void)
{
    struct descriptor list[3];
    make_read(list);
    list[1].length = 0xffffffff;
    check_refused(one_send(0, list, 3), "a buffer of 2^32-1 bytes");

    static struct descriptor huge[66];
    make_read(list);
    huge[0] = list[0];
    for (unsigned i = 1; i < 65; i++)
        huge[i] = writable((void *)(4ul << 20), 64u << 20);
    huge[65] = list[2];
    check_refused(one_send_indirect(0, huge, 66), "a request of 4 GiB and more");
    make_read(list);
    one.header.type = T_OUT;
    for (unsigned i = 1; i < 65; i++)
        huge[i].flags = 0;
    check_refused(one_send_indirect(0, huge, 66), "a write of 4 GiB and more");
}

static void no_status(void)
{
    struct descriptor list[3];
    make_read(list);
    check_stops(list, 1, "a header and nothing else");
    make_read(list);
    one.header.type = T_OUT;
    list[1].flags = list[2].flags = 0;
    check_stops(list, 3, "a write with a status that is not writable");
    make_read(list);
    list[0].length = list[1].length = list[2].length = 0;
    check_stops(list, 3, "a chain of empty buffers");
}

static void short_headers(void)
{
    struct descriptor list[3];
    make_read(list);
    check_refused(one_send(0, list + 1, 2), "a request without a header");
    static const char *const names[] = { "an empty header", "a header of 5 bytes", "one of 10", "one of 15" };
    for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
        make_read(list);
        list[0].length = 5 * i;
        check_refused(one_send(0, list, 3), names[i]);
    }
}

static void readable_after_writable(void)
{
    u64 seed = write_data();
    struct descriptor list[4];
    make_read(list);
    list[3] = list[2];
    list[2] = readable(area + BYTES, SECTOR_BYTES);
    check_refused(one_send(0, list, 4), "a readable buffer behind a writable one");
    make_read(list);
    one.header.type = T_OUT;
    list[3] = list[2];
    list[1] = writable(area, 1);
    list[2] = readable(area + BYTES, BYTES);
    check_refused(one_send(0, list, 4), "a write with its data behind a writable buffer");
    make_read(list);
    struct descriptor reversed[] = { list[1], list[0], list[2] };
    check_refused(one_send(0, reversed, 3), "a header behind the data");
    assert(disk_read(0, SECTOR, area, BYTES).status == S_OK);
    report(data_is(area, BYTES, seed), "the data on disk is as it was");
}

/* Empty buffers have no meaning, so they do no harm. */
static void empty_buffers(void)
{
    u64 seed = write_data();
    struct descriptor usual[3];
    make_read(usual);
    struct descriptor list[] = {
        readable(area, 0), usual[0], readable(&one.header, 0), writable(area, 0), usual[1],
        { .address = NOWHERE, .flags = DESC_WRITE }, usual[2], writable(area, 0),
    };
    check_outcome(one_send(0, list, ARRAY_SIZE(list)), S_OK, BYTES + 1, "a read with empty buffers everywhere");
    report(data_is(area, BYTES, seed), "its data comes back");
}

static void unknown_flags(void)
{
    u64 seed = write_data();
    struct descriptor list[3];
    make_read(list);
    for (unsigned i = 0; i < 3; i++)
        list[i].flags |= ring_format ? 0xfff8 & ~(PACKED_AVAILABLE | PACKED_USED) : 0xfff8;
    check_outcome(one_send(0, list, 3), S_OK, BYTES + 1, "a read with all unknown flags");
    report(data_is(area, BYTES, seed), "its data comes back");
}

static const struct test_case cases[] = {
    { "indirect-lengths", indirect_lengths },
    { "indirect-too-long", indirect_too_long },
    { "indirect-and-next", indirect_and_next },
    { "indirect-not-negotiated", indirect_not_negotiated },
    { "wild-data", wild_data },
    { "wild-headers", wild_headers },
    { "wild-status", wild_status },
    { "wild-tables", wild_tables },
    { "too-long", too_long },
    { "no-status", no_status },
    { "short-headers", short_headers },
    { "readable-after-writable", readable_after_writable },
    { "empty-buffers", empty_buffers },
    { "unknown-flags", unknown_flags },
};

int main(int argument_count, char **arguments)
{
    return RUN_SUITE("malformed", cases);
}

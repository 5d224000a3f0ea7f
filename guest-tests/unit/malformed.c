/*
 * Chains that no driver may build. What a device does with them is left open by virtio 1.2, 2.7.5; this one answers
 * those whose status byte can be found with an I/O error, returns the others with length 0, and goes on. Where the ring
 * itself makes no sense, the queue stops until it is set up again, and the other queues go on.
 */
#include "suite.h"

#define SECTOR 64u
#define BYTES PAGE_BYTES
/* Behind all memory of this guest, without devices there. */
#define NOWHERE (1ull << 40)
#define TAIL_BYTES 64u
#define WILD_MAX 8

/* A read of BYTES to the area, in the usual layout. */
static void make_read(struct descriptor list[3])
{
    memset(area, 0x55, 2 * BYTES);
    request_init(&one, T_IN, SECTOR);
    list[0] = readable(&one.header, sizeof(one.header));
    list[1] = writable(area, BYTES);
    list[2] = writable(&one.status, 1);
}

/* Sends the chain that is written at `head`, and expects it back with length 0, no status and no data. */
static void check_empty(u16 head, const char *name)
{
    struct used_entry used = { 0 };
    bool returned = ring_round(&disk.ring[0], head, &used);
    struct outcome outcome = request_outcome(&one, one.header.type, one.header.sector, returned, used, head);
    check_outcome(outcome, S_UNTOUCHED, 0, "%s comes back empty", name);
    report(all_bytes_are(area, BYTES, 0x55), "%s: nothing is written", name);
}

/* Expects an I/O error with nothing written but the status. */
static void check_refused(struct outcome outcome, const char *name)
{
    check_status(outcome, S_IOERR, "%s is refused", name);
    report(all_bytes_are(area, BYTES, 0x55), "%s: nothing but the status is written", name);
}

static void loop(void)
{
    struct descriptor list[3];
    make_read(list);
    list[0].flags = DESC_NEXT;
    ring_write(&disk.ring[0], 0, list[0]);
    check_empty(0, "a descriptor that links to itself");

    make_read(list);
    ring_write_chain(&disk.ring[0], 0, list, 3);
    disk.ring[0].descriptors[1].next = 0;
    check_empty(0, "two descriptors that link to each other");

    make_read(list);
    ring_write_chain(&disk.ring[0], 0, list, 3);
    disk.ring[0].descriptors[2].flags |= DESC_NEXT;
    disk.ring[0].descriptors[2].next = 2;
    check_empty(0, "a status that links to itself");

    make_read(list);
    for (u16 i = 0; i < disk.ring[0].size; i++) {
        struct descriptor descriptor = writable(area, 1);
        descriptor.flags |= DESC_NEXT;
        descriptor.next = (i + 1) % disk.ring[0].size;
        ring_write(&disk.ring[0], i, descriptor);
    }
    check_empty(0, "a loop through the whole table");
}

static void link_out_of_table(void)
{
    const u16 links[] = { disk.ring[0].size, 0xffff };
    for (unsigned i = 0; i < ARRAY_SIZE(links); i++) {
        struct descriptor list[3];
        make_read(list);
        ring_write_chain(&disk.ring[0], 0, list, 3);
        disk.ring[0].descriptors[1].next = links[i];
        check_empty(0, i == 0 ? "a link just out of the table" : "a link far out of the table");
    }
}

/* Puts a read into the indirect table; what refers to it is entry 0 of the ring. */
static struct descriptor make_table(void)
{
    struct descriptor list[3];
    make_read(list);
    for (u16 i = 0; i < 3; i++) {
        indirect_table[i] = list[i];
        indirect_table[i].flags |= i < 2 ? DESC_NEXT : 0;
        indirect_table[i].next = i < 2 ? i + 1 : 0;
    }
    struct descriptor table = readable(indirect_table, 3 * sizeof(struct descriptor));
    table.flags = DESC_INDIRECT;
    return table;
}

static void check_table_empty(struct descriptor table, const char *name)
{
    ring_write(&disk.ring[0], 0, table);
    check_empty(0, name);
}

static void indirect_loop(void)
{
    struct descriptor table = make_table();
    indirect_table[2].flags |= DESC_NEXT;
    check_table_empty(table, "a loop in a table");
    table = make_table();
    indirect_table[1].next = 3;
    check_table_empty(table, "a link just out of a table");
    table = make_table();
    indirect_table[1].next = 0xffff;
    check_table_empty(table, "a link far out of a table");
}

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
        check_table_empty(table, lengths[i].name);
    }
}

/* More entries than the queue has, and than the disk's segments need. */
static void indirect_too_long(void)
{
    struct descriptor table = make_table();
    u32 entries = MAX(disk.ring[0].size, disk.seg_max + 2) + 1;
    assert(entries <= INDIRECT_MAX);
    for (u32 i = 1; i < entries; i++) {
        indirect_table[i] = writable(area, 1);
        indirect_table[i].flags |= i + 1 < entries ? DESC_NEXT : 0;
        indirect_table[i].next = i + 1;
    }
    table.length = entries * sizeof(struct descriptor);
    check_table_empty(table, "a table with a chain that is too long");
}

static void indirect_in_indirect(void)
{
    struct descriptor table = make_table();
    memcpy(indirect_table + 8, indirect_table, 3 * sizeof(struct descriptor));
    indirect_table[0] = readable(indirect_table + 8, 3 * sizeof(struct descriptor));
    indirect_table[0].flags = DESC_INDIRECT;
    check_table_empty(table, "a table in a table");
}

static void indirect_and_next(void)
{
    struct descriptor table = make_table();
    table.flags = DESC_INDIRECT | DESC_NEXT;
    table.next = 1;
    ring_write(&disk.ring[0], 1, writable(&one.status, 1));
    check_table_empty(table, "a table with a link behind it");
}

static void indirect_not_negotiated(void)
{
    assert(disk_start(F_ALL & ~F_INDIRECT_DESC));
    check_table_empty(make_table(), "a table where none was agreed on");
}

/* Where the memory of this guest ends, by QEMU's word (its configuration device, key 3). */
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

/* Addresses from which on not all of 2 * TAIL_BYTES are memory. */
static unsigned wild_addresses(u64 addresses[], const char *names[])
{
    unsigned count = 0;
    addresses[count] = NOWHERE;
    names[count++] = "nowhere";
    addresses[count] = memory_end();
    names[count++] = "behind the end of memory";
    addresses[count] = memory_end() - TAIL_BYTES;
    names[count++] = "over the end of memory";
    addresses[count] = -(u64)TAIL_BYTES;
    names[count++] = "over the end of all addresses";
    addresses[count] = 1ull << 63;
    names[count++] = "at 2^63";
    addresses[count] = disk.virtio.common_address;
    names[count++] = "in a device";
    return count;
}

/* Each of the following would be a good request if only all of it were memory. */
static void wild_data(void)
{
    u64 addresses[WILD_MAX], seed = fresh_seed();
    const char *names[WILD_MAX];
    unsigned count = wild_addresses(addresses, names);
    data_fill(area, BYTES, seed);
    assert(disk_write(1, SECTOR, area, BYTES).status == S_OK);
    for (unsigned i = 0; i < count; i++) {
        struct descriptor list[3];
        report_prefix_push(names[i]);
        memset((void *)memory_tail(), 0x55, TAIL_BYTES);
        make_read(list);
        list[1].address = addresses[i];
        check_refused(one_send(0, list, 3), "a read");
        make_read(list);
        list[1].address = addresses[i];
        check_refused(one_send_indirect(0, list, 3), "an indirect read");
        report(all_bytes_are(memory_tail(), TAIL_BYTES, 0x55), "the part that is memory is not written");
        make_read(list);
        one.header.type = T_OUT;
        list[1].address = addresses[i];
        list[1].flags = 0;
        check_refused(one_send(0, list, 3), "a write");
        report_prefix_pop();
    }
    assert(disk_read(1, SECTOR, area, BYTES).status == S_OK);
    report(data_is(area, BYTES, seed), "the data on disk is as it was");
}

static void wild_headers(void)
{
    u64 addresses[WILD_MAX];
    const char *names[WILD_MAX];
    unsigned count = wild_addresses(addresses, names);
    for (unsigned i = 0; i < count; i++) {
        struct descriptor list[3];
        report_prefix_push(names[i]);
        make_read(list);
        list[0].address = addresses[i];
        list[0].length = 2 * TAIL_BYTES;
        memcpy((void *)memory_tail(), &one.header, sizeof(one.header));
        check_refused(one_send(0, list, 3), "a header");
        report_prefix_pop();
    }
}

static void wild_status(void)
{
    u64 addresses[WILD_MAX];
    const char *names[WILD_MAX];
    unsigned count = wild_addresses(addresses, names);
    for (unsigned i = 0; i < count; i++) {
        struct descriptor list[3];
        report_prefix_push(names[i]);
        memset((void *)memory_tail(), 0x55, TAIL_BYTES);
        make_read(list);
        list[1].length = BYTES + 1 - 2 * TAIL_BYTES;
        list[2].address = addresses[i];
        list[2].length = 2 * TAIL_BYTES;
        ring_write_chain(&disk.ring[0], 0, list, 3);
        check_empty(0, "a request with its status");
        report(all_bytes_are(memory_tail(), TAIL_BYTES, 0x55), "the part that is memory is not written");
        report_prefix_pop();
    }
}

static void wild_tables(void)
{
    u64 addresses[WILD_MAX];
    const char *names[WILD_MAX];
    unsigned count = wild_addresses(addresses, names);
    for (unsigned i = 0; i < count; i++) {
        struct descriptor table = make_table();
        report_prefix_push(names[i]);
        memcpy((void *)memory_tail(), indirect_table, 3 * sizeof(struct descriptor));
        table.address = addresses[i];
        table.length = 2 * TAIL_BYTES;
        check_table_empty(table, "a table");
        report_prefix_pop();
    }
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
    ring_write_chain(&disk.ring[0], 0, list, 1);
    check_empty(0, "a header and nothing else");
    make_read(list);
    one.header.type = T_OUT;
    list[1].flags = list[2].flags = 0;
    ring_write_chain(&disk.ring[0], 0, list, 3);
    check_empty(0, "a write with a status that is not writable");
    make_read(list);
    list[0].length = list[1].length = list[2].length = 0;
    ring_write_chain(&disk.ring[0], 0, list, 3);
    check_empty(0, "a chain of empty buffers");
}

static void short_headers(void)
{
    struct descriptor list[3];
    make_read(list);
    check_refused(one_send(0, list + 1, 2), "a request without a header");
    for (u32 length = 0; length < 16; length += 5) {
        make_read(list);
        list[0].length = length;
        check_refused(one_send(0, list, 3), length == 0    ? "a header of 0 bytes"
                                            : length == 5  ? "a header of 5 bytes"
                                            : length == 10 ? "a header of 10 bytes"
                                                           : "a header of 15 bytes");
    }
}

static void readable_after_writable(void)
{
    u64 seed = fresh_seed();
    data_fill(area, BYTES, seed);
    assert(disk_write(0, SECTOR, area, BYTES).status == S_OK);
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
    u64 seed = fresh_seed();
    data_fill(area, BYTES, seed);
    assert(disk_write(0, SECTOR, area, BYTES).status == S_OK);
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
    u64 seed = fresh_seed();
    data_fill(area, BYTES, seed);
    assert(disk_write(0, SECTOR, area, BYTES).status == S_OK);
    struct descriptor list[3];
    make_read(list);
    for (unsigned i = 0; i < 3; i++)
        list[i].flags |= 0xfff8;
    check_outcome(one_send(0, list, 3), S_OK, BYTES + 1, "a read with all unknown flags");
    report(data_is(area, BYTES, seed), "its data comes back");
}

/* Whether queue 0 does nothing any more while queue 1 goes on, and works again once it is set up again. */
static void check_stopped(void)
{
    struct used_entry used;
    bool others = true, silent = true;
    for (unsigned i = 0; i < 64; i++) {
        others = others && disk_read(1, SECTOR, area, BYTES).status == S_OK;
        silent = silent && !ring_take(&disk.ring[0], &used);
    }
    report(others, "the other queues go on");
    report(silent, "nothing comes from this one");
    report(disk_start(F_ALL), "the disk can be set up again");
    check_status(disk_read(0, SECTOR, area, BYTES), S_OK, "the queue works again");
}

static void head_out_of_table(void)
{
    const u16 heads[] = { disk.ring[0].size, 0x8000, 0xffff };
    for (unsigned i = 0; i < ARRAY_SIZE(heads); i++) {
        report_prefix_push(i == 0 ? "just out of it" : i == 1 ? "0x8000" : "0xffff");
        ring_offer(&disk.ring[0], heads[i]);
        ring_publish(&disk.ring[0]);
        ring_kick(&disk.ring[0]);
        check_stopped();
        report_prefix_pop();
    }
}

static void index_too_far(void)
{
    const u16 steps[] = { disk.ring[0].size + 1, 0x8000, 0xffff };
    for (unsigned i = 0; i < ARRAY_SIZE(steps); i++) {
        struct descriptor list[3];
        report_prefix_push(i == 0 ? "by one" : i == 1 ? "by 0x8000" : "backwards");
        make_read(list);
        ring_write_chain(&disk.ring[0], 0, list, 3);
        disk.ring[0].next_available += steps[i];
        ring_publish(&disk.ring[0]);
        ring_kick(&disk.ring[0]);
        check_stopped();
        report_prefix_pop();
    }
}

/* One chain, offered as often as the ring has entries: it is read as often, and comes back as often. */
static void one_chain_many_times(void)
{
    struct ring *ring = &disk.ring[0];
    struct descriptor list[3];
    struct used_entry used;
    u64 seed = fresh_seed();
    data_fill(area, BYTES, seed);
    assert(disk_write(1, SECTOR, area, BYTES).status == S_OK);
    make_read(list);
    ring_write_chain(ring, 0, list, 3);
    for (u16 i = 0; i < ring->size; i++)
        ring_offer(ring, 0);
    ring_publish(ring);
    ring_kick(ring);
    bool right = true;
    for (u16 i = 0; i < ring->size; i++)
        right = ring_wait(ring, &used) && used.id == 0 && used.length == BYTES + 1 && right;
    report(right, "it comes back as often as it was offered");
    report(one.status == S_OK && data_is(area, BYTES, seed), "it is read");
}

static const struct test_case cases[] = {
    { "loop", loop },
    { "link-out-of-table", link_out_of_table },
    { "indirect-loop", indirect_loop },
    { "indirect-lengths", indirect_lengths },
    { "indirect-too-long", indirect_too_long },
    { "indirect-in-indirect", indirect_in_indirect },
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
    { "head-out-of-table", head_out_of_table },
    { "index-too-far", index_too_far },
    { "one-chain-many-times", one_chain_many_times },
};

int main(int argument_count, char **arguments)
{
    return RUN_SUITE("malformed", cases);
}

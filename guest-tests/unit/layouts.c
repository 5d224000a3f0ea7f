/* A device must not depend on how a request is cut into descriptors (virtio 1.2, 2.7.4.1, 2.7.5.3.2). */
#include "suite.h"

#define SECTOR 64u
#define BYTES (4 * SECTOR_BYTES)

static u64 seed;

static void write_data(void)
{
    seed = fresh_seed();
    data_fill(area, BYTES, seed);
    assert(disk_write(0, SECTOR, area, BYTES).status == S_OK);
    memset(area, 0, AREA_BYTES);
}

/* Sends a read of BYTES to `data` in this layout, directly and by an indirect table, and checks what it brings. */
static void check_read(const struct descriptor *list, u16 count, const u8 *data, const char *name)
{
    write_data();
    request_init(&one, T_IN, SECTOR);
    check_outcome(one_send(0, list, count), S_OK, BYTES + 1, "%s: read", name);
    report(data_is(data, BYTES, seed), "%s: the data is right", name);
    memset(area, 0, AREA_BYTES);
    request_init(&one, T_IN, SECTOR);
    check_outcome(one_send_indirect(1, list, count), S_OK, BYTES + 1, "%s: indirect read", name);
    report(data_is(data, BYTES, seed), "%s: the data is right", name);
}

static void split_headers(void)
{
    static const struct {
        const char *name;
        u8 parts[4];
    } cuts[] = {
        { "header 1+15", { 1, 15 } },
        { "header 8+8", { 8, 8 } },
        { "header 15+1", { 15, 1 } },
        { "header 4+4+4+4", { 4, 4, 4, 4 } },
        { "header 3+2+10+1", { 3, 2, 10, 1 } },
    };
    for (unsigned i = 0; i < ARRAY_SIZE(cuts); i++) {
        const u8 *parts = cuts[i].parts;
        struct descriptor list[ARRAY_SIZE(cuts[i].parts) + 2];
        u16 count = 0;
        for (u32 at = 0; at < sizeof(one.header); at += parts[count++])
            list[count] = readable((u8 *)&one.header + at, parts[count]);
        list[count++] = writable(area, BYTES);
        list[count++] = writable(&one.status, 1);
        check_read(list, count, area, cuts[i].name);
    }
    struct descriptor bytes[18];
    for (u16 i = 0; i < 16; i++)
        bytes[i] = readable((u8 *)&one.header + i, 1);
    bytes[16] = writable(area, BYTES);
    bytes[17] = writable(&one.status, 1);
    check_read(bytes, 18, area, "header byte by byte");
}

static void header_with_data(void)
{
    struct {
        struct header header;
        u8 data[BYTES];
    } *whole = (void *)area;
    for (u32 first = 1; first < sizeof(*whole); first += first < 32 ? 5 : 600) {
        u32 rest = sizeof(*whole) - first;
        struct descriptor list[] = {
            readable(whole, first), readable((u8 *)whole + first, rest), writable(&one.status, 1)
        };
        seed = fresh_seed();
        request_init(&one, T_OUT, SECTOR);
        whole->header = one.header;
        data_fill(whole->data, BYTES, seed);
        check_outcome(one_send(0, list, 3), S_OK, 1, "header and data cut at %u: written", first);
        memset(area, 0, AREA_BYTES);
        assert(disk_read(1, SECTOR, area, BYTES).status == S_OK);
        report(data_is(area, BYTES, seed), "header and data cut at %u: the data comes back", first);
    }
    struct descriptor list[] = { readable(whole, sizeof(*whole)), writable(&one.status, 1) };
    seed = fresh_seed();
    request_init(&one, T_OUT, SECTOR);
    whole->header = one.header;
    data_fill(whole->data, BYTES, seed);
    check_outcome(one_send(0, list, 2), S_OK, 1, "header and data in one: written");
    memset(area, 0, AREA_BYTES);
    assert(disk_read(1, SECTOR, area, BYTES).status == S_OK);
    report(data_is(area, BYTES, seed), "header and data in one: the data comes back");
}

/* The status is the last writable byte, wherever that is. */
static void status_with_data(void)
{
    struct {
        u8 data[BYTES];
        volatile u8 status;
        u8 after[15];
    } *whole = (void *)area;
    static const u32 cuts[] = { 0, 1, 511, 512, 1000, BYTES - 1, BYTES };
    for (unsigned i = 0; i < ARRAY_SIZE(cuts); i++) {
        u32 first = cuts[i];
        struct descriptor list[] = {
            readable(&one.header, sizeof(one.header)),
            writable(whole->data, first ? first : BYTES + 1),
            writable(whole->data + first, BYTES + 1 - first),
        };
        write_data();
        memset(whole, S_UNTOUCHED, sizeof(*whole));
        request_init(&one, T_IN, SECTOR);
        struct outcome outcome = one_send(0, list, first ? 3 : 2);
        /* The chain has the status in `whole`, so that of `one` stays as it is. */
        report(outcome.status == S_UNTOUCHED && outcome.length == BYTES + 1 && whole->status == S_OK,
               "data and status cut at %u: read", first);
        report(data_is(whole->data, BYTES, seed), "data and status cut at %u: the data is right", first);
        report(all_bytes_are(whole->after, sizeof(whole->after), S_UNTOUCHED),
               "data and status cut at %u: nothing behind the status is written", first);
    }
    /* A write has no data for the bytes before the status, so they must stay as they are. */
    memset(whole, S_UNTOUCHED, sizeof(*whole));
    struct descriptor list[] = {
        readable(&one.header, sizeof(one.header)), readable(area + PAGE_BYTES, BYTES), writable(whole->data, BYTES + 1)
    };
    request_init(&one, T_OUT, SECTOR);
    one_send(0, list, 3);
    report(whole->status == S_OK && all_bytes_are(whole->data, BYTES, S_UNTOUCHED),
           "a write with room before the status writes the status alone");
    memset(whole, S_UNTOUCHED, sizeof(*whole));
    list[1].length = SECTOR_BYTES + 1;
    request_init(&one, T_OUT, SECTOR);
    one_send(0, list, 3);
    report(whole->status == S_IOERR && all_bytes_are(whole->data, BYTES, S_UNTOUCHED),
           "a refused write with room before the status writes the status alone");
}

/* Buffers that begin and end anywhere, over page boundaries. */
static void odd_buffers(void)
{
    static const u32 first_lengths[] = { 1, 3, 511, 513, 1023, 2047 };
    for (unsigned i = 0; i < ARRAY_SIZE(first_lengths); i++) {
        u32 first = first_lengths[i];
        u8 *data = area + PAGE_BYTES - 1 - first;
        struct descriptor list[] = {
            readable(&one.header, sizeof(one.header)),
            writable(data, first),
            writable(data + first, BYTES - first),
            writable(&one.status, 1),
        };
        write_data();
        request_init(&one, T_IN, SECTOR);
        check_outcome(one_send(0, list, 4), S_OK, BYTES + 1, "parts of %u and the rest: read", first);
        report(data_is(data, BYTES, seed), "parts of %u and the rest: the data is right", first);
        report(data[-1] == 0 && data[BYTES] == 0, "parts of %u and the rest: no other bytes are changed", first);
        seed = fresh_seed();
        data_fill(data, BYTES, seed);
        list[1].flags = list[2].flags = 0;
        request_init(&one, T_OUT, SECTOR);
        check_outcome(one_send(0, list, 4), S_OK, 1, "parts of %u and the rest: written", first);
        memset(area, 0, AREA_BYTES);
        assert(disk_read(1, SECTOR, area, BYTES).status == S_OK);
        report(data_is(area, BYTES, seed), "parts of %u and the rest: the data comes back", first);
    }
}

/* Many tiny buffers in reverse order in memory. */
static void scattered(void)
{
    static struct descriptor list[66];
    u32 part = BYTES / 64;
    write_data();
    list[0] = readable(&one.header, sizeof(one.header));
    for (u16 i = 0; i < 64; i++)
        list[1 + i] = writable(area + (63 - i) * 2 * part, part);
    list[65] = writable(&one.status, 1);
    request_init(&one, T_IN, SECTOR);
    check_outcome(one_send(0, list, 66), S_OK, BYTES + 1, "64 scattered buffers: read");
    bool right = true, untouched = true;
    for (u32 i = 0; i < 64; i++) {
        right = right && data_is_from(area + (63 - i) * 2 * part, part, seed, i * part);
        untouched = untouched && all_bytes_are(area + (63 - i) * 2 * part + part, part, 0);
    }
    report(right, "64 scattered buffers: the data is right");
    report(untouched, "64 scattered buffers: nothing between them is written");
}

/* The links decide the order of descriptors, in a ring and in a table, and not their places. */
static void linked_backwards(void)
{
    struct ring *ring = &disk.ring[0];
    struct descriptor list[] = {
        readable(&one.header, sizeof(one.header)), writable(area, BYTES / 2), writable(area + BYTES / 2, BYTES / 2),
        writable(&one.status, 1)
    };
    struct used_entry used = { 0 };
    write_data();
    request_init(&one, T_IN, SECTOR);
    for (u16 i = 0; i < 4; i++) {
        list[i].flags |= i < 3 ? DESC_NEXT : 0;
        list[i].next = ring->size - 2 - i;
        split_write(&ring->split, ring->size - 1 - i, list[i]);
    }
    split_offer(&ring->split, ring->size - 1);
    bool returned = ring_round(ring, &used);
    check_outcome(request_outcome(&one, T_IN, SECTOR, returned, used, ring->size - 1), S_OK, BYTES + 1,
                  "a chain linked backwards: read");
    report(data_is(area, BYTES, seed), "a chain linked backwards: the data is right");

    memset(area, 0, BYTES);
    request_init(&one, T_IN, SECTOR);
    /* A table begins with entry 0. The other entries are in reverse order. */
    static const u16 places[] = { 0, 3, 2, 1 };
    for (u16 i = 0; i < 4; i++) {
        list[i].next = i < 3 ? places[i + 1] : 0;
        indirect_table[places[i]] = list[i];
    }
    struct descriptor table = readable(indirect_table, sizeof(list));
    table.flags = DESC_INDIRECT;
    check_outcome(one_send(0, &table, 1), S_OK, BYTES + 1, "a table linked backwards: read");
    report(data_is(area, BYTES, seed), "a table linked backwards: the data is right");
}

/* Sends a chain with the table of a read in it, and checks what that brings. */
static void check_table(const struct descriptor *list, u16 count, const char *name)
{
    check_outcome(one_send(0, list, count), S_OK, BYTES + 1, "%s: read", name);
    report(data_is(area, BYTES, seed), "%s: the data is right", name);
}

/* Writes the data, prepares `one` and puts a read of it into a table. */
static struct descriptor make_table(struct descriptor *table)
{
    struct descriptor list[] = {
        readable(&one.header, sizeof(one.header)), writable(area, BYTES), writable(&one.status, 1)
    };
    write_data();
    request_init(&one, T_IN, SECTOR);
    return ring_table(&disk.ring[0], table, list, ARRAY_SIZE(list));
}

/* 2.7.5.3.2, 2.8.7: WRITE has no meaning in a descriptor that refers to a table. A table needs no alignment. */
static void indirect_forms(void)
{
    static u8 odd_place[4 * sizeof(struct descriptor) + 8] __attribute__((aligned(16)));
    struct descriptor table = make_table(indirect_table);
    table.flags |= DESC_WRITE;
    check_table(&table, 1, "a table that is marked as writable");

    table = make_table((struct descriptor *)(odd_place + 5));
    check_table(&table, 1, "a table at an odd address");
}

/*
 * 2.7.5.3.2: normal descriptors may come before the one that refers to a table. The links alone say where a table ends.
 */
static void indirect_split_forms(void)
{
    memset(indirect_table, 0xff, 8 * sizeof(struct descriptor));
    struct descriptor table = make_table(indirect_table);
    table.length = 8 * sizeof(struct descriptor);
    check_table(&table, 1, "a table longer than its chain");

    struct descriptor rest[] = { writable(area, BYTES), writable(&one.status, 1) };
    write_data();
    request_init(&one, T_IN, SECTOR);
    struct descriptor mixed[] = {
        readable(&one.header, sizeof(one.header)),
        ring_table(&disk.ring[0], indirect_table, rest, ARRAY_SIZE(rest)),
    };
    check_table(mixed, ARRAY_SIZE(mixed), "a table behind a descriptor");
}

/* A write may name the same memory more than once. */
static void same_buffer_twice(void)
{
    struct descriptor list[] = { readable(area, SECTOR_BYTES), readable(area, SECTOR_BYTES) };
    seed = fresh_seed();
    data_fill(area, SECTOR_BYTES, seed);
    check_status(disk_request(0, T_OUT, SECTOR, list, 2), S_OK, "one buffer is written twice");
    memset(area, 0, 2 * SECTOR_BYTES);
    assert(disk_read(0, SECTOR, area, 2 * SECTOR_BYTES).status == S_OK);
    bool twice = data_is(area, SECTOR_BYTES, seed) && data_is(area + SECTOR_BYTES, SECTOR_BYTES, seed);
    report(twice, "it comes back twice");
}

static const struct test_case cases[] = {
    { "split-headers", split_headers },
    { "header-with-data", header_with_data },
    { "status-with-data", status_with_data },
    { "odd-buffers", odd_buffers },
    { "scattered", scattered },
    { "linked-backwards", linked_backwards, SPLIT_RINGS },
    { "indirect-forms", indirect_forms },
    { "indirect-split-forms", indirect_split_forms, SPLIT_RINGS },
    { "same-buffer-twice", same_buffer_twice },
};

int main(int argument_count, char **arguments)
{
    return RUN_SUITE("layouts", cases);
}

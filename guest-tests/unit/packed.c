/*
 * Cases that only a packed ring has (virtio 1.2, 2.8): flags, ids and chains that no driver may write, and unusual ones
 * that it may write. malformed.h says what the device must do with the bad ones.
 */
#include "malformed.h"

/* The number of reads of `mixed_chains` that are under way at once. */
#define MIXED 4

/* Writes a descriptor `nth` places after the next place. */
static void put(u16 nth, struct descriptor descriptor, u16 id, u16 flags)
{
    struct packed_ring *ring = &disk.ring[0].packed;
    struct packed_descriptor packed = { descriptor.address, descriptor.length, id, flags };
    packed_write(ring, packed_plus(ring, ring->next_available, nth), packed);
}

/* The flags of an available descriptor `nth` places after the next place. */
static u16 available(u16 nth)
{
    struct packed_ring *ring = &disk.ring[0].packed;
    return packed_available(ring, packed_plus(ring, ring->next_available, nth));
}

/* Counts the descriptors that were put as a chain of `count` descriptors, the last of which has this id. */
static void put_is_chain(u16 count, u16 id)
{
    struct packed_ring *ring = &disk.ring[0].packed;
    ring->next_available = packed_plus(ring, ring->next_available, count);
    ring->chain_length[id % RING_SIZE_MAX] = count;
    ring->room -= count;
}

/* The flags of the next descriptor. Setting them shows the device the chain that begins there. */
static volatile u16 *head_flags(void)
{
    struct ring *ring = &disk.ring[0];
    return ring_flags(ring, packed_index(&ring->packed, ring->packed.next_available), 0);
}

/*
 * Puts a read into the ring without showing it to the device. The last descriptor has this id, and the others have
 * other ids. In all but the first, the flags of `wrong` are inverted.
 */
static void put_read(u16 id, u16 wrong)
{
    struct descriptor list[3];
    make_read(list);
    put(0, list[0], id + 2, *head_flags());
    put(1, list[1], id + 1, (available(1) | DESC_WRITE | DESC_NEXT) ^ wrong);
    put(2, list[2], id, (available(2) | DESC_WRITE) ^ wrong);
    wmb();
}

/* Shows the device the read of `put_read`, and expects it back with its data. */
static void check_read(u16 id, u64 seed, const char *name)
{
    struct used_entry used = { 0 };
    *head_flags() = available(0) | DESC_NEXT;
    put_is_chain(3, id);
    bool returned = ring_round(&disk.ring[0], &used);
    check_outcome(request_outcome(&one, T_IN, SECTOR, returned, used, id), S_OK, BYTES + 1, "%s: read", name);
    report(data_is(area, BYTES, seed), "%s: the data is right", name);
}

static void ids(void)
{
    const u16 ids[] = { 0, disk.ring[0].size - 1, disk.ring[0].size, 0x8000, 0xffff };
    static const char *const names[] = { "id 0", "the last id", "an id out of range", "id 0x8000", "id 0xffff" };
    u64 seed = write_data();
    for (unsigned i = 0; i < ARRAY_SIZE(ids); i++) {
        put_read(ids[i], 0);
        check_read(ids[i], seed, names[i]);
    }
}

/* As many chains as there is room for, all with one id. */
static void one_id(void)
{
    struct ring *ring = &disk.ring[0];
    struct descriptor list[3];
    u64 seed = write_data();
    make_read(list);
    u16 offered = 0, returned = 0;
    for (; ring_has_room(ring, 3); offered++)
        ring_offer(ring, 5, list, 3);
    ring_publish(ring);
    ring_kick(ring);
    struct used_entry used;
    while (returned < offered && ring_wait(ring, &used) && used.id == 5 && used.length == BYTES + 1)
        returned++;
    report(returned == offered, "it comes back as often as it was offered");
    report(one.status == S_OK && data_is(area, BYTES, seed), "it is read");
}

/* A chain is not available while its first descriptor has these flags. With the right flags it is. */
static void wrong_wrap_bits(void)
{
    static const struct {
        u16 flags;
        const char *name;
    } wrong[] = {
        { 0, "neither flag" },
        { PACKED_AVAILABLE | PACKED_USED, "both flags" },
        { PACKED_USED, "the flags of the next round" },
    };
    u64 seed = write_data();
    struct ring *ring = &disk.ring[0];
    for (unsigned i = 0; i < ARRAY_SIZE(wrong); i++) {
        bool silent = true;
        u16 flags = wrong[i].flags | DESC_NEXT;
        /* The flags above are wrong for the first round, in which the wrap counter is 1. */
        assert(packed_wrap(&ring->packed, ring->packed.next_available));
        put_read(7, 0);
        *head_flags() = flags;
        for (unsigned look = 0; look < 16; look++) {
            ring_kick(ring);
            assert(disk_read(1, SECTOR, area + BYTES, BYTES).status == S_OK);
            silent = silent && *head_flags() == flags && all_bytes_are(area, BYTES, 0x55);
        }
        report(silent, "%s: nothing is done", wrong[i].name);
        /* The requests on the other queue have used `one`, so it is prepared again. */
        request_init(&one, T_IN, SECTOR);
        wmb();
        check_read(7, seed, wrong[i].name);
    }
}

/* The device looks only at the availability flags of a chain's first descriptor, because that is written last. */
static void wrong_wrap_bits_behind(void)
{
    u64 seed = write_data();
    put_read(7, PACKED_AVAILABLE);
    check_read(7, seed, "no flag behind the first");
    put_read(7, PACKED_USED);
    check_read(7, seed, "both flags behind the first");
    put_read(7, PACKED_AVAILABLE | PACKED_USED);
    check_read(7, seed, "flags of another round behind the first");
}

/*
 * A chain links to a descriptor that the driver has not made available, and ends there. That descriptor is part of it.
 */
static void link_to_what_is_not_offered(void)
{
    u64 seed = write_data();
    put(3, writable(area, 0), 9, 0);
    put_read(7, 0);
    *ring_flags(&disk.ring[0], packed_index(&disk.ring[0].packed, disk.ring[0].packed.next_available), 2) |= DESC_NEXT;
    wmb();
    *head_flags() = available(0) | DESC_NEXT;
    struct used_entry used = { 0 };
    put_is_chain(4, 9);
    bool returned = ring_round(&disk.ring[0], &used);
    check_outcome(request_outcome(&one, T_IN, SECTOR, returned, used, 9), S_OK, BYTES + 1, "it is read");
    report(data_is(area, BYTES, seed), "the data is right");
}

/*
 * A chain with a link in every descriptor of the ring. The ring is new, or was used up to its middle or its end before.
 */
static void chain_without_end(void)
{
    for (unsigned i = 0; i < 3; i++) {
        report_prefix_push(i == 0 ? "in a new ring" : i == 1 ? "from its middle" : "over its end");
        u16 before = i == 1 ? disk.ring[0].size / 2 : i == 2 ? disk.ring[0].size - 2 : 0;
        bool right = true;
        for (u16 at = 0; at < before; at++) {
            struct descriptor table = make_table();
            right = one_send(0, &table, 1).status == S_OK && right;
        }
        report(right, "the queue works before");
        ring_break(&disk.ring[0]);
        check_stopped();
        report_prefix_pop();
    }
}

/* 2.8.7: a table is the only descriptor of its chain. */
static void indirect_in_chain(void)
{
    struct descriptor table = make_table();
    struct descriptor first[] = { table, writable(&one.status, 1) };
    check_stops(first, ARRAY_SIZE(first), "a table at the beginning");
    table = make_table();
    struct descriptor middle[] = { readable(&one.header, sizeof(one.header)), table, writable(&one.status, 1) };
    check_stops(middle, ARRAY_SIZE(middle), "a table in the middle");
    table = make_table();
    struct descriptor last[] = { readable(&one.header, sizeof(one.header)), table };
    check_stops(last, ARRAY_SIZE(last), "a table at the end");
    table = make_table();
    struct descriptor two[] = { table, table };
    check_stops(two, ARRAY_SIZE(two), "two tables");
}

/* 2.8.7: in a table, only address, length and the flag WRITE count. */
static void table_flags(void)
{
    u64 seed = write_data();
    struct descriptor table = make_table();
    struct packed_descriptor *entries = (void *)indirect_table;
    for (u16 i = 0; i < 3; i++) {
        entries[i].flags |= (u16)~DESC_WRITE;
        entries[i].id = 0xffff - i;
    }
    check_outcome(one_send(0, &table, 1), S_OK, BYTES + 1, "a table with all flags: read");
    report(data_is(area, BYTES, seed), "a table with all flags: the data is right");
}

/* The used descriptor has the length, and says that something was written. The rest of the chain is as it was. */
static void used_descriptors(void)
{
    struct ring *ring = &disk.ring[0];
    struct descriptor list[3];
    make_read(list);
    volatile struct packed_descriptor *used = &ring->packed.descriptors[ring->packed.next_used];
    volatile struct packed_descriptor *next = used + 1;
    one_send(0, list, 3);
    report(used->flags == (PACKED_AVAILABLE | PACKED_USED | DESC_WRITE), "what is written into is marked so");
    report(used->length == BYTES + 1, "the length is there");
    report(next->address == list[1].address && next->length == BYTES, "the rest of the chain is as it was");
}

static void empty_chain(void)
{
    struct descriptor list[2] = { { 0 }, { 0 } };
    make_read((struct descriptor[3]) { { 0 } });
    check_stops(list, 1, "a chain of one empty buffer");
    check_stops(list, 2, "a chain of two empty buffers");
    list[0].flags = DESC_INDIRECT;
    check_stops(list, 1, "an empty table at no address");
}

/* The driver's event suppression structure may have any content, and requests are done all the same. */
static void event_garbage(void)
{
    static const struct {
        u16 offset, mode;
    } events[] = {
        { 0, 3 }, { 0xffff, 3 }, { 0xffff, EVENT_DESC }, { 0x7fff, EVENT_DESC }, { 0x8080, EVENT_DESC },
        { 0x0080, EVENT_DESC }, { 0xffff, 0xffff }, { 0x1234, 0xfffc }, { 0x5555, 0xfffd }, { 0, 0xfffe },
    };
    static const u64 features[] = { F_ALL, F_ALL & ~F_EVENT_IDX };
    for (unsigned with = 0; with < ARRAY_SIZE(features); with++) {
        assert(disk_start(features[with]));
        bool right = true;
        for (unsigned i = 0; i < ARRAY_SIZE(events); i++) {
            disk.ring[0].packed.driver_event[EVENT_OFFSET] = events[i].offset;
            disk.ring[0].packed.driver_event[EVENT_MODE] = events[i].mode;
            mb();
            for (unsigned request = 0; request < 4; request++)
                right = disk_read(0, SECTOR, area, BYTES).status == S_OK && right;
        }
        report(right, with == 0 ? "requests are done" : "requests are done without EVENT_IDX");
    }
}

/* The device does not read its own event suppression structure, so a driver may overwrite it. */
static void device_event_garbage(void)
{
    bool right = true;
    for (u16 mode = 0; mode < 4; mode++) {
        disk.ring[0].packed.device_event[EVENT_OFFSET] = 0x7fff * mode;
        disk.ring[0].packed.device_event[EVENT_MODE] = mode;
        mb();
        right = disk_read(0, SECTOR, area, BYTES).status == S_OK && right;
    }
    report(right, "requests are done");
}

/* Chains of different lengths, for large and small reads. They may come back in any order, and each comes back once. */
static void mixed_chains(void)
{
    static const u16 sectors[MIXED] = { 1, 7, 2, 8 };
    static struct request requests[MIXED];
    struct ring *ring = &disk.ring[0];
    unsigned out_of_order = 0;
    bool right = true;
    u64 seed = write_data();
    data_fill(area + BYTES, BYTES, seed);
    for (unsigned round = 0; round < 100 && right; round++) {
        for (u16 id = 0; id < MIXED; id++) {
            struct descriptor list[16];
            u16 count = 0, of = sectors[(id + round) % MIXED];
            request_init(&requests[id], T_IN, SECTOR);
            list[count++] = readable(&requests[id].header, sizeof(struct header));
            for (u16 i = 0; i < of; i++)
                list[count++] = writable(area + 2 * BYTES * (id + 1) + i * SECTOR_BYTES, SECTOR_BYTES);
            list[count++] = writable(&requests[id].status, 1);
            memset(area + 2 * BYTES * (id + 1), 0, BYTES);
            /* Every third chain is a table. */
            struct descriptor table = ring_table(ring, indirect_table + 16 * id, list, count);
            ring_offer(ring, id, (id + round) % 3 ? list : &table, (id + round) % 3 ? count : 1);
        }
        ring_publish(ring);
        ring_kick(ring);
        unsigned back = 0;
        for (u16 i = 0; i < MIXED && right; i++) {
            struct used_entry used = { 0 };
            right = ring_wait(ring, &used) && used.id < MIXED && !(back & 1u << used.id);
            back |= 1u << used.id;
            out_of_order += used.id != i;
            u32 bytes = sectors[(used.id + round) % MIXED] * SECTOR_BYTES;
            right = right && used.length == bytes + 1 && requests[used.id].status == S_OK &&
                    data_is(area + 2 * BYTES * (used.id + 1), bytes, seed);
        }
    }
    report(right, "each comes back once with its data");
    report_info("%u of %u out of order", out_of_order, 100 * MIXED);
}

static const struct test_case cases[] = {
    { "ids", ids },
    { "one-id", one_id },
    { "wrong-wrap-bits", wrong_wrap_bits },
    { "wrong-wrap-bits-behind", wrong_wrap_bits_behind },
    { "link-to-what-is-not-offered", link_to_what_is_not_offered },
    { "chain-without-end", chain_without_end },
    { "indirect-in-chain", indirect_in_chain },
    { "table-flags", table_flags },
    { "used-descriptors", used_descriptors },
    { "empty-chain", empty_chain },
    { "event-garbage", event_garbage },
    { "device-event-garbage", device_event_garbage },
    { "mixed-chains", mixed_chains },
};

int main(int argument_count, char **arguments)
{
    return RUN_SUITE("packed", cases);
}

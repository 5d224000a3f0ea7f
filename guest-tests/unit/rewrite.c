/*
 * A driver that rewrites its requests while the device has them. The device must execute each request as it was before
 * or as it is afterwards, in whole, and touch nothing else. A and B are blocks of known data. The blocks next to them
 * must stay as they are.
 */
#include "load.h"
#include "suite.h"

#define ROUNDS 40
#define SECTOR_A 1024u
#define SECTOR_B 2048u
/* An address behind all memory of this guest, without a device, and a sector behind the end of the disk. */
#define NOWHERE (1ull << 40)

static u64 seed_a, seed_b, seed_beside;

static bool has_data(const struct load_slot *slot, u64 seed)
{
    return data_is(slot->data, LOAD_BYTES, seed);
}

static bool is_empty(const struct load_slot *slot)
{
    return all_bytes_are(slot->data, LOAD_BYTES, 0x55);
}

static void write_blocks(void)
{
    seed_a = fresh_seed();
    seed_b = fresh_seed();
    seed_beside = fresh_seed();
    data_fill(area, LOAD_BYTES, seed_beside);
    assert(disk_write(1, SECTOR_A - LOAD_SECTORS, area, LOAD_BYTES).status == S_OK);
    assert(disk_write(1, SECTOR_A + LOAD_SECTORS, area, LOAD_BYTES).status == S_OK);
    data_fill(area, LOAD_BYTES, seed_a);
    assert(disk_write(1, SECTOR_A, area, LOAD_BYTES).status == S_OK);
    data_fill(area, LOAD_BYTES, seed_b);
    assert(disk_write(1, SECTOR_B, area, LOAD_BYTES).status == S_OK);
}

static bool block_is(u64 sector, u64 seed)
{
    memset(area, 0, LOAD_BYTES);
    return disk_read(1, sector, area, LOAD_BYTES).status == S_OK && data_is(area, LOAD_BYTES, seed);
}

static void check_blocks(void)
{
    report(block_is(SECTOR_A, seed_a) && block_is(SECTOR_B, seed_b), "the blocks are as they were");
    report(block_is(SECTOR_A - LOAD_SECTORS, seed_beside) && block_is(SECTOR_A + LOAD_SECTORS, seed_beside),
           "so are those beside them");
}

/* A field of a request that is rewritten repeatedly: with its original value, and with another one. */
struct rewriting {
    volatile void *(*field)(struct load *load, u16 index);
    unsigned bytes;
    /* The other value, or the number to add to the original value. */
    u64 other;
    bool is_added;
    /* The field is in an indirect table. */
    bool indirect;
    /* With the other value a request may have no status byte, which stops the queue. */
    bool may_stop;
    /* Whether this outcome is allowed, in addition to the original read of A. */
    bool (*may_be)(const struct load_slot *slot, struct outcome outcome);
};

static u64 field_get(volatile void *field, unsigned bytes)
{
    return bytes == 2 ? *(volatile u16 *)field : bytes == 4 ? *(volatile u32 *)field : *(volatile u64 *)field;
}

static void field_set(volatile void *field, unsigned bytes, u64 value)
{
    if (bytes == 2)
        *(volatile u16 *)field = value;
    else if (bytes == 4)
        *(volatile u32 *)field = value;
    else
        *(volatile u64 *)field = value;
}

/* Whether the request was a read of the block with this data, and of nothing else. */
static bool is_read_of(const struct load_slot *slot, struct outcome outcome, u64 seed)
{
    return outcome.status == S_OK && outcome.length == LOAD_BYTES + 1 && has_data(slot, seed);
}

/* Has reads of A in all slots, and rewrites them until they are back. This is repeated for several rounds. */
static void reads(void)
{
    const struct rewriting *what = current_case->with;
    struct load *load = load_new(&disk.ring[0], what->indirect);
    static u64 original[RING_SIZE_MAX];
    bool allowed = true;
    unsigned rewritten = 0;
    write_blocks();
    for (unsigned round = 0; round < ROUNDS && load->pending == 0; round++) {
        for (u16 i = 0; i < load->slots; i++) {
            memset(load->slot[i].data, 0x55, LOAD_BYTES);
            load_offer(load, i, T_IN, SECTOR_A);
            original[i] = field_get(what->field(load, i), what->bytes);
        }
        ring_publish(load->ring);
        ring_kick(load->ring);
        struct deadline deadline = deadline_start();
        unsigned silent = 0;
        for (unsigned step = 0; load->pending > 0 && !deadline_passed(&deadline); step++) {
            struct used_entry used;
            if (!ring_take(load->ring, &used)) {
                /* The reads of the other queue take as long as the device needs to look at this one. */
                if (what->may_stop && step % 1024 == 1023) {
                    assert(disk_read(1, SECTOR_B, area, LOAD_BYTES).status == S_OK);
                    if (++silent > 64)
                        break;
                }
                for (u16 i = 0; i < load->slots; i++) {
                    u64 other = what->is_added ? original[i] + what->other : what->other;
                    field_set(what->field(load, i), what->bytes, step % 2 ? other : original[i]);
                }
                continue;
            }
            silent = 0;
            u16 index = what->indirect ? used.id : used.id / LOAD_PARTS;
            struct load_slot *slot = &load->slot[index < load->slots ? index : 0];
            struct outcome outcome = { .status = slot->request.status, .length = used.length };
            bool is_known = index < load->slots && slot->pending;
            if (!is_known || !(is_read_of(slot, outcome, seed_a) || what->may_be(slot, outcome))) {
                if (allowed)
                    report_info("slot %d: status %#x, length %u", index, outcome.status, outcome.length);
                allowed = false;
            }
            rewritten += !has_data(slot, seed_a);
            load->pending -= slot->pending;
            slot->pending = false;
        }
    }
    report(load->pending == 0 || what->may_stop, "every request comes back");
    report(allowed, "each is the one or the other");
    report_info("%u of %u are the other", rewritten, ROUNDS * load->slots);
    report_info("%s", load->pending ? "the queue has stopped" : "the queue goes on");
    check_blocks();
    if (load->pending)
        assert(disk_start(F_ALL));
}

static volatile void *sector_of(struct load *load, u16 index)
{
    return &load->slot[index].request.header.sector;
}

static volatile void *type_of(struct load *load, u16 index)
{
    return &load->slot[index].request.header.type;
}

/* The address in the descriptor of the data. */
static volatile void *address_of(struct load *load, u16 index)
{
    return &ring_descriptor(load->ring, load->slot[index].first, 1)->address;
}

static volatile void *length_of(struct load *load, u16 index)
{
    return &ring_descriptor(load->ring, load->slot[index].first, 1)->length;
}

static volatile void *flags_of(struct load *load, u16 index)
{
    return ring_flags(load->ring, load->slot[index].first, 1);
}

static volatile void *link_of(struct load *load, u16 index)
{
    return &ring_descriptor(load->ring, load->slot[index].first, 1)->next;
}

static volatile void *table_address_of(struct load *load, u16 index)
{
    return &load->slot[index].table[1].address;
}

static volatile void *table_length_of(struct load *load, u16 index)
{
    return &load->slot[index].table[1].length;
}

static volatile void *table_link_of(struct load *load, u16 index)
{
    return &load->slot[index].table[1].next;
}

/*
 * The id in the last descriptor, which is the one that counts. No other chain has the other id. A chain with that id
 * gives back the same number of descriptors.
 */
static volatile void *id_of(struct load *load, u16 index)
{
    struct packed_ring *ring = &load->ring->packed;
    volatile struct packed_descriptor *last =
        &ring->descriptors[(load->slot[index].first + LOAD_PARTS - 1) % ring->size];
    ring->chain_length[index * LOAD_PARTS + 1] = LOAD_PARTS;
    return &last->id;
}

static bool is_b(const struct load_slot *slot, struct outcome outcome)
{
    return is_read_of(slot, outcome, seed_b);
}

static bool is_refused(const struct load_slot *slot, struct outcome outcome)
{
    return outcome.status == S_IOERR && is_empty(slot);
}

static bool is_unsupported(const struct load_slot *slot, struct outcome outcome)
{
    return outcome.status == S_UNSUPP && is_empty(slot);
}

static bool is_nothing(const struct load_slot *slot, struct outcome outcome)
{
    return outcome.status == S_OK && is_empty(slot);
}

/*
 * The device may leave a loop after some rounds. Then the request is longer by each round, and reads the blocks after A
 * too.
 */
static bool is_long(const struct load_slot *slot, struct outcome outcome)
{
    return outcome.status == S_OK && outcome.length > LOAD_BYTES + 1 && outcome.length % LOAD_BYTES == 1 &&
           !has_data(slot, seed_a);
}

static bool is_no_other(const struct load_slot *slot, struct outcome outcome)
{
    return false;
}

/* A write whose data change meanwhile may write anything to its block, but nothing next to the block. */
static void written_data(void)
{
    struct load *load = load_new(&disk.ring[0], false);
    bool succeeded = true;
    write_blocks();
    for (unsigned round = 0; round < ROUNDS && succeeded; round++) {
        for (u16 i = 0; i < load->slots; i++)
            load_offer(load, i, T_OUT, SECTOR_B);
        ring_publish(load->ring);
        ring_kick(load->ring);
        struct deadline deadline = deadline_start();
        while (!ring_has_used(load->ring) && !deadline_passed(&deadline))
            memset(load->slot[round % load->slots].data, round, LOAD_BYTES);
        succeeded = load_finish(load);
    }
    report(succeeded, "every write succeeds");
    data_fill(area, LOAD_BYTES, seed_b);
    assert(disk_write(1, SECTOR_B, area, LOAD_BYTES).status == S_OK);
    check_blocks();
}

#define REWRITING(...) .with = &(const struct rewriting) { __VA_ARGS__ }

static const struct test_case cases[] = {
    { "sectors", reads, REWRITING(sector_of, 8, SECTOR_B, .may_be = is_b) },
    { "sectors-out-of-range", reads, REWRITING(sector_of, 8, NOWHERE, .may_be = is_refused) },
    { "types", reads, REWRITING(type_of, 4, 99, .may_be = is_unsupported) },
    /* As a write, the request has no data, so it writes nothing. */
    { "read-to-write", reads, REWRITING(type_of, 4, T_OUT, .may_be = is_nothing) },
    { "addresses", reads, REWRITING(address_of, 8, NOWHERE, .may_be = is_refused) },
    { "lengths", reads, REWRITING(length_of, 4, 0xffffffff, .may_be = is_refused) },
    /* Without WRITE, the request is a read of nothing, with data behind its header. */
    { "flags", reads, REWRITING(flags_of, 2, -DESC_WRITE, .is_added = true, .may_be = is_nothing) },
    /* The data descriptor links to itself. */
    { "links", reads, SPLIT_RINGS, REWRITING(link_of, 2, -1, .is_added = true, .may_stop = true, .may_be = is_long) },
    { "ids", reads, PACKED_RINGS, REWRITING(id_of, 2, 1, .is_added = true, .may_be = is_no_other) },
    { "table-addresses", reads, REWRITING(table_address_of, 8, NOWHERE, .indirect = true, .may_be = is_refused) },
    { "table-lengths", reads, REWRITING(table_length_of, 4, 0xffffffff, .indirect = true, .may_be = is_refused) },
    { "table-links", reads, SPLIT_RINGS,
      REWRITING(table_link_of, 2, 0xffff, .indirect = true, .may_stop = true, .may_be = is_no_other) },
    { "written-data", written_data },
};

int main(int argument_count, char **arguments)
{
    return RUN_SUITE("rewrite", cases);
}

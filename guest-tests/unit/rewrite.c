/*
 * A driver that rewrites its requests while the device has them. Each request must be what it was before or what it is
 * after, in whole, and touch nothing else. A and B are blocks of known data; those beside them must stay as they are.
 */
#include "load.h"
#include "suite.h"

#define ROUNDS 40
#define SECTOR_A 1024u
#define SECTOR_B 2048u
/* Behind all memory of this guest, without devices there, and behind the end of the disk. */
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

/* A field of a request that is rewritten over and over: what it was, and something else. */
struct rewriting {
    volatile void *(*field)(struct load *load, u16 index);
    unsigned bytes;
    /* The something else, or what to add to what it was. */
    u64 other;
    bool is_added;
    /* The field is in an indirect table. */
    bool indirect;
    /* What a request may have become that is not the read of A that it was. */
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

/* Whether it is a read of the block with that data, and of nothing else. */
static bool is_read_of(const struct load_slot *slot, struct outcome outcome, u64 seed)
{
    return outcome.status == S_OK && outcome.length == LOAD_BYTES + 1 && has_data(slot, seed);
}

/* Rounds of reads of A in all slots, rewritten until they are back. */
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
        for (unsigned step = 0; load->pending > 0 && !deadline_passed(&deadline); step++) {
            struct used_entry used;
            if (!ring_take(load->ring, &used)) {
                for (u16 i = 0; i < load->slots; i++) {
                    u64 other = what->is_added ? original[i] + what->other : what->other;
                    field_set(what->field(load, i), what->bytes, step % 2 ? other : original[i]);
                }
                continue;
            }
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
    report(load->pending == 0, "every request comes back");
    report(allowed, "each is the one or the other");
    report_info("%u of %u are the other", rewritten, ROUNDS * load->slots);
    check_blocks();
}

static volatile void *sector_of(struct load *load, u16 index)
{
    return &load->slot[index].request.header.sector;
}

static volatile void *type_of(struct load *load, u16 index)
{
    return &load->slot[index].request.header.type;
}

/* Of the descriptor of the data. */
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

/* Of the last descriptor, as that is the one that counts. The other id is nobody else's, and gives back as many. */
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

static bool is_returned(const struct load_slot *slot, struct outcome outcome)
{
    return outcome.status == S_UNTOUCHED && outcome.length == 0 && is_empty(slot);
}

/* A loop may be left after some rounds; then the request is as many times longer, and brings the blocks behind A. */
static bool is_long_or_returned(const struct load_slot *slot, struct outcome outcome)
{
    if (outcome.status == S_OK && outcome.length > LOAD_BYTES + 1)
        return outcome.length % LOAD_BYTES == 1 && !has_data(slot, seed_a);
    return is_returned(slot, outcome);
}

static bool is_no_other(const struct load_slot *slot, struct outcome outcome)
{
    return false;
}

/* What is written while its data changes is open; what lies beside it is not. */
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
    /* As a write it has no data, so it is one of nothing. */
    { "read-to-write", reads, REWRITING(type_of, 4, T_OUT, .may_be = is_nothing) },
    { "addresses", reads, REWRITING(address_of, 8, NOWHERE, .may_be = is_refused) },
    { "lengths", reads, REWRITING(length_of, 4, 0xffffffff, .may_be = is_refused) },
    /* Not WRITE: a read of nothing with data behind its header. */
    { "flags", reads, REWRITING(flags_of, 2, -DESC_WRITE, .is_added = true, .may_be = is_nothing) },
    /* The data descriptor links to itself. */
    { "links", reads, SPLIT_RINGS, REWRITING(link_of, 2, -1, .is_added = true, .may_be = is_long_or_returned) },
    { "ids", reads, PACKED_RINGS, REWRITING(id_of, 2, 1, .is_added = true, .may_be = is_no_other) },
    { "table-addresses", reads, REWRITING(table_address_of, 8, NOWHERE, .indirect = true, .may_be = is_refused) },
    { "table-lengths", reads, REWRITING(table_length_of, 4, 0xffffffff, .indirect = true, .may_be = is_refused) },
    { "table-links", reads, SPLIT_RINGS, REWRITING(table_link_of, 2, 0xffff, .indirect = true, .may_be = is_returned) },
    { "written-data", written_data },
};

int main(int argument_count, char **arguments)
{
    return RUN_SUITE("rewrite", cases);
}

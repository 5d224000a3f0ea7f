/*
 * A driver that rewrites its requests while the device has them. Each request must be what it was before or what it is
 * after, in whole, and touch nothing else. A and B are blocks of known data; those beside them must stay as they are.
 */
#include "load.h"
#include "suite.h"

#define ROUNDS 40
#define SECTOR_A 1024u
#define SECTOR_B 2048u
#define NOWHERE (1ull << 40)

static u64 seed_a, seed_b, seed_beside;

static bool has_data(const struct load_slot *slot, u64 seed)
{
    return data_is(slot->data, LOAD_BYTES, seed);
}

/* Whether it is a read of the block with that data, and of nothing else. */
static bool is_read_of(const struct load_slot *slot, struct outcome outcome, u64 seed)
{
    return outcome.status == S_OK && outcome.length == LOAD_BYTES + 1 && has_data(slot, seed);
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

/* Rounds of reads of A in all slots. `rewrite` changes them until all are back; `may_be` says what one may become. */
static void read_rewriting(
    bool indirect, void (*rewrite)(struct load *load, u16 index, bool odd),
    bool (*may_be)(struct load_slot *slot, struct outcome outcome))
{
    struct load *load = load_new(&disk.ring[0], indirect);
    bool allowed = true;
    unsigned rewritten = 0;
    write_blocks();
    for (unsigned round = 0; round < ROUNDS && load->pending == 0; round++) {
        for (u16 i = 0; i < load->slots; i++) {
            memset(load->slot[i].data, 0x55, LOAD_BYTES);
            load_offer(load, i, T_IN, SECTOR_A);
        }
        ring_publish(load->ring);
        ring_kick(load->ring);
        struct deadline deadline = deadline_start();
        for (unsigned step = 0; load->pending > 0 && !deadline_passed(&deadline); step++) {
            struct used_entry used;
            if (!ring_take(load->ring, &used)) {
                for (u16 i = 0; i < load->slots; i++)
                    rewrite(load, i, step % 2);
                continue;
            }
            u16 index = indirect ? used.id : used.id / LOAD_PARTS;
            struct load_slot *slot = &load->slot[index < load->slots ? index : 0];
            struct outcome outcome = { .status = slot->request.status, .length = used.length };
            if (index >= load->slots || !slot->pending || !may_be(slot, outcome)) {
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

static void rewrite_sector(struct load *load, u16 index, bool odd)
{
    volatile u64 *sector = &load->slot[index].request.header.sector;
    *sector = odd ? SECTOR_B : SECTOR_A;
}

static bool is_a_or_b(struct load_slot *slot, struct outcome outcome)
{
    return is_read_of(slot, outcome, seed_a) || is_read_of(slot, outcome, seed_b);
}

static void sectors(void)
{
    read_rewriting(false, rewrite_sector, is_a_or_b);
}

static void rewrite_sector_wildly(struct load *load, u16 index, bool odd)
{
    volatile u64 *sector = &load->slot[index].request.header.sector;
    *sector = odd ? disk.capacity - 1 : SECTOR_A;
}

static bool is_a_or_refused(struct load_slot *slot, struct outcome outcome)
{
    return is_read_of(slot, outcome, seed_a) || (outcome.status == S_IOERR && is_empty(slot));
}

static void sectors_out_of_range(void)
{
    read_rewriting(false, rewrite_sector_wildly, is_a_or_refused);
}

static void rewrite_type(struct load *load, u16 index, bool odd)
{
    volatile u32 *type = &load->slot[index].request.header.type;
    *type = odd ? 99 : T_IN;
}

static bool is_a_or_unsupported(struct load_slot *slot, struct outcome outcome)
{
    return is_read_of(slot, outcome, seed_a) || (outcome.status == S_UNSUPP && is_empty(slot));
}

static void types(void)
{
    read_rewriting(false, rewrite_type, is_a_or_unsupported);
}

/* As a write it has no data, so it is one of nothing. */
static void rewrite_to_write(struct load *load, u16 index, bool odd)
{
    volatile u32 *type = &load->slot[index].request.header.type;
    *type = odd ? T_OUT : T_IN;
}

static bool is_a_or_nothing(struct load_slot *slot, struct outcome outcome)
{
    return is_read_of(slot, outcome, seed_a) || (outcome.status == S_OK && is_empty(slot));
}

static void read_to_write(void)
{
    read_rewriting(false, rewrite_to_write, is_a_or_nothing);
}

static void rewrite_address(struct load *load, u16 index, bool odd)
{
    load->ring->descriptors[index * LOAD_PARTS + 1].address = odd ? NOWHERE : virt_to_phys(load->slot[index].data);
}

static void addresses(void)
{
    read_rewriting(false, rewrite_address, is_a_or_refused);
}

static void rewrite_length(struct load *load, u16 index, bool odd)
{
    load->ring->descriptors[index * LOAD_PARTS + 1].length = odd ? 0xffffffff : LOAD_BYTES;
}

static void lengths(void)
{
    read_rewriting(false, rewrite_length, is_a_or_refused);
}

/* The data descriptor links to itself now and then. */
static void rewrite_link(struct load *load, u16 index, bool odd)
{
    load->ring->descriptors[index * LOAD_PARTS + 1].next = index * LOAD_PARTS + (odd ? 1 : 2);
}

static bool is_a_or_empty(struct load_slot *slot, struct outcome outcome)
{
    return is_read_of(slot, outcome, seed_a) ||
           (outcome.status == S_UNTOUCHED && outcome.length == 0 && is_empty(slot));
}

/* The loop may be left after some rounds; then the request is as many times longer, and brings the blocks behind A. */
static bool is_long_or_returned(struct load_slot *slot, struct outcome outcome)
{
    if (outcome.status == S_OK && outcome.length > LOAD_BYTES + 1)
        return outcome.length % LOAD_BYTES == 1 && !has_data(slot, seed_a);
    return is_a_or_empty(slot, outcome);
}

static void links(void)
{
    read_rewriting(false, rewrite_link, is_long_or_returned);
}

static void rewrite_table(struct load *load, u16 index, bool odd)
{
    volatile struct descriptor *data = &load->slot[index].table[1];
    data->address = odd ? NOWHERE : virt_to_phys(load->slot[index].data);
    data->length = odd ? 0xffffffff : LOAD_BYTES;
}

static void tables(void)
{
    read_rewriting(true, rewrite_table, is_a_or_refused);
}

static void rewrite_table_link(struct load *load, u16 index, bool odd)
{
    volatile struct descriptor *data = &load->slot[index].table[1];
    data->next = odd ? 0xffff : 2;
}

static void table_links(void)
{
    read_rewriting(true, rewrite_table_link, is_a_or_empty);
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
        while (load->ring->used[RING_INDEX] == load->ring->next_used && !deadline_passed(&deadline))
            memset(load->slot[round % load->slots].data, round, LOAD_BYTES);
        succeeded = load_finish(load);
    }
    report(succeeded, "every write succeeds");
    data_fill(area, LOAD_BYTES, seed_b);
    assert(disk_write(1, SECTOR_B, area, LOAD_BYTES).status == S_OK);
    check_blocks();
}

static const struct test_case cases[] = {
    { "sectors", sectors },
    { "sectors-out-of-range", sectors_out_of_range },
    { "types", types },
    { "read-to-write", read_to_write },
    { "addresses", addresses },
    { "lengths", lengths },
    { "links", links },
    { "tables", tables },
    { "table-links", table_links },
    { "written-data", written_data },
};

int main(int argument_count, char **arguments)
{
    return RUN_SUITE("rewrite", cases);
}

/*
 * Chains and indices that only a split ring has and that no driver may build. malformed.h says what the device must do
 * with them.
 */
#include "malformed.h"

/* Offers a read whose chain can be damaged. */
static struct split_ring *offer_read(void)
{
    struct descriptor list[3];
    make_read(list);
    ring_offer(&disk.ring[0], 0, list, ARRAY_SIZE(list));
    return &disk.ring[0].split;
}

static void loop(void)
{
    struct split_ring *ring = offer_read();
    ring->descriptors[0].next = 0;
    check_offered_stops("a descriptor that links to itself");

    offer_read();
    ring->descriptors[1].next = 0;
    check_offered_stops("two descriptors that link to each other");

    offer_read();
    ring->descriptors[2].flags |= DESC_NEXT;
    ring->descriptors[2].next = 2;
    check_offered_stops("a status that links to itself");

    offer_read();
    for (u16 i = 0; i < ring->size; i++) {
        struct descriptor descriptor = writable(area, 1);
        descriptor.flags |= DESC_NEXT;
        descriptor.next = (i + 1) % ring->size;
        split_write(ring, i, descriptor);
    }
    check_offered_stops("a loop through the whole table");
}

static void link_out_of_table(void)
{
    const u16 links[] = { disk.ring[0].size, 0xffff };
    for (unsigned i = 0; i < ARRAY_SIZE(links); i++) {
        offer_read()->descriptors[1].next = links[i];
        check_offered_stops(i == 0 ? "a link just out of the table" : "a link far out of the table");
    }
}

static void indirect_loop(void)
{
    static const struct {
        u16 entry, next;
        const char *name;
    } links[] = {
        { 2, 0, "a loop in a table" },
        { 1, 3, "a link just out of a table" },
        { 1, 0xffff, "a link far out of a table" },
    };
    for (unsigned i = 0; i < ARRAY_SIZE(links); i++) {
        struct descriptor table = make_table();
        indirect_table[links[i].entry].flags |= DESC_NEXT;
        indirect_table[links[i].entry].next = links[i].next;
        check_stops(&table, 1, links[i].name);
    }
}

static void indirect_in_indirect(void)
{
    struct descriptor table = make_table();
    memcpy(indirect_table + 8, indirect_table, 3 * sizeof(struct descriptor));
    indirect_table[0] = readable(indirect_table + 8, 3 * sizeof(struct descriptor));
    indirect_table[0].flags = DESC_INDIRECT;
    check_stops(&table, 1, "a table in a table");
}

static void head_out_of_table(void)
{
    const u16 heads[] = { disk.ring[0].size, 0x8000, 0xffff };
    static const char *const names[] = { "just out of it", "0x8000", "0xffff" };
    for (unsigned i = 0; i < ARRAY_SIZE(heads); i++) {
        report_prefix_push(names[i]);
        split_offer(&disk.ring[0].split, heads[i]);
        ring_publish(&disk.ring[0]);
        ring_kick(&disk.ring[0]);
        check_stopped();
        report_prefix_pop();
    }
}

static void index_too_far(void)
{
    const u16 steps[] = { disk.ring[0].size, 0x7fff, 0xfffe };
    static const char *const names[] = { "by one", "by 0x8000", "backwards" };
    for (unsigned i = 0; i < ARRAY_SIZE(steps); i++) {
        report_prefix_push(names[i]);
        offer_read()->next_available += steps[i];
        ring_publish(&disk.ring[0]);
        ring_kick(&disk.ring[0]);
        check_stopped();
        report_prefix_pop();
    }
}

/* One chain is offered as often as the ring has entries. It is read as often, and comes back as often. */
static void one_chain_many_times(void)
{
    struct used_entry used;
    u64 seed = write_data();
    struct split_ring *ring = offer_read();
    for (u16 i = 1; i < ring->size; i++)
        split_offer(ring, 0);
    ring_publish(&disk.ring[0]);
    ring_kick(&disk.ring[0]);
    bool right = true;
    for (u16 i = 0; i < ring->size; i++)
        right = ring_wait(&disk.ring[0], &used) && used.id == 0 && used.length == BYTES + 1 && right;
    report(right, "it comes back as often as it was offered");
    report(one.status == S_OK && data_is(area, BYTES, seed), "it is read");
}

static const struct test_case cases[] = {
    { "loop", loop },
    { "link-out-of-table", link_out_of_table },
    { "indirect-loop", indirect_loop },
    { "indirect-in-indirect", indirect_in_indirect },
    { "head-out-of-table", head_out_of_table },
    { "index-too-far", index_too_far },
    { "one-chain-many-times", one_chain_many_times },
};

int main(int argument_count, char **arguments)
{
    return RUN_SUITE("split", cases);
}

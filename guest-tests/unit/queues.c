/* Several queues: all at work at once, and queues that misbehave next to queues that do not. */
#include "load.h"
#include "suite.h"

#define ROUNDS 8
#define GOOD_ROUNDS 4

static struct load *loads[QUEUES_MAX];

static void each(void)
{
    for (u16 queue = 0; queue < disk.num_queues; queue++) {
        u64 seed = fresh_seed();
        data_fill(area, PAGE_BYTES, seed);
        check_outcome(disk_write(queue, 512, area, PAGE_BYTES), S_OK, 1, "queue %d writes", queue);
        memset(area, 0, PAGE_BYTES);
        u16 other = (queue + 1) % disk.num_queues;
        check_outcome(disk_read(other, 512, area, PAGE_BYTES), S_OK, PAGE_BYTES + 1, "queue %d reads", other);
        report(data_is(area, PAGE_BYTES, seed), "what queue %d has written is what queue %d reads", queue, other);
    }
}

static void all_at_once(void)
{
    u64 seeds[QUEUES_MAX];
    bool right = true;
    for (u16 queue = 0; queue < disk.num_queues; queue++)
        loads[queue] = load_new(&disk.ring[queue], queue % 2);
    for (unsigned round = 0; round < ROUNDS && right; round++) {
        for (u16 queue = 0; queue < disk.num_queues; queue++)
            load_start_all(loads[queue], T_OUT, 4096 * (queue + 1), seeds[queue] = fresh_seed());
        for (u16 queue = 0; queue < disk.num_queues; queue++)
            right = load_finish(loads[queue]) && right;
        for (u16 queue = 0; queue < disk.num_queues; queue++)
            load_start_all(loads[queue], T_IN, 4096 * (queue + 1), 0);
        for (u16 queue = 0; queue < disk.num_queues; queue++)
            right = load_finish(loads[queue]) && load_data_is(loads[queue], seeds[queue]) && right;
    }
    report(right, "all queues at once write and read what is theirs");
}

/* Does verified work on all queues but the first, and calls `misbehave` for the first one meanwhile. */
static void beside(void (*misbehave)(struct ring *ring, unsigned round), const char *name)
{
    bool right = true;
    for (u16 queue = 1; queue < disk.num_queues; queue++)
        loads[queue] = load_new(&disk.ring[queue], true);
    for (unsigned round = 0; round < GOOD_ROUNDS && right; round++) {
        u64 seeds[QUEUES_MAX];
        misbehave(&disk.ring[0], round);
        for (u16 queue = 1; queue < disk.num_queues; queue++)
            load_start_all(loads[queue], T_OUT, 4096 * (queue + 1), seeds[queue] = fresh_seed());
        misbehave(&disk.ring[0], round);
        for (u16 queue = 1; queue < disk.num_queues; queue++)
            right = load_finish(loads[queue]) && right;
        for (u16 queue = 1; queue < disk.num_queues; queue++)
            load_start_all(loads[queue], T_IN, 4096 * (queue + 1), 0);
        misbehave(&disk.ring[0], round);
        for (u16 queue = 1; queue < disk.num_queues; queue++)
            right = load_finish(loads[queue]) && load_data_is(loads[queue], seeds[queue]) && right;
    }
    report(right, "the others work beside %s", name);
    assert(disk_start(F_ALL));
}

static void take_all(struct ring *ring)
{
    struct used_entry used;
    while (ring_take(ring, &used))
        ;
}

/* Takes back the used chains. Then offers the chain `count` times, or as often as the ring has room. */
static void offer_again(struct ring *ring, const struct descriptor *list, u16 length, u16 count)
{
    take_all(ring);
    for (u16 i = 0; i < count && ring_has_room(ring, length); i++)
        ring_offer(ring, 0, list, length);
    ring_publish(ring);
    ring_kick(ring);
}

static void loops(struct ring *ring, unsigned round)
{
    struct descriptor descriptor = writable(area, 1);
    for (u16 i = 0; i < ring->size; i++) {
        descriptor.flags |= DESC_NEXT;
        descriptor.next = (i + 1) % ring->size;
        split_write(&ring->split, i, descriptor);
    }
    take_all(ring);
    while (ring_has_room(ring, 1))
        split_offer(&ring->split, 0);
    ring_publish(ring);
    ring_kick(ring);
}

static void beside_loops(void)
{
    beside(loops, "one full of loops");
}

static void no_sense(struct ring *ring, unsigned round)
{
    ring_break(ring);
}

static void beside_no_sense(void)
{
    beside(no_sense, "one that makes no sense");
}

static void wild(struct ring *ring, unsigned round)
{
    struct descriptor list[] = {
        readable(&one.header, sizeof(one.header)),
        { .address = 1ull << 40, .length = PAGE_BYTES, .flags = DESC_WRITE },
        writable(&one.status, 1),
    };
    request_init(&one, T_IN, 64);
    offer_again(ring, list, ARRAY_SIZE(list), ring->size);
}

static void beside_wild_addresses(void)
{
    beside(wild, "one full of wild addresses");
}

static void hog(struct ring *ring, unsigned round)
{
    struct descriptor list[] = {
        readable(&one.header, sizeof(one.header)),
        writable(area, AREA_BYTES / 2),
        writable(&one.status, 1),
    };
    request_init(&one, T_IN, 0);
    offer_again(ring, list, ARRAY_SIZE(list), 32);
}

static void beside_a_hog(void)
{
    beside(hog, "one that asks for a lot");
}

static void kicks(struct ring *ring, unsigned round)
{
    for (unsigned i = 0; i < 256; i++)
        ring_kick(ring);
}

static void beside_kicks(void)
{
    beside(kicks, "one that is kicked for nothing");
}

static const struct test_case cases[] = {
    { "each", each },
    { "all-at-once", all_at_once },
    { "beside-loops", beside_loops, SPLIT_RINGS },
    { "beside-no-sense", beside_no_sense },
    { "beside-wild-addresses", beside_wild_addresses },
    { "beside-a-hog", beside_a_hog },
    { "beside-kicks", beside_kicks },
};

int main(int argument_count, char **arguments)
{
    return RUN_SUITE("queues", cases);
}

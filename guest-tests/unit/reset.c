/*
 * A reset at any moment. The reset ends, requests that were under way touch nothing afterwards, and the disk can be set
 * up again (virtio 1.2, 2.4).
 */
#include "load.h"
#include "suite.h"

#define ROUNDS 8
#define POISON 0xa5

static struct load *loads[QUEUES_MAX];

static void make_loads(void)
{
    for (u16 queue = 0; queue < disk.num_queues; queue++) {
        if (loads[queue])
            load_forget(loads[queue]);
        else
            loads[queue] = load_new(&disk.ring[queue], true);
    }
}

static void idle(void)
{
    bool right = true;
    for (unsigned round = 0; round < ROUNDS; round++) {
        right = right && virtio_reset(&disk.virtio);
        for (u16 queue = 0; queue < disk.num_queues; queue++) {
            writew(queue, disk.virtio.part[CAP_COMMON] + COMMON_QUEUE_SELECT);
            right = right && readw(disk.virtio.part[CAP_COMMON] + COMMON_QUEUE_ENABLE) == 0;
        }
        right = right && disk_start(F_ALL) && disk_works();
    }
    report(right, "an idle disk is reset over and over");
}

static u16 returned(struct ring *ring)
{
    struct used_entry used;
    u16 count = 0;
    while (ring_take(ring, &used))
        count++;
    return count;
}

/* Resets the disk under a load of all queues, fills all memory that it knew with poison, and gives it other work. */
static void under_load(u32 type, bool kick_all)
{
    bool resets = true, stays = true, works = true;
    unsigned cut_short = 0;
    for (unsigned round = 0; round < ROUNDS && resets && works; round++) {
        make_loads();
        for (u16 queue = 0; queue < disk.num_queues; queue++) {
            if (kick_all || queue == 0)
                load_start_all(loads[queue], type, 4096 * (queue + 1), fresh_seed());
            else
                load_offer(loads[queue], 0, type, 4096 * (queue + 1));
        }
        /* At a different moment each round. */
        for (unsigned i = 0; i < round * round * 8; i++)
            cpu_relax();
        resets = virtio_reset(&disk.virtio);
        u8 *old_rings[QUEUES_MAX];
        for (u16 queue = 0; queue < disk.num_queues; queue++) {
            struct ring *ring = &disk.ring[queue];
            cut_short += returned(ring) < loads[queue]->pending;
            old_rings[queue] = ring->memory;
            memset(ring->memory, POISON, PAGE_BYTES << RING_ORDER);
            for (u16 i = 0; i < loads[queue]->slots; i++) {
                memset(&loads[queue]->slot[i].request, POISON, sizeof(struct request));
                memset(loads[queue]->slot[i].data, POISON, LOAD_BYTES);
            }
        }
        works = resets && virtio_negotiate(&disk.virtio, F_ALL);
        if (works) {
            disk_start_rings(0, true);
            for (unsigned i = 0; i < 4; i++)
                works = works && disk_works();
        }
        for (u16 queue = 0; queue < disk.num_queues; queue++) {
            stays = stays && all_bytes_are(old_rings[queue], PAGE_BYTES << RING_ORDER, POISON);
            for (u16 i = 0; i < loads[queue]->slots; i++) {
                stays = stays && all_bytes_are(&loads[queue]->slot[i].request, sizeof(struct request), POISON);
                stays = stays && all_bytes_are(loads[queue]->slot[i].data, LOAD_BYTES, POISON);
            }
        }
    }
    report(resets, "the reset ends");
    report(works, "the disk can be set up in other memory");
    report(stays, "what it had before the reset is not touched");
    report_info("requests were under way at a reset %u times", cut_short);
}

static void under_reads(void)
{
    under_load(T_IN, true);
}

static void under_writes(void)
{
    under_load(T_OUT, true);
}

static void under_flushes(void)
{
    under_load(T_FLUSH, true);
}

static void with_requests_not_kicked(void)
{
    under_load(T_IN, false);
}

/* A block that is being written at a reset has its old or its new content afterwards. */
static void old_or_new(void)
{
    make_loads();
    bool right = true, resets = true;
    u64 old = fresh_seed();
    load_start_all(loads[0], T_OUT, 4096, old);
    assert(load_finish(loads[0]));
    for (unsigned round = 0; round < ROUNDS && resets; round++) {
        u64 new = fresh_seed();
        load_start_all(loads[0], T_OUT, 4096, new);
        for (unsigned i = 0; i < round * round * 8; i++)
            cpu_relax();
        resets = disk_start(F_ALL);
        load_forget(loads[0]);
        load_start_all(loads[0], T_IN, 4096, 0);
        right = right && load_finish(loads[0]);
        for (u16 i = 0; i < loads[0]->slots; i++) {
            const u8 *data = loads[0]->slot[i].data;
            right = right && (data_is_from(data, LOAD_BYTES, old, i * LOAD_BYTES) ||
                              data_is_from(data, LOAD_BYTES, new, i * LOAD_BYTES));
        }
        load_start_all(loads[0], T_OUT, 4096, new);
        right = right && load_finish(loads[0]);
        old = new;
    }
    report(resets, "the reset ends");
    report(right, "each block is the old one or the new one");
}

/* A queue whose ring makes no sense does not hold up the other queues or a reset. */
static void with_a_broken_queue(void)
{
    bool resets = true;
    for (unsigned round = 0; round < ROUNDS && resets; round++) {
        make_loads();
        for (u16 queue = 1; queue < disk.num_queues; queue++)
            load_start_all(loads[queue], T_IN, 4096 * queue, 0);
        ring_break(&disk.ring[0]);
        resets = disk_start(F_ALL) && disk_works();
    }
    report(resets, "a disk with a queue that makes no sense is reset");
}

/* Each time with other features and other queues. */
static void set_up_differently(void)
{
    static const u64 features[] = { F_ALL, F_VERSION_1, F_VERSION_1 | F_EVENT_IDX, F_ALL & ~F_EVENT_IDX };
    static const u16 sizes[] = { 0, 8, 32, 4 };
    bool works = true;
    for (unsigned round = 0; round < ROUNDS && works; round++) {
        struct load *load = load_new(&disk.ring[0], false);
        load_start_all(load, T_IN, 4096, 0);
        works = virtio_reset(&disk.virtio) && virtio_negotiate(&disk.virtio, features[round % 4]);
        disk_start_rings(sizes[round % 4], false);
        works = works && disk_works();
    }
    report(works, "the disk works however it is set up after a reset");
}

static const struct test_case cases[] = {
    { "idle", idle },
    { "under-reads", under_reads },
    { "under-writes", under_writes },
    { "under-flushes", under_flushes },
    { "not-kicked", with_requests_not_kicked },
    { "old-or-new", old_or_new },
    { "broken-queue", with_a_broken_queue },
    { "set-up-differently", set_up_differently },
};

int main(int argument_count, char **arguments)
{
    return RUN_SUITE("reset", cases);
}

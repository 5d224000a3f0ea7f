/* The ends of the disk, the longest requests, full queues (virtio 1.2, 5.2.6.1, 5.2.6.2). */
#include "load.h"
#include "suite.h"

#define LARGE_ORDER 9
#define LARGE_BYTES (PAGE_BYTES << LARGE_ORDER)

static void ends(void)
{
    u64 last = disk.capacity - 8, seed = fresh_seed();
    data_fill(area, PAGE_BYTES, seed);
    check_status(disk_write(0, last, area, PAGE_BYTES), S_OK, "the last block is written");
    memset(area, 0, PAGE_BYTES);
    check_status(disk_read(0, last, area, PAGE_BYTES), S_OK, "the last block is read");
    report(data_is(area, PAGE_BYTES, seed), "the last block comes back");
    u64 first_seed = fresh_seed();
    data_fill(area, PAGE_BYTES, first_seed);
    check_status(disk_write(0, 0, area, PAGE_BYTES), S_OK, "the first block is written");

    static const struct {
        const char *name;
        /* Whether `sector` counts from the end of the disk. */
        bool from_end;
        u64 sector;
    } outside[] = {
        { "over the end", true, -1 },
        { "behind the end", true, 0 },
        { "far behind the end", true, 1ull << 32 },
        /* Modulo 2^64, its address in bytes is that of sector 0. */
        { "at sector 2^55", false, 1ull << 55 },
        { "at sector 2^63", false, 1ull << 63 },
        { "at the last sector of all", false, ~0ull },
        { "that wraps to the first sector", false, ~0ull - 6 },
    };
    for (unsigned i = 0; i < ARRAY_SIZE(outside); i++) {
        u64 sector = outside[i].sector + (outside[i].from_end ? disk.capacity : 0);
        memset(area, 0x55, PAGE_BYTES);
        check_status(disk_write(0, sector, area, PAGE_BYTES), S_IOERR, "a write %s is refused", outside[i].name);
        check_status(disk_read(0, sector, area, PAGE_BYTES), S_IOERR, "a read %s is refused", outside[i].name);
    }
    assert(disk_read(0, last, area, PAGE_BYTES).status == S_OK);
    report(data_is(area, PAGE_BYTES, seed), "the last block is as it was");
    assert(disk_read(0, 0, area, PAGE_BYTES).status == S_OK);
    report(data_is(area, PAGE_BYTES, first_seed), "the first block is as it was");
}

/* Requests with the largest allowed number of segments, of 4 KiB and of 64 KiB each. */
static void most_segments(void)
{
    static struct descriptor list[INDIRECT_MAX];
    u32 segments = MIN(disk.seg_max, INDIRECT_MAX - 2);
    u8 *large = alloc_pages(11);
    for (u32 bytes = PAGE_BYTES; bytes <= 16 * PAGE_BYTES; bytes *= 16) {
        u64 seed = fresh_seed();
        assert(segments * bytes <= PAGE_BYTES << 11);
        data_fill(large, segments * bytes, seed);
        for (u32 i = 0; i < segments; i++)
            list[i] = readable(large + i * bytes, bytes);
        check_status(disk_request(0, T_OUT, 8192, list, segments), S_OK,
                     "the most segments of %u bytes are written", bytes);
        memset(large, 0, segments * bytes);
        for (u32 i = 0; i < segments; i++)
            list[i].flags = DESC_WRITE;
        check_outcome(disk_request(0, T_IN, 8192, list, segments), S_OK, segments * bytes + 1,
                      "the most segments of %u bytes are read", bytes);
        report(data_is(large, segments * bytes, seed), "the most segments of %u bytes come back", bytes);
    }
}

/*
 * The longest request has `size_max` times `seg_max` bytes. A segment that is longer than `size_max` is no reason to
 * refuse a request.
 */
static void longest(void)
{
    static struct descriptor list[INDIRECT_MAX];
    u8 *large = alloc_pages(LARGE_ORDER);
    u64 most = (u64)disk.size_max * disk.seg_max, sectors_there = disk.capacity;
    u64 count = most / LARGE_BYTES;
    if (count == 0 || count + 1 > INDIRECT_MAX - 2 || (count + 1) * LARGE_BYTES / SECTOR_BYTES > sectors_there) {
        report_skip("the longest request cannot be tried here: %u segments of %u", disk.seg_max, disk.size_max);
        return;
    }
    /* All segments are the same memory, because the guest has less memory than the request is long. */
    for (u64 i = 0; i <= count; i++)
        list[i] = writable(large, LARGE_BYTES);
    check_outcome(disk_request(0, T_IN, 0, list, count), S_OK, count * LARGE_BYTES + 1, "the longest read succeeds");
    check_status(disk_request(0, T_IN, 0, list, count + 1), S_IOERR, "a longer read is refused");
    for (u64 i = 0; i <= count; i++)
        list[i].flags = 0;
    check_status(disk_request(0, T_OUT, 0, list, count + 1), S_IOERR, "a longer write is refused");
}

/* A chain may be as long as the queue. */
static void longest_chain(void)
{
    struct ring *ring = &disk.ring[0];
    static struct descriptor list[RING_SIZE_MAX];
    u16 parts = ring->size - 2;
    u64 seed = fresh_seed();
    u32 bytes = parts * SECTOR_BYTES;
    data_fill(area, bytes, seed);
    list[0] = readable(&one.header, sizeof(one.header));
    for (u16 i = 0; i < parts; i++)
        list[1 + i] = readable(area + i * SECTOR_BYTES, SECTOR_BYTES);
    list[1 + parts] = writable(&one.status, 1);
    request_init(&one, T_OUT, 8192);
    check_status(one_send(0, list, ring->size), S_OK, "a chain as long as the queue is written");
    memset(area, 0, bytes);
    for (u16 i = 0; i < parts; i++)
        list[1 + i].flags = DESC_WRITE;
    request_init(&one, T_IN, 8192);
    check_status(one_send(0, list, ring->size), S_OK, "a chain as long as the queue is read");
    report(data_is(area, bytes, seed), "its data comes back");
}

/* As many requests under way as a queue has entries, with indirect tables. This is repeated a few times. */
static void full_queue(void)
{
    struct load *load = load_new(&disk.ring[0], true);
    for (unsigned round = 0; round < 8; round++) {
        u64 seed = fresh_seed();
        load_start_all(load, T_OUT, 16384, seed);
        report(load_finish(load), "a full queue of writes completes, round %u", round);
        load_start_all(load, T_IN, 16384, 0);
        report(load_finish(load) && load_data_is(load, seed), "a full queue of reads comes back, round %u", round);
    }
}

/* The ring's 16-bit indices wrap. */
static void index_wraps(void)
{
    struct load *load = load_new(&disk.ring[0], true);
    bool completed = true;
    for (u32 requests = 0; completed && requests < 0x11000; requests += load->slots) {
        load_start_all(load, T_GET_ID, 0, 0);
        completed = load_finish(load);
    }
    report(completed, "the indices of the ring wrap");
}

static const struct test_case cases[] = {
    { "ends", ends },
    { "most-segments", most_segments },
    { "longest", longest },
    { "longest-chain", longest_chain },
    { "full-queue", full_queue },
    { "index-wraps", index_wraps, SPLIT_RINGS },
};

int main(int argument_count, char **arguments)
{
    return RUN_SUITE("limits", cases);
}

/* What the disk offers, and that it works with whatever part of it a driver takes (virtio 1.2, 2.2, 3.1, 5.2.3 ff). */
#include "suite.h"

static void offers(void)
{
    u64 offered = disk.virtio.offered;
    report(offered & F_VERSION_1, "VERSION_1 is offered");
    report(offered & F_INDIRECT_DESC, "INDIRECT_DESC is offered");
    report(offered & F_EVENT_IDX, "EVENT_IDX is offered");
    report(offered & F_SIZE_MAX, "SIZE_MAX is offered");
    report(offered & F_SEG_MAX, "SEG_MAX is offered");
    report(offered & F_BLK_SIZE, "BLK_SIZE is offered");
    report(offered & F_TOPOLOGY, "TOPOLOGY is offered");
    report(offered & F_FLUSH, "FLUSH is offered");
    report(offered & F_CONFIG_WCE, "CONFIG_WCE is offered");
    report(offered & F_MQ, "MQ is offered");
    report(offered & F_DISCARD, "DISCARD is offered");
    report(offered & F_WRITE_ZEROES, "WRITE_ZEROES is offered");
    report(!(offered & F_RO), "RO is not offered");
}

static void configuration(void)
{
    u32 block_sectors = disk.block_bytes / SECTOR_BYTES;
    report(disk.capacity > 0 && disk.capacity % block_sectors == 0, "the capacity is whole blocks");
    report(disk.block_bytes >= SECTOR_BYTES && (disk.block_bytes & (disk.block_bytes - 1)) == 0,
           "the block size is a power of two from 512 on");
    report(disk.seg_max >= 1, "a request may have a segment");
    report(disk.size_max >= disk.block_bytes, "a segment may be a block long");
    u16 num_queues = config_read(CONFIG_NUM_QUEUES & ~3) >> 16;
    report(num_queues == disk.num_queues && num_queues > 1, "there are several queues, as the configuration says");
    report(config_read(CONFIG_MAX_DISCARD_SECTORS) >= block_sectors, "a discard may be a block long");
    report(config_read(CONFIG_MAX_DISCARD_SEG) >= 1, "a discard may have a range");
    report(config_read(CONFIG_DISCARD_ALIGNMENT) % block_sectors == 0, "discards are aligned to blocks");
    report(config_read(CONFIG_MAX_WRITE_ZEROES_SECTORS) >= block_sectors, "write zeroes may be a block long");
    report(config_read(CONFIG_MAX_WRITE_ZEROES_SEG) >= 1, "write zeroes may have a range");
}

static void with_features(u64 features, const char *name)
{
    report(disk_start(features) && disk_works(), "the disk works with %s", name);
}

static void subsets(void)
{
    with_features(F_VERSION_1, "VERSION_1 alone");
    with_features(F_VERSION_1 | F_INDIRECT_DESC, "INDIRECT_DESC");
    with_features(F_VERSION_1 | F_EVENT_IDX, "EVENT_IDX");
    with_features(F_VERSION_1 | F_MQ, "MQ");
    with_features(F_VERSION_1 | F_FLUSH | F_CONFIG_WCE, "FLUSH and CONFIG_WCE");
    with_features(F_VERSION_1 | F_CONFIG_WCE, "CONFIG_WCE without FLUSH");
    with_features(F_ALL & ~F_MQ, "all but MQ");
}

/*
 * 5.2.6.2 leaves open what a device does with requests whose feature was not taken. This device does not support them.
 */
static void types_not_taken(void)
{
    assert(disk_start(F_VERSION_1));
    u64 seed = fresh_seed();
    data_fill(area, PAGE_BYTES, seed);
    check_status(disk_write(0, 64, area, PAGE_BYTES), S_OK, "data is written");
    check_status(disk_range(0, T_DISCARD, 64, 8, 0), S_UNSUPP, "discard that was not negotiated is unsupported");
    check_status(disk_range(0, T_WRITE_ZEROES, 64, 8, 0), S_UNSUPP,
                 "write zeroes that was not negotiated is unsupported");
    memset(area, 0, PAGE_BYTES);
    check_status(disk_read(0, 64, area, PAGE_BYTES), S_OK, "the data is read");
    report(data_is(area, PAGE_BYTES, seed), "the data is still there");
}

static void write_cache(void)
{
    volatile u8 *writeback = disk.virtio.part[CAP_DEVICE] + CONFIG_WRITEBACK;
    for (u8 mode = 0; mode < 2; mode++) {
        const char *name = mode ? "write-back" : "write-through";
        u64 seed = fresh_seed();
        writeb(mode, writeback);
        report(readb(writeback) == mode, "%s can be set", name);
        data_fill(area, PAGE_BYTES, seed);
        check_status(disk_write(0, 64, area, PAGE_BYTES), S_OK, "%s writes", name);
        check_status(disk_request(0, T_FLUSH, 0, NULL, 0), S_OK, "%s flushes", name);
        memset(area, 0, PAGE_BYTES);
        check_status(disk_read(0, 64, area, PAGE_BYTES), S_OK, "%s reads", name);
        report(data_is(area, PAGE_BYTES, seed), "%s keeps the data", name);
    }
}

static void queue_sizes(void)
{
    /* A split ring has a power of two entries. */
    static const u16 sizes[] = { 4, 8, 64, 128, 3, 5, 7, 100, 127 };
    unsigned count = ring_format ? ARRAY_SIZE(sizes) : 4;
    for (unsigned i = 0; i < count; i++) {
        bool up = virtio_reset(&disk.virtio) && virtio_negotiate(&disk.virtio, F_ALL);
        disk_start_rings(sizes[i], false);
        up = up && disk.ring[0].size == sizes[i];
        /* Requests until the end of the ring, and beyond. */
        for (u16 entries = 0; up && entries <= sizes[i]; entries += DISK_WORKS_ENTRIES)
            up = disk_works();
        report(up, "the disk works with queues of %d entries", sizes[i]);
    }
}

/* A driver that knows of no packed rings. */
static void split_for_packed(void)
{
    ring_format = 0;
    report(disk_start(F_ALL) && !disk.ring[0].is_packed && disk_works(), "the disk works with split rings");
    ring_format = F_RING_PACKED;
    report(disk_start(F_ALL) && disk.ring[0].is_packed && disk_works(), "it works with packed ones afterwards");
}

/* A driver need not use all queues, nor the first. */
static void one_queue_only(void)
{
    for (u16 queue = 0; queue < 2; queue++) {
        u64 seed = fresh_seed();
        assert(virtio_reset(&disk.virtio) && virtio_negotiate(&disk.virtio, F_ALL));
        ring_start(&disk.ring[queue], &disk.virtio, queue, 0, false);
        virtio_add_status(&disk.virtio, STATUS_DRIVER_OK);
        data_fill(area, PAGE_BYTES, seed);
        check_status(disk_write(queue, 64, area, PAGE_BYTES), S_OK, "queue %d alone writes", queue);
        memset(area, 0, PAGE_BYTES);
        check_status(disk_read(queue, 64, area, PAGE_BYTES), S_OK, "queue %d alone reads", queue);
        report(data_is(area, PAGE_BYTES, seed), "queue %d alone keeps the data", queue);
    }
    assert(disk_start(F_ALL));
}

static const struct test_case cases[] = {
    { "offers", offers },
    { "configuration", configuration },
    { "subsets", subsets },
    { "types-not-taken", types_not_taken },
    { "write-cache", write_cache },
    { "queue-sizes", queue_sizes },
    { "split-for-packed", split_for_packed, PACKED_RINGS },
    { "one-queue-only", one_queue_only },
};

int main(int argument_count, char **arguments)
{
    return RUN_SUITE("negotiation", cases);
}

/* The disk under test: set-up, requests one at a time, and how their outcome is judged. */
#ifndef DISK_H
#define DISK_H

#include "ring.h"

#define BLOCK_DEVICE 2
#define QUEUES_MAX 8
#define SECTOR_BYTES 512u

/* Features (virtio 1.2, 5.2.3). */
#define F_SIZE_MAX (1ull << 1)
#define F_SEG_MAX (1ull << 2)
#define F_RO (1ull << 5)
#define F_BLK_SIZE (1ull << 6)
#define F_FLUSH (1ull << 9)
#define F_TOPOLOGY (1ull << 10)
#define F_CONFIG_WCE (1ull << 11)
#define F_MQ (1ull << 12)
#define F_DISCARD (1ull << 13)
#define F_WRITE_ZEROES (1ull << 14)
#define F_ALL (~0ull)

/* Offsets in the configuration (5.2.4). */
enum {
    CONFIG_CAPACITY = 0,
    CONFIG_SIZE_MAX = 8,
    CONFIG_SEG_MAX = 12,
    CONFIG_BLK_SIZE = 20,
    CONFIG_WRITEBACK = 32,
    CONFIG_NUM_QUEUES = 34,
    CONFIG_MAX_DISCARD_SECTORS = 36,
    CONFIG_MAX_DISCARD_SEG = 40,
    CONFIG_DISCARD_ALIGNMENT = 44,
    CONFIG_MAX_WRITE_ZEROES_SECTORS = 48,
    CONFIG_MAX_WRITE_ZEROES_SEG = 52,
};

/* Request types (5.2.6). */
enum { T_IN = 0, T_OUT = 1, T_FLUSH = 4, T_GET_ID = 8, T_DISCARD = 11, T_WRITE_ZEROES = 13 };
#define RANGE_UNMAP 1u
#define ID_BYTES 20

/* The values of a status byte, and other outcomes of a request. */
enum {
    S_OK = 0,
    S_IOERR = 1,
    S_UNSUPP = 2,
    /* The device has not written it. */
    S_UNTOUCHED = 0xee,
    /* The device has changed bytes that it must not write: around the status, or in the header. */
    S_DAMAGED = 0x100,
    S_TIMED_OUT = 0x101,
    /* The device has returned another chain than the one that it was given. */
    S_WRONG_CHAIN = 0x102,
};

struct header {
    u32 type;
    u32 reserved;
    u64 sector;
};

/* The data of a discard or write zeroes. */
struct range {
    u64 sector;
    u32 sectors;
    u32 flags;
};

/* The header and the status of a request. The bytes around the status must stay as they are. */
struct request {
    struct header header;
    u8 before[15];
    volatile u8 status;
    u8 after[16];
};

struct outcome {
    int status;
    u32 length;
};

struct disk {
    struct virtio virtio;
    u16 num_queues;
    struct ring ring[QUEUES_MAX];
    u64 capacity;
    u32 size_max, seg_max, block_bytes;
};

static struct disk disk;

static inline u32 config_read(int at)
{
    return readl(disk.virtio.part[CAP_DEVICE] + at);
}

/* The second half of the set-up, after `virtio_negotiate`. */
static inline void disk_start_rings(u16 ring_size, bool fresh)
{
    disk.num_queues = MIN(readw(disk.virtio.part[CAP_COMMON] + COMMON_NUM_QUEUES), QUEUES_MAX);
    for (u16 queue = 0; queue < disk.num_queues; queue++)
        ring_start(&disk.ring[queue], &disk.virtio, queue, ring_size, fresh);
    virtio_add_status(&disk.virtio, STATUS_DRIVER_OK);
    disk.capacity = config_read(CONFIG_CAPACITY) | (u64)config_read(CONFIG_CAPACITY + 4) << 32;
    disk.size_max = config_read(CONFIG_SIZE_MAX);
    disk.seg_max = config_read(CONFIG_SEG_MAX);
    disk.block_bytes = config_read(CONFIG_BLK_SIZE);
}

/* Resets the disk and sets it up anew; false if it does not come up. */
static inline bool disk_start(u64 features)
{
    if (!virtio_reset(&disk.virtio) || !virtio_negotiate(&disk.virtio, features))
        return false;
    disk_start_rings(0, false);
    return true;
}

static inline void request_init(struct request *request, u32 type, u64 sector)
{
    request->header = (struct header) { .type = type, .sector = sector };
    request->status = S_UNTOUCHED;
    memset(request->before, S_UNTOUCHED, sizeof(request->before));
    memset(request->after, S_UNTOUCHED, sizeof(request->after));
}

/* The outcome of a request that was sent with this type and sector. `returned` says whether its chain has come back. */
static inline struct outcome request_outcome(
    const struct request *request, u32 type, u64 sector, bool returned, struct used_entry used, u16 id)
{
    struct outcome outcome = { .status = request->status, .length = used.length };
    if (!returned)
        outcome = (struct outcome) { .status = S_TIMED_OUT };
    else if (used.id != id)
        outcome.status = S_WRONG_CHAIN;
    else if (request->header.type != type || request->header.sector != sector)
        outcome.status = S_DAMAGED;
    for (unsigned i = 0; i < sizeof(request->before); i++) {
        if (request->before[i] != S_UNTOUCHED)
            outcome.status = S_DAMAGED;
    }
    for (unsigned i = 0; i < sizeof(request->after); i++) {
        if (request->after[i] != S_UNTOUCHED)
            outcome.status = S_DAMAGED;
    }
    return outcome;
}

/* The request that `disk_request`, `one_send` and similar functions have under way. */
static struct request one;

/*
 * Sends `one`, which the caller has prepared, in the layout `list`. The list has its header and its status somewhere.
 */
static inline struct outcome one_send(u16 queue, const struct descriptor *list, u16 count)
{
    struct header header = one.header;
    struct ring *ring = &disk.ring[queue];
    struct used_entry used = { 0 };
    ring_offer(ring, 0, list, count);
    bool returned = ring_round(ring, &used);
    return request_outcome(&one, header.type, header.sector, returned, used, 0);
}

#define INDIRECT_MAX 1100
static struct descriptor indirect_table[INDIRECT_MAX];

/* Sends `one` like `one_send`, but with an indirect table. */
static inline struct outcome one_send_indirect(u16 queue, const struct descriptor *list, u16 count)
{
    assert(count <= INDIRECT_MAX);
    struct descriptor table = ring_table(&disk.ring[queue], indirect_table, list, count);
    return one_send(queue, &table, 1);
}

/* Sends one request in the usual layout: header, the descriptors of its data, status. */
static inline struct outcome disk_request(u16 queue, u32 type, u64 sector, const struct descriptor *data, u16 count)
{
    static struct descriptor list[INDIRECT_MAX];
    assert(count + 2 <= INDIRECT_MAX);
    request_init(&one, type, sector);
    list[0] = readable(&one.header, sizeof(one.header));
    memcpy(list + 1, data, count * sizeof(*data));
    list[count + 1] = writable(&one.status, 1);
    return count + 2 <= disk.ring[queue].size ? one_send(queue, list, count + 2)
                                              : one_send_indirect(queue, list, count + 2);
}

static inline struct outcome disk_read(u16 queue, u64 sector, void *data, u32 bytes)
{
    struct descriptor descriptor = writable(data, bytes);
    return disk_request(queue, T_IN, sector, &descriptor, 1);
}

static inline struct outcome disk_write(u16 queue, u64 sector, const void *data, u32 bytes)
{
    struct descriptor descriptor = readable(data, bytes);
    return disk_request(queue, T_OUT, sector, &descriptor, 1);
}

static inline struct outcome disk_range(u16 queue, u32 type, u64 sector, u32 sectors, u32 flags)
{
    static struct range range;
    range = (struct range) { .sector = sector, .sectors = sectors, .flags = flags };
    struct descriptor descriptor = readable(&range, sizeof(range));
    return disk_request(queue, type, 0, &descriptor, 1);
}

/* Reports whether a request ended with this status. */
#define check_status(result, expected, ...)                                                      \
    do {                                                                                         \
        struct outcome checked = (result);                                                       \
        if (!report(checked.status == (expected), __VA_ARGS__))                                  \
            report_info("status %#x, length %u", checked.status, checked.length);                \
    } while (0)

/* Reports whether a request ended with this status and this number of written bytes, as the device says (2.7.8.2). */
#define check_outcome(result, expected, expected_length, ...)                                    \
    do {                                                                                         \
        struct outcome checked = (result);                                                       \
        if (!report(checked.status == (expected) && checked.length == (expected_length), __VA_ARGS__)) \
            report_info("status %#x, length %u", checked.status, checked.length);                \
    } while (0)

#endif

/*
 * A split virtqueue, driver side (virtio 1.2, 2.7), with everything left open that a broken driver may do: any
 * descriptor can be written, any head offered.
 */
#ifndef RING_H
#define RING_H

#include "alloc_page.h"
#include "virtio.h"

#define RING_SIZE_MAX 1024
#define PAGE_BYTES 4096ul
/* Three parts of a ring of the greatest size: 16 KiB of descriptors, then 2 KiB and 8 KiB that need a little more. */
#define RING_ORDER 3
#define RING_AVAILABLE 0x4000
#define RING_USED 0x5000

enum { DESC_NEXT = 1, DESC_WRITE = 2, DESC_INDIRECT = 4 };
enum { AVAILABLE_NO_INTERRUPT = 1, USED_NO_NOTIFY = 1 };
/* Words of the available and the used ring. */
enum { RING_FLAGS = 0, RING_INDEX = 1, RING_ENTRIES = 2 };
#define USED_ENTRY_WORDS 4

struct descriptor {
    u64 address;
    u32 length;
    u16 flags;
    u16 next;
};

struct used_entry {
    u32 id;
    u32 length;
};

struct ring {
    u16 index, size;
    bool event_idx;
    u8 *memory;
    volatile struct descriptor *descriptors;
    volatile u16 *available;
    volatile u16 *used;
    volatile u8 *doorbell;
    /* Nothing came in time once. */
    bool is_dead;
    /* Indices that go on counting: the next entry to offer, as far as was kicked, the next entry to take back. */
    u16 next_available, kicked, next_used;
};

static inline struct descriptor readable(const volatile void *data, u32 length)
{
    return (struct descriptor) { .address = virt_to_phys((const void *)data), .length = length };
}

static inline struct descriptor writable(volatile void *data, u32 length)
{
    return (struct descriptor) { .address = virt_to_phys((const void *)data), .length = length, .flags = DESC_WRITE };
}

/* Sets up queue `index` with `size` entries, or as many as the device likes if 0; in other memory if `fresh`. */
static inline void ring_start(struct ring *ring, struct virtio *virtio, u16 index, u16 size, bool fresh)
{
    volatile u8 *common = virtio->part[CAP_COMMON];
    if (fresh || !ring->memory)
        ring->memory = alloc_pages(RING_ORDER);
    memset(ring->memory, 0, PAGE_BYTES << RING_ORDER);
    writew(index, common + COMMON_QUEUE_SELECT);
    if (size)
        writew(size, common + COMMON_QUEUE_SIZE);
    ring->index = index;
    ring->size = readw(common + COMMON_QUEUE_SIZE);
    assert(ring->size > 0 && ring->size <= RING_SIZE_MAX);
    ring->event_idx = virtio->taken & F_EVENT_IDX;
    ring->descriptors = (void *)ring->memory;
    ring->available = (void *)(ring->memory + RING_AVAILABLE);
    ring->used = (void *)(ring->memory + RING_USED);
    u16 offset = readw(common + COMMON_QUEUE_NOTIFY_OFFSET);
    ring->doorbell = virtio->part[CAP_NOTIFY] + (u32)offset * virtio->notify_multiplier;
    ring->is_dead = false;
    ring->next_available = ring->kicked = ring->next_used = 0;
    virtio_write_address(virtio, COMMON_QUEUE_DESCRIPTORS, virt_to_phys(ring->memory));
    virtio_write_address(virtio, COMMON_QUEUE_AVAILABLE, virt_to_phys(ring->memory + RING_AVAILABLE));
    virtio_write_address(virtio, COMMON_QUEUE_USED, virt_to_phys(ring->memory + RING_USED));
    writew(1, common + COMMON_QUEUE_ENABLE);
}

static inline void ring_write(struct ring *ring, u16 at, struct descriptor descriptor)
{
    ring->descriptors[at].address = descriptor.address;
    ring->descriptors[at].length = descriptor.length;
    ring->descriptors[at].flags = descriptor.flags;
    ring->descriptors[at].next = descriptor.next;
}

/* Writes `list` from entry `head` on, each linked to the one after it. */
static inline void ring_write_chain(struct ring *ring, u16 head, const struct descriptor *list, u16 count)
{
    for (u16 i = 0; i < count; i++) {
        struct descriptor descriptor = list[i];
        if (i + 1 < count) {
            descriptor.flags |= DESC_NEXT;
            descriptor.next = head + i + 1;
        }
        ring_write(ring, head + i, descriptor);
    }
}

/* Puts a chain into the available ring, where the device sees it after `ring_publish`. */
static inline void ring_offer(struct ring *ring, u16 head)
{
    ring->available[RING_ENTRIES + ring->next_available % ring->size] = head;
    ring->next_available++;
}

static inline void ring_publish(struct ring *ring)
{
    wmb();
    ring->available[RING_INDEX] = ring->next_available;
    /* Before the device's wish for a kick is read. */
    mb();
}

static inline void ring_kick(struct ring *ring)
{
    ring->kicked = ring->next_available;
    writew(ring->index, ring->doorbell);
}

/* Whether the device wants to be kicked for what was published since the last time (2.7.10). */
static inline bool ring_wants_kick(struct ring *ring)
{
    if (!ring->event_idx)
        return !(ring->used[RING_FLAGS] & USED_NO_NOTIFY);
    u16 event = ring->used[RING_ENTRIES + USED_ENTRY_WORDS * ring->size];
    return (u16)(ring->next_available - event - 1) < (u16)(ring->next_available - ring->kicked);
}

/* From which used entry on the device is to interrupt, with EVENT_IDX. */
static inline void ring_set_used_event(struct ring *ring, u16 event)
{
    ring->available[RING_ENTRIES + ring->size] = event;
    mb();
}

/* Takes the next used entry, if there is one. */
static inline bool ring_take(struct ring *ring, struct used_entry *entry)
{
    if (ring->used[RING_INDEX] == ring->next_used)
        return false;
    rmb();
    volatile u16 *words = ring->used + RING_ENTRIES + USED_ENTRY_WORDS * (ring->next_used % ring->size);
    entry->id = words[0] | (u32)words[1] << 16;
    entry->length = words[2] | (u32)words[3] << 16;
    ring->next_used++;
    return true;
}

/* Waits for the next used entry; false if none comes in time. Then nothing is waited for until the next set-up. */
static inline bool ring_wait(struct ring *ring, struct used_entry *entry)
{
    struct deadline deadline = deadline_start();
    while (!ring_take(ring, entry)) {
        ring->is_dead = ring->is_dead || deadline_passed(&deadline);
        if (ring->is_dead)
            return false;
    }
    return true;
}

#endif

/*
 * The driver's side of a virtqueue, in the negotiated format. A chain comes back by its id. In a split ring, the id is
 * the entry of its first descriptor. In a packed ring, it is any number less than the ring's size.
 */
#ifndef RING_H
#define RING_H

#include "alloc_page.h"
#include "packed_ring.h"
#include "split_ring.h"

#define PAGE_BYTES 4096ul
/*
 * The memory of a ring of the largest size. First come 16 KiB of descriptors. Then a split ring has parts of a little
 * more than 2 KiB and 8 KiB, and a packed ring has its event suppression structures.
 */
#define RING_ORDER 3
#define RING_DRIVER_PART 0x4000
#define RING_DEVICE_PART 0x5000

struct ring {
    u16 index, size;
    bool is_packed;
    u8 *memory;
    volatile u8 *doorbell;
    /* A used entry did not come in time, so nothing is waited for any more. */
    bool is_dead;
    /* Only the one of the negotiated format is in use. */
    struct split_ring split;
    struct packed_ring packed;
};

/* Sets up queue `index` with `size` entries, or with the device's own number if 0. If `fresh`, in other memory. */
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
    ring->is_packed = virtio->taken & F_RING_PACKED;
    ring->is_dead = false;
    u16 offset = readw(common + COMMON_QUEUE_NOTIFY_OFFSET);
    ring->doorbell = virtio->part[CAP_NOTIFY] + (u32)offset * virtio->notify_multiplier;
    bool event_idx = virtio->taken & F_EVENT_IDX;
    void *driver_part = ring->memory + RING_DRIVER_PART, *device_part = ring->memory + RING_DEVICE_PART;
    ring->split = (struct split_ring) {
        .size = ring->size,
        .event_idx = event_idx,
        .descriptors = (void *)ring->memory,
        .available = driver_part,
        .used = device_part,
    };
    ring->packed = (struct packed_ring) {
        .size = ring->size,
        .event_idx = event_idx,
        .descriptors = (void *)ring->memory,
        .driver_event = driver_part,
        .device_event = device_part,
        .room = ring->size,
    };
    virtio_write_address(virtio, COMMON_QUEUE_DESCRIPTORS, virt_to_phys(ring->memory));
    virtio_write_address(virtio, COMMON_QUEUE_AVAILABLE, virt_to_phys(driver_part));
    virtio_write_address(virtio, COMMON_QUEUE_USED, virt_to_phys(device_part));
    writew(1, common + COMMON_QUEUE_ENABLE);
}

/* Offers a chain, which the device sees after `ring_publish`. Returns the index of its first descriptor. */
static inline u16 ring_offer(struct ring *ring, u16 id, const struct descriptor *list, u16 count)
{
    if (ring->is_packed)
        return packed_chain(&ring->packed, id, list, count);
    split_chain(&ring->split, id, list, count);
    return id;
}

/* Whether there is room for another chain of `count` descriptors. */
static inline bool ring_has_room(struct ring *ring, u16 count)
{
    if (ring->is_packed)
        return ring->packed.room >= count;
    return (u16)(ring->split.next_available - ring->split.next_used) < ring->size;
}

/* Writes an indirect table. Returns the descriptor that refers to it. */
static inline struct descriptor ring_table(
    struct ring *ring, struct descriptor *table, const struct descriptor *list, u16 count)
{
    if (ring->is_packed)
        packed_table((void *)table, list, count);
    else
        split_table(table, list, count);
    struct descriptor descriptor = readable(table, count * sizeof(*table));
    descriptor.flags = DESC_INDIRECT;
    return descriptor;
}

/* The nth descriptor of the chain that begins at index `first`. Address and length have one place in both formats. */
static inline volatile struct descriptor *ring_descriptor(struct ring *ring, u16 first, u16 nth)
{
    return &ring->split.descriptors[(first + nth) % ring->size];
}

/* The flags of the nth descriptor of the chain that begins at index `first`. */
static inline volatile u16 *ring_flags(struct ring *ring, u16 first, u16 nth)
{
    u16 index = (first + nth) % ring->size;
    return ring->is_packed ? &ring->packed.descriptors[index].flags : &ring->split.descriptors[index].flags;
}

static inline void ring_publish(struct ring *ring)
{
    if (ring->is_packed)
        packed_publish(&ring->packed);
    else
        split_publish(&ring->split);
    /* The device must see the chains before the driver reads whether it wants a kick. */
    mb();
}

static inline void ring_kick(struct ring *ring)
{
    ring->split.told = ring->split.next_available;
    ring->packed.told = ring->packed.next_available;
    writew(ring->index, ring->doorbell);
}

/* Whether the device wants a kick for the chains published since the last kick or the last call. */
static inline bool ring_wants_kick(struct ring *ring)
{
    return ring->is_packed ? packed_wants_kick(&ring->packed) : split_wants_kick(&ring->split);
}

/* Without EVENT_IDX: sets whether the device is to interrupt. */
static inline void ring_want_interrupts(struct ring *ring, bool wanted)
{
    if (ring->is_packed)
        ring->packed.driver_event[EVENT_MODE] = wanted ? EVENT_ENABLE : EVENT_DISABLE;
    else
        ring->split.available[RING_FLAGS] = wanted ? 0 : AVAILABLE_NO_INTERRUPT;
    mb();
}

/* With EVENT_IDX: has the device interrupt with the chain that follows `chains` chains of `length` descriptors each. */
static inline void ring_want_interrupt_after(struct ring *ring, u16 chains, u16 length)
{
    if (ring->is_packed)
        packed_set_event(&ring->packed, packed_plus(&ring->packed, ring->packed.next_used, chains * length));
    else
        split_set_used_event(&ring->split, ring->split.next_used + chains);
}

static inline bool ring_has_used(struct ring *ring)
{
    return ring->is_packed ? packed_has_used(&ring->packed) : split_has_used(&ring->split);
}

/* Takes the next used entry, if there is one. */
static inline bool ring_take(struct ring *ring, struct used_entry *entry)
{
    if (!ring_has_used(ring))
        return false;
    rmb();
    *entry = ring->is_packed ? packed_take(&ring->packed) : split_take(&ring->split);
    return true;
}

/* Waits for the next used entry. Returns false if none comes in time. Then no call waits until the next set-up. */
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

/* Has the device look at the offered chain, and waits for it. No other chain may be under way on this queue. */
static inline bool ring_round(struct ring *ring, struct used_entry *used)
{
    ring_publish(ring);
    ring_kick(ring);
    return ring_wait(ring, used);
}

/* Gives the ring a content that makes no sense, and has the device look at it. */
static inline void ring_break(struct ring *ring)
{
    if (ring->is_packed)
        packed_break(&ring->packed);
    else
        split_break(&ring->split);
    ring_kick(ring);
}

#endif

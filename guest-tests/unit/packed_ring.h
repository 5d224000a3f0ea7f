/*
 * A packed virtqueue, driver side (virtio 1.2, 2.8): one ring, in which the device writes what it has used over what
 * the driver has offered. A broken driver may write anything anywhere.
 */
#ifndef PACKED_RING_H
#define PACKED_RING_H

#include "descriptor.h"

#define PACKED_AVAILABLE (1 << 7)
#define PACKED_USED (1 << 15)
/* Words of an event suppression structure (2.8.14), what the second may say, the wrap counter in the first. */
enum { EVENT_OFFSET = 0, EVENT_MODE = 1 };
enum { EVENT_ENABLE = 0, EVENT_DISABLE = 1, EVENT_DESC = 2 };
#define EVENT_WRAP (1 << 15)

struct packed_descriptor {
    u64 address;
    u32 length;
    u16 id;
    u16 flags;
};

/* Places are counted over two rounds, 0 to 2 * size - 1: the wrap counter is 1 in the first of them, else 0. */
struct packed_ring {
    u16 size;
    bool event_idx;
    volatile struct packed_descriptor *descriptors;
    volatile u16 *driver_event;
    volatile u16 *device_event;
    /* Where the next chain goes, as far as the device knows or need not, where the next used descriptor will be. */
    u32 next_available, told, next_used;
    /* The flags that show all that was offered since the last `packed_publish`, and where they go. */
    bool is_held;
    u16 held_at, held_flags;
    /* Descriptors that are not the device's; how many a chain has, by its id modulo the length of this. */
    u16 room;
    u16 chain_length[RING_SIZE_MAX];
};

static inline u32 packed_plus(const struct packed_ring *ring, u32 place, u32 count)
{
    return (place + count) % (2 * ring->size);
}

static inline u16 packed_index(const struct packed_ring *ring, u32 place)
{
    return place % ring->size;
}

static inline bool packed_wrap(const struct packed_ring *ring, u32 place)
{
    return place < ring->size;
}

/* The flags of an available descriptor in that place. */
static inline u16 packed_available(const struct packed_ring *ring, u32 place)
{
    return packed_wrap(ring, place) ? PACKED_AVAILABLE : PACKED_USED;
}

static inline void packed_write(struct packed_ring *ring, u32 place, struct packed_descriptor descriptor)
{
    volatile struct packed_descriptor *at = &ring->descriptors[packed_index(ring, place)];
    at->address = descriptor.address;
    at->length = descriptor.length;
    at->id = descriptor.id;
    at->flags = descriptor.flags;
}

/* Offers the chain `list`, which the device sees after `packed_publish`. Returns the index of its first descriptor. */
static inline u16 packed_chain(struct packed_ring *ring, u16 id, const struct descriptor *list, u16 count)
{
    u16 first = packed_index(ring, ring->next_available);
    for (u16 i = 0; i < count; i++) {
        u32 place = packed_plus(ring, ring->next_available, i);
        u16 flags = list[i].flags | packed_available(ring, place) | (i + 1 < count ? DESC_NEXT : 0);
        if (i == 0 && !ring->is_held) {
            ring->is_held = true;
            ring->held_at = first;
            ring->held_flags = flags;
            flags = ring->descriptors[first].flags;
        }
        packed_write(ring, place, (struct packed_descriptor) { list[i].address, list[i].length, id, flags });
    }
    ring->next_available = packed_plus(ring, ring->next_available, count);
    ring->chain_length[id % RING_SIZE_MAX] = count;
    ring->room -= count;
    return first;
}

/* Writes an indirect table, whose descriptors come one after the other and have no flag but WRITE. */
static inline void packed_table(struct packed_descriptor *table, const struct descriptor *list, u16 count)
{
    for (u16 i = 0; i < count; i++)
        table[i] = (struct packed_descriptor) { list[i].address, list[i].length, 0, list[i].flags };
}

static inline void packed_publish(struct packed_ring *ring)
{
    wmb();
    if (ring->is_held)
        ring->descriptors[ring->held_at].flags = ring->held_flags;
    ring->is_held = false;
}

/* Descriptors from one place on to another. */
static inline u32 packed_distance(const struct packed_ring *ring, u32 from, u32 to)
{
    return (to + 2 * ring->size - from) % (2 * ring->size);
}

/* Whether the device wants to be kicked for what was published since it was told or asked (2.8.14). */
static inline bool packed_wants_kick(struct packed_ring *ring)
{
    u16 mode = ring->device_event[EVENT_MODE];
    u32 told = ring->told;
    ring->told = ring->next_available;
    if (mode != EVENT_DESC)
        return mode == EVENT_ENABLE;
    rmb();
    u16 offset = ring->device_event[EVENT_OFFSET];
    u32 event = (offset & ~EVENT_WRAP) + (offset & EVENT_WRAP ? 0 : ring->size);
    return packed_distance(ring, told, event) < packed_distance(ring, told, ring->next_available);
}

/* Has the device interrupt when it has used the chain in that place, with EVENT_IDX. */
static inline void packed_set_event(struct packed_ring *ring, u32 place)
{
    ring->driver_event[EVENT_OFFSET] = packed_index(ring, place) | (packed_wrap(ring, place) ? EVENT_WRAP : 0);
    wmb();
    ring->driver_event[EVENT_MODE] = EVENT_DESC;
    mb();
}

static inline bool packed_has_used(struct packed_ring *ring)
{
    u16 flags = ring->descriptors[packed_index(ring, ring->next_used)].flags & (PACKED_AVAILABLE | PACKED_USED);
    return flags == (packed_wrap(ring, ring->next_used) ? PACKED_AVAILABLE | PACKED_USED : 0);
}

static inline struct used_entry packed_take(struct packed_ring *ring)
{
    volatile struct packed_descriptor *used = &ring->descriptors[packed_index(ring, ring->next_used)];
    struct used_entry entry = { .id = used->id, .length = used->length };
    /* Of an id that was never offered, one: there is no end to it otherwise. */
    u16 count = MAX(ring->chain_length[entry.id % RING_SIZE_MAX], 1);
    ring->next_used = packed_plus(ring, ring->next_used, count);
    ring->room += count;
    return entry;
}

/* The whole ring becomes a chain without an end. */
static inline void packed_break(struct packed_ring *ring)
{
    for (u32 i = ring->size; i-- > 0;) {
        u32 place = packed_plus(ring, ring->next_available, i);
        wmb();
        packed_write(ring, place, (struct packed_descriptor) { .flags = packed_available(ring, place) | DESC_NEXT });
    }
}

#endif

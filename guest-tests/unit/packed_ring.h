/*
 * The driver's side of a packed virtqueue (virtio 1.2, 2.8). In its one ring, the device writes used descriptors over
 * those that the driver has offered. Tests can write any descriptor to any place, as a broken driver may.
 */
#ifndef PACKED_RING_H
#define PACKED_RING_H

#include "descriptor.h"

#define PACKED_AVAILABLE (1 << 7)
#define PACKED_USED (1 << 15)
/* The words of an event suppression structure (2.8.14), the values of the second, and the wrap counter in the first. */
enum { EVENT_OFFSET = 0, EVENT_MODE = 1 };
enum { EVENT_ENABLE = 0, EVENT_DISABLE = 1, EVENT_DESC = 2 };
#define EVENT_WRAP (1 << 15)

struct packed_descriptor {
    u64 address;
    u32 length;
    u16 id;
    u16 flags;
};

/*
 * Places are counted over two rounds, from 0 to 2 * size - 1. The wrap counter is 1 in the first round and 0 in the
 * second.
 */
struct packed_ring {
    u16 size;
    bool event_idx;
    volatile struct packed_descriptor *descriptors;
    volatile u16 *driver_event;
    volatile u16 *device_event;
    /*
     * The place of the next chain; the place up to which the device was kicked or asked; that of the next used
     * descriptor.
     */
    u32 next_available, told, next_used;
    /* Flags that are held back until `packed_publish`, and their place. They show the device all offered chains. */
    bool is_held;
    u16 held_at, held_flags;
    /* The number of free descriptors; and the number of descriptors of each chain, by its id modulo RING_SIZE_MAX. */
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

/* The flags of an available descriptor at this place. */
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

/* Writes an indirect table. Its descriptors come one after the other, and have no flag but WRITE. */
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

/* The number of descriptors from one place to another. */
static inline u32 packed_distance(const struct packed_ring *ring, u32 from, u32 to)
{
    return (to + 2 * ring->size - from) % (2 * ring->size);
}

/* Whether the device wants a kick for the chains published since the last kick or the last call (2.8.14). */
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

/* With EVENT_IDX: has the device interrupt when it has used the chain at this place. */
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
    /* A chain with an id that was never offered counts as one descriptor. Otherwise taking would not end. */
    u16 count = MAX(ring->chain_length[entry.id % RING_SIZE_MAX], 1);
    ring->next_used = packed_plus(ring, ring->next_used, count);
    ring->room += count;
    return entry;
}

/* Makes the whole ring a chain without an end. */
static inline void packed_break(struct packed_ring *ring)
{
    for (u32 i = ring->size; i-- > 0;) {
        u32 place = packed_plus(ring, ring->next_available, i);
        wmb();
        packed_write(ring, place, (struct packed_descriptor) { .flags = packed_available(ring, place) | DESC_NEXT });
    }
}

#endif

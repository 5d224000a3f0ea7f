/*
 * The driver's side of a split virtqueue (virtio 1.2, 2.7). Tests can write any descriptor and offer any head, as a
 * broken driver may.
 */
#ifndef SPLIT_RING_H
#define SPLIT_RING_H

#include "descriptor.h"

enum { AVAILABLE_NO_INTERRUPT = 1, USED_NO_NOTIFY = 1 };
/* Words of the available and the used ring. */
enum { RING_FLAGS = 0, RING_INDEX = 1, RING_ENTRIES = 2 };
#define USED_ENTRY_WORDS 4

struct split_ring {
    u16 size;
    bool event_idx;
    volatile struct descriptor *descriptors;
    volatile u16 *available;
    volatile u16 *used;
    /*
     * Indices that are not reduced by the size: of the next entry to offer, of the entry up to which the device was
     * kicked or asked, and of the next entry to take back.
     */
    u16 next_available, told, next_used;
};

static inline void split_write(struct split_ring *ring, u16 at, struct descriptor descriptor)
{
    ring->descriptors[at].address = descriptor.address;
    ring->descriptors[at].length = descriptor.length;
    ring->descriptors[at].flags = descriptor.flags;
    ring->descriptors[at].next = descriptor.next;
}

/* Puts a chain into the available ring, where the device sees it after `split_publish`. */
static inline void split_offer(struct split_ring *ring, u16 head)
{
    ring->available[RING_ENTRIES + ring->next_available % ring->size] = head;
    ring->next_available++;
}

/* Writes `list` from entry `head` on, with a link from each descriptor to the next one, and offers the chain. */
static inline void split_chain(struct split_ring *ring, u16 head, const struct descriptor *list, u16 count)
{
    for (u16 i = 0; i < count; i++) {
        struct descriptor descriptor = list[i];
        if (i + 1 < count) {
            descriptor.flags |= DESC_NEXT;
            descriptor.next = head + i + 1;
        }
        split_write(ring, head + i, descriptor);
    }
    split_offer(ring, head);
}

/* Writes an indirect table. */
static inline void split_table(struct descriptor *table, const struct descriptor *list, u16 count)
{
    for (u16 i = 0; i < count; i++) {
        table[i] = list[i];
        if (i + 1 < count) {
            table[i].flags |= DESC_NEXT;
            table[i].next = i + 1;
        }
    }
}

static inline void split_publish(struct split_ring *ring)
{
    wmb();
    ring->available[RING_INDEX] = ring->next_available;
}

/* Whether the device wants a kick for the chains published since the last kick or the last call (2.7.10). */
static inline bool split_wants_kick(struct split_ring *ring)
{
    u16 told = ring->told;
    ring->told = ring->next_available;
    if (!ring->event_idx)
        return !(ring->used[RING_FLAGS] & USED_NO_NOTIFY);
    u16 event = ring->used[RING_ENTRIES + USED_ENTRY_WORDS * ring->size];
    return (u16)(ring->next_available - event - 1) < (u16)(ring->next_available - told);
}

/* With EVENT_IDX: sets the used entry with which the device is to interrupt. */
static inline void split_set_used_event(struct split_ring *ring, u16 event)
{
    ring->available[RING_ENTRIES + ring->size] = event;
    mb();
}

static inline bool split_has_used(struct split_ring *ring)
{
    return ring->used[RING_INDEX] != ring->next_used;
}

static inline struct used_entry split_take(struct split_ring *ring)
{
    volatile u16 *words = ring->used + RING_ENTRIES + USED_ENTRY_WORDS * (ring->next_used % ring->size);
    ring->next_used++;
    return (struct used_entry) { .id = words[0] | (u32)words[1] << 16, .length = words[2] | (u32)words[3] << 16 };
}

/* Says that there are more chains than the ring has entries. */
static inline void split_break(struct split_ring *ring)
{
    ring->next_available += ring->size + 1;
    split_publish(ring);
}

#endif

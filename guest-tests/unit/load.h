/*
 * Many requests at once on one ring. Each slot has sectors and a buffer of its own. The id of slot s is s with indirect
 * tables, and 3s with three descriptors for each request.
 */
#ifndef LOAD_H
#define LOAD_H

#include "data.h"
#include "disk.h"

#define LOAD_BYTES PAGE_BYTES
#define LOAD_SECTORS (LOAD_BYTES / SECTOR_BYTES)
#define LOAD_PARTS 3

struct load_slot {
    struct request request;
    struct descriptor table[LOAD_PARTS];
    /* What was asked for. The header may have been changed since. */
    u32 type;
    u64 sector;
    u8 *data;
    /* The index of its first descriptor. */
    u16 first;
    bool pending;
};

struct load {
    struct ring *ring;
    bool indirect;
    u16 slots, pending;
    struct load_slot *slot;
};

/* The smallest order for which 2^order pages hold this number of bytes. */
static inline unsigned order_of(u64 bytes)
{
    unsigned order = 0;
    while (PAGE_BYTES << order < bytes)
        order++;
    return order;
}

static inline struct load *load_new(struct ring *ring, bool indirect)
{
    struct load *load = alloc_pages(0);
    u16 slots = indirect ? ring->size : ring->size / LOAD_PARTS;
    *load = (struct load) { .ring = ring, .indirect = indirect, .slots = slots };
    load->slot = alloc_pages(order_of(slots * sizeof(*load->slot)));
    u8 *data = alloc_pages(order_of(slots * LOAD_BYTES));
    for (u16 i = 0; i < slots; i++)
        load->slot[i].data = data + i * LOAD_BYTES;
    return load;
}

/* Offers a request of slot `index`. The device sees it after the next `ring_publish`. */
static inline void load_offer(struct load *load, u16 index, u32 type, u64 sector)
{
    struct load_slot *slot = &load->slot[index];
    u16 id = load->indirect ? index : index * LOAD_PARTS;
    assert(!slot->pending);
    slot->type = type;
    slot->sector = sector;
    slot->pending = true;
    load->pending++;
    request_init(&slot->request, type, sector);
    struct descriptor list[LOAD_PARTS] = {
        readable(&slot->request.header, sizeof(slot->request.header)),
        type == T_OUT ? readable(slot->data, LOAD_BYTES)
                      : writable(slot->data, type == T_GET_ID ? ID_BYTES : LOAD_BYTES),
        writable(&slot->request.status, 1),
    };
    if (load->indirect) {
        struct descriptor table = ring_table(load->ring, slot->table, list, LOAD_PARTS);
        slot->first = ring_offer(load->ring, id, &table, 1);
    } else {
        slot->first = ring_offer(load->ring, id, list, LOAD_PARTS);
    }
}

/* Starts a request in every slot, for successive sectors from `sector` on. Writes have the data of `seed`. */
static inline void load_start_all(struct load *load, u32 type, u64 sector, u64 seed)
{
    for (u16 i = 0; i < load->slots; i++) {
        if (type == T_OUT)
            data_fill_from(load->slot[i].data, LOAD_BYTES, seed, i * LOAD_BYTES);
        else if (type == T_IN)
            memset(load->slot[i].data, 0, LOAD_BYTES);
        load_offer(load, i, type, sector + i * LOAD_SECTORS);
    }
    ring_publish(load->ring);
    ring_kick(load->ring);
}

/* Waits for one request. Returns its outcome, and its slot in `index`. */
static inline struct outcome load_wait(struct load *load, u16 *index)
{
    struct used_entry used = { 0 };
    if (!ring_wait(load->ring, &used))
        return (struct outcome) { .status = S_TIMED_OUT };
    u32 per_slot = load->indirect ? 1 : LOAD_PARTS;
    *index = used.id / per_slot;
    if (used.id % per_slot != 0 || used.id / per_slot >= load->slots || !load->slot[*index].pending)
        return (struct outcome) { .status = S_WRONG_CHAIN };
    struct load_slot *slot = &load->slot[*index];
    slot->pending = false;
    load->pending--;
    return request_outcome(&slot->request, slot->type, slot->sector, true, used, used.id);
}

/* Waits for all requests under way. Returns whether all of them succeeded. */
static inline bool load_finish(struct load *load)
{
    bool succeeded = true;
    u16 index = 0;
    while (load->pending > 0) {
        struct outcome outcome = load_wait(load, &index);
        if (outcome.status != S_OK) {
            report_info("slot %d of queue %d ended with status %#x", index, load->ring->index, outcome.status);
            succeeded = false;
        }
        if (outcome.status == S_TIMED_OUT)
            break;
    }
    return succeeded;
}

/* Whether the slots hold what `load_start_all` wrote with that seed. */
static inline bool load_data_is(const struct load *load, u64 seed)
{
    for (u16 i = 0; i < load->slots; i++) {
        if (!data_is_from(load->slot[i].data, LOAD_BYTES, seed, i * LOAD_BYTES))
            return false;
    }
    return true;
}

/* Forgets the requests under way, because the device was reset. */
static inline void load_forget(struct load *load)
{
    load->pending = 0;
    for (u16 i = 0; i < load->slots; i++)
        load->slot[i].pending = false;
}

#endif

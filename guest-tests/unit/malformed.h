/*
 * Parts of malformed chains, and what this device must do with such chains. virtio 1.2 leaves that open (2.7.5, 2.8.7).
 * If this device can find the status byte of a chain, it answers with an I/O error. Otherwise, or if the ring itself
 * makes no sense, the queue stops until it is set up again, and the other queues go on. No chain comes back without a
 * status.
 */
#ifndef MALFORMED_H
#define MALFORMED_H

#include "suite.h"

#define SECTOR 64u
#define BYTES PAGE_BYTES

/* A read of BYTES to the area, in the usual layout. */
static inline void make_read(struct descriptor list[3])
{
    memset(area, 0x55, 2 * BYTES);
    request_init(&one, T_IN, SECTOR);
    list[0] = readable(&one.header, sizeof(one.header));
    list[1] = writable(area, BYTES);
    list[2] = writable(&one.status, 1);
}

/* Puts a read into the indirect table. Returns the descriptor that refers to the table. */
static inline struct descriptor make_table(void)
{
    struct descriptor list[3];
    make_read(list);
    return ring_table(&disk.ring[0], indirect_table, list, ARRAY_SIZE(list));
}

/* Expects an I/O error with nothing written but the status. */
static inline void check_refused(struct outcome outcome, const char *name)
{
    check_status(outcome, S_IOERR, "%s is refused", name);
    report(all_bytes_are(area, BYTES, 0x55), "%s: nothing but the status is written", name);
}

/* Checks that queue 0 has stopped and queue 1 goes on, and that queue 0 works again once it is set up again. */
static inline void check_stopped(void)
{
    struct used_entry used;
    bool others = true, silent = true;
    for (unsigned i = 0; i < 64; i++) {
        others = others && disk_read(1, SECTOR, area, BYTES).status == S_OK;
        silent = silent && !ring_take(&disk.ring[0], &used);
    }
    report(others, "the other queues go on");
    report(silent, "nothing comes from this one");
    report(disk_start(F_ALL), "the disk can be set up again");
    check_status(disk_read(0, SECTOR, area, BYTES), S_OK, "the queue works again");
}

/* Has the device look at the offered chain with id 0, which stops the queue. Sets the disk up again. */
static inline void check_offered_stops(const char *name)
{
    report_prefix_push(name);
    ring_publish(&disk.ring[0]);
    ring_kick(&disk.ring[0]);
    check_stopped();
    report_prefix_pop();
}

/* Offers this chain with id 0, and expects that it stops the queue. */
static inline void check_stops(const struct descriptor *list, u16 count, const char *name)
{
    ring_offer(&disk.ring[0], 0, list, count);
    check_offered_stops(name);
}

/* Writes data to the sectors that `make_read` reads. Returns the seed of the data. */
static inline u64 write_data(void)
{
    u64 seed = fresh_seed();
    data_fill(area, BYTES, seed);
    assert(disk_write(1, SECTOR, area, BYTES).status == S_OK);
    return seed;
}

#endif

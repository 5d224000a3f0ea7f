/*
 * A test is a list of cases. Before each case the disk is set up anew, and after it the disk must still work.
 * Arguments:
 *
 *   packed            packed rings in place of split ones
 *   timeout=SECONDS   how long the disk may take for anything
 *   after=CASE        begin after this case, which has killed the disk for good in an earlier boot
 */
#ifndef SUITE_H
#define SUITE_H

#include "data.h"
#include "disk.h"

#define AREA_BYTES (2u << 20)
#define AREA_ORDER 9

/* The formats of rings that a case is for. */
enum rings { ANY_RINGS, SPLIT_RINGS, PACKED_RINGS };

struct test_case {
    const char *name;
    void (*run)(void);
    enum rings rings;
    /* The parameters of the case, for a function that serves several cases. */
    const void *with;
};

/* The case under way. */
static const struct test_case *current_case;

/* Memory for the data of a case. */
static u8 *area;

static inline const char *argument(int count, char **arguments, const char *name)
{
    for (int i = 1; i < count; i++) {
        if (strncmp(arguments[i], name, strlen(name)) == 0)
            return arguments[i] + strlen(name);
    }
    return NULL;
}

/* The number of descriptors of each queue that `disk_works` uses. */
#define DISK_WORKS_ENTRIES 6

/* Whether every queue still does what it should, without a reset. */
static inline bool disk_works(void)
{
    bool can_write = !(disk.virtio.offered & F_RO);
    for (u16 queue = 0; queue < disk.num_queues; queue++) {
        u64 seed = fresh_seed(), sector = 8 * queue;
        data_fill(area, PAGE_BYTES, seed);
        if (can_write && disk_write(queue, sector, area, PAGE_BYTES).status != S_OK)
            return false;
        memset(area, 0, PAGE_BYTES);
        if (disk_read(queue, sector, area, PAGE_BYTES).status != S_OK)
            return false;
        if (can_write && !data_is(area, PAGE_BYTES, seed))
            return false;
    }
    return true;
}

/* Whether the device offers rings of the wanted format. */
static inline bool format_is_offered(void)
{
    return virtio_reset(&disk.virtio) && virtio_negotiate(&disk.virtio, F_ALL) &&
           (disk.virtio.taken & F_RING_PACKED) == ring_format;
}

/* Runs the cases. Returns the exit code of main(). */
static inline int suite_run(
    const char *name, const struct test_case *cases, unsigned case_count, int argument_count, char **arguments)
{
    const char *timeout = argument(argument_count, arguments, "timeout=");
    const char *after = argument(argument_count, arguments, "after=");
    if (timeout)
        timeout_seconds = atol(timeout);
    if (argument(argument_count, arguments, "packed"))
        ring_format = F_RING_PACKED;
    report_prefix_push(name);
    if (!virtio_find(&disk.virtio, BLOCK_DEVICE)) {
        report(false, "there is a virtio disk");
        return report_summary();
    }
    if (!format_is_offered()) {
        report(false, "packed rings are offered");
        return report_summary();
    }
    area = alloc_pages(AREA_ORDER);
    unsigned first = 0;
    for (unsigned i = 0; after && i < case_count; i++) {
        if (strcmp(cases[i].name, after) == 0)
            first = i + 1;
    }
    for (unsigned i = first; i < case_count; i++) {
        current_case = &cases[i];
        if (current_case->rings == (ring_format ? SPLIT_RINGS : PACKED_RINGS))
            continue;
        report_prefix_push(current_case->name);
        report_info("begins");
        if (!report(disk_start(F_ALL), "the disk can be set up"))
            return report_summary();
        current_case->run();
        bool works = report(disk_works(), "the disk works afterwards");
        /* Nothing of this case may reach into the next one. */
        bool resets = virtio_reset(&disk.virtio);
        if (!works && !(resets && disk_start(F_ALL) && disk_works())) {
            report_info("the disk is dead");
            return report_summary();
        }
        report_prefix_pop();
    }
    return report_summary();
}

#define RUN_SUITE(name, cases) suite_run(name, cases, ARRAY_SIZE(cases), argument_count, arguments)

#endif

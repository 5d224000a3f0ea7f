/*
 * Notifications: interrupts as the driver wants them, and kicks as the device wants them (virtio 1.2, 2.7.7, 2.7.10,
 * and 2.8.14 for packed rings).
 */
#include "load.h"
#include "suite.h"

#define NOT_EVENT_IDX (F_ALL & ~F_EVENT_IDX)
#define LOOKS 2000
/* Descriptors of a read without a table. */
#define PARTS 3
/* Enough requests to go round a packed ring more than once, and far more than virtqueues. */
#define EVENTS 30

/* Whether an interrupt comes, in time. */
static bool is_interrupted(void)
{
    struct deadline deadline = deadline_start();
    while (!(virtio_take_isr(&disk.virtio) & 1)) {
        if (deadline_passed(&deadline))
            return false;
    }
    return true;
}

/*
 * Whether no interrupt comes for a while. This may miss an interrupt that is late, but never reports one that did not
 * come.
 */
static bool is_left_alone(void)
{
    bool interrupted = false;
    for (unsigned i = 0; i < LOOKS; i++)
        interrupted = virtio_take_isr(&disk.virtio) & 1 || interrupted;
    return !interrupted;
}

/*
 * After a start, the device may send one interrupt without a reason on each virtqueue, and each may arrive at any time.
 * So as many unexpected interrupts as virtqueues in a whole test are no fault. More are a fault.
 */
static unsigned stray_most(void)
{
    return disk.num_queues;
}

static void by_flag(void)
{
    assert(disk_start(NOT_EVENT_IDX));
    struct ring *ring = &disk.ring[0];
    bool completed = true;
    unsigned stray = 0;
    ring_want_interrupts(ring, false);
    virtio_take_isr(&disk.virtio);
    for (unsigned i = 0; i < EVENTS; i++) {
        completed = disk_read(0, 0, area, PAGE_BYTES).status == S_OK && completed;
        stray += !is_left_alone();
    }
    report(completed, "requests without an interrupt succeed");
    report(stray <= stray_most(), "no interrupt comes where none is wanted");
    ring_want_interrupts(ring, true);
    check_status(disk_read(0, 0, area, PAGE_BYTES), S_OK, "a request with an interrupt succeeds");
    report(is_interrupted(), "an interrupt comes");
    check_status(disk_read(1, 0, area, PAGE_BYTES), S_OK, "a request on another queue succeeds");
    report(is_interrupted(), "an interrupt comes from that queue, too");
}

static bool read_of(u16 parts)
{
    struct descriptor list[PARTS] = {
        readable(&one.header, sizeof(one.header)), writable(area, PAGE_BYTES), writable(&one.status, 1)
    };
    request_init(&one, T_IN, 0);
    return (parts == PARTS ? one_send(0, list, PARTS) : one_send_indirect(0, list, PARTS)).status == S_OK;
}

/* One event after the other. Some events are beyond the end of a packed ring. */
static void by_event(void)
{
    bool completed = read_of(PARTS), comes = true;
    unsigned early = 0, late = 0;
    is_left_alone();
    for (unsigned i = 0; i < EVENTS && completed; i++) {
        u16 parts = i % 2 ? 1 : PARTS;
        ring_want_interrupt_after(&disk.ring[0], 1, parts);
        completed = read_of(parts);
        early += !is_left_alone();
        completed = completed && read_of(parts);
        comes = comes && is_interrupted();
        completed = completed && read_of(parts);
        late += !is_left_alone();
    }
    report(completed, "every request succeeds");
    report(early <= stray_most(), "no interrupt comes before its event");
    report(comes, "an interrupt comes with each event");
    report(late <= stray_most(), "none comes after it");
}

/* The event comes after the 16-bit index has wrapped. */
static void by_event_over_the_wrap(void)
{
    struct split_ring *ring = &disk.ring[0].split;
    struct load *load = load_new(&disk.ring[0], true);
    bool completed = true;
    u16 event = 3;
    /* None of the next requests has this event. */
    split_set_used_event(ring, event - 0x8000);
    while (completed && ring->next_used < 0xffff - load->slots) {
        if (ring->next_used >= 0x8000)
            split_set_used_event(ring, event);
        load_start_all(load, T_GET_ID, 0, 0);
        completed = load_finish(load);
    }
    report(completed, "the index comes near its end");
    is_left_alone();
    bool early = false;
    while (completed && ring->next_used != event) {
        completed = disk_request(0, T_FLUSH, 0, NULL, 0).status == S_OK;
        early = early || !(virtio_take_isr(&disk.virtio) == 0);
    }
    report(completed && is_left_alone() && !early, "no interrupt comes before the event");
    check_status(disk_request(0, T_FLUSH, 0, NULL, 0), S_OK, "the request of the event succeeds");
    report(is_interrupted(), "an interrupt comes with the event");
}

/* A driver that kicks only when it is asked to must not be left waiting. */
static void kicks_as_wanted(u64 features)
{
    assert(disk_start(features));
    struct load *load = load_new(&disk.ring[0], features & F_INDIRECT_DESC);
    bool completed = true;
    u32 kicks = 0, requests = 0;
    u16 index = 0;
    for (u32 round = 0; completed && round < 600; round++) {
        /* Each round fills the queue with one request more, up to all slots, and then takes back about half of them. */
        u16 wanted = 1 + round % load->slots;
        for (u16 i = 0; i < load->slots && load->pending < wanted; i++) {
            if (load->slot[i].pending)
                continue;
            load_offer(load, i, round % 3 ? T_GET_ID : T_IN, i * LOAD_SECTORS);
            ring_publish(load->ring);
            requests++;
            if (ring_wants_kick(load->ring)) {
                ring_kick(load->ring);
                kicks++;
            }
        }
        for (u16 left = load->pending / 2; completed && load->pending > left;)
            completed = load_wait(load, &index).status == S_OK;
    }
    report(completed && load_finish(load), "every request completes");
    report(kicks > 0 && kicks <= requests, "there were kicks, not more than requests");
    report_info("%u kicks for %u requests", kicks, requests);
}

static void kicks_by_flag(void)
{
    kicks_as_wanted(NOT_EVENT_IDX);
}

static void kicks_by_event(void)
{
    kicks_as_wanted(F_ALL);
}

/* The device finds requests that were in the ring before DRIVER_OK. One kick afterwards is enough. */
static void early_requests(void)
{
    assert(virtio_reset(&disk.virtio) && virtio_negotiate(&disk.virtio, F_ALL));
    for (u16 queue = 0; queue < disk.num_queues; queue++)
        ring_start(&disk.ring[queue], &disk.virtio, queue, 0, false);
    struct load *load = load_new(&disk.ring[0], true);
    for (u16 i = 0; i < load->slots; i++)
        load_offer(load, i, T_GET_ID, 0);
    ring_publish(load->ring);
    virtio_add_status(&disk.virtio, STATUS_DRIVER_OK);
    ring_kick(load->ring);
    report(load_finish(load), "requests from before DRIVER_OK are done");
}

static const struct test_case cases[] = {
    { "by-flag", by_flag },
    { "by-event", by_event },
    { "by-event-over-the-wrap", by_event_over_the_wrap, SPLIT_RINGS },
    { "kicks-by-flag", kicks_by_flag },
    { "kicks-by-event", kicks_by_event },
    { "early-requests", early_requests },
};

int main(int argument_count, char **arguments)
{
    return RUN_SUITE("notify", cases);
}

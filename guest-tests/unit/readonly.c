/* A disk that cannot be written (virtio 1.2, 5.2.6.2: VIRTIO_BLK_F_RO). */
#include "suite.h"

#define BYTES PAGE_BYTES

static void offers(void)
{
    report(disk.virtio.offered & F_RO, "RO is offered");
    report(!(disk.virtio.offered & (F_DISCARD | F_WRITE_ZEROES)), "neither discard nor write zeroes is offered");
}

/* Writes fail, even if the driver has not taken RO. */
static void writes(void)
{
    static const u64 features[] = { F_ALL, F_ALL & ~F_RO };
    for (unsigned i = 0; i < ARRAY_SIZE(features); i++) {
        assert(disk_start(features[i]));
        report_prefix_push(i == 0 ? "RO taken" : "RO not taken");
        u8 *before = area + BYTES;
        check_outcome(disk_read(0, 64, before, BYTES), S_OK, BYTES + 1, "a block is read");
        memset(area, 0x55, BYTES);
        check_outcome(disk_write(0, 64, area, BYTES), S_IOERR, 1, "a write is refused");
        check_status(disk_write(1, 64, area, BYTES), S_IOERR, "a write on another queue is refused");
        check_status(disk_request(0, T_OUT, 64, NULL, 0), S_IOERR, "a write of nothing is refused");
        int discarded = disk_range(0, T_DISCARD, 64, 8, 0).status;
        report(discarded == S_IOERR || discarded == S_UNSUPP, "a discard is not done");
        int zeroed = disk_range(0, T_WRITE_ZEROES, 64, 8, 0).status;
        report(zeroed == S_IOERR || zeroed == S_UNSUPP, "a write zeroes is not done");
        memset(area, 0xaa, BYTES);
        check_status(disk_read(1, 64, area, BYTES), S_OK, "the block is read again");
        report(memcmp(area, before, BYTES) == 0, "the block is as it was");
        report_prefix_pop();
    }
}

static void others(void)
{
    struct descriptor descriptor = writable(area, ID_BYTES);
    check_status(disk_request(0, T_FLUSH, 0, NULL, 0), S_OK, "a flush succeeds");
    check_status(disk_request(0, T_GET_ID, 0, &descriptor, 1), S_OK, "the id is read");
}

static const struct test_case cases[] = {
    { "offers", offers },
    { "writes", writes },
    { "others", others },
};

int main(int argument_count, char **arguments)
{
    return RUN_SUITE("readonly", cases);
}

/* Discard and write zeroes (virtio 1.2, 5.2.6). */
#include "suite.h"

#define START 4096u
#define SECTORS 64u
#define BYTES (SECTORS * SECTOR_BYTES)

static u64 seed;

/* Writes data to the SECTORS sectors from START on. The ranges of most cases are among them. */
static void write_data(void)
{
    seed = fresh_seed();
    data_fill(area, BYTES, seed);
    assert(disk_write(0, START, area, BYTES).status == S_OK);
}

static void read_data(void)
{
    memset(area, 0x55, BYTES);
    assert(disk_read(1, START, area, BYTES).status == S_OK);
}

/* Whether the data that were read are as written, except for `sectors` sectors from `first` on. */
static bool rest_is_there(u32 first, u32 sectors)
{
    u32 begin = first * SECTOR_BYTES, end = (first + sectors) * SECTOR_BYTES;
    return data_is(area, begin, seed) && data_is_from(area + end, BYTES - end, seed, end);
}

static void write_zeroes(void)
{
    static const struct {
        u32 first, sectors, flags;
        const char *name;
    } ranges[] = {
        { 8, 8, 0, "a block" },
        { 8, 8, RANGE_UNMAP, "a block with unmap" },
        { 3, 1, 0, "a sector" },
        { 3, 1, RANGE_UNMAP, "a sector with unmap" },
        { 5, 50, 0, "many sectors" },
        { 5, 50, RANGE_UNMAP, "many sectors with unmap" },
        { 0, SECTORS, 0, "everything" },
    };
    for (unsigned i = 0; i < ARRAY_SIZE(ranges); i++) {
        const char *name = ranges[i].name;
        u32 first = ranges[i].first, sectors = ranges[i].sectors;
        write_data();
        check_outcome(disk_range(0, T_WRITE_ZEROES, START + first, sectors, ranges[i].flags), S_OK, 1,
                      "zeroes are written to %s", name);
        read_data();
        report(all_bytes_are(area + first * SECTOR_BYTES, sectors * SECTOR_BYTES, 0), "%s reads as zeroes", name);
        report(rest_is_there(first, sectors), "%s: the rest is as it was", name);
    }
}

/* Discarded sectors may read as anything. The other sectors stay, and all sectors can be written again. */
static void discard(void)
{
    write_data();
    check_outcome(disk_range(0, T_DISCARD, START + 8, 16, 0), S_OK, 1, "sectors are discarded");
    read_data();
    report(rest_is_there(8, 16), "the rest is as it was");
    write_data();
    read_data();
    report(data_is(area, BYTES, seed), "discarded sectors are written again");
}

static void nothing(void)
{
    write_data();
    check_status(disk_range(0, T_DISCARD, START, 0, 0), S_OK, "a discard of nothing succeeds");
    check_status(disk_range(0, T_WRITE_ZEROES, START, 0, 0), S_OK, "a write zeroes of nothing succeeds");
    read_data();
    report(data_is(area, BYTES, seed), "the data is as it was");
}

static void flags(void)
{
    write_data();
    check_status(disk_range(0, T_DISCARD, START, 8, RANGE_UNMAP), S_UNSUPP, "discard with unmap is unsupported");
    for (unsigned bit = 1; bit < 32; bit += 6) {
        check_status(disk_range(0, T_DISCARD, START, 8, 1u << bit), S_UNSUPP,
                     "discard with flag %u is unsupported", bit);
        check_status(disk_range(0, T_WRITE_ZEROES, START, 8, 1u << bit), S_UNSUPP,
                     "write zeroes with flag %u is unsupported", bit);
    }
    read_data();
    report(data_is(area, BYTES, seed), "the data is as it was");
}

static void bounds(void)
{
    static const u32 types[] = { T_DISCARD, T_WRITE_ZEROES };
    static const char *const names[] = { "discard", "write zeroes" };
    u32 most[] = { config_read(CONFIG_MAX_DISCARD_SECTORS), config_read(CONFIG_MAX_WRITE_ZEROES_SECTORS) };
    write_data();
    for (unsigned i = 0; i < ARRAY_SIZE(types); i++) {
        u32 type = types[i];
        const char *name = names[i];
        check_status(disk_range(0, type, disk.capacity - 8, 8, 0), S_OK, "%s of the last sectors succeeds", name);
        check_status(disk_range(0, type, disk.capacity - 8, 16, 0), S_IOERR, "%s over the end is refused", name);
        check_status(disk_range(0, type, disk.capacity, 8, 0), S_IOERR, "%s behind the end is refused", name);
        check_status(disk_range(0, type, ~0ull - 7, 8, 0), S_IOERR, "%s at the last sector of all is refused", name);
        check_status(disk_range(0, type, ~0ull - 7, 16, 0), S_IOERR, "%s of a range that wraps is refused", name);
        /* Modulo 2^64, its address in bytes is that of START. */
        check_status(disk_range(0, type, (1ull << 55) + START, 8, 0), S_IOERR,
                     "%s of a wrapping address is refused", name);
        check_status(disk_range(0, type, START, most[i] + 8, 0), S_IOERR, "%s of more than the most is refused", name);
        check_status(disk_range(0, type, START, 0xffffffff, 0), S_IOERR, "%s of 2^32-1 sectors is refused", name);
    }
    read_data();
    report(data_is(area, BYTES, seed), "the data is as it was");
}

/* The longest range that may be asked for at once, or the disk without its first block if that is less. */
static void longest(void)
{
    u32 most = MIN(config_read(CONFIG_MAX_WRITE_ZEROES_SECTORS), disk.capacity - 8);
    u32 most_discard = MIN(config_read(CONFIG_MAX_DISCARD_SECTORS), disk.capacity - 8);
    /* The first and the last block of that range. */
    u64 blocks[] = { 8, most };
    for (unsigned i = 0; i < ARRAY_SIZE(blocks); i++) {
        data_fill(area, PAGE_BYTES, fresh_seed());
        assert(disk_write(0, blocks[i], area, PAGE_BYTES).status == S_OK);
    }
    check_status(disk_range(0, T_WRITE_ZEROES, 8, most, 0), S_OK, "the longest write zeroes succeeds");
    bool zero = true;
    for (unsigned i = 0; i < ARRAY_SIZE(blocks); i++) {
        assert(disk_read(0, blocks[i], area, PAGE_BYTES).status == S_OK);
        zero = zero && all_bytes_are(area, PAGE_BYTES, 0);
    }
    report(zero, "its first and its last block read as zeroes");
    check_status(disk_range(0, T_DISCARD, 8, most_discard, 0), S_OK, "the longest discard succeeds");
}

/* The data must be exactly one range, because the device accepts one range at a time. */
static void layouts(void)
{
    static struct range ranges[2];
    static const u32 types[] = { T_DISCARD, T_WRITE_ZEROES };
    static const char *const names[] = { "discard", "write zeroes" };
    write_data();
    for (unsigned i = 0; i < ARRAY_SIZE(types); i++) {
        u32 type = types[i];
        const char *name = names[i];
        ranges[0] = (struct range) { .sector = START + SECTORS, .sectors = 8 };
        ranges[1] = (struct range) { .sector = START + SECTORS + 8, .sectors = 8 };
        struct descriptor data = readable(ranges, sizeof(ranges));
        check_status(disk_request(0, type, 0, &data, 1), S_UNSUPP, "%s of two ranges is unsupported", name);
        check_status(disk_request(0, type, 0, NULL, 0), S_IOERR, "%s without a range is refused", name);
        data.length = 8;
        check_status(disk_request(0, type, 0, &data, 1), S_IOERR, "%s with half a range is refused", name);
        struct descriptor parts[] = {
            readable(&ranges[0], 3), readable((u8 *)&ranges[0] + 3, 9), readable((u8 *)&ranges[0] + 12, 4)
        };
        check_status(disk_request(0, type, 0, parts, 3), S_OK, "%s with its range in three parts succeeds", name);
        struct descriptor together[] = { readable(area + BYTES, 32), writable(&one.status, 1) };
        request_init(&one, type, 0);
        memcpy(area + BYTES, &one.header, 16);
        memcpy(area + BYTES + 16, &ranges[0], 16);
        check_status(one_send(0, together, 2), S_OK, "%s with header and range in one buffer succeeds", name);
    }
    read_data();
    report(data_is(area, BYTES, seed), "the data is as it was");
}

static const struct test_case cases[] = {
    { "write-zeroes", write_zeroes },
    { "discard", discard },
    { "nothing", nothing },
    { "flags", flags },
    { "bounds", bounds },
    { "longest", longest },
    { "layouts", layouts },
};

int main(int argument_count, char **arguments)
{
    return RUN_SUITE("ranges", cases);
}

/* A disk of 4 KiB blocks: sectors are 512 bytes all the same, requests are whole blocks (virtio 1.2, 5.2.5, 5.2.6). */
#include "suite.h"

#define BLOCK 4096u
#define SECTOR 64u

static void configuration(void)
{
    report(disk.block_bytes == BLOCK, "the block size is 4096");
    report(disk.capacity % 8 == 0, "the capacity, in sectors, is whole blocks");
    report(config_read(CONFIG_DISCARD_ALIGNMENT) % 8 == 0, "discards are aligned to blocks");
}

static void transfers(void)
{
    static const struct {
        u32 sector, bytes;
        const char *name;
    } odd[] = {
        { SECTOR, 512, "a sector" },
        { SECTOR, 2048, "half a block" },
        { SECTOR, BLOCK + 512, "a block and a sector" },
        { SECTOR + 1, BLOCK, "a block's length from its second sector" },
        { SECTOR + 7, 512, "the last sector of a block" },
        { SECTOR + 4, 2 * BLOCK, "two blocks' length from the middle" },
    };
    u64 seed = fresh_seed();
    data_fill(area, 3 * BLOCK, seed);
    check_outcome(disk_write(0, SECTOR, area, 3 * BLOCK), S_OK, 1, "blocks are written");
    for (unsigned i = 0; i < ARRAY_SIZE(odd); i++) {
        memset(area, 0x55, 3 * BLOCK);
        check_status(disk_read(0, odd[i].sector, area, odd[i].bytes), S_IOERR, "%s is not read", odd[i].name);
        check_status(disk_write(0, odd[i].sector, area, odd[i].bytes), S_IOERR, "%s is not written", odd[i].name);
    }
    memset(area, 0, 3 * BLOCK);
    check_outcome(disk_read(1, SECTOR, area, 3 * BLOCK), S_OK, 3 * BLOCK + 1, "blocks are read");
    report(data_is(area, 3 * BLOCK, seed), "the data comes back");
    check_status(disk_read(0, SECTOR + 8, area, BLOCK), S_OK, "the second block is read");
    report(data_is_from(area, BLOCK, seed, BLOCK), "its data comes back");
}

static void ranges(void)
{
    static const struct {
        u32 first, sectors;
        const char *name;
    } odd[] = {
        { 0, 1, "a sector" },
        { 0, 9, "a block and a sector" },
        { 1, 8, "a block's length from its second sector" },
        { 4, 8, "a block's length from the middle" },
    };
    u64 seed = fresh_seed();
    data_fill(area, 3 * BLOCK, seed);
    assert(disk_write(0, SECTOR, area, 3 * BLOCK).status == S_OK);
    for (unsigned i = 0; i < ARRAY_SIZE(odd); i++) {
        check_status(disk_range(0, T_WRITE_ZEROES, SECTOR + odd[i].first, odd[i].sectors, 0), S_IOERR,
                     "write zeroes of %s is refused", odd[i].name);
        check_status(disk_range(0, T_DISCARD, SECTOR + odd[i].first, odd[i].sectors, 0), S_IOERR,
                     "discard of %s is refused", odd[i].name);
    }
    assert(disk_read(0, SECTOR, area, 3 * BLOCK).status == S_OK);
    report(data_is(area, 3 * BLOCK, seed), "the data is as it was");
    check_status(disk_range(0, T_WRITE_ZEROES, SECTOR + 8, 8, 0), S_OK, "zeroes are written to a block");
    assert(disk_read(0, SECTOR, area, 3 * BLOCK).status == S_OK);
    report(all_bytes_are(area + BLOCK, BLOCK, 0), "the block reads as zeroes");
    bool others = data_is(area, BLOCK, seed) && data_is_from(area + 2 * BLOCK, BLOCK, seed, 2 * BLOCK);
    report(others, "those beside it do not");
}

static void ends(void)
{
    data_fill(area, BLOCK, fresh_seed());
    check_status(disk_write(0, disk.capacity - 8, area, BLOCK), S_OK, "the last block is written");
    check_status(disk_write(0, disk.capacity - 8, area, 2 * BLOCK), S_IOERR, "a write over the end is refused");
    check_status(disk_read(0, disk.capacity, area, BLOCK), S_IOERR, "a read behind the end is refused");
}

static const struct test_case cases[] = {
    { "configuration", configuration },
    { "transfers", transfers },
    { "ranges", ranges },
    { "ends", ends },
};

int main(int argument_count, char **arguments)
{
    return RUN_SUITE("blocks", cases);
}

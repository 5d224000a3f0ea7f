/* Data that can be told apart: every 8 bytes depend on a seed and their place. */
#ifndef DATA_H
#define DATA_H

#include "libcflat.h"

/* A seed that was not used before. */
static inline u64 fresh_seed(void)
{
    static u64 last;
    return ++last;
}

static inline u64 data_word(u64 seed, u64 at)
{
    u64 word = (seed << 40) + at + 1;
    word *= 0x9e3779b97f4a7c15;
    return word ^ word >> 29;
}

/*
 * Fills a buffer with the data of a seed, from `offset` bytes after their start on. Buffers need not be aligned. Their
 * length is a multiple of 8.
 */
static inline void data_fill_from(void *data, u32 bytes, u64 seed, u32 offset)
{
    for (u32 at = 0; at < bytes; at += 8) {
        u64 word = data_word(seed, offset + at);
        __builtin_memcpy((char *)data + at, &word, sizeof(word));
    }
}

static inline void data_fill(void *data, u32 bytes, u64 seed)
{
    data_fill_from(data, bytes, seed, 0);
}

static inline bool data_is_from(const void *data, u32 bytes, u64 seed, u32 offset)
{
    for (u32 at = 0; at < bytes; at += 8) {
        u64 word;
        __builtin_memcpy(&word, (const char *)data + at, sizeof(word));
        if (word != data_word(seed, offset + at))
            return false;
    }
    return true;
}

static inline bool data_is(const void *data, u32 bytes, u64 seed)
{
    return data_is_from(data, bytes, seed, 0);
}

static inline bool all_bytes_are(const volatile void *data, u32 bytes, u8 value)
{
    for (u32 at = 0; at < bytes; at++) {
        if (((const volatile u8 *)data)[at] != value)
            return false;
    }
    return true;
}

#endif

/* What the rings of both formats have in common. */
#ifndef DESCRIPTOR_H
#define DESCRIPTOR_H

#include "virtio.h"

#define RING_SIZE_MAX 1024

enum { DESC_NEXT = 1, DESC_WRITE = 2, DESC_INDIRECT = 4 };

/* A descriptor as in a split ring. Tests describe their chains with it for both formats. */
struct descriptor {
    u64 address;
    u32 length;
    u16 flags;
    u16 next;
};

struct used_entry {
    u32 id;
    u32 length;
};

static inline struct descriptor readable(const volatile void *data, u32 length)
{
    return (struct descriptor) { .address = virt_to_phys((const void *)data), .length = length };
}

static inline struct descriptor writable(volatile void *data, u32 length)
{
    return (struct descriptor) { .address = virt_to_phys((const void *)data), .length = length, .flags = DESC_WRITE };
}

#endif

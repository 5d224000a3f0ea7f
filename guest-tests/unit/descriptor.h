/* What the rings of both formats have in common. */
#ifndef DESCRIPTOR_H
#define DESCRIPTOR_H

#include "virtio.h"

#define RING_SIZE_MAX 1024

enum { DESC_NEXT = 1, DESC_WRITE = 2, DESC_INDIRECT = 4 };

/* As a split ring has it. Tests write their chains with it for either format. */
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

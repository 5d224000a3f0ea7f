/* The declarations that the files of the runtime share. */
#ifndef RUNTIME_H
#define RUNTIME_H

#include "libcflat.h"

/* The information that a multiboot loader passes (multiboot 0.6.96, 3.3), as far as it is used. */
struct multiboot_info {
    u32 flags;
    u32 memory_lower_kib;
    u32 memory_upper_kib; /* from 1 MiB on */
    u32 boot_device;
    u32 command_line;
};

void vprintf(const char *format, va_list arguments);
void use_memory_up_to(u64 end);

#endif

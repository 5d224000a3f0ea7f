/* Ports, device memory and addresses. */
#ifndef ASM_IO_H
#define ASM_IO_H

#include "libcflat.h"

#define __iomem

static inline u8 inb(unsigned long port)
{
    u8 value;
    asm volatile("inb %w1, %0" : "=a"(value) : "Nd"((u16)port));
    return value;
}

static inline u16 inw(unsigned long port)
{
    u16 value;
    asm volatile("inw %w1, %0" : "=a"(value) : "Nd"((u16)port));
    return value;
}

static inline u32 inl(unsigned long port)
{
    u32 value;
    asm volatile("inl %w1, %0" : "=a"(value) : "Nd"((u16)port));
    return value;
}

static inline void outb(u8 value, unsigned long port)
{
    asm volatile("outb %0, %w1" : : "a"(value), "Nd"((u16)port));
}

static inline void outw(u16 value, unsigned long port)
{
    asm volatile("outw %0, %w1" : : "a"(value), "Nd"((u16)port));
}

static inline void outl(u32 value, unsigned long port)
{
    asm volatile("outl %0, %w1" : : "a"(value), "Nd"((u16)port));
}

/* x86 keeps accesses to device memory in order; only the compiler has to be told. */
#define DEVICE_ACCESS(letter, type)                                     \
    static inline type read##letter(const volatile void *address)       \
    {                                                                   \
        type value = *(const volatile type *)address;                   \
        barrier();                                                      \
        return value;                                                   \
    }                                                                   \
    static inline void write##letter(type value, volatile void *address) \
    {                                                                   \
        barrier();                                                      \
        *(volatile type *)address = value;                              \
    }

DEVICE_ACCESS(b, u8)
DEVICE_ACCESS(w, u16)
DEVICE_ACCESS(l, u32)

static inline unsigned long virt_to_phys(const void *address)
{
    return (unsigned long)address;
}

static inline void *ioremap(phys_addr_t address, size_t bytes)
{
    assert(address + bytes <= 1ul << 32);
    return (void *)address;
}

#endif

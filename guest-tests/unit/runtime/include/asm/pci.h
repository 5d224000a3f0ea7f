/* Configuration space through the address and data ports. */
#ifndef ASM_PCI_H
#define ASM_PCI_H

#include <pci.h>

#include "asm/io.h"

static inline void pci_config_select(pcidevaddr_t dev, u8 offset)
{
    outl(0x80000000u | (u32)dev << 8 | (offset & ~3u), 0xcf8);
}

static inline u8 pci_config_readb(pcidevaddr_t dev, u8 offset)
{
    pci_config_select(dev, offset);
    return inb(0xcfc + (offset & 3));
}

static inline u16 pci_config_readw(pcidevaddr_t dev, u8 offset)
{
    pci_config_select(dev, offset);
    return inw(0xcfc + (offset & 2));
}

static inline u32 pci_config_readl(pcidevaddr_t dev, u8 offset)
{
    pci_config_select(dev, offset);
    return inl(0xcfc);
}

static inline void pci_config_writew(pcidevaddr_t dev, u8 offset, u16 value)
{
    pci_config_select(dev, offset);
    outw(value, 0xcfc + (offset & 2));
}

#endif

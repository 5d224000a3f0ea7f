/* Finding a device on bus 0, its BARs and capabilities. */
#include <linux/pci_regs.h>

#include "asm/pci.h"

#define DEVICES 256
#define CAPABILITIES_MAX 64
#define BAR_FLAGS 0xf

pcidevaddr_t pci_find_dev(u16 vendor, u16 device)
{
    for (unsigned bdf = 0; bdf < DEVICES; bdf++) {
        if (pci_config_readw(bdf, PCI_VENDOR_ID) == vendor && pci_config_readw(bdf, PCI_DEVICE_ID) == device)
            return bdf;
    }
    return PCIDEVADDR_INVALID;
}

/* The firmware has placed the BARs; those of I/O ports are not used here. */
void pci_dev_init(struct pci_dev *dev, pcidevaddr_t bdf)
{
    dev->bdf = bdf;
    for (int bar = 0; bar < PCI_BAR_NUM; bar++) {
        u32 low = pci_config_readl(bdf, PCI_BASE_ADDRESS_0 + 4 * bar);
        dev->resource[bar] = low & ~(u64)BAR_FLAGS;
        if (low & PCI_BASE_ADDRESS_MEM_TYPE_64 && bar + 1 < PCI_BAR_NUM) {
            dev->resource[bar] |= (u64)pci_config_readl(bdf, PCI_BASE_ADDRESS_0 + 4 * (bar + 1)) << 32;
            bar++;
        }
    }
}

void pci_cmd_set_clr(struct pci_dev *dev, u16 set, u16 clear)
{
    u16 command = pci_config_readw(dev->bdf, PCI_COMMAND);
    pci_config_writew(dev->bdf, PCI_COMMAND, (command | set) & ~clear);
}

void pci_cap_walk(struct pci_dev *dev, pci_cap_handler_t handler)
{
    u8 offset = pci_config_readb(dev->bdf, PCI_CAPABILITY_LIST);
    for (int count = 0; offset != 0 && count < CAPABILITIES_MAX; count++) {
        handler(dev, offset, pci_config_readb(dev->bdf, offset));
        offset = pci_config_readb(dev->bdf, offset + 1);
    }
}

phys_addr_t pci_bar_get_addr(struct pci_dev *dev, int bar)
{
    return dev->resource[bar];
}

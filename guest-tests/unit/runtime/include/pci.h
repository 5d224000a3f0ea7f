/* PCI devices of bus 0. */
#ifndef PCI_H
#define PCI_H

#include "libcflat.h"

#define PCI_BAR_NUM 6

typedef u16 pcidevaddr_t;
enum { PCIDEVADDR_INVALID = 0xffff };

struct pci_dev {
    u16 bdf;
    phys_addr_t resource[PCI_BAR_NUM];
};

typedef void (*pci_cap_handler_t)(struct pci_dev *dev, int offset, int id);

pcidevaddr_t pci_find_dev(u16 vendor, u16 device);
void pci_dev_init(struct pci_dev *dev, pcidevaddr_t bdf);
void pci_cmd_set_clr(struct pci_dev *dev, u16 set, u16 clear);
void pci_cap_walk(struct pci_dev *dev, pci_cap_handler_t handler);
phys_addr_t pci_bar_get_addr(struct pci_dev *dev, int bar);

#endif

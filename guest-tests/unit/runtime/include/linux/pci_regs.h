/* Configuration space (PCI 3.0, 6). */
#ifndef PCI_REGS_H
#define PCI_REGS_H

#define PCI_VENDOR_ID 0x00
#define PCI_DEVICE_ID 0x02
#define PCI_COMMAND 0x04
#define PCI_COMMAND_MEMORY 0x2
#define PCI_COMMAND_MASTER 0x4
#define PCI_BASE_ADDRESS_0 0x10
#define PCI_BASE_ADDRESS_MEM_TYPE_64 0x04
#define PCI_CAPABILITY_LIST 0x34
#define PCI_CAP_ID_VNDR 0x09

#endif

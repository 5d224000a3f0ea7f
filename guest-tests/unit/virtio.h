/*
 * Finds and sets up a virtio device on PCI (virtio 1.2, 4.1). In all headers everything is static, because a test is
 * one translation unit, in kvm-unit-tests too.
 */
#ifndef VIRTIO_H
#define VIRTIO_H

#include "libcflat.h"

#include <linux/pci_regs.h>

#include "asm/barrier.h"
#include "asm/io.h"
#include "pci.h"
/* After the former: kvm-unit-tests' own finds itself in its place otherwise. */
#include "asm/pci.h"
#include "vm.h"

#define VIRTIO_VENDOR 0x1af4
#define VIRTIO_MODERN_DEVICE 0x1040

/* Structures that a capability points to (4.1.4). */
enum { CAP_COMMON = 1, CAP_NOTIFY = 2, CAP_ISR = 3, CAP_DEVICE = 4, CAP_TYPES = 5 };
/* Offsets in the capability. */
enum { CAP_TYPE = 3, CAP_BAR = 4, CAP_OFFSET = 8, CAP_LENGTH = 12, CAP_NOTIFY_MULTIPLIER = 16 };

/* Offsets in the common configuration (4.1.4.3). */
enum {
    COMMON_DEVICE_FEATURE_SELECT = 0,
    COMMON_DEVICE_FEATURE = 4,
    COMMON_DRIVER_FEATURE_SELECT = 8,
    COMMON_DRIVER_FEATURE = 12,
    COMMON_NUM_QUEUES = 18,
    COMMON_STATUS = 20,
    COMMON_QUEUE_SELECT = 22,
    COMMON_QUEUE_SIZE = 24,
    COMMON_QUEUE_ENABLE = 28,
    COMMON_QUEUE_NOTIFY_OFFSET = 30,
    COMMON_QUEUE_DESCRIPTORS = 32,
    COMMON_QUEUE_AVAILABLE = 40,
    COMMON_QUEUE_USED = 48,
};

/* Device status (2.1). */
enum { STATUS_ACKNOWLEDGE = 1, STATUS_DRIVER = 2, STATUS_DRIVER_OK = 4, STATUS_FEATURES_OK = 8 };

/* Features of every device (6). */
#define F_INDIRECT_DESC (1ull << 28)
#define F_EVENT_IDX (1ull << 29)
#define F_VERSION_1 (1ull << 32)
#define F_RING_PACKED (1ull << 34)

/* The format of the rings: F_RING_PACKED, or 0 for split rings. It is negotiated in addition to the wanted features. */
static u64 ring_format;

struct virtio {
    struct pci_dev pci;
    /* The structures, by type; null if the device has none. */
    volatile u8 *part[CAP_TYPES];
    /* The address of the common configuration, for tests in which the device takes it for memory. */
    phys_addr_t common_address;
    u32 notify_multiplier;
    /* Features offered and taken. */
    u64 offered, taken;
};

/* Seconds that have passed since some moment, by the real-time clock. */
static inline unsigned seconds_now(void)
{
    static unsigned seconds;
    static u8 last;
    outb(0, 0x70);
    u8 now = inb(0x71);
    if (now != last)
        seconds++;
    last = now;
    return seconds;
}

/* How long the device may take for anything. The second under way at the start does not count. */
static unsigned timeout_seconds = 20;

struct deadline {
    unsigned start, looks;
};

static inline struct deadline deadline_start(void)
{
    return (struct deadline) { .start = seconds_now() };
}

/*
 * Whether the time is over. Pauses, because callers ask in a loop. Does not read the clock at each call, because it is
 * slow.
 */
static inline bool deadline_passed(struct deadline *deadline)
{
    cpu_relax();
    return ++deadline->looks % 1024 == 0 && seconds_now() - deadline->start > timeout_seconds;
}

static inline void virtio_take_capability(struct pci_dev *pci, int at, int id)
{
    struct virtio *virtio = container_of(pci, struct virtio, pci);
    if (id != PCI_CAP_ID_VNDR)
        return;
    u8 type = pci_config_readb(pci->bdf, at + CAP_TYPE);
    /* The device prefers the first structure of a type. */
    if (type >= CAP_TYPES || virtio->part[type])
        return;
    u8 bar = pci_config_readb(pci->bdf, at + CAP_BAR);
    phys_addr_t start = pci_bar_get_addr(pci, bar) + pci_config_readl(pci->bdf, at + CAP_OFFSET);
    virtio->part[type] = ioremap(start, pci_config_readl(pci->bdf, at + CAP_LENGTH));
    if (type == CAP_COMMON)
        virtio->common_address = start;
    if (type == CAP_NOTIFY)
        virtio->notify_multiplier = pci_config_readl(pci->bdf, at + CAP_NOTIFY_MULTIPLIER);
}

/* Finds the first device of a type. Returns false if there is none. */
static inline bool virtio_find(struct virtio *virtio, u16 type)
{
    setup_vm();
    pcidevaddr_t bdf = pci_find_dev(VIRTIO_VENDOR, VIRTIO_MODERN_DEVICE + type);
    if (bdf == PCIDEVADDR_INVALID)
        return false;
    pci_dev_init(&virtio->pci, bdf);
    pci_cmd_set_clr(&virtio->pci, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER, 0);
    pci_cap_walk(&virtio->pci, virtio_take_capability);
    for (int part = CAP_COMMON; part < CAP_TYPES; part++) {
        if (!virtio->part[part])
            return false;
    }
    return true;
}

static inline u8 virtio_status(struct virtio *virtio)
{
    return readb(virtio->part[CAP_COMMON] + COMMON_STATUS);
}

static inline void virtio_add_status(struct virtio *virtio, u8 status)
{
    writeb(virtio_status(virtio) | status, virtio->part[CAP_COMMON] + COMMON_STATUS);
}

/* Resets the device (2.4). Returns false if the reset does not end in time. */
static inline bool virtio_reset(struct virtio *virtio)
{
    writeb(0, virtio->part[CAP_COMMON] + COMMON_STATUS);
    struct deadline deadline = deadline_start();
    while (virtio_status(virtio) != 0) {
        if (deadline_passed(&deadline))
            return false;
    }
    return true;
}

/* The first half of the set-up after a reset (3.1.1, up to step 6). Takes the features of `wanted` that are offered. */
static inline bool virtio_negotiate(struct virtio *virtio, u64 wanted)
{
    volatile u8 *common = virtio->part[CAP_COMMON];
    virtio_add_status(virtio, STATUS_ACKNOWLEDGE);
    virtio_add_status(virtio, STATUS_DRIVER);
    virtio->offered = 0;
    for (int half = 0; half < 2; half++) {
        writel(half, common + COMMON_DEVICE_FEATURE_SELECT);
        virtio->offered |= (u64)readl(common + COMMON_DEVICE_FEATURE) << (32 * half);
    }
    virtio->taken = virtio->offered & ((wanted & ~F_RING_PACKED) | ring_format);
    for (int half = 0; half < 2; half++) {
        u32 taken = virtio->taken >> (32 * half);
        writel(half, common + COMMON_DRIVER_FEATURE_SELECT);
        writel(taken, common + COMMON_DRIVER_FEATURE);
    }
    virtio_add_status(virtio, STATUS_FEATURES_OK);
    return virtio_status(virtio) & STATUS_FEATURES_OK;
}

static inline void virtio_write_address(struct virtio *virtio, int at, u64 address)
{
    u32 low = address, high = address >> 32;
    writel(low, virtio->part[CAP_COMMON] + at);
    writel(high, virtio->part[CAP_COMMON] + at + 4);
}

/* Reads the ISR status, which clears it. Bit 0 says that a queue has asked for an interrupt since then (4.1.4.5). */
static inline u8 virtio_take_isr(struct virtio *virtio)
{
    return readb(virtio->part[CAP_ISR]);
}

#endif

/*
 * Preloaded into linux.uml, for two things that Linux in user mode (6.1) does not get right itself.
 *
 * Where the processor has AMX, the registers of a process are more than it has heard of, the host refuses to have a
 * part of them set, and the first process of the guest dies. Here the rest is set, too: to 0, which is what it is, as
 * no process of the guest may use it.
 *
 * Its SET_MEM_TABLE is always as long as one of two regions, also with one. Back-ends that use rust-vmm's crate vhost
 * (0.18), as this daemon, take no message with more in it than it says. Here it is as long as it should be.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#define SET_MEM_TABLE 5
#define REGION_BYTES 32

/* What a vhost-user message begins with; this one with its first field. */
struct mem_table {
    uint32_t request, flags, size;
    uint32_t regions, padding;
};

/* AMX makes it 11008 bytes. The host takes as many of these as there are. */
static char all_registers[16384];

long ptrace(enum __ptrace_request request, ...)
{
    static long (*next)(enum __ptrace_request request, ...);
    struct iovec wide = { .iov_base = all_registers, .iov_len = sizeof(all_registers) };
    va_list arguments;
    va_start(arguments, request);
    pid_t process = va_arg(arguments, pid_t);
    void *address = va_arg(arguments, void *);
    void *data = va_arg(arguments, void *);
    va_end(arguments);
    if (!next)
        next = (long (*)(enum __ptrace_request, ...))dlsym(RTLD_NEXT, "ptrace");
    if (request == PTRACE_SETREGSET && (long)address == NT_X86_XSTATE) {
        const struct iovec *known = data;
        if (known->iov_len < sizeof(all_registers)) {
            memcpy(all_registers, known->iov_base, known->iov_len);
            data = &wide;
        }
    }
    return next(request, process, address, data);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    static ssize_t (*next)(int fd, const struct msghdr *message, int flags);
    if (!next)
        next = (ssize_t (*)(int, const struct msghdr *, int))dlsym(RTLD_NEXT, "sendmsg");
    struct mem_table *table = message->msg_iov[0].iov_base;
    size_t given = message->msg_iov[0].iov_len;
    if (given < sizeof(*table) || table->request != SET_MEM_TABLE)
        return next(fd, message, flags);
    size_t header = offsetof(struct mem_table, regions);
    table->size = sizeof(*table) - header + table->regions * REGION_BYTES;
    message->msg_iov[0].iov_len = header + table->size;
    ssize_t sent = next(fd, message, flags);
    /* What was left out counts as sent. */
    return sent < 0 ? sent : (ssize_t)given;
}

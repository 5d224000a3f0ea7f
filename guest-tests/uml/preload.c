/*
 * Preloaded into linux.uml, to work around a fault of Linux in user mode (6.1).
 *
 * On a processor with AMX, a process has more registers than Linux in user mode knows. The host refuses to set only a
 * part of them, so the first process of the guest would die. This sets the other registers too. Their value is 0,
 * because no process of the guest may use them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

/* With AMX, the registers take 11008 bytes. The host takes the number of bytes that it needs. */
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

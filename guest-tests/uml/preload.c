/*
 * Preloaded into linux.uml, for what Linux in user mode (6.1) does not get right itself.
 *
 * Where the processor has AMX, the registers of a process are more than it has heard of, the host refuses to have a
 * part of them set, and the first process of the guest dies. Here the rest is set, too: to 0, which is what it is, as
 * no process of the guest may use it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

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

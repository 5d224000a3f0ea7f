/* Between the loader and the test: memory, arguments, the exit code. */
#include "asm/io.h"
#include "runtime.h"

#define ARGUMENTS_MAX 16
#define EXIT_PORT 0xf4
#define ABORTED 127

int main(int count, char **arguments);
int setup(struct multiboot_info *info);

/* Cuts the command line into words, in place. The first is the kernel's file, as QEMU has it. */
static int split(char *line, char **words)
{
    int count = 0;
    while (count < ARGUMENTS_MAX) {
        while (*line == ' ')
            line++;
        if (*line == '\0')
            break;
        words[count++] = line;
        while (*line != ' ' && *line != '\0')
            line++;
        if (*line == ' ')
            *line++ = '\0';
    }
    return count;
}

int setup(struct multiboot_info *info)
{
    static char *arguments[ARGUMENTS_MAX];
    /* The firmware keeps its tables in the last MiB. */
    use_memory_up_to(info->memory_upper_kib * 1024ul);
    int count = split((char *)(u64)info->command_line, arguments);
    return main(count, arguments);
}

/* QEMU's isa-debug-exit ends QEMU with the exit code `code * 2 + 1`. */
void exit(int code)
{
    outl(code, EXIT_PORT);
    for (;;)
        asm volatile("cli; hlt");
}

void abort(void)
{
    exit(ABORTED);
}

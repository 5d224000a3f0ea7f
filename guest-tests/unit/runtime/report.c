/* Verdicts, in the format of kvm-unit-tests: "PASS: prefix: text", at the end "SUMMARY: n tests, …". */
#include "runtime.h"

#define PREFIXES_MAX 8
/* The exit code of kvm-unit-tests if nothing was tested. */
#define ALL_SKIPPED (77 >> 1)

static const char *prefixes[PREFIXES_MAX];
static unsigned prefix_count, tests, failures, skipped;

void report_prefix_push(const char *prefix)
{
    assert(prefix_count < PREFIXES_MAX);
    prefixes[prefix_count++] = prefix;
}

void report_prefix_pop(void)
{
    assert(prefix_count > 0);
    prefix_count--;
}

static void line(const char *verdict, const char *format, va_list arguments)
{
    printf("%s: ", verdict);
    for (unsigned i = 0; i < prefix_count; i++)
        printf("%s: ", prefixes[i]);
    vprintf(format, arguments);
    printf("\n");
}

bool report(bool pass, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    line(pass ? "PASS" : "FAIL", format, arguments);
    va_end(arguments);
    tests++;
    if (!pass)
        failures++;
    return pass;
}

void report_skip(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    line("SKIP", format, arguments);
    va_end(arguments);
    tests++;
    skipped++;
}

void report_info(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    line("INFO", format, arguments);
    va_end(arguments);
}

int report_summary(void)
{
    printf("SUMMARY: %u tests", tests);
    if (failures > 0)
        printf(", %u unexpected failures", failures);
    if (skipped > 0)
        printf(", %u skipped", skipped);
    printf("\n");
    if (tests == skipped)
        return ALL_SKIPPED;
    return failures > 0;
}

/* The part of kvm-unit-tests' libcflat.h that the tests use. */
#ifndef LIBCFLAT_H
#define LIBCFLAT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef u64 phys_addr_t;

#define PRIx64 "lx"
#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define container_of(pointer, type, member) ((type *)((char *)(pointer) - offsetof(type, member)))
#define barrier() asm volatile("" : : : "memory")

size_t strlen(const char *text);
int strcmp(const char *a, const char *b);
int strncmp(const char *a, const char *b, size_t bytes);
void *memcpy(void *to, const void *from, size_t bytes);
void *memset(void *to, int value, size_t bytes);
int memcmp(const void *a, const void *b, size_t bytes);
long atol(const char *text);

int printf(const char *format, ...) __attribute__((format(printf, 1, 2)));
void exit(int code) __attribute__((noreturn));
void abort(void) __attribute__((noreturn));

bool report(bool pass, const char *format, ...) __attribute__((format(printf, 2, 3)));
void report_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
void report_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void report_prefix_push(const char *prefix);
void report_prefix_pop(void);
int report_summary(void);

#define assert(condition)                                                                \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            printf("%s:%d: assert failed: %s\n", __FILE__, __LINE__, #condition);        \
            abort();                                                                     \
        }                                                                                \
    } while (0)

#endif

/* The functions of <string.h> that the compiler, the tests and the runtime need. */
#include "runtime.h"

size_t strlen(const char *text)
{
    size_t length = 0;
    while (text[length] != '\0')
        length++;
    return length;
}

int strcmp(const char *a, const char *b)
{
    return strncmp(a, b, SIZE_MAX);
}

int strncmp(const char *a, const char *b, size_t bytes)
{
    for (; bytes > 0; a++, b++, bytes--) {
        if (*a != *b || *a == '\0')
            return (u8)*a - (u8)*b;
    }
    return 0;
}

void *memcpy(void *to, const void *from, size_t bytes)
{
    void *at = to;
    asm volatile("rep movsb" : "+D"(at), "+S"(from), "+c"(bytes) : : "memory");
    return to;
}

void *memset(void *to, int value, size_t bytes)
{
    void *at = to;
    asm volatile("rep stosb" : "+D"(at), "+c"(bytes) : "a"(value) : "memory");
    return to;
}

int memcmp(const void *a, const void *b, size_t bytes)
{
    const u8 *left = a, *right = b;
    for (size_t i = 0; i < bytes; i++) {
        if (left[i] != right[i])
            return left[i] - right[i];
    }
    return 0;
}

long atol(const char *text)
{
    long value = 0;
    for (; *text >= '0' && *text <= '9'; text++)
        value = value * 10 + (*text - '0');
    return value;
}

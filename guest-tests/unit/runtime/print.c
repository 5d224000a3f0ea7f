/* printf on the first serial port. */
#include "asm/io.h"
#include "runtime.h"

#define SERIAL 0x3f8
#define LINE_STATUS (SERIAL + 5)
#define CAN_SEND 0x20
#define NUMBER_CHARS 24

static void put(char character)
{
    while (!(inb(LINE_STATUS) & CAN_SEND))
        ;
    outb(character, SERIAL);
}

static void put_string(const char *text)
{
    for (; *text != '\0'; text++)
        put(*text);
}

static void put_number(u64 number, unsigned base, int width, char pad)
{
    char digits[NUMBER_CHARS];
    int count = 0;
    do {
        digits[count++] = "0123456789abcdef"[number % base];
        number /= base;
    } while (number > 0);
    for (int i = count; i < width; i++)
        put(pad);
    while (count > 0)
        put(digits[--count]);
}

/* %c %s %d %u %x %%, with #, a width, padding by 0, l and z. */
void vprintf(const char *format, va_list arguments)
{
    for (; *format != '\0'; format++) {
        if (*format != '%') {
            put(*format);
            continue;
        }
        char pad = ' ';
        int width = 0;
        bool is_long = false, is_alternate = false;
        for (format++; *format == '#'; format++)
            is_alternate = true;
        if (*format == '0')
            pad = '0';
        for (; *format >= '0' && *format <= '9'; format++)
            width = width * 10 + (*format - '0');
        for (; *format == 'l' || *format == 'z'; format++)
            is_long = true;
        switch (*format) {
        case 'c':
            put(va_arg(arguments, int));
            break;
        case 's':
            put_string(va_arg(arguments, const char *));
            break;
        case 'd': {
            long number = is_long ? va_arg(arguments, long) : va_arg(arguments, int);
            if (number < 0)
                put('-');
            put_number(number < 0 ? -(u64)number : (u64)number, 10, width, pad);
            break;
        }
        case 'u':
        case 'x': {
            u64 number = is_long ? va_arg(arguments, u64) : va_arg(arguments, u32);
            if (is_alternate)
                put_string("0x");
            put_number(number, *format == 'x' ? 16 : 10, width, pad);
            break;
        }
        default:
            put(*format);
        }
    }
}

int printf(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    return 0;
}

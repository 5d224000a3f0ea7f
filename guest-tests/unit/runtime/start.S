/*
 * Leads from the state that a multiboot loader leaves (32-bit protected mode, no paging) to main() in 64-bit mode. The
 * first 4 GiB of addresses are mapped one to one. Interrupts stay off. An exception is a triple fault, which ends QEMU
 * with -no-reboot.
 */

#define MULTIBOOT_MAGIC 0x1BADB002
#define CR0_PAGING (1 << 31)
#define CR4_PAE (1 << 5)
#define EFER 0xC0000080
#define EFER_LONG_MODE (1 << 8)
#define PRESENT_WRITABLE 3
#define LARGE_PAGE (1 << 7)
#define TABLE_BYTES 4096
#define TABLES_OF_LARGE_PAGES 4
#define LARGE_PAGES (TABLES_OF_LARGE_PAGES * 512)

    .section .multiboot, "a"
    .long MULTIBOOT_MAGIC, 0, -MULTIBOOT_MAGIC

    .text
    .code32
    .globl start
start:
    mov $stack_top, %esp
    /* setup() takes the loader's information as its first argument. */
    mov %ebx, %edi

    /* One entry of the top table, four of the next, and for each of those a table of 2 MiB pages. */
    movl $(directory + PRESENT_WRITABLE), top_table
    mov $large_pages + PRESENT_WRITABLE, %eax
    xor %ecx, %ecx
1:  mov %eax, directory(, %ecx, 8)
    add $TABLE_BYTES, %eax
    inc %ecx
    cmp $TABLES_OF_LARGE_PAGES, %ecx
    jne 1b
    mov $(PRESENT_WRITABLE | LARGE_PAGE), %eax
    xor %ecx, %ecx
2:  mov %eax, large_pages(, %ecx, 8)
    add $0x200000, %eax
    inc %ecx
    cmp $LARGE_PAGES, %ecx
    jne 2b

    mov $top_table, %eax
    mov %eax, %cr3
    mov %cr4, %eax
    or $CR4_PAE, %eax
    mov %eax, %cr4
    mov $EFER, %ecx
    rdmsr
    or $EFER_LONG_MODE, %eax
    wrmsr
    mov %cr0, %eax
    or $CR0_PAGING, %eax
    mov %eax, %cr0
    lgdt gdt_pointer
    ljmp $8, $start64

    .code64
start64:
    xor %eax, %eax
    mov %ax, %ds
    mov %ax, %es
    mov %ax, %ss
    mov %edi, %edi
    call setup
    mov %eax, %edi
    call exit

    .section .rodata
    .balign 8
gdt:
    .quad 0
    .quad 0x00209A0000000000 /* 64-bit code */
gdt_end:
gdt_pointer:
    .word gdt_end - gdt - 1
    .long gdt

    .bss
    .balign TABLE_BYTES
top_table:
    .skip TABLE_BYTES
directory:
    .skip TABLE_BYTES
large_pages:
    .skip TABLES_OF_LARGE_PAGES * TABLE_BYTES
    .skip 65536
stack_top:

    .section .note.GNU-stack, "", @progbits

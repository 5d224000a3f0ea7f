/* kvm-unit-tests sets up paging and the page allocator in setup_vm(); here both are there from the start. */
#ifndef VM_H
#define VM_H

static inline void setup_vm(void)
{
}

#endif

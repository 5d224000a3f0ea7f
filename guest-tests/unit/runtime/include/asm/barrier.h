#ifndef ASM_BARRIER_H
#define ASM_BARRIER_H

#define mb() asm volatile("mfence" : : : "memory")
#define rmb() asm volatile("lfence" : : : "memory")
#define wmb() asm volatile("sfence" : : : "memory")

static inline void cpu_relax(void)
{
    asm volatile("pause" : : : "memory");
}

#endif

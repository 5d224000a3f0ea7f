/* Pages, handed out from the top of memory down. */
#include "alloc_page.h"
#include "runtime.h"

#define PAGE_BYTES 4096ul

extern char image_end[];

static u64 free_end;

void use_memory_up_to(u64 end)
{
    free_end = end;
}

void *alloc_pages(unsigned int order)
{
    u64 bytes = PAGE_BYTES << order;
    free_end = (free_end - bytes) & ~(bytes - 1);
    assert(free_end >= (u64)image_end);
    return memset((void *)free_end, 0, bytes);
}

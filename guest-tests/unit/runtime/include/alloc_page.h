/* Allocates memory that is never given back. */
#ifndef ALLOC_PAGE_H
#define ALLOC_PAGE_H

/* 2^order zeroed pages in a row, aligned to their size. */
void *alloc_pages(unsigned int order);

#endif

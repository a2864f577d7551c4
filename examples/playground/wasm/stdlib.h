/* Of the C library, what examples/world uses; a browser has none. */
#ifndef PLAYGROUND_STDLIB_H
#define PLAYGROUND_STDLIB_H
#include <stddef.h>
void *calloc(size_t n, size_t size);
void *realloc(void *p, size_t size);
void free(void *p);
void exit(int status) __attribute__((noreturn));
void qsort(void *base, size_t n, size_t size, int (*compare)(const void *, const void *));
#endif

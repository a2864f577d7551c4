#ifndef PLAYGROUND_STRING_H
#define PLAYGROUND_STRING_H
#include <stddef.h>
void *memcpy(void *to, const void *from, size_t n);
void *memmove(void *to, const void *from, size_t n);
void *memset(void *to, int value, size_t n);
int memcmp(const void *one, const void *other, size_t n);
#endif

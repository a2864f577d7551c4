// Base64 as RFC 4648 has it: whole groups of four letters, the last one filled with '='.
#include "common.h"
#include <string.h>

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(const void *data, size_t bytes, char *text)
{
    const unsigned char *from = data;
    size_t k;
    for (k = 0; k < bytes; k += 3) {
        const uint32_t second = k + 1 < bytes ? from[k + 1] : 0, third = k + 2 < bytes ? from[k + 2] : 0;
        const uint32_t group = (uint32_t)from[k] << 16 | second << 8 | third;
        *text++ = letters[group >> 18];
        *text++ = letters[group >> 12 & 63];
        *text++ = k + 1 < bytes ? letters[group >> 6 & 63] : '=';
        *text++ = k + 2 < bytes ? letters[group & 63] : '=';
    }
    *text = 0;
}

size_t base64_decode(const char *text, size_t bytes, void *data)
{
    unsigned char *to = data;
    uint32_t group = 0;
    size_t k, made = 0, used = bytes;
    while (used > 0 && bytes - used < 2 && text[used - 1] == '=')
        used--;
    if (bytes % 4)
        return 0;
    for (k = 0; k < used; k++) {
        const char *letter = text[k] ? strchr(letters, text[k]) : NULL;
        if (!letter)
            return 0;
        group = (group << 6 | (uint32_t)(letter - letters)) & 0xffffff;
        if (k % 4)
            to[made++] = (unsigned char)(group >> (6 - 2 * (k % 4)) & 0xff);
    }
    return made;
}

// Numbers with units for people: three significant digits.
#include "common.h"
#include <math.h>

static struct human scaled(double v, double base, const char *const *units, int count, const char *tail)
{
    struct human h;
    double a = fabs(v);
    int u = 0;
    while (u + 1 < count && a >= base * 0.9995) {
        a /= base;
        v /= base;
        u++;
    }
    snprintf(h.text, sizeof h.text, "%.*f%s%s",
             a >= 99.95 || (u == 0 && a == floor(a)) ? 0
             : a >= 9.995                            ? 1
                                                     : 2,
             v, units[u], tail);
    return h;
}

struct human human_bytes(double bytes)
{
    static const char *const units[] = {" B", " KiB", " MiB", " GiB", " TiB"};
    return scaled(bytes, 1024, units, 5, "");
}

struct human human_rate(double bytes_per_s)
{
    static const char *const units[] = {" B", " KiB", " MiB", " GiB", " TiB"};
    return scaled(bytes_per_s, 1024, units, 5, "/s");
}

struct human human_count(double count)
{
    static const char *const units[] = {"", " k", " M", " G"};
    return scaled(count, 1000, units, 4, "");
}

struct human human_ns(double ns)
{
    static const char *const units[] = {" ns", " us", " ms", " s"};
    return scaled(ns, 1000, units, 4, "");
}

struct human human_percent(double ratio)
{
    struct human h;
    snprintf(h.text, sizeof h.text, "%.1f %%", ratio * 100);
    return h;
}

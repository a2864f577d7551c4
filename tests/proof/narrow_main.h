/* narrow_main.h - every operand of the narrow product and division, against the machine's own: tests/build/narrow.sh. */

static void fail(const char *what, unsigned a, unsigned b, unsigned c)
{
    if (failures++ < 3)
        printf("%s: %x %x %x\n", what, a, b, c);
}

static void check_products(unsigned stride)
{
    unsigned a, b;
    for (a = 0; a <= WORD_MAX; a += stride)
        for (b = 0; b <= WORD_MAX; b++) {
            struct wide p = qos_mul_wide((word)a, (word)b);
            if (((unsigned)p.hi << 2 * DIGIT | p.lo) != a * b)
                fail("product", a, b, 0);
        }
}

#if DIGIT == 4
static void check_division(void)
{
    unsigned n, d;
    for (n = 0; n <= 0xffffu; n++)
        for (d = 0; d <= WORD_MAX; d++) {
            struct wide w = {(word)(n >> 2 * DIGIT), (word)(n & WORD_MAX)};
            word rem = 1, q = qos_div_wide(w, (word)d, &rem);
            bool fits = w.hi < d;
            if (q != (fits ? n / d : WORD_MAX) || rem != (fits ? n % d : 0))
                fail("division", n, d, q);
        }
}
#else
/* One step divides u21 * 2^DIGIT + u0 by v. The digit u0 is used in one comparison and in the remainder. So only those
 * of its values matter at which the quotient changes: the first, the last, and both sides of the change. */
static void check_step(unsigned u21, unsigned u0, unsigned v)
{
    unsigned n = u21 << DIGIT | u0;
    word rem = 0, q = (word)qos_priv_div_digit((word)u21, (word)u0, (word)v, &rem);
    if (q != n / v || rem != n % v)
        fail("step", u21, u0, v);
}

static void check_division_steps(unsigned stride)
{
    unsigned u21, v, q;
    for (v = (WORD_MAX >> 1) + 1; v <= WORD_MAX; v += stride)
        for (u21 = 0; u21 < v; u21++) {
            unsigned first = u21 << DIGIT, change;
            q = first / v + 1;
            change = q * v - first; /* the least u0 with the next quotient */
            check_step(u21, 0, v);
            check_step(u21, DIGIT_MASK, v);
            if (change <= DIGIT_MASK) {
                check_step(u21, change - 1, v);
                check_step(u21, change, v);
            }
        }
}
#endif

int main(int argc, char **argv)
{
    bool all = argc > 1 && strcmp(argv[1], "all") == 0;
    check_products(all || DIGIT == 4 ? 1 : 29);
#if DIGIT == 4
    check_division();
#else
    check_division_steps(all ? 1 : 151);
    if (!all)
        check_division_steps(255 * 128 + 1); /* the ends */
#endif
    printf("digits of %d bits%s: %lu failures\n", DIGIT, all ? ", all" : "", failures);
    return failures != 0;
}

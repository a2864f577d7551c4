/* explore.h - runs every interleaving of a few actors, stale values included. Include it before the headers, INSTEAD
 * of qos.h: it defines QOS_ATOMIC_HOOK, so all qos_atomic_* calls of the headers included after it come here.
 *
 * HOW TO USE IT
 *
 *     // proves: ...
 *     #include "interleave/explore.h"      // first
 *     #include "tokenpool.h"               // or tags.h, twochoice.h: a header that uses qos_atomic_*
 *
 *     static void setup(void) { ... }               // resets everything; may call the headers; is not scheduled
 *     static void actor(unsigned who) { ... }       // 0..actors-1; plain code that calls the headers
 *     static void check(void) { EXPLORE_CHECK(...); }  // after every execution that ran to its end
 *
 *     int main(void)
 *     {
 *         struct explore e = {.name = "two claims", .actors = 2, .setup = setup, .actor = actor, .check = check};
 *         check_begin("interleave/x");
 *         explore(&e);                     // prints executions explored; a broken EXPLORE_CHECK prints the execution
 *         return check_end();
 *     }
 *
 *   In an actor:
 *     explore_await(&word, old)  waits until the actor can read a value of `word` other than `old`; returns it.
 *                                Replaces polling loops, which would have endless executions. If all remaining
 *                                actors wait, a wake-up was lost: a failure.
 *     explore_choose(n)          0..n-1, each of them explored
 *     explore_dead(who)          (in check) whether the actor was killed. An actor in the mask .mortal is killed before
 *                                each of its atomic steps in turn; in some executions it is never killed
 *
 *   State that only one actor touches is plain C. State that several touch goes through qos_atomic_*. All state of a
 *   scenario is reset by setup. Variables of an actor on its stack die with it.
 *
 * WHAT IT EXPLORES
 *
 *   Steps are the atomic accesses; code between them belongs to the step before it. A load that is not part of a
 *   read-modify-write may also return older stores, as C11 allows. Each actor has a view: the oldest store of every
 *   word that it may still read. A release store carries its writer's view; an acquire load that reads it takes over
 *   that view. So a missing release or acquire shows on any machine. Bounds: a load returns one of the last `history`
 *   stores (default 4); stores enter the modification order when they are executed (two actors' plain stores to one
 *   word do not overtake each other); no load runs ahead of program order. A failing compare-and-swap is a load: it
 *   may read any of these values except the expected one. A sequentially consistent load reads no store before the
 *   last sequentially consistent one.
 *   Reduction: sleep sets (Godefroid 1996). Two steps are independent if they are on different words or both only
 *   read. Of executions that differ only in the order of independent steps one is completed. No states are dropped.
 */
#ifndef QOS_TESTS_EXPLORE_H
#define QOS_TESTS_EXPLORE_H

#define QOS_ATOMIC_HOOK 1
#include "qos.h"
#include "check.h"
#include <setjmp.h>
#include <ucontext.h>

#define EXPLORE_ACTORS 4
#define EXPLORE_WORDS 32
#define EXPLORE_STORES 96 /* stores to one word in one execution */
#define EXPLORE_STEPS 400 /* steps of one execution; more is a failure: no progress */
#define EXPLORE_DEPTH (4 * EXPLORE_STEPS)
#define EXPLORE_STACK (64 * 1024)

struct explore {
    const char *name;
    unsigned actors, mortal, history;
    void (*setup)(void);
    void (*actor)(unsigned who);
    void (*check)(void);
    void (*watch)(void); /* after each store, if it is not NULL: EXPLORE_CHECK, no atomics */
    /* results: executions run to the end; those cut short by sleep sets; steps */
    uint64_t executions, redundant, longest;
};

enum explore_kind { EXPLORE_LOAD, EXPLORE_STORE, EXPLORE_RMW };
struct explore_store {
    uint64_t value;
    bool carries; /* a release: carries its writer's view */
    bool ordered; /* sequentially consistent */
    uint16_t view[EXPLORE_WORDS];
};
struct explore_word {
    const qos_word_t *at;
    unsigned stores;
    struct explore_store store[EXPLORE_STORES];
};
struct explore_actor {
    ucontext_t context;
    jmp_buf base, resume;
    bool started, done, dead, awaits;
    enum explore_kind kind; /* of its next step */
    unsigned word;
    uint64_t await_old;
    uint16_t view[EXPLORE_WORDS];
};
struct explore_node { /* a decision: which actor (n == 0) or which of n values */
    unsigned chosen, n, enabled, sleep, explored;
};
struct explore_trace {
    unsigned who;
    char op;
    unsigned word, age;
    uint64_t value;
};

static struct {
    struct explore *e;
    struct explore_actor actor[EXPLORE_ACTORS];
    struct explore_word word[EXPLORE_WORDS];
    struct explore_node node[EXPLORE_DEPTH];
    struct explore_trace trace[EXPLORE_STEPS + 1];
    unsigned words, depth, at, current, sleep, steps;
    bool inside, failed;
    jmp_buf scheduler;
    ucontext_t main_context;
} explore_x;
static char explore_stack[EXPLORE_ACTORS][EXPLORE_STACK] __attribute__((aligned(64)));

static CHECK_UNUSED bool explore_dead(unsigned who)
{
    return explore_x.actor[who].dead;
}

static void explore_print(void)
{
    unsigned i;
    for (i = 0; i < explore_x.steps; i++) {
        struct explore_trace *t = &explore_x.trace[i];
        printf("      actor %u %s word %u value %#" PRIx64, t->who,
               t->op == 'L'   ? "load "
               : t->op == 'S' ? "store"
                              : "rmw  ",
               t->word, t->value);
        if (t->age)
            printf(" (%u stores old)", t->age);
        printf("\n");
    }
}

static void explore_switch(void)
{
    _longjmp(explore_x.scheduler, 1);
}

static void explore_fail(const char *file, int line, const char *what)
{
    explore_x.failed = true;
    printf("    scenario %s, execution %" PRIu64 ":\n", explore_x.e->name, explore_x.e->executions);
    explore_print();
    check_fail(file, line, what);
    if (explore_x.inside)
        explore_switch();
}

#define EXPLORE_CHECK(cond)                                                                                            \
    do {                                                                                                               \
        check_state.checks++;                                                                                          \
        if (!(cond))                                                                                                   \
            explore_fail(__FILE__, __LINE__, #cond);                                                                   \
    } while (0)

static unsigned explore_decide(unsigned n)
{
    struct explore_node *d;
    if (n == 1)
        return 0;
    if (explore_x.at == explore_x.depth) {
        d = &explore_x.node[explore_x.depth++];
        d->n = n;
        d->chosen = 0;
    }
    d = &explore_x.node[explore_x.at++];
    return d->chosen;
}

static CHECK_UNUSED unsigned explore_choose(unsigned n)
{
    return explore_decide(n);
}

static unsigned explore_word_of(const qos_word_t *w)
{
    unsigned i;
    for (i = 0; i < explore_x.words; i++)
        if (explore_x.word[i].at == w)
            return i;
    if (i == EXPLORE_WORDS) {
        printf("explore.h: more than %d words\n", EXPLORE_WORDS);
        exit(1);
    }
    explore_x.words++;
    explore_x.word[i].at = w;
    explore_x.word[i].stores = 1;
    explore_x.word[i].store[0].value = *w;
    explore_x.word[i].store[0].carries = false;
    return i;
}

/* Switches to the scheduler; returns when this actor's step is due. */
static struct explore_actor *explore_step(const qos_word_t *w, enum explore_kind kind, bool awaits, uint64_t old)
{
    struct explore_actor *a = &explore_x.actor[explore_x.current];
    a->kind = kind;
    a->word = explore_word_of(w);
    a->awaits = awaits;
    a->await_old = old;
    if (_setjmp(a->resume) == 0)
        explore_switch();
    a = &explore_x.actor[explore_x.current];
    if (explore_x.e->mortal >> explore_x.current & 1 && explore_decide(2) == 1) {
        a->dead = true;
        explore_switch();
    }
    return a;
}

static void explore_note(char op, unsigned word, uint64_t value, unsigned age)
{
    struct explore_trace *t = &explore_x.trace[explore_x.steps++];
    t->who = explore_x.current;
    t->op = op;
    t->word = word;
    t->value = value;
    t->age = age;
}

static void explore_join(uint16_t *view, const uint16_t *other)
{
    unsigned i;
    for (i = 0; i < EXPLORE_WORDS; i++)
        if (other[i] > view[i])
            view[i] = other[i];
}

static bool explore_acquires(int order)
{
    return order == __ATOMIC_ACQUIRE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST;
}

static bool explore_releases(int order)
{
    return order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST;
}

/* Oldest store that the actor may read: a sequentially consistent load reads the last such store, or a later one. */
static unsigned explore_oldest(const struct explore_actor *a, unsigned word, int order)
{
    const struct explore_word *w = &explore_x.word[word];
    unsigned stores = w->stores, history = explore_x.e->history, last = stores;
    unsigned oldest = stores > history ? stores - history : 0;
    while (order == __ATOMIC_SEQ_CST && --last > oldest)
        if (w->store[last].ordered)
            oldest = last;
    return a->view[word] > oldest ? a->view[word] : oldest;
}

static uint64_t explore_read(struct explore_actor *a, unsigned index, int order, char op)
{
    struct explore_word *w = &explore_x.word[a->word];
    a->view[a->word] = (uint16_t)index;
    if (explore_acquires(order) && w->store[index].carries)
        explore_join(a->view, w->store[index].view);
    explore_note(op, a->word, w->store[index].value, w->stores - 1 - index);
    return w->store[index].value;
}

static void explore_write(struct explore_actor *a, uint64_t v, int order, bool continues)
{
    struct explore_word *w = &explore_x.word[a->word];
    struct explore_store *s = &w->store[w->stores];
    if (w->stores == EXPLORE_STORES) {
        printf("explore.h: more than %d stores to one word\n", EXPLORE_STORES);
        exit(1);
    }
    a->view[a->word] = (uint16_t)w->stores++;
    s->value = v;
    s->carries = explore_releases(order);
    s->ordered = order == __ATOMIC_SEQ_CST;
    memset(s->view, 0, sizeof s->view);
    if (s->carries)
        memcpy(s->view, a->view, sizeof s->view);
    if (continues && s[-1].carries) { /* read-modify-writes continue a release sequence */
        s->carries = true;
        explore_join(s->view, s[-1].view);
    }
    *(qos_word_t *)(uintptr_t)w->at = v;
    if (explore_x.e->watch)
        explore_x.e->watch();
}

uint64_t qos_hook_load(const qos_word_t *at, int order)
{
    struct explore_actor *a;
    unsigned oldest;
    if (!explore_x.inside)
        return *at;
    a = explore_step(at, EXPLORE_LOAD, false, 0);
    oldest = explore_oldest(a, a->word, order);
    return explore_read(a, explore_x.word[a->word].stores - 1 - explore_decide(explore_x.word[a->word].stores - oldest),
                        order, 'L');
}

void qos_hook_store(qos_word_t *at, uint64_t v, int order)
{
    struct explore_actor *a;
    if (!explore_x.inside) {
        *at = v;
        return;
    }
    a = explore_step(at, EXPLORE_STORE, false, 0);
    explore_note('S', a->word, v, 0);
    explore_write(a, v, order, false);
}

/* The latest value, for a read-modify-write. */
static uint64_t explore_latest(struct explore_actor *a, int order)
{
    return explore_read(a, explore_x.word[a->word].stores - 1, order, 'R');
}

uint64_t qos_hook_add(qos_word_t *at, uint64_t v, int order)
{
    struct explore_actor *a;
    uint64_t old = *at;
    if (!explore_x.inside) {
        *at = qos_wrap_add(old, v);
        return old;
    }
    a = explore_step(at, EXPLORE_RMW, false, 0);
    old = explore_latest(a, order);
    explore_write(a, qos_wrap_add(old, v), order, true);
    return old;
}

/* Number of readable stores before the latest that differ from `value`; *index: the nth of them. */
static unsigned explore_unequal(const struct explore_actor *a, uint64_t value, unsigned nth, unsigned *index)
{
    const struct explore_word *w = &explore_x.word[a->word];
    unsigned i, n = 0;
    for (i = explore_oldest(a, a->word, __ATOMIC_RELAXED); i + 1 < w->stores; i++)
        if (w->store[i].value != value && n++ == nth)
            *index = i;
    return n;
}

bool qos_hook_cas(qos_word_t *at, uint64_t *expected, uint64_t desired, int order)
{
    struct explore_actor *a;
    uint64_t old = *at;
    unsigned index = 0, stale;
    bool same;
    if (!explore_x.inside) {
        same = old == *expected;
        if (same)
            *at = desired;
        *expected = old;
        return same;
    }
    a = explore_step(at, EXPLORE_RMW, false, 0);
    /* A failing one is a load: of any older value except the expected one. */
    stale = explore_decide(1 + explore_unequal(a, *expected, UINT32_MAX, &index));
    if (stale > 0) {
        (void)explore_unequal(a, *expected, stale - 1, &index);
        *expected = explore_read(a, index, order, 'L');
        return false;
    }
    old = explore_latest(a, order);
    same = old == *expected;
    if (same)
        explore_write(a, desired, order, true);
    *expected = old;
    return same;
}

/* Number of readable stores whose value ends the actor's wait. */
static unsigned explore_awaited(const struct explore_actor *a, unsigned nth, unsigned *index)
{
    const struct explore_word *w = &explore_x.word[a->word];
    unsigned i, n = 0;
    for (i = explore_oldest(a, a->word, __ATOMIC_RELAXED); i < w->stores; i++)
        if (w->store[i].value != a->await_old && n++ == nth)
            *index = i;
    return n;
}

static CHECK_UNUSED uint64_t explore_await(const qos_word_t *at, uint64_t old)
{
    struct explore_actor *a = explore_step(at, EXPLORE_LOAD, true, old);
    unsigned index = 0, n = explore_awaited(a, UINT32_MAX, &index);
    (void)explore_awaited(a, explore_decide(n), &index);
    return explore_read(a, index, __ATOMIC_ACQUIRE, 'L');
}

static void explore_actor_main(void)
{
    for (;;) {
        if (_setjmp(explore_x.actor[explore_x.current].base) == 0)
            explore_switch();
        explore_x.e->actor(explore_x.current);
        explore_x.actor[explore_x.current].done = true;
        explore_switch();
    }
}

/* Lets an actor run to its next step. */
static void explore_resume(unsigned who)
{
    struct explore_actor *a = &explore_x.actor[who];
    explore_x.current = who;
    explore_x.inside = true;
    if (_setjmp(explore_x.scheduler) == 0) {
        if (a->started)
            _longjmp(a->resume, 1);
        a->started = true;
        _longjmp(a->base, 1);
    }
    explore_x.inside = false;
}

static void explore_create(unsigned who)
{
    struct explore_actor *a = &explore_x.actor[who];
    getcontext(&a->context);
    a->context.uc_stack.ss_sp = explore_stack[who];
    a->context.uc_stack.ss_size = EXPLORE_STACK;
    a->context.uc_link = NULL;
    makecontext(&a->context, explore_actor_main, 0);
    explore_x.current = who;
    if (_setjmp(explore_x.scheduler) == 0)
        swapcontext(&explore_x.main_context, &a->context);
}

static bool explore_independent(const struct explore_actor *a, const struct explore_actor *b)
{
    return a->word != b->word || (a->kind == EXPLORE_LOAD && b->kind == EXPLORE_LOAD);
}

static bool explore_enabled(const struct explore_actor *a)
{
    unsigned index;
    return !a->done && !a->dead && (!a->awaits || explore_awaited(a, UINT32_MAX, &index) > 0);
}

/* Chooses the actor of the next step; EXPLORE_ACTORS: the remainder of this execution is redundant. */
static unsigned explore_schedule(unsigned enabled)
{
    struct explore_node *d;
    unsigned who, asleep, i, woken = 0;
    if (explore_x.at == explore_x.depth) {
        unsigned free_to_run = enabled & ~explore_x.sleep;
        if (!free_to_run)
            return EXPLORE_ACTORS;
        d = &explore_x.node[explore_x.depth++];
        d->n = 0;
        d->enabled = enabled;
        d->sleep = explore_x.sleep;
        d->explored = 0;
        d->chosen = (unsigned)__builtin_ctz(free_to_run);
    }
    d = &explore_x.node[explore_x.at++];
    who = d->chosen;
    asleep = d->sleep | d->explored;
    for (i = 0; i < explore_x.e->actors; i++)
        if (!explore_independent(&explore_x.actor[i], &explore_x.actor[who]))
            woken |= 1u << i;
    explore_x.sleep = asleep & ~woken;
    return who;
}

static void explore_execute(void)
{
    struct explore *e = explore_x.e;
    unsigned i, who, left, enabled;
    explore_x.words = explore_x.at = explore_x.sleep = explore_x.steps = 0;
    e->setup();
    for (i = 0; i < e->actors; i++) {
        struct explore_actor *a = &explore_x.actor[i];
        a->started = a->done = a->dead = a->awaits = false;
        memset(a->view, 0, sizeof a->view);
    }
    for (i = 0; i < e->actors && !explore_x.failed; i++)
        explore_resume(i); /* to its first step */
    while (!explore_x.failed) {
        left = enabled = 0;
        for (i = 0; i < e->actors; i++) {
            left |= (unsigned)(!explore_x.actor[i].done && !explore_x.actor[i].dead) << i;
            enabled |= (unsigned)explore_enabled(&explore_x.actor[i]) << i;
        }
        if (!left)
            break;
        if (!enabled) {
            explore_fail(__FILE__, __LINE__, "somebody can go on (a wake-up is lost)");
            return;
        }
        if (explore_x.steps >= EXPLORE_STEPS) {
            explore_fail(__FILE__, __LINE__, "the execution ends (no progress)");
            return;
        }
        who = explore_schedule(enabled);
        if (who == EXPLORE_ACTORS) {
            e->redundant++;
            return;
        }
        explore_resume(who);
    }
    if (!explore_x.failed && e->check)
        e->check();
    e->executions++;
    if (explore_x.steps > e->longest)
        e->longest = explore_x.steps;
}

/* Next decision to change, deepest first. False: all explored. */
static bool explore_backtrack(void)
{
    while (explore_x.depth > 0) {
        struct explore_node *d = &explore_x.node[explore_x.depth - 1];
        unsigned rest;
        if (d->n) {
            if (++d->chosen < d->n)
                return true;
        } else {
            d->explored |= 1u << d->chosen;
            rest = d->enabled & ~(d->sleep | d->explored);
            if (rest) {
                d->chosen = (unsigned)__builtin_ctz(rest);
                return true;
            }
        }
        explore_x.depth--;
    }
    return false;
}

static void explore(struct explore *e)
{
    unsigned i;
    memset(&explore_x, 0, sizeof explore_x);
    explore_x.e = e;
    e->executions = e->redundant = e->longest = 0;
    if (e->history == 0)
        e->history = 4;
    for (i = 0; i < e->actors; i++)
        explore_create(i);
    do {
        explore_execute();
    } while (!explore_x.failed && explore_backtrack());
    printf("%s: %" PRIu64 " executions explored to their end, %" PRIu64 " cut short as redundant, longest %" PRIu64
           " steps%s\n",
           e->name, e->executions, e->redundant, e->longest, explore_x.failed ? "; STOPPED at a failure" : "");
}

#endif

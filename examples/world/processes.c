#include "processes.h"
#include <setjmp.h>
#include <ucontext.h>

#define STACK_BYTES (128 * 1024)
#define GUARD UINT64_C(0x5ca1ab1e0ddba11)

enum event { START, RUN, KILL, REMOVE, PAUSE };

/* A stack outlives its process and its world: the next one begins at `base`. */
static struct stack {
    unsigned char *bytes;
    ucontext_t context;
    jmp_buf base, resume;
} stacks[WORLD_PROCESSES];
static struct world_processes *active;
static jmp_buf scheduler;
static ucontext_t main_context;

/* ---- stacks ---------------------------------------------------------------------------------------------------------- */

static void leave(void)
{
    _longjmp(scheduler, 1);
}

static void entry(void)
{
    for (;;) {
        struct world_process *p;
        if (_setjmp(stacks[active->current].base) == 0)
            leave();
        p = &active->process[active->current];
        p->body(active, active->current, p->start);
        active->process[active->current].state = WORLD_GONE;
        leave();
    }
}

static void make_stack(uint32_t id)
{
    const uint64_t guard = GUARD;
    struct stack *s = &stacks[id];
    if (s->bytes)
        return;
    s->bytes = (unsigned char *)world_alloc(1, STACK_BYTES);
    memcpy(s->bytes, &guard, sizeof guard);
    getcontext(&s->context);
    s->context.uc_stack.ss_sp = s->bytes;
    s->context.uc_stack.ss_size = STACK_BYTES;
    s->context.uc_link = NULL;
    makecontext(&s->context, entry, 0);
    active->current = id;
    if (_setjmp(scheduler) == 0)
        swapcontext(&main_context, &s->context);
}

/* Runs a process until it sleeps or ends. */
static void enter(struct world_processes *ps, uint32_t id, bool begin)
{
    uint64_t guard;
    active = ps;
    make_stack(id);
    ps->current = id;
    ps->inside = true;
    ps->process[id].state = WORLD_RUNNING;
    if (_setjmp(scheduler) == 0)
        _longjmp(begin ? stacks[id].base : stacks[id].resume, 1);
    active->inside = false;
    memcpy(&guard, stacks[active->current].bytes, sizeof guard);
    if (guard != GUARD) {
        fprintf(stderr, "world: process %u needs a larger stack\n", (unsigned)active->current);
        abort();
    }
}

/* ---- lives ------------------------------------------------------------------------------------------------------------- */

static uint64_t vary(struct world_processes *ps, uint64_t ns, uint32_t permille)
{
    uint64_t by = ns / 1000 * permille;
    return by ? world_between(&ps->rng, ns - by, ns + by) : ns;
}

/* Its next turn. An earlier one counts no more. */
static void turn(struct world_processes *ps, uint32_t id, uint64_t at_ns)
{
    struct world_process *p = &ps->process[id];
    p->run_event = ps->due.number;
    p->due_ns = at_ns;
    p->state = WORLD_ASLEEP;
    world_queue_add(&ps->due, at_ns, RUN, id);
}

static void end(struct world_processes *ps, uint32_t id)
{
    struct world_process *p = &ps->process[id];
    p->state = WORLD_DOWN;
    p->run_event = p->kill_event = WORLD_NEVER;
    p->kills++;
    if (p->life.down_ns)
        world_queue_add(&ps->due, ps->now_ns + vary(ps, p->life.down_ns, p->life.vary), START, id);
}

static void start(struct world_processes *ps, uint32_t id)
{
    struct world_process *p = &ps->process[id];
    p->start = WORLD_START_FIRST;
    if (p->starts++ > 0)
        p->start = world_chance(&ps->rng, p->life.no_disk)   ? WORLD_START_NO_DISK
                   : world_chance(&ps->rng, p->life.no_file) ? WORLD_START_NO_FILE
                                                             : WORLD_START_AGAIN;
    if (p->life.runs_ns) {
        p->kill_event = ps->due.number;
        world_queue_add(&ps->due, ps->now_ns + vary(ps, p->life.runs_ns, p->life.vary), KILL, id);
    }
    p->runs++;
    ps->turns++;
    enter(ps, id, true);
}

void world_processes_init(struct world_processes *ps, const struct world_points *points, uint64_t seed)
{
    memset(ps, 0, sizeof *ps);
    ps->points = *points;
    world_rng_init(&ps->rng, seed, 0x960c0000);
}

void world_processes_free(struct world_processes *ps)
{
    world_queue_free(&ps->due);
    ps->count = 0;
}

uint32_t world_process_add(struct world_processes *ps, world_body *body, const struct world_life *life,
                           const struct world_clock_config *clock, uint64_t base_ns, uint64_t seed)
{
    uint32_t id = ps->count++;
    struct world_process *p = &ps->process[id];
    if (id >= WORLD_PROCESSES) {
        fprintf(stderr, "world: more than %u processes\n", (unsigned)WORLD_PROCESSES);
        abort();
    }
    p->body = body;
    p->life = *life;
    p->run_event = p->kill_event = p->stepped_ns = WORLD_NEVER;
    world_clock_init(&p->clock, clock, base_ns, seed, id);
    world_queue_add(&ps->due, life->added_ns, START, id);
    if (life->removed_ns)
        world_queue_add(&ps->due, life->removed_ns, REMOVE, id);
    if (life->pause_every_ns)
        world_queue_add(&ps->due, life->added_ns + life->pause_every_ns, PAUSE, id);
    return id;
}

void world_processes_run(struct world_processes *ps, uint64_t until_ns)
{
    struct world_event e;
    while (!ps->stop && world_queue_take(&ps->due, until_ns, &e)) {
        struct world_process *p = &ps->process[e.index];
        ps->now_ns = e.at_ns;
        switch ((enum event)e.kind) {
        case START:
            if (p->state != WORLD_GONE)
                start(ps, e.index);
            break;
        case RUN:
            if (e.number != p->run_event)
                break;
            if (p->paused_ns > ps->now_ns) {
                turn(ps, e.index, p->paused_ns);
                break;
            }
            p->runs++;
            ps->turns++;
            enter(ps, e.index, false);
            break;
        case KILL:
            if (e.number == p->kill_event)
                end(ps, e.index);
            break;
        case REMOVE:
            p->state = WORLD_GONE;
            p->run_event = p->kill_event = WORLD_NEVER;
            break;
        case PAUSE:
            p->pauses++;
            p->paused_ns = ps->now_ns + p->life.pause_ns;
            world_queue_add(&ps->due, ps->now_ns + p->life.pause_every_ns, PAUSE, e.index);
            break;
        }
    }
    if (!ps->stop && until_ns != WORLD_NEVER)
        ps->now_ns = until_ns;
}

/* ---- for bodies -------------------------------------------------------------------------------------------------------- */

/* Sleeps until at_ns of true time. */
static void sleep_until(struct world_processes *ps, uint64_t at_ns)
{
    uint32_t id = ps->current;
    if (at_ns == WORLD_NEVER)
        ps->process[id].state = WORLD_ASLEEP;
    else
        turn(ps, id, at_ns);
    if (_setjmp(stacks[id].resume) == 0)
        leave();
}

uint64_t world_process_clock(struct world_processes *ps)
{
    struct world_process *p = &ps->process[ps->current];
    int64_t shown = (int64_t)world_clock_read(&p->clock, ps->now_ns) + p->step_ns;
    return shown > 0 ? (uint64_t)shown : 0;
}

void world_process_sleep(struct world_processes *ps, uint64_t ns)
{
    const struct world_life *life = &ps->process[ps->current].life;
    sleep_until(ps, ps->now_ns + ns + (life->late_ns ? world_between(&ps->rng, 0, life->late_ns) : 0));
}

void world_process_wait(struct world_processes *ps, uint64_t shown_ns)
{
    const struct world_process *p = &ps->process[ps->current];
    int64_t shown = (int64_t)shown_ns - p->step_ns;
    uint64_t at;
    if (shown_ns == WORLD_NEVER) {
        sleep_until(ps, WORLD_NEVER);
        return;
    }
    at = world_clock_when(&p->clock, shown > 0 ? (uint64_t)shown : 0);
    world_process_sleep(ps, at > ps->now_ns ? at - ps->now_ns : 0);
}

void world_process_point(struct world_processes *ps)
{
    const struct world_points *c = &ps->points;
    struct world_process *p;
    uint64_t pick, next;
    int64_t by;
    if (!ps->inside)
        return;
    ps->met++;
    if (c->rarity == 0 || (c->most && ps->switched + ps->stalled + ps->stepped + ps->killed >= c->most) ||
        world_rand(&ps->rng) % c->rarity != 0 || c->switches + c->stalls + c->steps + c->kills == 0)
        return;
    p = &ps->process[ps->current];
    pick = world_between(&ps->rng, 1, c->switches + c->stalls + c->steps + c->kills);
    if (pick <= c->switches) { /* behind whatever comes next */
        ps->switched++;
        next = world_queue_next_ns(&ps->due);
        sleep_until(ps, next == WORLD_NEVER ? ps->now_ns : next);
    } else if (pick <= c->switches + c->stalls) {
        ps->stalled++;
        sleep_until(ps, ps->now_ns + (c->stall_ns ? world_scale(&ps->rng, 1, c->stall_ns) : 0));
    } else if (pick <= c->switches + c->stalls + c->steps) {
        ps->stepped++;
        by = c->back_ns && (!c->ahead_ns || world_chance(&ps->rng, 500))
                 ? -(int64_t)world_between(&ps->rng, 1, c->back_ns)
             : c->ahead_ns ? (int64_t)world_between(&ps->rng, 1, c->ahead_ns)
                           : 0;
        p->step_ns += by;
        p->stepped_ns = ps->now_ns;
    } else {
        ps->killed++;
        end(ps, ps->current);
        leave();
    }
}

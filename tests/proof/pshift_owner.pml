/* pshift_owner.pml - the protocol of pshift.h around a period (chapters owner, agent, controller) as a model for spin.
 *
 * Two controllers, two servers, one bucket of limit L = 2, a store with one key, and a period of T = 3 ticks of one clock.
 * A tick may come between any two steps, and their number has no bound. Messages are lost, late, repeated and overtaken: what is in
 * the network stays there until something takes its place. A swap may be done at any time after it was sent, even if its
 * sender has asked again or has died; its reply may be lost. Controllers and servers may start anew, and forget everything.
 *
 * Never: more than L requests with tokens of one period; more than 2 L in three ticks. Each define leaves out one rule;
 * tests/build/owner_model.sh shows that they are needed (all but SAME_NUMBER: no search has found a fault without it). Times are ages, or what is left, and stop to count where they make
 * no difference. Not in it: tokens that move between servers (world/pshift), and that a start must answer a grant
 * before it is believed: who believes any report charges more, not less. */

#ifndef LAST
#define LAST 2 /* period */
#endif
#ifndef CONTROLLERS
#define CONTROLLERS 2
#endif
#ifndef SERVERS
#define SERVERS 2
#endif
#ifndef STARTS_C
#define STARTS_C 0 /* of controllers, beside the first ones */
#endif
#ifndef STARTS_S
#define STARTS_S 1 /* of servers */
#endif
#ifndef SWAPS
#define SWAPS 1 /* of a controller on their way */
#endif
#define L 2
#define T 3

byte starts_c, starts_s;
byte number, owner_of; /* the key: its number, the nonce in it */
byte swap_from[4], swap_to[4], swap_nonce[4]; /* of each controller: the last one, the one before */
/* controllers; [2 * controller + server] */
byte nonce[2], next_nonce = 3;
bool reads[2], asks[2];
byte seen[2], seen_age[2], asked[2], asked_age[2], owned[2], own_age[2];
byte known[4], total[4], named_age[4], lost[2];
/* servers, with the last report of each and the last grant to it, in the network */
byte boot[2], next_boot = 3, period[2], period_nonce[2], may[2], paid[2], left[2];
byte r_boot[2], r_age[2];
byte g_boot[2], g_period[2], g_nonce[2], g_total[2], g_left[2];
/* what was spent: of each period; in this tick and the two before */
byte spent[LAST + 2], in_tick[3];

#define holds(c) (owned[c] != 0 && owned[c] == seen[c] && own_age[c] < T)
#define own_total(c) (total[2 * c] + total[2 * c + 1] + lost[c])
#define grow(age) age = (age < T -> age + 1 : T)
#define fall(rest) rest = (rest > 0 -> rest - 1 : 0)

inline forget(c)
{
    known[2 * c] = 0; known[2 * c + 1] = 0; named_age[2 * c] = 0; named_age[2 * c + 1] = 0;
    total[2 * c] = 0; total[2 * c + 1] = 0; lost[c] = 0
}

/* What it heard before it owned the period it hears again: the network keeps it. */
inline own(c, p, age)
{
    owned[c] = p; own_age[c] = age;
    printf("controller %d owns period %d\n", c, p);
    forget(c)
}

inline saw(c)
{
    if
    :: reads[c] || number > seen[c] -> seen[c] = number; seen_age[c] = 0
    :: else
    fi;
    if
    :: asks[c] && number == asked[c] && owner_of == nonce[c] ->
#ifdef FROM_REPLY
        own(c, number, 0)
#else
        own(c, number, asked_age[c])
#endif
#ifdef RESUME
    :: reads[c] && number != 0 && owner_of == nonce[c] -> own(c, number, 0)
#endif
    :: else
    fi;
    reads[c] = false; asks[c] = false; asked_age[c] = 0
}

inline ask(c)
{
#if SWAPS == 2
    swap_from[2 * c + 1] = swap_from[2 * c]; swap_to[2 * c + 1] = swap_to[2 * c]; swap_nonce[2 * c + 1] = swap_nonce[2 * c];
#endif
#ifdef SAME_NUMBER
    asked[c] = seen[c] + 1;
#else
    asked[c] = (asked[c] > seen[c] -> asked[c] : seen[c]) + 1;
#endif
    asked_age[c] = 0; asks[c] = true;
    swap_from[2 * c] = seen[c]; swap_to[2 * c] = asked[c]; swap_nonce[2 * c] = nonce[c];
    printf("controller %d asks for period %d\n", c, asked[c]);
#ifdef BELIEVE
    seen[c] = asked[c]; seen_age[c] = 0; asks[c] = false; own(c, asked[c], 0)
#endif
}

inline start_controller(c)
{
    starts_c++;
    printf("controller %d starts anew\n", c);
#ifndef RESUME
    nonce[c] = next_nonce; next_nonce++;
#endif
    reads[c] = true; asks[c] = false; seen[c] = 0; seen_age[c] = 0; asked[c] = 0; asked_age[c] = 0; owned[c] = 0; own_age[c] = 0;
    forget(c)
}

inline hear(c, s)
{
    if
    :: known[2 * c + s] != r_boot[s] ->
#ifndef FORGET_DEAD
        lost[c] = lost[c] + total[2 * c + s];
#endif
        total[2 * c + s] = 0; known[2 * c + s] = r_boot[s]
    :: else
    fi;
    named_age[2 * c + s] = r_age[s]
}

/* One token, or all. It names the report; the server's tokens end as long after that as the owner has left. */
inline grant(c, s)
{
    if
    :: total[2 * c + s]++
    :: own_total(c) < L - 1 -> total[2 * c + s] = total[2 * c + s] + L - own_total(c)
    fi;
    g_boot[s] = known[2 * c + s]; g_period[s] = owned[c]; g_nonce[s] = nonce[c]; g_total[s] = total[2 * c + s];
#ifdef FROM_ARRIVAL
    g_left[s] = T - own_age[c];
#else
    g_left[s] = (T - own_age[c] > named_age[2 * c + s] -> T - own_age[c] - named_age[2 * c + s] : 0);
#endif
    printf("controller %d grants server %d %d tokens in all of period %d\n", c, s, g_total[s], owned[c])
}

#ifdef NO_WAIT
#define waited(c) (!holds(c))
#else
#define waited(c) (seen_age[c] == T)
#endif

proctype controller(byte c)
{
    do
    :: atomic {reads[c] || asks[c] || number > seen[c] -> saw(c)}
    :: atomic {!reads[c] && !asks[c] && seen[c] < LAST && asked[c] < LAST && waited(c) -> ask(c)}
    :: atomic {starts_c < STARTS_C -> start_controller(c)}
    :: atomic {holds(c) && r_boot[0] != 0 && (known[2 * c] != r_boot[0] || r_age[0] < named_age[2 * c]) -> hear(c, 0)}
    :: atomic {holds(c) && r_boot[1] != 0 && (known[2 * c + 1] != r_boot[1] || r_age[1] < named_age[2 * c + 1]) -> hear(c, 1)}
    :: atomic {holds(c) && known[2 * c] != 0 && own_total(c) < L -> grant(c, 0)}
    :: atomic {holds(c) && known[2 * c + 1] != 0 && own_total(c) < L -> grant(c, 1)}
    od
}

/* A swap that can succeed no more. */
inline lose(k)
{
    if
    :: swap_to[k] != 0 && swap_from[k] != number -> swap_to[k] = 0; swap_from[k] = 0; swap_nonce[k] = 0
    :: else
    fi
}
inline swap(k)
{
    number = swap_to[k]; owner_of = swap_nonce[k]; swap_to[k] = 0; swap_from[k] = 0; swap_nonce[k] = 0;
    printf("the key holds %d, nonce %d\n", number, owner_of)
#ifndef NO_COMPARE
    ; lose(0); lose(1); lose(2); lose(3)
#endif
}
#ifdef NO_COMPARE
#define may_swap(k) (swap_to[k] != 0)
#else
#define may_swap(k) (swap_to[k] != 0 && swap_from[k] == number)
#endif

proctype store()
{
    do
    :: atomic {may_swap(0) -> swap(0)}
    :: atomic {may_swap(1) -> swap(1)}
    :: atomic {may_swap(2) -> swap(2)}
    :: atomic {may_swap(3) -> swap(3)}
    od
}

inline install(s)
{
    if
    :: g_period[s] > period[s] ->
        period[s] = g_period[s]; period_nonce[s] = g_nonce[s]; left[s] = 0;
#ifdef KEEP_TOKENS
        may[s] = may[s] - paid[s];
#else
        may[s] = 0;
#endif
        paid[s] = 0
    :: else
    fi;
    if
    :: g_period[s] == period[s] && g_nonce[s] == period_nonce[s] ->
        left[s] = (g_left[s] > left[s] -> g_left[s] : left[s]);
#ifdef KEEP_TOKENS
        may[s] = may[s] + g_total[s]
#else
        may[s] = (g_total[s] > may[s] -> g_total[s] : may[s])
#endif
    :: else
    fi;
#ifdef KEEP_TOKENS
    g_boot[s] = 0
#endif
}

/* All at once: a window that holds too many if they are spent one by one holds as many then. */
inline spend(s)
{
    printf("server %d spends %d tokens of period %d\n", s, may[s] - paid[s], period[s]);
    spent[period[s]] = spent[period[s]] + may[s] - paid[s];
    in_tick[0] = in_tick[0] + may[s] - paid[s];
    paid[s] = may[s];
    assert(spent[period[s]] <= L);
    assert(in_tick[0] + in_tick[1] + in_tick[2] <= 2 * L)
}

#ifdef ANY_BOOT
#define for_me(s) (g_boot[s] != 0)
#else
#define for_me(s) (g_boot[s] == boot[s])
#endif

proctype server(byte s)
{
    do
    :: atomic {paid[s] < may[s] && left[s] > 0 -> spend(s)}
    :: atomic {r_boot[s] != boot[s] || r_age[s] != 0 -> r_boot[s] = boot[s]; r_age[s] = 0}
    :: atomic {for_me(s) && g_left[s] > 0 -> install(s)}
    :: atomic {starts_s < STARTS_S -> starts_s++; printf("server %d starts anew\n", s);
        boot[s] = next_boot; next_boot++; period[s] = 0; period_nonce[s] = 0; may[s] = 0; paid[s] = 0; left[s] = 0}
    od
}

/* What makes no difference any more is forgotten, so that fewer states differ. */
inline tidy_controller(c)
{
    if
    :: own_age[c] == T -> owned[c] = 0; own_age[c] = 0; forget(c)
    :: else
    fi;
#ifndef SAME_NUMBER
    if
    :: !asks[c] && asked[c] <= seen[c] -> asked[c] = 0
    :: else
    fi
#endif
}
inline tidy_server(s)
{
    if
    :: left[s] == 0 -> may[s] = paid[s]
    :: else
    fi;
    if
    :: g_left[s] == 0 -> g_boot[s] = 0; g_period[s] = 0; g_nonce[s] = 0; g_total[s] = 0
    :: else
    fi;
    if
    :: r_age[s] == T -> r_boot[s] = 0; r_age[s] = 0
    :: else
    fi
}

proctype clock()
{
    do
    :: atomic {true ->
        printf("tick\n");
        grow(seen_age[0]);
        if :: CONTROLLERS == 2 -> grow(seen_age[1]) :: else fi;
        if :: asks[0] -> grow(asked_age[0]) :: else fi;
        if :: asks[1] -> grow(asked_age[1]) :: else fi;
        if :: r_boot[0] != 0 -> grow(r_age[0]) :: else fi;
        if :: r_boot[1] != 0 -> grow(r_age[1]) :: else fi;
        if :: owned[0] != 0 -> grow(own_age[0]); grow(named_age[0]); grow(named_age[1]) :: else fi;
        if :: owned[1] != 0 -> grow(own_age[1]); grow(named_age[2]); grow(named_age[3]) :: else fi;
        fall(left[0]); fall(left[1]);
#ifndef FROM_ARRIVAL
        fall(g_left[0]); fall(g_left[1]);
#endif
        in_tick[2] = in_tick[1]; in_tick[1] = in_tick[0]; in_tick[0] = 0;
        tidy_controller(0); tidy_controller(1); tidy_server(0); tidy_server(1)}
    od
}

init
{
    atomic {nonce[0] = 1; nonce[1] = 2; boot[0] = 1; boot[1] = 2; reads[0] = true; reads[1] = true;
        run controller(0);
        if :: CONTROLLERS == 2 -> run controller(1) :: else fi;
        run store(); run server(0);
        if :: SERVERS == 2 -> run server(1) :: else fi;
        run clock()}
}

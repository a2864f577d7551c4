/* tokenpool.pml - the words of tokenpool.h as a model for spin: clients, 2 monitors, one clock.
 *
 * Each access to a shared word is one step; between two steps anybody may run and time may pass. A pause without end is a
 * death. A monitor may believe at any time, and as often as it likes, that the other is dead. tests/build/model.sh compares the labels of
 * the steps with those in the header, runs spin, and plants bugs into the model.
 *
 *   safety     S1 tokens of an epoch <= C: claimed ones and the reservation that client 0 has not returned
 *              S2 when an epoch is announced, no client has tokens of another one that it may still spend
 *              S3 epochs are announced T apart
 *              S4 a client makes at most one failed claim between two fills: the count stays above -(clients x batch)
 *              S5 of two monitors one at most changes a word of (epoch, seq), or a period word
 *   progress   (-DPROGRESS) when time has passed, a new epoch is announced: whichever monitor died, at any step, and
 *              with two wrong beliefs that the other is dead
 *
 * The whole of it, for any number of clients, by two searches that come to their end. A client reads and writes its own
 * variables and shared words; of these it changes only the pool word (a claim) and, if it has a reservation, its report.
 * So a client sees of the others no more than claims and a report, and the monitors see no more of them either.
 *   OTHERS=1   client 0, whose report counts, in every detail, and beside it claims by others: at any time, as many as
 *              they like. This has every run in which client 0 meets any number of clients.
 *   OTHERS=2   client 1, without a reservation, in every detail, and beside it others that claim and return client 0's
 *              reservation at any time.
 * What others do are the same inlines that the clients use, but without their conditions: each step of a client is one
 * of theirs, so none is missing. S1, S3 and S5 speak of words; S2 and S4 of one client at a time: S4 for the sum follows.
 * A failed claim only lowers the count, which is 0 here for all below, and the failures are counted for each client.
 *
 * Each step may do more than the header does, never less: a swap sees the words at its time (in the header an earlier
 * look must have seen the same), a fill puts any number up to the budget (the header's is one of these; reports only
 * lower what is kept), a heartbeat shows any age up to the true one, an answer may be lost. Sequence numbers do not come round.
 *
 * Small numbers: T = 1 tick, END = 2 ticks in all, C = 2 tokens, client 0 has a reservation of 1, batch 1. Left out: limits,
 * debt, forced tokens, late starters (heartbeats of engines), stray stores, memory orders (tests/interleave/ has these). */
#ifndef T
#define T 1
#endif
#ifndef END
#define END 2
#endif
#define C 2
#define NONE 255

byte now = 0;
byte count = 0;                         /* the pool word: its count, 0 for all below */
byte pool_epoch = 0;
bit pool_writer = 0;                    /* whose (epoch, seq) it has */
byte period_epoch = 0;                  /* the period word */
bool period_open = false;
bit period_writer = 0;                  /* the monitor that swapped last: another's swap fails */
byte terms = 0;                         /* the epoch whose terms they are */
bool reported = false;                  /* client 0's report: it returned its reservation of pool_epoch */
byte oldest = NONE;                     /* the heartbeat says that pool_epoch is at most now - oldest old; NONE: nothing */
/* what the properties look at */
byte claimed = 0;                       /* of pool_epoch */
bool kept = true;                       /* client 0 has its reservation of pool_epoch */
byte until[3];                          /* a client may spend tokens before this time; 0: it has none */
bool failed[3];                         /* a claim failed since the last fill */
byte announced_at = 0;
#ifdef PROGRESS
bool aged[2];                           /* T has passed since the start that a monitor counts from; now stands still */
bool dirty[2];                          /* the pool word changed since a monitor's look */
byte claims = 0, mistakes = 0;
bool acts[2];                           /* has the storage, or will take it */
bool dead = false, reached = false;     /* one died; an epoch after the first was announced */
#define DUE(me) aged[me]
#else
#define DUE(me) (now - start >= T)
#endif

inline claim(more) /* C1: more: the answer leaves tokens in the pool */
{
    if
    :: count > 0 -> count--; claimed++; assert(claimed + kept <= C); more = (count > 0)
    :: else -> more = false
    fi
}

inline give_back() { kept = false }

inline report(returned)
{
    assert(!(returned && kept));
    reported = returned
}

inline filled() { failed[0] = false; failed[1] = false; failed[2] = false }

#define EXPIRE(i) until[i] = (until[i] <= now -> 0 : until[i])

active proctype time()
{
#ifdef PROGRESS
    do
    :: d_step { !reached && (!aged[0] || !aged[1]) -> aged[0] = true; aged[1] = true }
    :: reached -> break
    od
#else
end:do
    :: d_step { now < END -> now++; EXPIRE(0); EXPIRE(1); EXPIRE(2) }
    od
#endif
}

/* Variables are set to 0 at the end of a step: fewer states. */
proctype client(byte me)
{
    byte epoch = 0, seen = 0, seen_at = 0, prev_at = 0; /* own; last read; when; when last another */
    byte early = 0, fresh = 0, e = 0;                   /* pool of a claim ahead; periods that begin with a read of the pool */
    bool known = false, may_claim = false, may_return = false, early_more = false, good = false, none = false;
    do
    :: atomic {                         /* reads the period word; its clock was any time before */
           until[me] == 0 -> may_claim = false; may_return = false; e = period_epoch;
           if
           :: !known -> known = true; epoch = e; seen = e /* found running: not this one */
           :: known && e != seen -> prev_at = seen_at; seen = e
           :: else -> skip
           fi;
#ifdef ANY_CLOCK
           seen_at = 0;
           do :: seen_at < now -> seen_at++ :: break od;
#else
           seen_at = now;               /* an earlier one makes its tokens end earlier: as the step that drops them */
#endif
           e = (e != epoch && period_open -> e : 0)
       }
       if
       :: e > 0 ->
          good = (terms == e);                                          /* P1 */
          atomic {                                                      /* P2 */
              if
              :: period_epoch == e && period_open ->
                 assert(good);
                 epoch = e;
                 if
                 :: prev_at + T > now ->
                    until[me] = prev_at + T; may_return = (me == 0);
                    may_claim = (early == e -> early_more : fresh == 0)
                 :: else -> skip        /* too late */
                 fi;
                 fresh = (fresh > 0 -> fresh - 1 : 0);
                 fresh = (early > 0 && early != e && fresh == 0 -> 1 : fresh);
                 early = 0; early_more = false; prev_at = 0
              :: else -> skip
              fi;
              e = 0; good = false
          }
       :: else -> skip
       fi
    :: atomic { until[me] > 0 -> until[me] = 0; may_claim = false; may_return = false } /* drops its tokens, or dies */
    :: atomic { until[me] > 0 && may_claim -> skip }                    /* decides on a claim */
       atomic {                                                         /* C1 */
           none = (count == 0);
           claim(may_claim);
           assert(!(none && failed[me]));                               /* S4 */
           failed[me] = failed[me] || none; none = false;
           if                           /* its answer, whenever it comes: nothing else happens to this client before */
           :: pool_epoch == epoch -> may_claim = may_claim && until[me] > 0
           :: pool_epoch != epoch -> early = pool_epoch; early_more = may_claim; may_claim = false
           :: may_claim = false; fresh = 2 /* it is lost */
           fi
       }
    :: atomic { until[me] > 0 && !may_claim && pool_epoch == epoch && count > 0 -> may_claim = true } /* reads the pool */
    :: atomic {                         /* no demand: returns its reservation */
           until[me] > 0 && may_return -> may_return = false;
           if :: epoch == pool_epoch -> give_back() :: else -> skip fi
       }
       atomic { report(epoch == pool_epoch) }                           /* R1 */
    od
}

/* Any number of other clients, without their conditions. */
#ifdef OTHERS
proctype others()
{
    bool more;
    do
    :: atomic { count > 0 -> claim(more); more = false }
#if OTHERS > 1
    :: atomic { pool_epoch > 0 && kept -> give_back() }
    :: atomic { !kept && !reported -> report(true) }
    :: atomic { reported -> report(false) } /* a late one hides it */
#endif
    od
}
#endif

#ifdef PROGRESS
proctype others()
{
    do /* claims make swaps fail; there are finitely many between two fills */
    :: atomic { pool_epoch > 0 && claims < 2 -> claims++; dirty[0] = true; dirty[1] = true }
    :: reached -> break
    od
}
proctype reaper() { do :: dead = true; break :: break od }
#define SWAP(me) (pool_writer == me && !dirty[me])
#define SWAPPED claims = 0; dirty[0] = true; dirty[1] = true
#define STOPS acts[me] = false
#define WRONG (acts[1 - me] && !(dead && me == 1))
#define BELIEVE (!WRONG || mistakes < 2)
#define MISTAKE mistakes = (WRONG -> mistakes + 1 : mistakes); acts[me] = true;
#else
#define SWAP(me) (pool_writer == me)
#define SWAPPED skip
#define STOPS skip
#define BELIEVE true
#define MISTAKE
#endif

inline fenced()
{
    has = false; holding = false; unconfirmed = false; start = 0; put = 0; age = 0; epoch = NONE; /* has not looked */
    STOPS
}

/* A beat: the age that it shows is at most that from here on. */
inline beats() { if :: epoch == pool_epoch && start < oldest -> oldest = start :: else -> skip fi }

inline put_into_pool(most)
{
#ifdef PROGRESS
    count = 0 /* tokens do not matter here */
#else
    count = 0;
    do :: count < most -> count++ :: break od /* the guard, the conversion */
#endif
}

proctype monitor(bit me)
{
    byte start = 0, put = 0, age = 0, epoch = (me == 0 -> 0 : NONE), budget = 0;
    bool has = (me == 0), holding = false, unconfirmed = false, announced = false, ok = false;
    {
    do
    :: d_step {                         /* the first clock after it brought or saw an epoch */
           unconfirmed -> unconfirmed = false; start = now - age; age = 0;
#ifdef PROGRESS
           aged[me] = false;
#endif
           if :: has || holding -> beats() :: else -> skip fi
       }
    :: d_step { (has || holding) && pool_writer != me -> fenced() }
    :: atomic {
           (has || holding) && pool_writer == me && !unconfirmed && (DUE(me) || epoch == 0) ->
#ifdef PROGRESS
           dirty[me] = false
       }
       atomic {
#endif
           if                                                           /* M1 */
           :: SWAP(me) ->
              assert(pool_epoch == epoch);                              /* S5 */
              ok = true; has = true; holding = false; start = 0;
              epoch++; pool_epoch = epoch; claimed = 0; kept = true; reported = false; oldest = NONE;
              put_into_pool(C - 1); put = count; filled(); SWAPPED
           :: else -> skip              /* a claim came between, or a monitor: again */
           fi
       }
       if
       :: ok ->
          atomic {                                                      /* M2 */
              if
              :: period_writer == me ->
                 assert(pool_epoch == epoch);                           /* S5 */
                 assert(epoch == 1 || now - announced_at >= T);         /* S3 */
                 assert(until[0] == 0 && until[1] == 0 && until[2] == 0); /* S2 */
                 period_epoch = epoch; period_open = false; announced_at = now
              :: else -> ok = false; fenced()
              fi
          }
          if
          :: ok ->
             atomic { if :: period_writer == me -> terms = epoch :: else -> skip fi }
             atomic {                                                   /* M3 */
                 if
                 :: period_writer == me ->
                    period_open = true; unconfirmed = true
#ifdef PROGRESS
                    ; reached = reached || epoch >= 2
#endif
                 :: else -> fenced()
                 fi;
                 ok = false
             }
          :: else -> skip
          fi
       :: else -> skip
       fi
#ifndef PROGRESS
    :: atomic {                                                         /* M4 */
           has && pool_writer == me && epoch > 0 ->
           assert(put - count == claimed);
           budget = put - count + (reported -> 0 : 1);                  /* claimed and kept */
           budget = (budget < C -> C - budget : 0);
           put_into_pool(budget); put = claimed + count; budget = 0; filled()
       }
#endif
    :: atomic {                         /* sees an epoch of the other */
           !has && !holding && epoch != pool_epoch ->
           epoch = pool_epoch; start = 0; age = 0; unconfirmed = true; announced = (period_epoch == epoch);
           do :: oldest <= now && age < now - oldest -> age++ :: break od
       }
    :: atomic {                         /* its lease is over, it seems */
           !has && !holding && epoch == pool_epoch && BELIEVE -> MISTAKE
           pool_writer = me; SWAPPED                                    /* M5 */
       }
       atomic {                                                         /* M6, P3 */
           period_writer = me; holding = true;
           if
           :: period_epoch == epoch && !announced -> age = 0; start = 0; unconfirmed = true
           :: else -> if :: !unconfirmed -> beats() :: else -> skip fi
           fi;
           announced = false
       }
#ifdef PROGRESS
    :: reached -> break
#endif
    od
    }
#ifdef PROGRESS
    unless { dead && me == 0 }
#endif
}

init
{
    atomic {
#ifdef CLIENT
        run client(CLIENT);
#endif
#ifdef CLIENTS                          /* all of them in detail: a bounded search */
        run client(0); run client(1);
#if CLIENTS > 2
        run client(2);
#endif
#endif
#if defined(OTHERS) || defined(PROGRESS)
        run others();
#endif
#ifdef PROGRESS
        run reaper(); acts[0] = true;
#endif
        run monitor(0);
#ifndef ONE_MONITOR
        run monitor(1)
#endif
    }
}

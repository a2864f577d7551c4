/* tokenpool.pml - the words of tokenpool.h as a model for spin: 3 clients, 2 monitors, one clock.
 *
 * Each access to a shared word is one step; between two steps anybody may run, time may pass, a monitor may die. A monitor
 * may believe at any time that the other is dead, twice wrongly. tests/build/model.sh compares the labels of the steps with those in the
 * header, runs spin, and plants bugs into the model.
 *
 *   safety     tokens of an epoch <= C; a token is spent before the next epoch starts; epochs start T apart; the count
 *              stays above -(clients x batch); of two monitors one at most changes a word of (epoch, seq)
 *   progress   nobody waits for ever (no invalid end state; with fair scheduling no run without an end): monitors end
 *              when time has brought another epoch, whichever of them died
 *
 * Small numbers: T = 1 tick, END = 2 ticks in all, C = 2 tokens, client 0 has a reservation of 1, batch 1. Left out: limits,
 * debt, forced tokens, late starters (heartbeats), the guard, memory orders (tests/interleave/ has these). */
#define CLIENTS 3
#ifndef END
#define END 2
#endif
#ifndef T
#define T 1
#endif
#define C 2
#define MAX_EPOCH 4

byte now = 0;
short count = 0;                        /* the pool word */
byte pool_epoch = 0, pool_seq = 0;
byte period_epoch = 0, version = 0;     /* the period word; each write of it makes another version */
bool period_open = false;
byte terms[CLIENTS];                    /* the epoch whose terms they are */
byte report_epoch = 0;                  /* client 0's report: it returned its reservation of this epoch */
byte beat_epoch = 0, beat_age = 0;
/* what the properties look at */
byte spent[MAX_EPOCH + 1];
byte started_at = 0, dead = 0, mistakes = 0;

active proctype time()
{
    do
    :: now < END -> progress_time: now++
    :: now == END -> break
    od
}

/* Variables that a step leaves behind are set to 0 at its end: fewer states. */
proctype client(byte me)
{
    byte epoch = 0, held = 0, seen = 0, p = 0, prev = 0, deadline = 0, got = 0, e = 0;
    bool running = false, may_claim = false, may_return = false, open = false;
    do
    :: now == END -> break
    :: atomic {
           (!running || now >= deadline) && now < END -> running = false; held = 0; may_claim = false; may_return = false; p = now
       } /* its clock, then the read */
       atomic {
           e = period_epoch; open = period_open;
           if
           :: prev == 0 -> seen = e; epoch = e; prev = p + 1 /* found running: not this one. prev: 0 is not known */
           :: prev > 0 && e == epoch -> prev = p + 1
           :: else -> skip
           fi
       }
       if
       :: e != epoch && open ->
          got = terms[me];                                              /* P1 */
          atomic {                                                      /* P2 */
              if
              :: period_epoch == e && period_open ->
                 assert(got == e);
                 epoch = e; deadline = prev - 1 + T; running = (deadline > now);
                 held = (running && me == 0 -> 1 : 0); may_return = (held > 0); may_claim = running;
                 prev = p + 1
              :: else -> skip
              fi
          }
       :: else -> skip
       fi;
       p = 0; e = 0; got = 0; open = false
    :: atomic {
           running && held > 0 && now < deadline ->
           spent[epoch] = spent[epoch] + held; held = 0; may_return = false;
           assert(spent[epoch] <= C);
           assert(period_epoch == epoch) /* the next one has not started */
       }
    :: atomic {                                                         /* C1 */
           running && may_claim && now < deadline ->
           got = (count > 0 -> 1 : 0); e = pool_epoch; may_claim = (count > 1); count--;
           assert(count >= -CLIENTS)
       }
       atomic { /* its answer, whenever it comes */
           if
           :: e == epoch && now < deadline -> held = held + got
           :: else -> may_claim = false /* void, or of a period that it does not know */
           fi;
           got = 0; e = 0
       }
    :: atomic { running && may_return && now < deadline -> held--; may_return = false } /* no demand: returns it */
       atomic { report_epoch = epoch }                                  /* R1 */
    od
}

proctype monitor(byte me)
{
    byte c = 0, start = 0, epoch = 0, seq = 0, put = 0, look = 0, age = 0, e = 0, s = 0, mine = 0;
    short n = 0, room = 0;
    bool has = (me == 0), holding = false, unconfirmed = false, ok = false, announced = false;
    do
    :: now == END && period_epoch >= 2 && period_open -> break /* it goes on until it has brought an epoch */
    :: dead == 0 && me == 0 -> dead = 1; break
    :: now < END || period_epoch < 2 || !period_open ->
       atomic { /* its clock; everything after it may come late */
           c = now;
           if
           :: unconfirmed && has -> start = (c > start -> c : start)
           :: unconfirmed && !has ->
              look = c; if :: holding -> start = (c > age -> c - age : 0) :: else -> skip fi
           :: else -> skip
           fi;
           unconfirmed = false
       }
       atomic { n = count; e = pool_epoch; s = pool_seq }
       if
       :: (has || holding) && (e != epoch || s != seq) -> atomic { has = false; holding = false }
       :: (has || holding) && e == epoch && s == seq && (c - start >= T || epoch == 0) ->
          atomic {                                                      /* M1 */
              ok = (count == n && pool_epoch == e && pool_seq == s);
              if
              :: ok ->
                 epoch++; seq = (s + 1) % 8; pool_epoch = epoch; pool_seq = seq; count = C - 1; put = C - 1;
                 start = c; unconfirmed = true; has = true; holding = false
              :: else -> skip /* a claim came between: again */
              fi
          }
          if
          :: ok ->
             atomic {                                                   /* M2 */
                 ok = (version == mine);
                 if
                 :: ok ->
                    version = (version + 1) % 16; mine = version;
                    assert(epoch == 1 || now - started_at >= T);
                    period_epoch = epoch; period_open = false; started_at = now
                 :: else -> has = false
                 fi
             }
             if
             :: ok ->
                atomic { if :: version == mine -> terms[0] = epoch; terms[1] = epoch; terms[2] = epoch :: else -> ok = false fi }
                atomic {                                                /* M3 */
                    if
                    :: ok && version == mine -> period_open = true; version = (version + 1) % 16; mine = version
                    :: else -> has = false
                    fi
                }
             :: else -> skip
             fi
          :: else -> skip
          fi
       :: (has || holding) && e == epoch && s == seq && c - start < T && epoch > 0 ->
          atomic { beat_epoch = epoch; beat_age = c - start }
          if
          :: has ->
             atomic { /* what client 0 returned goes to the pool: C - kept - claimed */
                 room = (report_epoch == epoch -> C : C - 1) - (n > 0 -> put - n : put)
             }
             if
             :: room > 0 && room > n ->
                atomic {                                                /* M4 */
                    if
                    :: count == n && pool_epoch == e && pool_seq == s ->
                       put = (n > 0 -> put - n : put) + room; count = room; pool_seq = (s + 1) % 8; seq = pool_seq
                    :: else -> skip
                    fi
                }
             :: else -> skip
             fi
          :: else -> skip
          fi
       :: !has && !holding && e > 0 ->
          atomic {
              if
              :: e != epoch || look == 0 ->
                 age = (beat_epoch == e -> beat_age : 0); look = c; unconfirmed = true;
                 announced = (period_epoch == e)
              :: else -> skip
              fi;
              epoch = e; seq = s; ok = false
          }
          if
          :: dead == 0 -> skip /* the other lives */
          :: dead == 1 || mistakes < 2 -> /* its lease is over, it seems */
             mistakes = (dead == 1 -> mistakes : mistakes + 1);
             atomic {                                                   /* M5 */
                 if
                 :: count == n && pool_epoch == e && pool_seq == s ->
                    pool_seq = (s + 4) % 8; seq = pool_seq; ok = true
                 :: else -> skip
                 fi
             }
             atomic {                                                   /* M6, P3 */
                 if
                 :: ok ->
                    version = (version + 1) % 16; mine = version; holding = true;
                    if
                    :: period_epoch == epoch && !announced -> look = c; age = 0; unconfirmed = true
                    :: else -> skip
                    fi;
                    start = (look > age -> look - age : 0)
                 :: else -> skip
                 fi
             }
          fi
       :: else -> skip
       fi;
       c = 0; n = 0; e = 0; s = 0; room = 0; ok = false
    od
}

init
{
#if defined(ALONE)
    atomic { run monitor(0); run monitor(1) }
#elif defined(FEW)
    atomic { run client(0); run monitor(0); run monitor(1) }
#else
    atomic { run client(0); run client(1); run client(2); run monitor(0); run monitor(1) }
#endif
}

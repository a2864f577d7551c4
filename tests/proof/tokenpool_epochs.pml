/* tokenpool_epochs.pml - the epochs of tokenpool.h (chapters client, monitor, periods and fills) as a model for spin: clocks,
 * pauses and takeovers. An actor may pause before any step, for any time; one that never goes on has died. Times are ages in
 * ticks, and stop to count where they make no difference: T is a period; an epoch may start up to LATE late and count from its plan.
 *
 * MONITORS > 0: they and the words pool, period and heartbeat. A monitor reads its clock once, and then does all that is due,
 * so its time may be old. Another one may take the storage at any time. Each write is a swap: of the period word as this
 * monitor wrote it (`mine`), of the pool as seen, of the heartbeat as seen before a look at the period word. Never: an epoch
 * that starts sooner than T - LATE after the one before; a number that is not the next one, without a takeover that tells so;
 * with PROGRESS, an epoch in which its owner ran for longer than T, a tick for each takeover, and the pause of a monitor
 * between its look and its clock (without old readings).
 *
 * MONITORS == 0: any monitors that keep to that, and an engine. Its clock loses a tick of T, or goes back; a read is in flight
 * for any time. A cached clock is a read that was begun earlier. Never: a token spent by a clock at which its epoch was over.
 *
 * Each define leaves out one rule; tests/build/epochs_model.sh shows that they are needed. Not in it: time that a clock hides
 * without going back, stray stores, operations whose answer is lost, numbers that come again. */

#ifndef LAST
#define LAST 3 /* epoch */
#endif
#ifdef PROGRESS
#define OLDS 0
#else
#define OLDS 1 /* old readings of the monitors' clocks */
#endif
#ifndef TAKES
#define TAKES 1 /* takeovers */
#endif
#ifndef BACKS
#define BACKS 1 /* steps back of the engine's clock */
#endif
#ifndef T
#define T 3
#endif
#define LATE 1
#ifdef NO_MARGIN
#define LIFE T
#else
#define LIFE (T - 2) /* of a link: LATE, and what a clock may lose */
#endif
#define BACK 2
#define UNKNOWN 100
#define LONG (LAST * LIFE + 1)

#define ACTIVE 0
#define TAKING 1
#define HOLDING 2

/* The words. A fill counts its seq by 1, a takeover by 16. */
byte pool_epoch, pool_seq;
byte period_epoch, period_takeovers;
bool period_open;
byte beat_epoch, beat_age;
/* Of the running epoch: its true age, and what each monitor believes. frozen: counts from the next clock. */
byte epoch_age = T, takes, olds;
#define grow(x, most) x = (x < most -> x + 1 : most)

#if MONITORS > 0
byte age[MONITORS];
bool frozen[MONITORS];
#ifdef PROGRESS
byte ran, lost, owner; /* ticks for which the owner ran; that takeovers may lose */
bool rests[MONITORS];  /* it has done what is due at this tick */
#define progress(x) x
#else
#define progress(x) skip
#endif

inline older()
{
    for (i : 0 .. MONITORS - 1) {
        if
        :: !frozen[i] -> grow(age[i], T + LATE + 1)
        :: else
        fi
    }
    i = 0
}

#define mine (period_epoch == p_epoch && period_takeovers == p_takeovers && period_open == p_open)
#define as_seen (pool_epoch == s_epoch && pool_seq == s_seq)

inline begins(e, by)
{
    assert(e == period_epoch || e == period_epoch + 1 || by != period_takeovers);
    if
    :: e != period_epoch -> assert(epoch_age >= T - LATE); epoch_age = 0; progress(ran = 0; lost = 0)
    :: else
    fi
}

/* A fenced write: sees the word, then the period word, then swaps what it saw. */
inline write_beat()
{
    atomic {w_epoch = beat_epoch; w_age = beat_age};
    do
    :: atomic {w_epoch == epoch && w_age == read_age -> break}
    :: atomic {!(w_epoch == epoch && w_age == read_age) && !mine -> break}
    :: atomic {!(w_epoch == epoch && w_age == read_age) && mine};
        if
        :: atomic {beat_epoch == w_epoch && beat_age == w_age -> beat_epoch = epoch; beat_age = read_age; break}
        :: atomic {!(beat_epoch == w_epoch && beat_age == w_age) -> w_epoch = beat_epoch; w_age = beat_age}
        fi
    od;
    atomic {w_epoch = 0; w_age = 0}
}

/* Starts the next epoch, with the pool as it was seen last; ends at `fenced` if another monitor has the storage. */
inline start()
{
    atomic {read_age = 0; to = epoch};
    do
    :: atomic {as_seen ->
        do
        :: to <= epoch || to == s_epoch || to == p_epoch -> to++
        :: else -> break
        od;
        to <= LAST;
        printf("monitor %d: the pool is of epoch %d\n", m, to);
        age[m] = (age[m] >= T && age[m] <= T + LATE -> age[m] - T : 0);
        unconfirmed = true; role = ACTIVE;
        epoch = to; seq++; pool_epoch = to; pool_seq = seq; s_epoch = to; s_seq = seq;
#ifdef SKIPPED
        to = p_takeovers;
#else
        to = (epoch != p_epoch + 1 -> p_takeovers + 1 : p_takeovers);
#endif
        break}
    :: atomic {!as_seen -> s_epoch = pool_epoch; s_seq = pool_seq}; /* a claim, or another monitor, came first */
        if
        :: atomic {mine}
        :: atomic {!mine -> goto fenced}
        fi
    od;
    if
#ifdef CHANGING_STORE
    :: atomic {true ->
#else
    :: atomic {mine ->
#endif
        begins(epoch, to); period_epoch = epoch; period_takeovers = to; period_open = false;
        p_epoch = epoch; p_takeovers = to; p_open = false; to = 0; progress(owner = m);
        printf("monitor %d announces epoch %d\n", m, epoch)}
    :: atomic {!mine -> goto fenced}
    fi;
    if
#ifdef OPEN_STORE
    :: atomic {begins(epoch, p_takeovers); period_epoch = epoch; period_takeovers = p_takeovers; period_open = true; p_open = true}
#else
    :: atomic {mine -> period_open = true; p_open = true}
#endif
    :: atomic {!mine -> goto fenced}
    fi;
    write_beat()
}

inline check()
{
    atomic {s_epoch = pool_epoch; s_seq = pool_seq};
    if
    :: atomic {s_epoch == epoch && s_seq == seq}; write_beat()
    :: atomic {s_epoch != epoch || s_seq != seq}
    fi;
    if
    :: atomic {mine && !(s_epoch == epoch && s_seq != seq) -> assert(s_epoch == epoch || role == HOLDING)}
    :: atomic {mine && s_epoch == epoch && s_seq != seq}; /* another one is about to take the storage: as after a stray store */
        if
        :: atomic {as_seen -> seq++; s_seq = seq; pool_seq = seq}
        :: atomic {!as_seen}
        fi
    :: atomic {!mine -> goto fenced}
    fi;
    progress(rests[m] = true);
    atomic {age[m] != read_age -> read_age = 0}
}

/* Looks at the pool, the heartbeat and the period word, and perhaps takes the storage. */
inline take()
{
#ifdef LOOK_UNCONFIRMED
    atomic {age[m] = 0; looked = false};
#endif
    atomic {s_epoch = pool_epoch; s_seq = pool_seq};
    if
    :: atomic {!looked || s_epoch != epoch ->
#ifdef LOOK_UNCONFIRMED
        age[m] = age[m] + (beat_epoch == s_epoch -> beat_age : 0);
#else
        age[m] = (beat_epoch == s_epoch -> beat_age : 0); frozen[m] = true;
#endif
#ifdef NO_BEAT
        age[m] = 0;
#endif
        age[m] = (age[m] > T -> T : age[m]); looked = true; epoch = s_epoch};
        atomic {p_epoch = period_epoch; p_takeovers = period_takeovers; p_open = period_open}
    :: atomic {looked && s_epoch == epoch -> frozen[m] = false}
    fi;
    if
    :: atomic {frozen[m] -> frozen[m] = false}
    :: true
    fi;
    if
    :: atomic {as_seen && takes < TAKES -> takes++; seq = s_seq + 16; pool_seq = seq; s_seq = seq; role = HOLDING;
        printf("monitor %d takes the pool\n", m)};
        atomic {period_takeovers++; p_takeovers = period_takeovers; p_open = period_open;
            printf("monitor %d takes the storage\n", m);
            progress(owner = m; lost++);
            progress(if :: p_epoch != period_epoch || epoch != period_epoch -> ran = 0 :: else fi);
#ifndef LOOK_KEPT
            if
            :: p_epoch != period_epoch -> age[m] = 0; frozen[m] = true; epoch = period_epoch
            :: else
            fi;
#endif
            p_epoch = period_epoch; read_age = age[m]};
        if
        :: epoch != 0 -> write_beat()
        :: else
        fi
    :: true
    fi
}

proctype monitor(byte m; byte role)
{
    byte epoch, seq, p_epoch, p_takeovers, s_epoch, s_seq, w_epoch, w_age, read_age, to;
    bool p_open, looked, unconfirmed;
    do
    :: atomic {role != TAKING && olds < OLDS -> /* an old reading: time stands still, nothing is confirmed */
        olds++; printf("monitor %d has an old reading\n", m);
#ifdef OLD_CONFIRMS
        frozen[m] = false; unconfirmed = false;
#endif
#ifdef OLD_COUNTS
        grow(age[m], T + LATE + 1);
#endif
        read_age = (unconfirmed || read_age >= T -> 0 : read_age)};
        check()
    :: atomic {role != TAKING -> /* reads its clock */
        frozen[m] = false;
#ifndef START_UNCONFIRMED
        if
        :: unconfirmed && age[m] > LATE -> age[m] = 0
        :: else
        fi;
#endif
        unconfirmed = false; read_age = age[m]; progress(rests[m] = false)};
        if
        :: read_age >= T || epoch == 0 -> start()
        :: else -> check()
        fi
    :: role == TAKING && takes < TAKES -> take()
    od;
fenced: atomic {read_age = 0; s_epoch = 0; s_seq = 0; epoch = 0; seq = 0; p_epoch = 0; p_takeovers = 0; p_open = 0; to = 0; age[m] = 0}
}

proctype clock()
{
    byte i;
    do
    :: atomic {true -> printf("tick\n");
#ifdef PROGRESS
        if
        :: rests[owner] -> ran++; rests[owner] = false; assert(ran <= T + lost)
        :: else
        fi;
        if
        :: frozen[1] -> grow(lost, T) /* it paused between its look and its next clock */
        :: else
        fi;
#endif
        grow(epoch_age, T); older()}
    od
}

init
{
    byte i;
    atomic {run monitor(0, ACTIVE);
        for (i : 1 .. MONITORS - 1) { run monitor(i, TAKING) }
        run clock()}
}

#else /* one engine */

byte backs, since_lost = T;
short deadline = UNKNOWN; /* less the time now */
byte op_age;              /* of the read under way */
bool reads;

proctype any_monitors()
{
    do
    :: atomic {epoch_age >= T - LATE && period_epoch < LAST ->
        period_epoch++; period_open = false; epoch_age = 0;
        if
        :: true
        :: takes < TAKES -> takes++; period_takeovers++;
            if
            :: true
            :: period_epoch < LAST -> period_epoch++
            fi
        fi;
        printf("epoch %d begins\n", period_epoch)}
    :: atomic {takes < TAKES -> takes++; period_takeovers++}
    :: atomic {!period_open && period_epoch != 0 -> period_open = true}
    od
}

#ifdef ANY_LINKS
#define follows true
#else
#define follows (period_takeovers == takeovers)
#endif

proctype engine()
{
    byte seen = 255, epoch, takeovers;
    bool holds;
    do
    :: atomic {backs < BACKS -> backs++; printf("the engine's clock goes back\n");
#ifdef STEP_UNNOTICED
        deadline = (deadline != UNKNOWN -> deadline + BACK : UNKNOWN);
#else
        deadline = UNKNOWN;
#endif
#ifdef TIME_OF_READ_KEPT
        op_age = (reads -> op_age - BACK : 0)
#else
        reads = false; op_age = 0
#endif
        }
    :: atomic {!reads -> reads = true}
    :: atomic {reads ->
        if
        :: period_epoch != seen -> /* all links are LIFE long */
            holds = false;
            deadline = (deadline == UNKNOWN -> UNKNOWN :
                deadline + (follows && period_epoch > seen -> period_epoch - seen : 1) * LIFE);
            seen = period_epoch; takeovers = period_takeovers
        :: else
        fi;
        if
        :: op_age > 200 -> deadline = 256 - op_age /* begun by a clock that is ahead of this one */
        :: op_age <= 200 && (deadline == UNKNOWN || deadline < -op_age) -> deadline = -op_age
        :: else
        fi;
        if
        :: !holds && period_open && seen != epoch -> holds = true; epoch = seen; printf("the engine holds tokens of epoch %d\n", epoch)
        :: else
        fi;
        reads = false; op_age = 0}
    :: atomic {holds && deadline != UNKNOWN && deadline > 0 && epoch != period_epoch ->
        printf("a token of epoch %d is spent\n", epoch); assert(false)}
    od
}

proctype clock()
{
    do
    :: atomic {true -> printf("tick\n");
        if
        :: deadline != UNKNOWN && deadline > -LONG -> deadline--
        :: else
        fi;
        op_age = (reads && (op_age > 200 || op_age < LONG) -> op_age + 1 : op_age);
        grow(epoch_age, T); grow(since_lost, T)}
    :: atomic {since_lost == T && deadline != UNKNOWN -> printf("tick, which the engine's clock loses\n");
        since_lost = 0; grow(epoch_age, T)}
    od
}

init
{
    atomic {run any_monitors(); run engine(); run clock()}
}
#endif

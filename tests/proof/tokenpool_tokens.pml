/* tokenpool_tokens.pml - the tokens and the admissions of tokenpool.h (chapters client, monitor) as a model for spin. Without time: a
 * step may come at any time. That engines know which epoch runs, and that monitors follow each other, is tokenpool_epochs.pml.
 *
 * ENGINES: so many start one after the other in one slot, and those before go on; they claim, report, and return reservation. The
 * monitor starts epochs and sets the pool at its checks. C tokens an epoch, of them `issued` to the slot; a report may be X behind,
 * or ahead of what is spent, as far as there are tokens.
 * RESTS: an engine may say that it has no token in hand, and the level falls; if it goes on, it says so, and then reads the level.
 * Never: more than C tokens of an epoch spent; more failed claims than engines.
 *
 * ADMISSIONS: so many monitors take the storage, one after the other, and those before go on; each is asked for admissions, 1 or 2.
 * Never: one that adopts something else than what was answered with QOS_OK last; a QOS_OK that another one knows nothing of.
 *
 * Each define leaves out one rule; tests/build/epochs_model.sh shows that they are needed. Not in it: debts, limits, what GO_ON spends,
 * the last report of a period, stray stores, operations whose answer is lost, incarnations that come again. */

#ifdef ENGINES
#ifndef LAST
#define LAST 2 /* epoch */
#endif
#define C 3
#define X 1

byte issued[4] = {0, 2, 1, 2}; /* in each epoch */
/* The words. */
byte pool_epoch, period_epoch, terms_epoch, terms;
short count;
bool period_open;
byte r_epoch, r_incarnation, r_kept, r_spent; /* the report */
bool r_rests, r_rises;                        /* no token in hand; K is not yet as the level says */
byte level_epoch, level;                      /* who rests keeps so many tokens beyond those spent */
byte spent_in[LAST + 1], attached;

proctype monitor()
{
    byte epoch, put;
    short seen, target;
    bool looked;
    do
    :: epoch < LAST ->
        atomic {epoch++; put = C - issued[epoch]; pool_epoch = epoch; count = put; printf("the pool is of epoch %d\n", epoch)};
        atomic {period_epoch = epoch; period_open = false};
        atomic {terms_epoch = epoch; terms = issued[epoch]; level_epoch = epoch; level = issued[epoch]};
        atomic {period_open = true; printf("epoch %d is open\n", epoch)}
#ifdef RESTS
    :: atomic {epoch > 0 && level > 0 -> level--; printf("the level is %d\n", level)}
#endif
    :: atomic {epoch > 0 -> seen = count; looked = true}; /* a check */
        do
        :: atomic {looked ->
            looked = false;
            target = (r_epoch == epoch && r_kept < issued[epoch] -> r_kept : issued[epoch]);
            target = C - (r_epoch == epoch && r_rests && r_spent + level < target -> r_spent + level : target);
#ifndef NO_BUDGET
            target = target - put + (seen > 0 -> seen : 0); /* less what is claimed */
#endif
            if
            :: target <= 0 || target == seen -> target = 0; seen = 0; break
            :: else
            fi}
#ifdef SET_STORE
        :: atomic {!looked ->
#else
        :: atomic {!looked && count == seen ->
#endif
            put = put - (seen > 0 -> seen : 0) + target; count = target; printf("the pool is set to %d\n", target);
            target = 0; seen = 0; break}
#ifndef SET_STORE
        :: atomic {!looked && count != seen -> seen = count; looked = true; target = 0}
#endif
        od
    od
}

#define as_known (r_epoch == k_epoch && r_incarnation == k_incarnation && r_kept == k_kept && r_spent == k_spent && \
                  r_rests == k_rests && r_rises == k_rises)
#define may_spend (spent < kept + gained && (spent < lease_end || lease_end >= kept)) /* pool tokens need no report */

#ifdef REST_SPENDS
#define in_hand !rises
#else
#define in_hand (!rests && !rises)
#endif

inline know() { k_epoch = r_epoch; k_incarnation = r_incarnation; k_kept = r_kept; k_spent = r_spent; k_rests = r_rests; k_rises = r_rises }
inline lapse() { holds = false; spent = 0; kept = 0; gained = 0; lease_end = 0; rests = false; rises = false; base = 0 }

/* What an epoch begins with, by the terms and, for who attaches, the slot's report. */
inline opening()
{
    to_keep = terms; to_spend = 0;
#ifndef ATTACH_FORGETS
    if
    :: incarnation == 0 && k_epoch == seen ->
        to_keep = (k_kept < terms -> k_kept : terms);
#ifdef NO_X
        to_spend = k_spent;
#else
        to_spend = k_spent + (k_rests -> 0 : X);
#endif
        to_spend = (to_spend > to_keep -> to_keep : to_spend)
    :: else
    fi
#endif
}

inline begin()
{
#ifndef HEIR_KEEPS
    rises = (incarnation == 0 && r_epoch == seen && (r_rests || r_rises));
    if
    :: rises && r_rests -> rests = true; rises = false; /* it goes on to rest, and what S grows by counts as spent */
        to_spend = (to_spend <= r_spent && to_spend < to_keep -> to_spend + 1 : to_spend)
    :: true
    fi;
    base = (rises -> r_spent : 0);
#endif
    if
    :: !rests && !rises && to_spend < to_keep -> ahead = 1
    :: true
    fi;
    lease_end = to_spend + ahead + X;
    r_spent = (incarnation == 0 && r_epoch == seen && to_spend + ahead <= r_spent -> r_spent + 1 : to_spend + ahead); /* S grows with each start */
    ahead = 0;
    if
    :: incarnation == 0 -> may_claim = (r_epoch == 0); incarnation = r_incarnation + 1; attached++; printf("engine %d attaches\n", i)
    :: else -> may_claim = true
    fi;
    r_epoch = seen; r_incarnation = incarnation; r_kept = to_keep; r_rests = rests; r_rises = rises;
    know();
    holds = true; epoch = seen; kept = to_keep; spent = to_spend;
    gained = (early_epoch == epoch -> early : 0);
    early_epoch = 0; early = 0; to_keep = 0; to_spend = 0
}

proctype engine(byte i)
{
    byte seen, epoch, kept, gained, spent, lease_end, incarnation, to_keep, to_spend;
    byte k_epoch, k_incarnation, k_kept, k_spent; /* the report as this engine knows it */
    byte c_epoch, early_epoch;                    /* of a claim's answer; of tokens of a pool that is ahead */
    bool c_got, c_waits, early, may_claim, holds;
    byte base;
    bool rests, rises, k_rests, k_rises, ahead;
    do
    :: atomic {period_epoch != seen && period_open && i <= attached /* all are alike */ -> lapse(); seen = period_epoch};
again:  atomic {
            if
#ifdef ANY_TERMS
            :: true -> opening()
#else
            :: terms_epoch == seen -> opening()
            :: else -> seen = 0; goto over
#endif
            fi};
        if
        :: atomic {as_known -> begin()}
        :: atomic {!as_known && incarnation == 0 -> know()}; goto again
        :: atomic {!as_known && incarnation != 0 -> goto fenced}
        fi;
over:   skip
    :: atomic {holds && in_hand && may_spend -> spent++; spent_in[epoch]++; printf("engine %d spends a token of epoch %d\n", i, epoch);
        assert(spent_in[epoch] <= C)}
    :: atomic {holds && !rests && !rises && kept > spent && kept == k_kept -> kept--; printf("engine %d returns a token\n", i)}
#ifdef RESTS
    :: atomic {holds && !rests && !rises && as_known && kept == k_kept && spent <= k_spent ->
        rests = true; r_spent = spent; r_rests = true; r_rises = false; know(); printf("engine %d rests\n", i)}
    :: atomic {rests && as_known -> rests = false; rises = true; base = k_spent; r_rests = false; r_rises = true; know();
        printf("engine %d rises\n", i)}
    :: atomic {(rests || rises) && !as_known -> goto fenced}
    :: atomic {rises -> rises = false;
#ifndef NO_LEVEL
        base = base + (level_epoch == epoch -> level : 0);
#ifndef HEIR_FORGETS
        base = (base < spent -> spent : base); /* the former engine may have risen, and spent them */
#endif
        kept = (base < kept -> base : kept);
#endif
        base = 0; lease_end = k_spent + X}
#endif
    :: holds && !rests && !rises && (kept != k_kept || spent > k_spent) -> /* reports */
        if
#ifdef REPORT_STORE
        :: atomic {true ->
#else
        :: atomic {as_known ->
#endif
            if
            :: spent < kept -> ahead = 1
            :: true
            fi;
            r_epoch = epoch; r_incarnation = incarnation; r_kept = kept; r_spent = spent + ahead; r_rests = false; r_rises = false;
            know(); lease_end = r_spent + X; ahead = 0}
#ifdef FORMER_GOES_ON
        :: atomic {!as_known -> know()}
#endif
#if !defined(FORMER_GOES_ON) && !defined(REPORT_STORE)
        :: atomic {!as_known -> goto fenced}
#endif
        fi
    :: atomic {holds && may_claim && !c_waits -> printf("engine %d claims\n", i);
        c_epoch = pool_epoch; c_got = (count > 0); c_waits = true; count--;
        may_claim = (count > 0 && c_epoch == epoch);
        assert(count >= -ENGINES)}
    :: atomic {c_waits ->
        if
#ifdef ANY_CLAIM
        :: holds -> gained = gained + c_got
#else
        :: holds && c_epoch == epoch -> gained = gained + c_got
#endif
        :: c_epoch != epoch -> early_epoch = c_epoch; early = c_got
        :: else
        fi;
        c_waits = false; c_got = false; c_epoch = 0}
#ifdef CLAIM_AGAIN
    :: atomic {holds && !may_claim && !c_waits -> may_claim = true}
#else
    :: atomic {holds && !may_claim && !c_waits && early_epoch == 0 && pool_epoch == epoch && count > 0 -> may_claim = true}
#endif
    od;
fenced: atomic {printf("engine %d is fenced\n", i);
        lapse(); k_rests = false; k_rises = false; seen = 0; epoch = 0; incarnation = 0; to_keep = 0; to_spend = 0; k_epoch = 0; k_incarnation = 0; k_kept = 0;
        k_spent = 0; c_epoch = 0; early_epoch = 0; c_got = false; c_waits = false; early = false; may_claim = false}
}

init
{
    byte i;
    atomic {run monitor();
        for (i : 0 .. ENGINES - 1) { run engine(i) }
    }
}

#else

byte period_takeovers, word, stamp; /* the admission: what, and of which takeover */
byte told, adopted_by;              /* what was answered with QOS_OK last; who took it over last */
#ifdef NO_STAMP
#define mine 0
#else
#define mine takeover
#endif
#define owns (period_takeovers == takeover)
#define as_seen (word == s_word && stamp == s_stamp)

inline answer_ok()
{
    told = want; want = 0; s_word = 0; s_stamp = 0; printf("monitor %d: QOS_OK for %d\n", m, told);
    assert(adopted_by == m)
}

proctype monitor(byte m)
{
    byte takeover, s_word, s_stamp, want;
    if
    :: m == 0
    :: m != 0 -> atomic {period_takeovers++; takeover = period_takeovers; printf("monitor %d takes the storage\n", m)};
adopt:  atomic {s_word = word; s_stamp = stamp};
        if
        :: atomic {owns}
        :: atomic {!owns -> goto fenced}
        fi;
        if
        :: atomic {as_seen -> stamp = mine; adopted_by = m; printf("monitor %d adopts %d\n", m, word); assert(word == told)}
        :: atomic {!as_seen}; goto adopt
        fi
    fi;
    do
    :: atomic {owns ->
        if
        :: want = 1
        :: want = 2
        fi;
        printf("monitor %d is asked for %d\n", m, want)};
again:  atomic {s_word = word; s_stamp = stamp;
            if
            :: s_word == want && s_stamp == mine -> answer_ok(); goto over
            :: else
            fi};
        if
#ifdef NO_LOOK
        :: true
#else
        :: atomic {owns}
        :: atomic {!owns -> goto fenced}
#endif
        fi;
        if
#ifdef PUT_STORE
        :: atomic {true -> word = want; stamp = mine; answer_ok()}
#else
        :: atomic {as_seen -> word = want; stamp = mine; answer_ok()}
        :: atomic {!as_seen}; goto again
#endif
        fi;
over:   skip
    :: atomic {!owns -> goto fenced}
    od;
fenced: atomic {s_word = 0; s_stamp = 0; want = 0}
}

init
{
    byte i;
    atomic {
        for (i : 0 .. ADMISSIONS - 1) { run monitor(i) }
    }
}
#endif

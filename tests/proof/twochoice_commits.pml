/* twochoice_commits.pml - the machine of commits of twochoice.h (its drawing "COMMITS") as a model for spin.
 *
 * One home, two logs and a mark on a device, two committers, attempts at compactions, swaps in another thread, power
 * cuts and restarts. Each write, cut, sync, swap and creation can fail; a failed sync loses what it should have written,
 * and later ones of that log fail, or, once the header knows, may lie. A log's contents are a number: how many of the
 * table's changes it has. What the device really holds (has, whole, in_use) is apart from what the header believes
 * (st, dur, act). tests/build/commits_model.sh runs it, and plants bugs into copies of it. */

#ifndef CHANGES
#define CHANGES 3
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#ifndef CUTS
#define CUTS 2
#endif

#ifndef MARKS
#define MARKS 2
#endif

#define NONE 0
#define COPYING 1
#define COPIED 2
#define SWAPPING 3
#define DOUBTFUL 4
#define SOUND 5
#define TORN 6
#define LOST 7

/* the header's */
byte st[2], id[2], rec[2], dur[2];
bool known[2]; /* of a compacted log: its end is durable */
byte act, changes, acknowledged, last_id, attempts, cuts;
byte mark_slot, unsynced_mark, marks;
/* the commits */
bool busy[2], good[2];
byte commit_id[4], commit_rec[4], commit_mark[2]; /* [2 * committer + log]; rec 255: not in it */
byte need[2]; /* bits: logs 1, 2; mark 4 */
/* the device's */
byte has[2], in_use;
bool whole[2], stuck[2], told[2]; /* told: the header knows of the failed sync */
byte slot[2]; /* of the mark: 0 durable, 1 written, 2 a failed sync */
byte swap_done; /* 0: not called, 1: done, 2: failed */

#define other (1 - act)
#define open_for_changes (st[act] != LOST && st[other] != DOUBTFUL)

inline fail(l)
{
    if
    :: st[l] == NONE -> skip
    :: st[l] == COPYING || st[l] == COPIED -> st[l] = NONE; forget_log(l)
    :: st[l] == SWAPPING || st[l] == DOUBTFUL -> st[l] = DOUBTFUL
    :: else -> st[l] = LOST
    fi
}

inline put_mark()
{
    marks++; printf("mark %d is written\n", marks);
    unsynced_mark = marks;
    slot[mark_slot] = 1;
    assert(!(slot[0] != 0 && slot[1] != 0)); /* a power cut never tears both */
    if
    :: true -> skip
    :: true -> unsynced_mark = 0; fail(act) /* the write failed */
    fi
}

inline credit(k, l) /* of commit k, log l */
{
    if
    :: commit_rec[2 * k + l] != 255 && st[l] != NONE && commit_id[2 * k + l] == id[l] ->
        if
        :: !good[k] -> told[l] = true; fail(l)
        :: good[k] && st[l] != DOUBTFUL && st[l] != LOST ->
            known[l] = true;
            if
            :: commit_rec[2 * k + l] > dur[l] -> dur[l] = commit_rec[2 * k + l]
            :: else -> skip
            fi
        :: else -> skip
        fi
    :: else -> skip
    fi
}

inline acknowledge()
{
    a = dur[act];
    if
    :: st[other] == SWAPPING && dur[other] < a -> a = dur[other]
    :: else -> skip
    fi;
    if
    :: open_for_changes && a > acknowledged -> acknowledged = a
    :: else -> skip
    fi;
    a = 0
}

inline forget_commit(k) /* values that no longer count make no new states */
{
    busy[k] = false; need[k] = 0; good[k] = false; commit_mark[k] = 0;
    commit_rec[2 * k] = 0; commit_rec[2 * k + 1] = 0; commit_id[2 * k] = 0; commit_id[2 * k + 1] = 0
}

inline forget_log(l)
{
    rec[l] = 0; dur[l] = 0; known[l] = false; has[l] = 0; whole[l] = false; stuck[l] = false; told[l] = false; id[l] = 0
}

inline begin_commit(k)
{
    printf("commit %d begins\n", k);
    if
    :: st[act] == TORN -> if :: true -> st[act] = SOUND :: true -> st[act] = LOST fi
    :: else -> skip
    fi;
    need[k] = 0;
    for (l : 0 .. 1) {
        commit_rec[2 * k + l] = 255;
        if
        :: st[l] == COPIED || st[l] == SWAPPING || st[l] == SOUND ->
            commit_id[2 * k + l] = id[l];
            commit_rec[2 * k + l] = changes;
            need[k] = need[k] | (1 << l)
        :: else -> skip
        fi
    }
    l = 0;
    commit_mark[k] = unsynced_mark;
    if :: unsynced_mark != 0 -> need[k] = need[k] | 4 :: else -> skip fi;
    good[k] = true;
    if
    :: commit_rec[2 * k] != 255 || commit_rec[2 * k + 1] != 255 -> busy[k] = true
    :: else -> forget_commit(k)
    fi
}

inline sync(k, l) /* by another thread; it knows the log's number only */
{
    printf("commit %d syncs log %d\n", k, l);
    need[k] = need[k] & ~(1 << l);
    if
    :: !stuck[l] && st[l] != COPYING -> has[l] = rec[l]; whole[l] = true
    :: !stuck[l] && st[l] == COPYING -> skip
    :: stuck[l] && (told[l] || st[l] == NONE) -> skip /* it may lie */
    :: true -> good[k] = false; stuck[l] = true; printf("it fails\n")
    fi
}

inline end_commit(k)
{
    printf("commit %d ends\n", k);
    credit(k, 0);
    credit(k, 1);
    if
    :: !good[k] ->
        if
        :: commit_mark[k] != 0 && commit_mark[k] == unsynced_mark -> unsynced_mark = 0; fail(act)
        :: else -> skip
        fi
    :: else ->
        if
        :: commit_mark[k] != 0 && commit_mark[k] == unsynced_mark -> unsynced_mark = 0; mark_slot = 1 - mark_slot
        :: else -> skip
        fi;
        acknowledge();
        if
        :: unsynced_mark == 0 && marks < MARKS && open_for_changes -> put_mark()
        :: else -> skip
        fi
    fi;
    forget_commit(k)
}

inline restart() /* recovery writes a new log, and swaps it in; before that nothing has changed */
{
    /* log 0 is the active one; the new one is log 1 */
    changes = held;
    acknowledged = held;
    act = 1; in_use = 1;
    st[0] = NONE; st[1] = SOUND;
    last_id++;
    id[1] = last_id; rec[1] = held; dur[1] = held; known[1] = true;
    has[1] = held; whole[1] = true; stuck[1] = false; told[1] = false;
    forget_log(0);
    forget_commit(0);
    forget_commit(1);
    swap_done = 0;
    if :: slot[0] != 0 -> mark_slot = 0 :: slot[0] == 0 && slot[1] != 0 -> mark_slot = 1 :: else -> skip fi;
    unsynced_mark = 0
}

proctype home()
{
    byte held, a, l;
    do
    /* Whenever the power is cut, the log that counts is whole, and has all that was acknowledged. */
    :: assert(whole[in_use] && has[in_use] >= acknowledged)
    :: atomic { changes < CHANGES && open_for_changes -> /* a change */
        changes++; printf("a change\n");
        if
        :: true ->
            if :: st[act] == TORN -> if :: true -> st[act] = SOUND :: true -> st[act] = LOST fi :: else -> skip fi;
            if
            :: st[act] == SOUND ->
                rec[act] = changes;
                if
                :: st[other] == COPIED || st[other] == SWAPPING ->
                    if :: true -> rec[other] = changes :: true -> fail(other) fi
                :: else -> skip
                fi
            :: else -> changes--
            fi
        :: true -> st[act] = TORN; changes-- /* the write failed; the other commit cuts its rest */
        fi }
    :: atomic { !busy[0] -> begin_commit(0) }
    :: atomic { !busy[1] -> begin_commit(1) }
    :: atomic { busy[0] && (need[0] & 1) -> sync(0, 0) }
    :: atomic { busy[0] && (need[0] & 2) -> sync(0, 1) }
    :: atomic { busy[1] && (need[1] & 1) -> sync(1, 0) }
    :: atomic { busy[1] && (need[1] & 2) -> sync(1, 1) }
    :: atomic { busy[0] && (need[0] & 4) -> need[0] = need[0] & 3;
        if :: slot[0] != 2 && slot[1] != 2 -> if :: slot[0] == 1 -> slot[0] = 0 :: else -> skip fi; if :: slot[1] == 1 -> slot[1] = 0 :: else -> skip fi
           :: true -> good[0] = false; printf("commit 0: the sync of the mark fails\n"); if :: slot[mark_slot] == 1 -> slot[mark_slot] = 2 :: else -> skip fi fi }
    :: atomic { busy[1] && (need[1] & 4) -> need[1] = need[1] & 3;
        if :: slot[0] != 2 && slot[1] != 2 -> if :: slot[0] == 1 -> slot[0] = 0 :: else -> skip fi; if :: slot[1] == 1 -> slot[1] = 0 :: else -> skip fi
           :: true -> good[1] = false; printf("commit 1: the sync of the mark fails\n"); if :: slot[mark_slot] == 1 -> slot[mark_slot] = 2 :: else -> skip fi fi }
    :: atomic { busy[0] && need[0] == 0 -> end_commit(0) }
    :: atomic { busy[1] && need[1] == 0 -> end_commit(1) }
    :: atomic { st[other] == NONE && attempts < ATTEMPTS -> /* compact_start: new blocks, a new identity */
        attempts++; printf("compaction begins\n");
        last_id++;
        id[other] = last_id; rec[other] = 0; dur[other] = 0; known[other] = false;
        has[other] = 0; whole[other] = false; stuck[other] = false; told[other] = false;
        st[other] = COPYING }
    :: atomic { st[other] == COPYING -> printf("copied, or given up\n"); if :: true -> st[other] = COPIED; rec[other] = changes :: true -> fail(other) fi }
    :: atomic { st[other] == COPIED && known[other] && dur[other] >= acknowledged -> st[other] = SWAPPING; swap_done = 0; printf("swapping\n") }
    :: atomic { st[other] == COPIED -> fail(other) } /* no room */
    :: atomic { (st[other] == SWAPPING || st[other] == DOUBTFUL) && swap_done == 0 -> /* in another thread */
        if :: true -> in_use = other; swap_done = 1; printf("swapped\n") :: true -> swap_done = 2 fi }
    :: atomic { (st[other] == SWAPPING || st[other] == DOUBTFUL) && swap_done == 2 -> st[other] = NONE; forget_log(other); swap_done = 0 }
    :: atomic { (st[other] == SWAPPING || st[other] == DOUBTFUL) && swap_done == 1 -> /* compact_end */
        printf("compaction ends\n");
        st[act] = NONE;
        forget_log(act);
        act = other;
        st[act] = (st[act] == SWAPPING -> SOUND : LOST);
        if :: dur[act] > acknowledged -> acknowledged = dur[act] :: else -> skip fi;
        swap_done = 0;
        if :: marks < MARKS -> put_mark() :: else -> skip fi }
    :: atomic { cuts < CUTS -> cuts++; printf("power cut\n"); /* a power cut: what was written since the last good sync may be there, or not */
        if
        :: true -> held = has[in_use]
        :: !stuck[in_use] && rec[in_use] > has[in_use] && whole[in_use] -> held = rec[in_use]
        fi;
        restart();
        held = 0;
        if :: slot[0] != 0 -> slot[0] = 1 :: else -> skip fi;
        if :: slot[1] != 0 -> slot[1] = 1 :: else -> skip fi }
    od
}

init
{
    atomic {
        st[0] = SOUND; id[0] = 1; last_id = 1; known[0] = true; whole[0] = true;
        run home()
    }
}

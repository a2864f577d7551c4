/* twochoice_commits.pml - the machine of commits of twochoice.h (its drawing "COMMITS") as a model for spin.
 *
 * One home, two logs and a mark on a device, two committers, attempts at compactions, swaps in another thread, power
 * cuts and restarts; with ROOM, records that open writes have reserved. Each write, sync, swap and creation can fail; a failed sync loses what it should have written, and later ones of that log fail, or, once a commit that failed
 * has ended, may lie: also if that commit began with an older log of that number, and its sync came late. A log's
 * contents are a number: how many of the table's changes it has. What the device really holds (has, whole, in_use) is
 * apart from what the header believes (st, dur, act). tests/build/commits_model.sh runs it, and plants bugs into copies
 * of it. */

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
#ifndef ROOM /* records that a log may have beside its header; 0: enough */
#define ROOM 0
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
byte act, changes, acknowledged, new_id, attempts, cuts;
byte mark_slot, unsynced_mark, marks;
byte ended; /* the writes that are known to have ended: the first so many changes */
byte failures; /* of the attempt at a compaction that is under way */
#if ROOM > 0
byte used[2], open; /* records; open writes, each with a record reserved */
#define room(l, n) (used[l] + n <= ROOM && (st[1 - l] < SWAPPING || st[1 - l] > DOUBTFUL || used[1 - l] + n <= ROOM))
#define may_end (open > 0)
#else
#define may_end true
#endif
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
#define counts (st[act] != LOST && st[other] != DOUBTFUL)
#define open_for_changes (st[act] == SOUND && counts)

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

inline credit(k, l) /* of commit k, log l: success counts for the log that it began with, failure for what is there now */
{
    if
    :: commit_rec[2 * k + l] != 255 && st[l] != NONE && !good[k] -> told[l] = true; fail(l)
    :: commit_rec[2 * k + l] != 255 && st[l] != NONE && commit_id[2 * k + l] == id[l] && good[k] && st[l] != DOUBTFUL && st[l] != LOST ->
        known[l] = true;
        if
        :: commit_rec[2 * k + l] > dur[l] -> dur[l] = commit_rec[2 * k + l]
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
    :: counts && a > acknowledged -> acknowledged = a
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

inline name_log() /* an identity that nobody has: numbers that nobody has are the same */
{
    new_id = 1;
    do
    :: id[0] == new_id || id[1] == new_id || commit_id[0] == new_id || commit_id[1] == new_id || commit_id[2] == new_id ||
       commit_id[3] == new_id -> new_id++
    :: else -> break
    od
}

inline begin_commit(k)
{
    printf("commit %d begins\n", k);
    need[k] = 0;
    for (l : 0 .. 1) {
        commit_rec[2 * k + l] = 255;
        if
        :: st[l] == COPIED || st[l] == SWAPPING || st[l] == SOUND || st[l] == TORN ->
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
        :: commit_mark[k] != 0 && unsynced_mark != 0 -> unsynced_mark = 0; fail(act)
        :: else -> skip
        fi
    :: else ->
        if
        :: commit_mark[k] != 0 && commit_mark[k] == unsynced_mark -> unsynced_mark = 0; mark_slot = 1 - mark_slot
        :: else -> skip
        fi;
        acknowledge();
        if
        :: unsynced_mark == 0 && marks < MARKS && counts -> put_mark()
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
    forget_log(0);
    ended = held;
#if ROOM > 0
    used[1] = held; used[0] = 0; open = 0;
#endif
    id[1] = 1; rec[1] = held; dur[1] = held; known[1] = true;
    has[1] = held; whole[1] = true; stuck[1] = false; told[1] = false;
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
#if ROOM > 0
    :: atomic { changes + open < CHANGES && open_for_changes && room(act, open + 1) -> open++; printf("a write begins\n") }
    :: atomic { open_for_changes && room(act, open + 1) -> used[act]++; printf("a ceiling is written\n");
        if :: st[other] == COPIED || st[other] == SWAPPING -> used[other]++ :: else -> skip fi }
#endif
    :: atomic { changes < CHANGES && open_for_changes && may_end -> /* a change: a write ends */
        changes++; printf("a change\n");
#if ROOM > 0
        assert(room(act, 1)); /* the record that its begin reserved */
#endif
        if
        :: true ->
            rec[act] = changes; ended = changes;
#if ROOM > 0
            open--; used[act]++;
            if :: st[other] == COPIED || st[other] == SWAPPING -> used[other]++ :: else -> skip fi;
#endif
            if
            :: st[other] == COPIED || st[other] == SWAPPING ->
                if :: true -> rec[other] = changes :: true -> fail(other) fi
            :: else -> skip
            fi
        :: true -> st[act] = TORN; changes-- /* the write failed: nothing follows it in this log */
        fi }
    :: atomic { changes > 0 -> /* the reply was lost, and the client ends its write again: it counts once */
        if :: ended >= changes -> skip :: else -> printf("a write counts again\n"); assert(false) fi }
    :: atomic { !busy[0] -> begin_commit(0) }
    :: atomic { busy[0] && !busy[1] -> begin_commit(1) } /* which of the two is free first makes no difference */
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
        attempts++; failures = 0; printf("compaction begins\n");
        name_log();
        id[other] = new_id; new_id = 0; rec[other] = 0; dur[other] = 0; known[other] = false;
        has[other] = 0; whole[other] = false; stuck[other] = false; told[other] = false;
        st[other] = COPYING }
    :: atomic { st[other] == COPYING -> printf("copied, or given up\n");
        if
#if ROOM > 0
        :: changes + open > ROOM -> fail(other)
        :: changes + open <= ROOM -> st[other] = COPIED; rec[other] = changes; used[other] = changes
#else
        :: true -> st[other] = COPIED; rec[other] = changes
#endif
        :: true -> failures++; printf("a callback fails\n");
            assert(failures < 2); /* it ends with the first one: nothing loops over a callback that fails */
            fail(other)
        fi }
    :: atomic { st[other] == COPIED && known[other] && dur[other] >= acknowledged -> st[other] = SWAPPING; swap_done = 0; printf("swapping\n") }
    :: atomic { st[other] == COPIED -> fail(other); printf("given up\n") } /* no room */
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
        st[0] = SOUND; id[0] = 1; known[0] = true; whole[0] = true;
        run home()
    }
}

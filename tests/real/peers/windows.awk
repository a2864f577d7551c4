# Judges a limit at the clients: in any window of a period (500 ms) there are at most the requests of two periods, and one more for
# each connection, as a connection asks when it is answered, and what was picked before may come now. A contract holds at the latest
# two periods after it was written and read.
#     awk -v percent=100 -v each=CONNECTIONS -f windows.awk LIMITS SEEN
# LIMITS: when (ms) it began to be written, the limit of a period, and when it surely was. SEEN: when (ms), port, 1 if it was
# served. percent: of the limit.
# Prints the requests, the windows above, and how many requests the fullest has.
FNR == NR {
    at[++n] = $1
    limit[n] = $2
    written[n] = $3
    next
}
$3 == 1 {t[++m] = $1}
END {
    for (i = j = 1; i <= m; i++) {
        while (t[i] - t[j] >= 500) j++
        for (k = most = 0; ++k <= n;)
            if (at[k] <= t[i] && (k == n || written[k + 1] + 2500 > t[j]) && limit[k] > most) most = limit[k]
        if (i - j + 1 > 2 * most * percent / 100 + each) over++
        if (i - j + 1 > worst) worst = i - j + 1
    }
    print m + 0, over + 0, worst + 0
}

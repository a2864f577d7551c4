"""The checks of tests/real/memcached_gate.sh that need sockets of their own. Each command prints what is wrong, and ends with
status 1 if anything is. Uses Debian's python3-pymemcache for the commands `clients` and `hashing`."""
import base64, os, random, re, resource, select, socket, sys, time

WRONG = []
socket.setdefaulttimeout(60) # against a hang; nothing is judged by it


def check(what, good, seen=""):
    if not good:
        WRONG.append(what)
        print(f"FAILED: {what} {seen!r}"[:400], flush=True)
        if os.environ.get("QOS_TEST_FAILURES") == "1": # a planted bug: one failure is enough
            os._exit(1)


def connect(port, host="127.0.0.1", source=None):
    s = socket.create_connection((host, int(port)), 60, source_address=(source, 0) if source else None)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def read_all(s):
    out = b""
    try:
        while True:
            part = s.recv(1 << 20)
            if not part:
                return out
            out += part
    except OSError as e:
        return out + repr(e).encode()


def talk(port, data, source=None):
    """Sends all data, closes that direction, reads to the end."""
    s = connect(port, source=source)
    try:
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
    except OSError:
        pass
    with s:
        return read_all(s)


def until(true, seconds=60):
    """The value of true() as soon as it is not false; a wait against a hang, by tries, as a stall of the machine is nobody's fault."""
    for _ in range(seconds * 20):
        value = true()
        if value:
            break
        time.sleep(0.05)
    return value


def unread_of(port, source):
    """Bytes on their way from this address to the port, by the kernel: those that the server there has not read yet."""
    of = lambda a: "%02X%02X%02X%02X" % tuple(reversed([int(x) for x in a.split(".")]))
    here, there, total = ":%04X" % int(port), of(source), 0
    with open("/proc/net/tcp") as f:
        for line in f.read().splitlines()[1:]:
            local, remote, _, queues = line.split()[1:5]
            if local.endswith(here) and remote.startswith(there): # the server's end
                total += int(queues.split(":")[1], 16)
            elif remote.endswith(here) and local.startswith(there):
                total += int(queues.split(":")[0], 16)
    return total


def stats(port):
    text = talk(port, b"stats qos\r\nquit\r\n").decode()
    return {k: int(v) for k, v in re.findall(r"^STAT (\S+) (\d+)\r$", text, re.M)}


# ---- compare: the gate and memcached itself, the same bytes

BIG = b"x" * 1048000
CASES = [
    b"verbosity", b"verbosity noreply", b"verbosity 0 noreply", b"verbosity foo bar my", b"verbosity 1",
    b"set a 0 0 2\r\nhi", b"get a b a", b"gat 0 a", b"gat x a", b"gat 3000000000 a", b"gats -3 a", b"gat +0 a", b"gat 0000000000001 a", b"gat 99999999999999999999 a",
    b"get", b"get ", b"gets", b"get  a   a ",
    b"touch a 0", b"touch a x", b"touch zz 0", b"touch a", b"touch a 0 noreply", b"touch a 3000000000", b"touch a 1 foo",
    b"set a 0 0 -1\r\nxx", b"set a 0 0 x\r\nhi", b"set a 0 0 2 junk\r\nhi",
    b"set a 0 0 2 noreply\r\nhi", b"set a 0 0 2\r\nhixx", b"set a 0 0", b"set",
    b"cas zz 0 0 2 1 noreply\r\nhi",
    b"add a 0 0 2\r\nhi", b"replace zz 0 0 2\r\nhi", b"append a 0 0 2\r\nhi", b"prepend a 0 0 2\r\nhi", b"get a",
    b"delete a 0", b"delete a 1", b"delete a noreply", b"delete a 0 noreply", b"delete a x y z", b"delete", b"delete noreply",
    b"set n 0 0 1\r\n5", b"incr n 1", b"incr n x", b"incr n -1", b"incr n", b"decr n 3 noreply", b"incr n noreply", b"incr n +1", b"incr n 1 foo",
    b"incr n -18446744073709551615",
    b"incr zz 1", b"incr n 18446744073709551615", b"incr n 18446744073709551616",
    b"get " + b"k" * 250, b"get " + b"k" * 251, b"delete " + b"k" * 251,
    b"incr " + b"k" * 251 + b" 1", b"get " + b" ".join(b"k%d" % i for i in range(3000)),
    b"mg a", b"mg a v", b"mg n v t f s k O123", b"mg zz", b"mg zz q", b"mg a q v k", b"mg", b"mg n b", b"mg Zm9v b v k",
    b"mg n v v", b"mg n ;", b"mg n q q", b"mg n v noreply",
    b"ms b 2\r\nhi", b"ms b 2 T0 F5\r\nhi", b"ms b 2 q\r\nhi", b"ms b x\r\nhi", b"ms b\r\nhi", b"ms b 2 Z\r\nhi",
    b"ms b 2 T\r\nhi", b"ms b 2 Tx\r\nhi", b"ms b 2 q q\r\nhi", b"ms b 2\r\nhixx", b"ms b 2 MA\r\nhi", b"ms b 2 MX\r\nhi",
    b"ms b 2 C99999 q\r\nhi", b"ms b -1\r\nhi", b"ms Zm9v 2 b\r\nhi", b"ms !!! 2 b\r\nhi", b"ms b 2 ME\r\nhi",
    b"ms b 2 MR q\r\nhi", b"ms b 2 F-1\r\nhi", b"ms b 2 ;\r\nhi", b"ms b 2 N100 MA\r\nhi",
    b"md b", b"md b q", b"md zz q", b"md zz", b"md",
    b"ma n", b"ma zz", b"ma zz q", b"ma n q", b"ma n v D5", b"ma new N0 J13 v", b"ma n Dx", b"ma n MD v", b"ma n MX",
    b"me zz", b"me", b"mn", b"mn foo", b"foo", b"", b" ", b"GET a", b"stats foo",
    b"flush_all x", b"flush_all -1", b"GET / HTTP/1.1", b"flush_all 1 2 3",
    b"set big 0 0 1048577\r\n" + b"x" * 1048577, b"get big", b"set big 0 0 1048576\r\n" + b"x" * 1048576, b"get big",
    b"set big 0 0 1048000\r\n" + BIG, b"get big big", b"set big 0 0 2000000\r\n" + b"x" * 2000000, b"get big",
    b"ms big 1048577\r\n" + b"x" * 1048577, b"ms big 1048000 q\r\n" + BIG, b"mg big v", b"append big 0 0 999999\r\n" + b"x" * 999999,
    b"cache_memlimit 64", b"cache_memlimit x", b"slabs automove 0", b"lru mode flat", b"lru_crawler sleep 100", b"lru_crawler foo",
    b"flush_all 0", b"flush_all noreply", b"flush_all 0 noreply", b"flush_all", b"mg n v", b"set n 0 0 1\r\n5\r\ngets n",
]
# Lines before a block of 8 bytes that is a command (a client library writes there what its user gave it): it must not run. {}: the length
NUMBERS = b"4102444800 2147483648 4294967296 18446744073709551615 18446744073709551616 +0 +4 -1 -18446744073709551615 00 x 1x".split()
BLOCKS = [b"set k 0 " + n + b" {}" for n in NUMBERS] + [b"set k " + n + b" 0 {}" for n in NUMBERS] + [b"cas k 0 0 {} " + n for n in NUMBERS]
BLOCKS += [head.replace(b"{}", form) for form in (b"+8", b"008", b"0000000000000000000000008", b"4294967304", b"8\t", b"\t8", b"8\rx", b"8\0")
           for head in (b"set k 0 0 {}", b"add k 0 0 {} noreply", b"cas k 0 0 {} 1", b"ms k {}", b"ms k {} q O1", b"ms !!! {} b")]
BLOCKS += [b"set " + b"k" * 251 + b" 0 0 {}", b"ms " + b"k" * 251 + b" {}", b"set k\tx 0 0 {}", b"ms k\x7fx {}", b"cas k 0 0 {}", b"ms ICAgIA== {} b k",
           b"set k 0 0 {} noreply noreply", b"set k 0 0 {}" + b" a" * 30, b"ms k {}" + b" a" * 30, b"ms k {} O" + b"x" * 40, b"ms k {} ;", b"  set   k 0  0 {}  "]


def compare(direct, gate):
    same = 0
    for case in CASES:
        data = case + b"\r\nmn\r\n"
        a, b = talk(direct, data), talk(gate, data)
        check(f"memcached and the gate answer alike to {data[:60]!r}: {a[:100]!r}", a == b, b)
        same += a == b
    for head in BLOCKS:
        data = b"set v 0 0 1\r\n1\r\n" + head.replace(b"{}", b"8") + b"\r\ndelete v\r\nmn\r\nget v k\r\n"
        a, b = talk(direct, data), talk(gate, data)
        check(f"a value is no command: {head[:60]!r}", b"VALUE v" in b or (b"\0" in head and b.endswith(b"format\r\n")), b)
        refused = re.search(rb"[^ !-~]|ICAg", head) # by the gate; and memcached 1.6.18 runs the value of some
        check(f"memcached and the gate answer alike to {head[:60]!r}", a == b or refused or b"VALUE v" not in a, (a, b))
    # the same again in one stream, with requests cut at random places; without answers that depend on the second of
    # the clock
    text = b"".join(b"delete %s noreply\r\n" % k for k in (b"a", b"b", b"n", b"zz", b"foo", b"new", b"big", b"noreply")) + b"\r\n".join(c for c in CASES if c and len(c) < 5000 and not re.match(b"flush|GET /|g?at|touch|mg n v t|ms b 2 T", c))
    text += b"\r\nmn\r\n"
    without_cas = lambda r: re.sub(rb"VALUE n 0 1 \d+", b"VALUE n 0 1", r)
    for seed in (1, 2, 3):
        rng, s, at, whole = random.Random(seed), connect(gate), 0, without_cas(talk(direct, text))
        while at < len(text):
            step = rng.choice([1, 2, 3, 17, 200, 3000])
            s.sendall(text[at:at + step])
            at += step
        s.shutdown(socket.SHUT_WR)
        got = without_cas(read_all(s))
        at = len(os.path.commonprefix([whole, got]))
        check("all in one pipeline, in pieces", got == whole, (whole[at - 60:at + 60], got[at - 60:at + 60]))
    print(f"{same} of {len(CASES)} requests: memcached's answer and the gate's are equal")


# ---- requests that no client should send

def bad(gate, pid):
    before = rss(pid)
    r = talk(gate, b"\x80\x01\x00\x05" + b"\0" * 20)
    check("binary protocol: refused and closed", r.startswith(b"CLIENT_ERROR") and b"binary" in r, r)
    r = talk(gate, b"x" * 100000)
    check("endless line: refused and closed", r.startswith(b"CLIENT_ERROR line too long"), r)
    r = talk(gate, b"get " + b"x" * 100000)
    check("endless key", r == b"CLIENT_ERROR bad command line format\r\n", r)
    r = talk(gate, b"get a " + b" " * 100000 + b"\r\nmn\r\n")
    check("endless spaces", r.endswith(b"MN\r\n"), r)
    r = talk(gate, b"set a 0 0 1000000000\r\n" + b"x" * 3000000)
    check("a value of 1 GB is not stored", r.startswith(b"SERVER_ERROR object too large"), r)
    for length in (b"-1", b"2147483648", b"18446744073709551615", b"2147483647", b"0x10", b"1e3"):
        r = talk(gate, b"set a 0 0 " + length + b"\r\nx\r\nmn\r\n")
        check(f"length {length}", r.startswith(b"CLIENT_ERROR bad command line format\r\n") and r.endswith(b"MN\r\n"), r)
    for text in (b"get a\0b\r\nmn\r\n", b"set a\x01 0 0 1\r\nmn\r\n", b"delete a\rb\r\nmn\r\n"):
        check("control characters", b"CLIENT_ERROR" in talk(gate, text), text)
    victim, rng = connect(gate), random.Random(7)
    talk(gate, b"set victim 0 0 6\r\nsecret\r\n")
    words = [b"get", b"gets", b"set", b"ms", b"mg", b"md", b"ma", b"noreply", b"q", b"0", b"1", b"-1", b"k", b" ", b"\r\n", b"\n", b"\r",
             b"99999999999", b"\0", b"incr", b"gat", b"touch", b"cas", b"verbosity", b"T0", b"v", b"b", b"stats", b"mn", b"hi", b"delete", b"me",
             b"append", b"MA", b"N0"]
    for k in range(400):
        line = b"".join(rng.choice(words) + rng.choice([b" ", b" ", b" ", b"\r\n", b""]) for _ in range(rng.randrange(1, 40)))
        s = connect(gate)
        try:
            s.sendall(line)
            if rng.random() < 0.5:
                s.shutdown(socket.SHUT_WR)
                read_all(s)
        except OSError:
            pass
        s.close()
        victim.sendall(b"get victim\r\nmg victim v\r\n")
        r, want = b"", b"VALUE victim 0 6\r\nsecret\r\nEND\r\nVA 6\r\nsecret\r\n"
        while len(r) < len(want):
            part = victim.recv(4096)
            if not part:
                break
            r += part
        check("another client's replies stay its own", r == want, (line, r))
        if WRONG:
            break
    check("memory", rss(pid) - before < 40 << 20, rss(pid) - before)


def rss(pid):
    with open(f"/proc/{pid}/status") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read())[1]) * 1024


def slow(gate, pid, bucket):
    """Clients that ask for 1 MiB values and do not read: only they stop, and their memory is bounded."""
    talk(gate, b"set gold:big 0 0 1048000\r\n" + BIG + b"\r\nset a 0 0 1\r\nx\r\n")
    before, slow_ones = rss(pid), [connect(gate) for _ in range(20)]
    for s in slow_ones:
        s.sendall(b"get gold:big\r\n" * 200)
    half = [connect(gate) for _ in range(20)]
    for s in half:
        s.sendall(b"set gold:half 0 0 1000000\r\nxx")
    other = connect(gate)
    end = time.monotonic() + 20 # a minute after they stopped reading the slow ones are closed
    for k in range(2000):
        if k >= 50 and time.monotonic() > end:
            break
        other.sendall(b"get a\r\n")
        r = other.recv(100)
        check("others are served", r == b"VALUE a 0 1\r\nx\r\nEND\r\n", r)
    held = rss(pid) - before
    print(f"20 clients that do not read, 4,000 MiB asked for, 20 that send half of a value: {held >> 20} MiB held")
    check("memory is bounded", held < 200 << 20, held)
    check("and counted", stats(gate)[f"{bucket}:memory_bytes"] > 1 << 20)
    got = 0
    first = slow_ones[0]
    want = 200 * (len(b"VALUE gold:big 0 1048000\r\n") + 1048000 + 7)
    end = time.time() + 200
    while got < want and time.time() < end:
        got += len(first.recv(1 << 20))
    check("one that reads after all gets everything", got == want, (got, want))
    for s in slow_ones + half:
        s.close()
    check("nothing is held for who left", until(lambda: stats(gate)[f"{bucket}:memory_bytes"] == 0))


def crowd(gate, pid, count):
    before, all_of_them = rss(pid), []
    for k in range(count):
        s = socket.socket()
        s.connect(("127.0.0.1", int(gate)))
        all_of_them.append(s)
    for s in all_of_them:
        s.sendall(b"set crowd 0 0 5\r\nhello\r\nget crowd\r\n")
    for s in all_of_them:
        r = b""
        while len(r) < 37:
            r += s.recv(100)
        check("each is answered", r == b"STORED\r\nVALUE crowd 0 5\r\nhello\r\nEND\r\n", r)
    each = (rss(pid) - before) / count
    print(f"{count} connections: {each:.0f} bytes each, idle")
    check("memory of an idle connection", each < 20480, each)
    check("they are counted", stats(gate)["clients"] >= count)


def buckets(gate, gold_port):
    """Prefix, port and address."""
    count = lambda: {k.split(":")[0]: v for k, v in stats(gate).items() if k.endswith(":requests_total")}

    def went(data, bucket, port=gate, source=None):
        time.sleep(0.05) # 100 `stats qos` a second are free, from the start on; more count as requests
        before = count()
        r = talk(port, data, source)
        after = count()
        moved = {b: after[b] - before[b] for b in after if after[b] != before[b]}
        check(f"{data!r} goes to {bucket}", moved == bucket, (moved, r))

    key64 = base64.b64encode(b"gold:1")
    went(b"get gold:1\r\n", {"gold": 1})
    went(b"get gold:1 bulk:1 gold:2 else\r\n", {"gold": 2, "bulk": 1, "other": 1})
    went(b"get gold:vip:1 gol\r\n", {"vip": 1, "other": 1})
    went(b"mg " + key64 + b" b v\r\n", {"gold": 1})
    went(b"get x\r\n", {"ported": 1}, port=gold_port)
    went(b"get gold:1\r\n", {"gold": 1}, port=gold_port)
    went(b"get x\r\n", {"near": 1}, source="127.0.0.2")
    went(b"mn\r\nfoo\r\nset a 0 0 x\r\n", {"other": 3}) # a request that the gate answers itself counts, too
    went(b"get gold:1\r\nmn\r\n", {"gold": 2})
    r = talk(gate, b"flush_all\r\nflush_all noreply\r\nstats reset\r\ncache_memlimit 8\r\nstats settings\r\nshutdown\r\nwatch\r\nmn\r\n")
    check("flush_all is refused where there are several buckets",
          r.count(b"CLIENT_ERROR refused") == 3 and r.count(b"CLIENT_ERROR not passed on") == 2 and r.endswith(b"MN\r\n"), r)


def clients(gate):
    from pymemcache.client.base import Client, PooledClient
    for c in (Client(("127.0.0.1", int(gate))), PooledClient(("127.0.0.1", int(gate)), max_pool_size=4)):
        c.set_many({f"py{k}": str(k) * 100 for k in range(500)})
        got = c.get_many([f"py{k}" for k in range(600)])
        check("pymemcache: set_many, get_many", got == {f"py{k}": (str(k) * 100).encode() for k in range(500)}, len(got))
        c.set("n", "10", noreply=True)
        check("incr", c.incr("n", 5) == 15)
        value, cas = c.gets("n")
        check("cas", c.cas("n", "1", cas) is True and c.cas("n", "2", cas) is False)
        check("delete", c.delete("n", noreply=False) and c.get("n") is None)
        check("touch", c.touch("py1", 100, noreply=False))
        c.append("py2", "x", noreply=False)
        check("append", c.get("py2") == b"2" * 100 + b"x")
        check("version", c.version().startswith(b"1."))
        check("a value of 1 MB", c.set("m", BIG, noreply=False) and c.get("m") == BIG)
        check("stats", b"pid" in c.stats())
        c.close()


def hashing(ports):
    from pymemcache.client.hash import HashClient
    servers = [("127.0.0.1", int(p)) for p in ports]
    before = [stats(p)["other:requests_total"] for p in ports]
    c = HashClient(servers, use_pooling=True)
    for k in range(2000):
        c.set(f"h{k}", f"value {k}")
    got = c.get_many([f"h{k}" for k in range(2000)])
    check("all values, over all gates", len(got) == 2000 and all(got[f"h{k}"] == f"value {k}".encode() for k in range(2000)), len(got))
    share = [stats(p)["other:requests_total"] - b for p, b in zip(ports, before)]
    print("requests of each gate:", share)
    check("each gate has its part", all(700 < n < 1400 for n in share), share)


# ---- load

def load(seconds, *tenants):
    """Each tenant PORT,CONNECTIONS,KEY,COMMAND: batches of 50 requests, so that requests wait at the gate, not in this program."""
    poll, need = select.epoll(), {}
    for t in tenants:
        port, n, key, command = t.split(",")
        batch = f"{command} {key}{' 0' if command == 'touch' else ''}\r\n".encode() * 50
        for _ in range(int(n)):
            s = connect(port)
            s.setblocking(False)
            s.send(batch)
            need[s.fileno()] = [s, batch, 0, 0, key]
            poll.register(s.fileno(), select.EPOLLIN)
    end, errors = time.time() + float(seconds), 0
    done = {}
    while time.time() < end and need:
        for fd, _ in poll.poll(0.1):
            c = need[fd]
            try:
                part = c[0].recv(65536)
            except OSError:
                part = b""
            if not part:
                errors += 1
                poll.unregister(fd)
                del need[fd]
                continue
            errors += part.count(b"SERVER_ERROR")
            c[2] += part.count(b"\n") # a miss is one line; so is an error
            if c[2] >= 50:
                done[c[4]] = done.get(c[4], 0) + c[2]
                c[2] = 0
                c[0].send(c[1])
    print("load", " ".join(f"{k}={v}" for k, v in sorted(done.items())), f"errors={errors}")


def served(memcached):
    """memcached's own counters, of requests that only one tenant sends: gold gets, capped touches; the time, and that before it was
    asked."""
    asked = time.monotonic()
    text = talk(memcached, b"stats\r\nquit\r\n").decode()
    m = {k: int(v) for k, v in re.findall(r"^STAT (\S+) (\d+)\r$", text, re.M)}
    return m["cmd_get"], m["cmd_touch"], time.monotonic(), asked


def judge(memcached, seconds, reserve, limit):
    """Judges gold by its reservation and capped by its limit, by memcached's counters. Their clients always have requests; the
    control did six times the reservation."""
    a = served(memcached)
    time.sleep(float(seconds))
    b = served(memcached)
    t, most = b[2] - a[2], b[2] - a[3] # the counts are of a time that is not longer
    gold, capped = (b[0] - a[0]) / t / float(reserve), (b[1] - a[1]) / most / float(limit)
    print(f"gold got {gold:.4f} of its reservation, capped {capped:.4f} of its limit, by memcached's counters over {t:.2f} s")
    check("limit", capped <= 1.01 + 0.03 / t, capped)
    if not WRONG and (gold < 0.98 or capped < 0.1):
        sys.exit(4)


def outage(gate, pid, port):
    """memcached is killed under this client: errors, no hang, the same connection afterwards."""
    s = connect(gate)
    def stored(): # not before it is connected; on a busy machine memcached may be given up at once
        s.sendall(b"set a 0 0 1\r\nx\r\n")
        return s.recv(100) == b"STORED\r\n"

    check("before", until(stored))
    os.kill(int(pid), 19) # stopped: it answers nothing
    states = lambda: {open(f"/proc/{pid}/task/{t}/stat").read().rsplit(")", 1)[1].split()[0] for t in os.listdir(f"/proc/{pid}/task")}
    while states() != {"T"}:
        time.sleep(0.02)
    began = time.time()
    s.sendall(b"get a\r\n")
    r = s.recv(100)
    check("one that hangs is given up", r == b"SERVER_ERROR memcached does not answer\r\n" and time.time() - began < 20, r)
    os.kill(int(pid), 18)
    for _ in range(1500):
        s.sendall(b"get a\r\n")
        r = s.recv(100)
        if not r.startswith(b"SERVER_ERROR"):
            break
        time.sleep(0.02)
    check("and used again when it goes on", r == b"VALUE a 0 1\r\nx\r\nEND\r\n", r)
    os.kill(int(pid), 9)
    for _ in range(500): # a busy machine needs time to end it
        if stats(gate)["memcached_up"] == 0:
            break
        time.sleep(0.02)
    s.sendall(b"get a\r\nset a 0 0 1\r\ny\r\nset a 0 0 1 noreply\r\ny\r\nget a b c\r\nmn\r\n")
    want, r = b"SERVER_ERROR memcached does not answer\r\n" * 3 + b"MN\r\n", b""
    while len(r) < len(want):
        part = s.recv(4096)
        if not part:
            break
        r += part
    check("errors meanwhile", r == want, r)
    check("nothing is lost", stats(gate)["at_memcached"] == 0)
    check("it says so", stats(gate)["memcached_up"] == 0)
    print("killed")
    sys.stdout.flush()
    sys.stdin.readline() # it runs again
    began = time.time()
    for _ in range(1500):
        s.sendall(b"set a 0 0 1\r\nz\r\n")
        r = s.recv(100)
        if r == b"STORED\r\n":
            break
        time.sleep(0.02)
    check("back on the same connection", r == b"STORED\r\n", r)
    print(f"back after {time.time() - began:.2f} s")


# ---- attacks

FLOODS = { # what a hostile client sends repeatedly, and on how many connections
    "answers of the gate": (lambda: b"mn\r\nfoo\r\nset a 0 0 x\r\n" * 500, 200),
    "stats": (lambda: b"stats qos\r\n" * 100, 200),
    "spaces": (lambda: b"get a" + b" " * 100000000, 200),
    "large gets": (lambda: b"get large:x\r\n" * 4, 100),
    "churn": (lambda: b"", 50),
    "large values": (lambda: (b"set a 0 0 500000\r\n" + b"x" * 500000 + b"\r\n") * 4, 20),
    "too large values": (lambda: b"set a 0 0 1000000000\r\n" + b"x" * 1000000000, 200),
    "noreply": (lambda: (b"set a 0 0 2000 noreply\r\n" + b"x" * 2000 + b"\r\n") * 50, 200),
    "half lines": (lambda: b"get " + b"x" * 200, 200),
}


def hostile(gate, kind, seconds):
    end, poll, conn = time.time() + seconds, select.epoll(), {}
    make, count = FLOODS[kind]
    if kind == "large gets":
        talk(gate, b"set large:x 0 0 1000000\r\n" + b"x" * 1000000 + b"\r\n")
    text, piece = memoryview(make()), 1 if kind == "half lines" else 1 << 18
    while kind == "churn" and time.time() < end:
        for s in [connect(gate) for _ in range(count)]:
            s.send(b"get a")
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0") # closed by a reset
            s.close()
    for _ in range(count):
        s = connect(gate)
        s.setblocking(False)
        conn[s.fileno()] = [s, 0]
        poll.register(s.fileno(), select.EPOLLIN | select.EPOLLOUT)
    while time.time() < end:
        for fd, events in poll.poll(0.05):
            c = conn[fd]
            try:
                if events & select.EPOLLIN and not c[0].recv(1 << 20):
                    poll.unregister(fd)
                if events & select.EPOLLOUT:
                    c[1] = (c[1] + c[0].send(text[c[1]:c[1] + piece])) % len(text)
            except BlockingIOError:
                pass
            except OSError:
                poll.unregister(fd)
        if kind == "half lines":
            time.sleep(0.001)


def child(work, *args):
    pid = os.fork()
    if pid == 0:
        try:
            work(*args)
        except Exception as e:
            print("child:", e)
        os._exit(0)
    return pid


def attacks(gate, memcached, reserve, *kinds):
    """gold's clients ask for much more than is reserved for it, and get their reservation whatever the others do. A miss
    counts only if a second try in which this program itself was never late shows one, too."""
    def attack(kind, seconds=0.5):
        sys.stdout.flush()
        others = [child(hostile, gate, kind, seconds + 0.5), child(load, seconds + 0.5, f"{gate},40,gold:x,touch")]
        time.sleep(0.3)
        a, began = served(memcached), time.time()
        time.sleep(seconds)
        late, b = time.time() - began - seconds, served(memcached)
        for p in others:
            os.waitpid(p, 0)
        got = (b[1] - a[1]) / (b[2] - a[2]) / float(reserve)
        print(f"{kind}: gold got {got:.2f} of its reservation")
        return got, late

    late, missed = 0, []
    for kind in kinds or FLOODS:
        for _ in range(4):
            got, slept = attack(kind)
            if got >= 1 or (slept < 0.1 and _):
                break
        late += got < 1 and slept >= 0.1
        if got < 1 and slept < 0.1:
            missed.append((kind, got))
    if missed and not WRONG:
        print("reservation missed under:", missed)
        sys.exit(4)
    if late and not WRONG:
        sys.exit(3)


def greedy(gate, pid, places, share):
    """evil (127.0.0.2) against gold (127.0.0.1, keys gold:): memory, places, and which bucket is charged. Of `places`
    connections it may have as many as it leaves free; of memory `share` bytes and, for each connection, two blocks of 8 KiB and the last reply."""
    places, share, evil = int(places), int(share), []
    gold = connect(gate)

    def ask(data, end):
        gold.sendall(data)
        r = b""
        while not r.endswith(end) and b"ERROR" not in r[:20]:
            part = gold.recv(1 << 20)
            if not part:
                break
            r += part
        return r

    had = lambda name: stats(gate)["evil:" + name]
    for _ in range(places):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.bind(("127.0.0.2", 0))
        s.connect(("127.0.0.1", int(gate)))
        try:
            s.sendall(b"mn\r\n")
            taken = s.recv(100) == b"MN\r\n"
        except OSError: # it was closed before the request came
            taken = False
        if not taken:
            s.close()
            break
        evil.append(s)
    check("it may have as many connections as it leaves free", places // 2 - 2 <= len(evil) <= places // 2, len(evil))
    check("so there is one for others", talk(gate, b"mn\r\n") == b"MN\r\n")
    # replies that are never read
    before, many = rss(pid), [b"mg " + b"e" * 250 + b" k\r\n"] * 3 + [b"stats settings\r\n", b"stats qos\r\n"]
    talk(gate, b"set " + b"e" * 250 + b" 0 0 1\r\nx\r\n")
    for k, s in enumerate(evil):
        s.setblocking(False)
        try:
            s.send(many[k % len(many)] * 2000)
        except OSError:
            pass
    filled, end = 0, time.time() + 8
    while time.time() < end and (filled == 0 or had("memory_bytes") > filled): # until nothing more fits
        filled = had("memory_bytes")
        time.sleep(0.5)
    bound = share + len(evil) * (2 * 8192 + 8192)
    print(f"{len(evil)} connections that read nothing: {had('memory_bytes')} bytes charged, {rss(pid) - before} more in all; bound {bound}")
    check("what nobody reads is bounded", had("memory_bytes") <= bound, had("memory_bytes"))
    check("in all", rss(pid) - before <= bound + (4 << 20), rss(pid) - before)
    big = b"x" * 400000
    r = ask(b"set gold:big 0 0 %d\r\n" % len(big) + big + b"\r\n", b"\r\n")
    check("gold stores a large value", r == b"STORED\r\n", r)
    r = ask(b"get gold:big\r\n", b"END\r\n")
    check("and reads it", r == b"VALUE gold:big 0 %d\r\n" % len(big) + big + b"\r\nEND\r\n", r[:50])
    for s in evil:
        s.close()
    # Values under gold's name of which half is sent: evil pays for what the gate has read of them. None is closed: their
    # memory fits. But the gate's patience is 20 s, so a longer try says nothing.
    half, fast = 40000, False
    for _ in range(3):
        left = until(lambda: stats(gate)["clients"] <= 2 and had("memory_bytes") == 0) # else places and memory are still taken
        check("nothing is held for who left", left, stats(gate))
        began = time.monotonic()
        evil = [connect(gate, source="127.0.0.2") for _ in range(20)]
        charged = []

        def send(text, to):
            for k, s in enumerate(to):
                try:
                    s.sendall(text)
                except OSError: # a closed one is seen below
                    pass
                if k % 5 == 2:
                    charged.append(had("memory_bytes"))
            read = until(lambda: unread_of(gate, "127.0.0.2") == 0)
            charged.append(had("memory_bytes"))
            return read

        read = send(b"set gold:x 0 0 400000\r\nx", evil)
        announced = max(charged)
        read = send(b"x" * half, evil) and read
        paid = charged[-1]
        gone = sum(closed(s, 0.001) for s in evil)
        took, gold_has = time.monotonic() - began, stats(gate)["gold:memory_bytes"]
        check("what is announced holds no memory", announced == 0, charged)
        check("gold does not pay for it", gold_has == 0, gold_has)
        fast = took < 19
        if fast:
            check("the gate reads what evil sends, and closes none", read and gone == 0, (read, gone))
            check("evil pays for what it sends", paid >= len(evil) * half, charged)
        check("evil has no more than its share", max(charged) <= share, charged)
        print(f"20 halves of a value: {paid} bytes charged after {took:.2f} s")
        if fast:
            break
        for s in evil:
            s.close()
    a = stats(gate)
    for text in (b"get gold:x\r\n", b"mg " + base64.b64encode(b"gold:x") + b" b v\r\n", b"touch gold:x 0\r\n", b"mn\r\n", b"get " + b"gold:x " * 9 + b"\r\n"):
        talk(gate, text, "127.0.0.2")
    b = stats(gate)
    check("evil pays for requests with gold's prefix", [b[k] - a[k] for k in ("gold:requests_total", "evil:requests_total")] == [0, 13], b)
    evil += [connect(gate, source="127.0.0.2") for _ in range(20)]
    send(b"set gold:x 0 0 400000\r\n" + b"x" * half, evil[-20:])
    check("nor if it sends more than that", max(charged) <= share, charged)
    for s in evil:
        s.close()
    r = talk(gate, b"verbosity 9\r\nverbosity 9 noreply\r\nmn\r\n", "127.0.0.2")
    check("nobody makes memcached write a log", r.count(b"CLIENT_ERROR refused") == 1 and r.endswith(b"MN\r\n"), r)
    gold.close()
    if not fast and not WRONG:
        sys.exit(3)


def closed(s, seconds):
    """Does the gate close it, within this time?"""
    s.settimeout(seconds)
    try:
        while True:
            if not s.recv(1 << 20):
                return True
    except socket.timeout:
        return False
    except OSError:
        return True


def patience(gate):
    """A gate with --patience 1s --idle 3s, buckets gold and bulk of 4 MiB each: who sends half a request, who takes no reply and
    who asks for nothing is closed, and who is served meanwhile is not."""
    began = time.time()
    busy = connect(gate)
    talk(gate, b"set gold:big 0 0 1000000\r\n" + b"x" * 1000000 + b"\r\n")

    def timers(): # the third column of /proc/net/tcp from the address on; 2: keep-alive probes
        with open("/proc/net/tcp") as f:
            return {l.split()[5][:2] for l in f if l.split()[1].endswith(":%04X" % int(gate)) and l.split()[3] == "01"}
    check("the kernel probes its clients", until(lambda: timers() == {"02"}), timers())

    def asks_again():
        """A request every 0.5 s, each in two pieces: longer than --patience and --idle in all. None: this program was late."""
        s = connect(gate)
        for _ in range(10):
            asked = time.monotonic()
            try:
                s.sendall(b"get go")
                time.sleep(0.05)
                s.sendall(b"ld:1\r\n")
                r = s.recv(100)
            except OSError as e:
                r = e
            if r != b"END\r\n" and time.monotonic() - asked >= 0.9: # the gate's patience may have ended
                return None
            check("who asks again and again stays", r == b"END\r\n", r)
            time.sleep(0.5)
            if time.monotonic() - asked >= 2.5: # or its idle time
                return None
        return s

    def rests(what, first, second, answer):
        """After a request in two pieces that the gate answers itself it is quiet for longer than --patience, less than --idle."""
        for _ in range(4):
            s, r = connect(gate), b""
            s.sendall(first)
            time.sleep(0.05)
            s.sendall(second)
            while answer not in r:
                r += s.recv(65536) or answer
            asked = time.monotonic()
            time.sleep(2.3)
            try:
                s.sendall(b"get gold:1\r\n")
                r = s.recv(100)
            except OSError as e:
                r = e
            s.close()
            if r == b"END\r\n" or time.monotonic() < asked + 2.8: # later its idle time may have ended
                return check("who is quiet after " + what + " stays", r == b"END\r\n", r)

    rests("its statistics", b"stats q", b"os\r\n", b"END\r\n")
    rests("a key that is too long", b"get " + b"k" * 300, b"k\r\n", b"format\r\n")
    rests("a value that is too large", b"set gold:9 0 0 1100000\r\n", b"x" * 1100000 + b"\r\n", b"cache\r\n")
    for _ in range(4):
        stays = asks_again()
        if stays:
            break
    ends = {"half a value": b"set gold:1 0 0 200000\r\n" + b"x" * 150000, "half a line": b"get gold", "half of a get's keys": b"get gold:1 gold:2 ", "nothing": b""}
    for name, data in ends.items():
        s = connect(gate)
        s.sendall(data) if data else None
        check(f"closed: {name}", closed(s, 30), name)
    busy.close()
    if stays:
        stays.close()
    waits = socket.socket()
    waits.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    waits.settimeout(20)
    waits.connect(("127.0.0.1", int(gate)))
    waits.sendall(b"get gold:big\r\n" * 20)
    check("closed: replies that nobody takes", until(lambda: stats(gate)["clients"] == 1), stats(gate)) # which asks is the last one
    waits.close()
    check("nothing of them is held", until(lambda: stats(gate)["gold:memory_bytes"] == 0), stats(gate))
    print(f"impatience: {time.time() - began:.1f} s")
    if not stays and not WRONG:
        sys.exit(3)


def room(gate):
    """A gate with --threads 4, --patience 60s, buckets gold and bulk of 4 MiB each: half requests that hold all memory of a bucket make room
    for whole ones long before they are closed."""
    began, conns = time.time(), []
    until(lambda: stats(gate)["clients"] == 1)
    time.sleep(0.2)
    for k in range(96): # one after the other: each goes to the thread that has the fewest, in turn
        conns.append(connect(gate))
        conns[-1].sendall(b"mn\r\n")
        conns[-1].recv(100)
    hold, spare = [s for k, s in enumerate(conns) if k % 4 < 3], conns[3::4]
    for k, s in enumerate(hold):
        s.sendall(b"set gold:%d 0 0 200000\r\n" % k + b"x" * 150000)
    time.sleep(1.2)
    large = b"set gold:y 0 0 300000\r\n" + b"y" * 300000 + b"\r\n"
    for name in (b"gold", b"bulk"):
        for _ in range(20): # a gate that came late to read them counts from then
            r = talk(gate, large.replace(b"gold", name))
            if r == b"STORED\r\n":
                break
            time.sleep(0.5)
        check("a large value is stored beside half requests", r == b"STORED\r\n", (r, name, stats(gate)))
    # Whole values that together need what the half requests hold, which the other three threads have read. A thread waits 0.2 s
    # for the others' room; where they come later, the next try has it.
    for _ in range(4):
        whole, replies = spare[:6], []
        for s in whole:
            try:
                s.sendall(large[:-9])
            except OSError:
                pass
            time.sleep(0.1)
        for s in whole:
            try:
                s.sendall(large[-9:])
                replies.append(s.recv(100))
            except OSError as e:
                replies.append(repr(e))
        if replies == 6 * [b"STORED\r\n"]:
            break
        print("not all six stored:", replies)
        spare = [s for s, r in zip(whole, replies) if str(r).count("_ERROR")] + spare[6:] # the others may be closed
    check("whole values that begin at once are stored beside half requests", replies == 6 * [b"STORED\r\n"], (replies, stats(gate)))
    for s in conns:
        s.close()
    print(f"room: {time.time() - began:.1f} s")


def leave_while_a_child_lives(gate, pid):
    """New settings are tried by a child, which has all sockets of its parent. Who leaves meanwhile must leave the parent's epoll, too:
    an event that came then was one of a client that is freed."""
    def watched(): # sockets in all epolls of the gate
        n = 0
        for fd in os.listdir(f"/proc/{pid}/fdinfo"):
            try:
                with open(f"/proc/{pid}/fdinfo/{fd}") as f:
                    n += f.read().count("tfd:")
            except OSError:
                pass
        return n

    def held_child():
        """A child that stands still; it lives for a moment only, so it is tried again."""
        for _ in range(2000):
            os.kill(int(pid), 1)
            for _ in range(20000):
                with open(f"/proc/{pid}/task/{pid}/children") as f:
                    child = f.read().split()
                if child:
                    break
            try:
                os.kill(int(child[0]), 19) if child else None
                with open(f"/proc/{child[0]}/stat") as f:
                    if child and f.read().split(") ")[1][0] == "T":
                        return int(child[0])
            except (OSError, IndexError):
                pass
        return None

    clients = [connect(gate) for _ in range(8)]
    for s in clients:
        s.sendall(b"get gold:1\r\n")
        s.recv(100)
    before, child = watched(), held_child()
    check("a child is held", child)
    for s in clients:
        s.sendall(b"quit\r\n")
    left = until(lambda: watched() == before - len(clients), 20)
    seen = watched()
    if child:
        os.kill(child, 18)
    check("who leaves while a child lives is watched no longer", left, (before, seen))
    for s in clients:
        s.close()


def reload(gate, pid, settings, told):
    """SIGHUP: new terms, a new bucket, one that goes, one whose connections are found by their address, wrong settings; clients
    that ask all the time see no error and stay connected."""
    import threading
    stop, errors, served = [], [], [0] * 8
    pause_s = 0 if os.environ.get("QOS_LONG") else 0.005 # what is tested is each change, not the load

    def ask(k):
        s, key = connect(gate, source="127.0.0.2" if k % 4 == 3 else None), (b"gold:", b"bulk:", b"new:", b"x")[k % 4]
        while not stop:
            s.sendall(b"set %s%d 0 0 1\r\nx\r\n" % (key, k) * 20)
            r = b""
            while r.count(b"\n") < 20:
                part = s.recv(4096)
                if not part:
                    errors.append("closed")
                    return
                r += part
            if r != b"STORED\r\n" * 20:
                errors.append(r)
            served[k] += 20
            time.sleep(pause_s)
        s.close()

    def write(text):
        with open(settings + ".new", "w") as f:
            f.write(text)
        os.rename(settings + ".new", settings)

    def until_it_is(what, true):
        check(what, until(true), stats(gate))

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    names = lambda: {k.split(":")[0] for k in stats(gate) if k.endswith(":requests_total")}
    until_it_is("it begins with gold and bulk", lambda: names() == {"gold", "bulk", "other"})
    write("bucket name=gold,key=gold:,reserve=50,limit=300\nbucket name=new,key=new:,weight=7\nbucket name=near,from=127.0.0.2\ndepth 64\n")
    os.kill(int(pid), 1)
    until_it_is("gold has its new terms, bulk is gone", lambda: names() == {"gold", "new", "near", "other"} and stats(gate)["gold:limit"] == 300)
    time.sleep(0.3)
    begin, a = time.monotonic(), stats(gate)
    time.sleep(2)
    every = until(lambda: all(stats(gate)[n + ":requests_total"] > a[n + ":requests_total"] for n in ("gold", "new", "near")))
    b = stats(gate)
    t = time.monotonic() - begin # the counts are of a time that is not longer
    moved = {n: (b[n + ":requests_total"] - a[n + ":requests_total"]) / t for n in ("gold", "new", "near", "other")}
    check("the new limit holds", moved["gold"] <= 300 * 1.01 + 10, moved)
    check("the new bucket gets its requests, and so does the address's, with the connections that were there before", every, moved)
    write("bucket name=gold,key=gold:\nbucket name=bad,limit=1,reserve=2\n")
    os.kill(int(pid), 1)
    with open(told) as f:
        until_it_is("wrong settings are told", lambda: "nothing changes" in f.read())
    check("wrong settings change nothing", names() == {"gold", "new", "near", "other"} and stats(gate)["gold:limit"] == 300, stats(gate))
    write("bucket name=gold,key=gold:\ncluster http://127.0.0.1:1\nname g1\nkeys .\n")
    os.kill(int(pid), 1)
    with open(told) as f:
        until_it_is("a cluster needs a restart: told", lambda: "--cluster need a restart" in f.read())
    for k in range(30): # back and forth: numbers are used again
        write("".join(f"bucket name=b{n},key=b{n}:\n" for n in range(k * 40, k * 40 + 40)) + "bucket name=gold,key=gold:\n")
        os.kill(int(pid), 1)
        until_it_is("the settings of round %d" % k, lambda: f"b{k * 40}" in names() and f"b{k * 40 - 1}" not in names())
    before = sum(served)
    check("clients are served", until(lambda: sum(served) > before))
    stop.append(1)
    for t in threads:
        t.join()
    check("no client was dropped, no request failed", not errors, errors[:3])
    leave_while_a_child_lives(gate, pid)
    print(f"reload: {sum(served)} requests while settings changed 32 times, {len(errors)} errors")


def spin(gate, memcached, pid, memcached_pid):
    """A gate of --depth 4: with requests that wait at a limit, and with a memcached that stands still, no thread spins. Who finds
    no descriptor is told so."""
    def cpu(): # of each thread: seconds, and how often it slept
        seen = {}
        for t in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{t}/schedstat") as f, open(f"/proc/{pid}/task/{t}/status") as g:
                seen[t] = int(f.read().split()[0]) / 1e9, int(re.search(r"\nvoluntary_ctxt_switches:\s*(\d+)", g.read()).group(1))
        return seen

    def used(what, text):
        conn = [connect(gate) for _ in range(40)]
        for c in conn:
            c.sendall(text * 20)
        time.sleep(0.3)
        for _ in range(3): # who spins does so all the time; but a processor that the host takes away counts as used
            before = cpu()
            time.sleep(1)
            after = cpu()
            part = sum(x[0] for x in after.values()) - sum(x[0] for x in before.values())
            # On a busy machine a thread that spins gets little, and uses all of it: it never sleeps.
            each = max((x[0] - before[t][0]) / (x[1] - before[t][1] + 1) for t, x in after.items())
            print(f"{what}: {part:.2f} s of processor time in a second, {each * 1e3:.3f} ms each time that a thread was awake")
            if part < 0.2 and each < 0.001:
                break
        check(f"{what}: no thread spins", part < 0.2 and each < 0.001, (part, each))
        return conn

    kept = used("requests wait at their limit", b"get slow:x\r\n")
    os.kill(int(memcached_pid), 19)
    kept += used("memcached stands still", b"get other\r\n")
    os.kill(int(memcached_pid), 18)
    soft, hard = resource.prlimit(int(pid), resource.RLIMIT_NOFILE)
    free = min(set(range(1000)) - {int(k) for k in os.listdir(f"/proc/{pid}/fd")})
    resource.prlimit(int(pid), resource.RLIMIT_NOFILE, (free, hard))
    for _ in range(3):
        with connect(gate) as s:
            s.settimeout(10)
            said = read_all(s)
            check("who finds no descriptor is told so", said == b"ERROR Too many open connections\r\n", said)
    resource.prlimit(int(pid), resource.RLIMIT_NOFILE, (3, hard)) # what is given up gives none
    kept += used("nobody can be told", b"get other\r\n")
    resource.prlimit(int(pid), resource.RLIMIT_NOFILE, (soft, hard))
    check("then all are served again", talk(gate, b"version\r\n").startswith(b"VERSION"))


def drain(gate, pid):
    """SIGTERM: what has been asked for is answered, also if the gate has not read it yet; idle clients are closed, new ones are
    not taken."""
    idle, s, unread = connect(gate), connect(gate), [connect(gate) for _ in range(600)] # two threads read 256 at once
    version = talk(gate, b"version\r\n")
    for u in unread:
        u.sendall(b"version\r\n")
        u.recv(100)
    s.sendall(b"set gold:d 0 0 1000000\r\n" + b"x" * 1000000 + b"\r\n" + b"get gold:d\r\n" * 30)
    os.kill(int(pid), 19)
    for u in unread:
        u.sendall(b"version\r\n" * 1000)
    time.sleep(0.3) # so that idle clients are looked for as soon as it goes on, before all is read
    os.kill(int(pid), 15)
    os.kill(int(pid), 18)
    check("idle clients are closed", closed(idle, 20))
    r = read_all(s)
    whole = sum(read_all(u) == version * 1000 for u in unread)
    check("what was not read yet is answered", whole == 600, whole)
    check("what was asked for is answered", len(r) == 8 + 30 * (len(b"VALUE gold:d 0 1000000\r\n") + 1000000 + 7), (len(r), r[:100]))


def flags(direct, gate):
    """Every letter as a flag of every meta command, with arguments that no flag uses: the same answer as memcached's, and
    the next request has its own answer."""
    cases = []
    for letter in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ":
        for argument in ("", "0", "1", "100", "-1", "99999999999999999999", "x" * 40):
            f = (letter + argument).encode()
            cases += [b"mg f " + f, b"mg f v " + f, b"ms f 2 " + f + b"\r\nhi", b"md f " + f, b"me f " + f]
            if f != b"O" + b"x" * 40: # memcached counts, then refuses it; the gate refuses it
                cases.append(b"ma f " + f)
    clock = re.compile(rb"(?<= )[cthl]-?\d+|(?<= )(exp|la|cas)=-?\d+")
    same = 0
    def answers(port):
        out = []
        for at in range(0, len(cases), 100):
            text = b"".join(b"delete f noreply\r\nset f 0 0 1 noreply\r\n7\r\n" + c + b"\r\nmn\r\nget f\r\nget end%d\r\nmn\r\n" % k for k, c in enumerate(cases[at:at + 100]))
            out += talk(port, text).split(b"END\r\nMN\r\n")
        return out
    a, b = answers(direct), answers(gate)
    for case, x, y in zip(cases, a, b):
        good = clock.sub(b"", x) == clock.sub(b"", y)
        same += good
        check(f"flags: memcached and the gate answer alike to {case!r}", good, (x, y))
    check("as many answers", len(a) == len(b), (len(a), len(b)))
    # memcached 1.6.18 runs the data of an ms with 17 flags or more as commands. Through a gate of several buckets no client
    # may flush all.
    kept = connect(gate)
    kept.sendall(b"set kept 0 0 1\r\nx\r\n")
    kept.recv(100)
    for n in range(14, 40):
        f = b" ".join(b"%c%d" % (b"TFIvktfscOLhlNRWXZMCDEJU"[k % 24], k) for k in range(n))
        for command, size in ((b"ms f 11 " + f + b"\r\nflush_all 0", 11), (b"mg f " + f, 0), (b"ma f " + f, 0), (b"md f " + f, 0)):
            r = talk(gate, command + b"\r\nmn\r\n")
            check(f"{n} flags: {command[:2]}", r.endswith(b"MN\r\n") and (not size or r.count(b"\r\n") == 2), r)
            kept.sendall(b"get kept\r\n")
            r = kept.recv(100)
            check(f"{n} flags: {command[:2]}: data is no command, replies are their own", r == b"VALUE kept 0 1\r\nx\r\nEND\r\n", r)
    print(f"{same} of {len(cases)} meta commands with hostile flags: equal answers")


# ---- several hosts, with controllers

class Again:
    """A connection that is opened again when it ends. on_reply(lines) is called with the number of lines that came."""

    def __init__(self, port, errors):
        self.port, self.errors, self.socket, self.since = port, errors, None, 0
        self.waiting, self.looked = 0, time.time()

    def error(self, what):
        """It happened since this program looked at the connection before: the program may have stood still."""
        self.errors.append((self.looked, time.time(), self.port, what))

    def send(self, data, lines):
        if self.socket is None:
            if time.time() < self.since + 0.05:
                return
            self.since = time.time()
            try:
                self.socket = connect(self.port)
                self.socket.setblocking(False)
            except OSError as e:
                self.failed(e)
                return
        try:
            self.socket.send(data)
            self.waiting += lines
        except OSError as e:
            self.failed(e)

    def failed(self, why):
        self.error(repr(why))
        if self.socket:
            self.socket.close()
        self.socket, self.waiting = None, 0

    def read(self):
        """Returns the number of lines that arrived now."""
        if self.socket is None:
            return 0
        now = time.time()
        lines = self.read_now()
        self.looked = now
        return lines

    def read_now(self):
        try:
            part = self.socket.recv(1 << 16)
        except BlockingIOError:
            return 0
        except OSError as e:
            self.failed(e)
            return 0
        if not part:
            self.failed("closed")
            return 0
        if b"ERROR" in part:
            self.error(part[:60])
        lines = part.count(b"\n")
        self.waiting -= lines
        return lines


def flood(seconds, errors_file, *ports):
    """Sends requests of capped (touch), as fast as it may, and of bulk (delete), at every host."""
    errors, end = [], time.time() + float(seconds)
    every = [(Again(p, errors), kind) for p in ports for kind in (b"touch capped:x 0\r\n", b"delete bulk\r\n", b"delete bulk\r\n")]
    while time.time() < end:
        for c, line in every:
            c.read()
            if c.waiting <= 0:
                c.waiting = 0
                c.send(line * 50, 50)
        time.sleep(0.005)
    with open(errors_file, "w") as f:
        for e in errors:
            print(*e, file=f)


def wander(seconds, errors_file, sent_file, rate, *ports):
    """Sends requests of gold (get), `rate` a second, to one host, then to the next: moves 0.3 s after the start of every
    second period."""
    errors, sent, end, last = [], {}, time.time() + float(seconds), time.time()
    every = [[Again(p, errors) for _ in range(4)] for p in ports]
    owed, turn = 0.0, 0
    while time.time() < end:
        now = time.time()
        owed, last = min(owed + (now - last) * float(rate), float(rate)), now
        at = every[int((now - 0.3) // 2) % len(ports)]
        for group in every:
            for c in group:
                c.read()
        while owed >= 10:
            turn += 1
            at[turn % 4].send(b"get gold:x\r\n" * 10, 10)
            owed -= 10
            sent[int(now)] = sent.get(int(now), 0) + 10
        time.sleep(0.004)
    with open(errors_file, "w") as f:
        for e in errors:
            print(*e, file=f)
    with open(sent_file, "w") as f:
        for p, n in sent.items():
            print(p, n, file=f)


def sample(host):
    """memcached's own counters and the gate's; None where one does not answer."""
    memcached, gate = host
    try:
        text = talk(memcached, b"stats\r\nquit\r\n").decode()
        m = {k: int(v) for k, v in re.findall(r"^STAT (\S+) (\d+)\r$", text, re.M)}
        own = {"pid": m["pid"], "gold": m["cmd_get"], "capped": m["cmd_touch"]}
    except (OSError, KeyError):
        own = None
    try:
        g = stats(gate)
        theirs = {"pid": g["pid"], "gold": g["gold:requests_total"], "capped": g["capped:requests_total"]}
    except (OSError, KeyError):
        theirs = None
    return own, theirs


def moved(before, now, name):
    """What a host served between two samples: by memcached's counters or, if memcached was started again, by the gate's."""
    for a, b in zip(before, now):
        if a and b and a["pid"] == b["pid"]:
            return b[name] - a[name]
    return None


def watch(seconds, out, *hosts):
    """A sample of all hosts at the end of every period, when all its tokens have been used: lines of period, gold, capped."""
    hosts = [h.split(":") for h in hosts]
    last, last_period, end = None, None, time.time() + float(seconds)
    with open(out, "w", buffering=1) as f:
        while time.time() < end:
            at = int(time.time() + 0.05) + 0.95
            time.sleep(max(0, at - time.time()))
            now = [sample(h) for h in hosts]
            if time.time() > int(at) + 1.0 or (last and any(moved(a, b, "gold") is None for a, b in zip(last, now))):
                if any(own is None and theirs is None for own, theirs in now) or time.time() > int(at) + 1.0:
                    continue
                last, last_period = now, int(at) # both were started again: begin again
                continue
            if last:
                print(int(at), int(at) - last_period, *(sum(moved(a, b, n) for a, b in zip(last, now)) for n in ("gold", "capped")), file=f)
            last, last_period = now, int(at)


def cluster(seen, faults, takeovers, sent, stalled, errors_files, reserve, gold_limit, capped_limit, rate, capacity):
    """Judges the samples of `watch`. faults: lines of first and last second, and the port of the host that died or -.
    takeovers: periods in which a controller took over. One that no kill explains is a fault of the controllers, unless this
    machine stalled.
    stalled: times in which a processor stalled for 0.2 s or more (tests/watch.pl); a reservation that is missed then, or in
    the period after, does not count.
    The cluster's periods do not begin with the seconds. So in a window of n seconds a limit may be served n + 1 times, and
    in all windows together once more than there are seconds; and a fifth that a second lacks of a
    reservation may be in the second before it or after it."""
    rows = [tuple(map(int, line.split())) for line in open(seen)]
    whole = {period: gold for period, n, gold, capped in rows if n == 1}
    fault = [l.split() for l in open(faults)]
    killed = [range(int(f[0]), int(f[1]) + 3) for f in fault if f[2] == "-"] # another controller has to take over
    taken = {t for t in map(int, open(takeovers)) if not any(t in k for k in killed)}
    sends = {int(l.split()[0]): int(l.split()[1]) for l in open(sent)}
    judged = missed = busy = 0
    first, total = None, {"gold": 0, "capped": 0}
    for period, n, gold, capped in rows:
        first = period - n if first is None else first
        free = n == 1 and not any(int(f[0]) <= period <= int(f[1]) + 1 for f in fault)
        asked = min(sends.get(period, 0), sends.get(period - 1, 0)) >= 0.97 * float(rate)
        still = any(int(float(b)) <= period <= int(float(e)) + 1 for what, b, e in (l.split() for l in open(stalled)) if what == "cpu" and float(e) - float(b) > 0.2)
        low = gold < 0.98 * float(reserve)
        if low and gold >= 0.8 * float(reserve):
            low = all(gold + whole.get(p, 0) < 2 * 0.98 * float(reserve) for p in (period - 1, period + 1))
        # A controller takes over after a period in which none planned.
        calm = not taken & {period - 1, period, period + 1} and not (low and still)
        print(f"period {period % 1000:3}: gold {gold:5} capped {capped:5}" + ("" if free else "  fault") +
              ("" if asked else "  its clients were late") + ("" if calm else "  the machine stood still" if still else "  another controller") +
              ("  MISSED" if low and free and asked and calm else ""))
        for name, got, limit in (("gold", gold, float(gold_limit)), ("capped", capped, float(capped_limit))):
            total[name] += got
            check("limit of " + name, got <= (n + 1) * limit * 1.01, (period, n, got))
            check("limit of " + name + " in all", total[name] <= (period - first + 1) * limit * 1.01, (period, first, total[name]))
        if free:
            judged, busy, missed = judged + 1, busy + (not (asked and calm)), missed + (asked and calm and low)
    extra = len(open(takeovers).readlines()) - sum(f[2] == "-" for f in fault)
    stalls = [l for l in open(stalled) if float(l.split()[2]) - float(l.split()[1]) > 0.2]
    check("a controller lost its periods while it lived", extra <= 0 or stalls, (extra, "takeovers more than kills"))
    for name in errors_files.split(","):
        told = set()
        for line in open(name):
            since, at, port, what = line.split(None, 3)
            check("an error at a host that was not hit", (port, what) in told or
                  any(f[2] == port and int(f[0]) <= float(at) and float(since) <= int(f[1]) + 3 for f in fault), (since, at, port, what))
            told.add((port, what))
    print(f"{judged} periods without a fault, {missed} with a reservation missed, {busy} in which clients were late, controllers changed or the machine stood still")
    if not WRONG and (judged < 4 or busy * 2 > judged or (missed and busy)):
        sys.exit(3)
    if not WRONG and missed:
        sys.exit(4)


if __name__ == "__main__":
    command, args = sys.argv[1], sys.argv[2:]
    {"compare": compare, "bad": bad, "slow": slow, "buckets": buckets, "clients": clients, "load": load, "judge": judge,
     "outage": outage, "attacks": attacks, "greedy": greedy, "reload": reload, "spin": spin, "drain": drain, "patience": patience, "room": room, "flags": flags, "flood": flood, "wander": wander, "watch": watch, "cluster": cluster, "crowd": lambda g, p, n: crowd(g, p, int(n)), "hashing": lambda *p: hashing(p),
     "stats": lambda p: print(talk(p, b"stats qos\r\nquit\r\n").decode())}[command](*args)
    sys.exit(bool(WRONG))

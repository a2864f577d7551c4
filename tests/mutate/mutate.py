#!/usr/bin/env python3
"""Changes a header at random and shows that its tests notice.

usage: tests/mutate/mutate.py run HEADER [N] [SEED]   N random mutants of HEADER.h (default 100, seed 1)
       tests/mutate/mutate.py list HEADER [N] [SEED]  only prints them
       tests/mutate/mutate.py pick HEADER [SEED]      5 caught mutants, spread over the header, as a list to replay
       tests/mutate/mutate.py replay FILE [HEADER]    mutants of a list: each must still be caught by the test it names

A mutant is one small change of one function body: an operator, a constant, a condition, a statement, two arguments
swapped, a memory order. One that does not compile, or whose object code is the header's own (at -O1; plain, with the
atomics' hook, and without __int128), is dropped and not counted. Each of the others is run against the header's native
tests that run its function, until one fails: exit status, signal, or far more processor time than without the change. A
test is linked with the object of the changed bodies; one that has the bodies in it is compiled whole. The order is by
past kills, those in the same function first, for each second of processor time: the quick tests with bodies at -O0
(most mutants fall there), the other short ones at -O1, then the short ones under the address, undefined and integer
sanitizers of clang, then the long ones. Same header, N and seed: same mutants. What was judged is kept in
build/mutate/ and not run again as long as the header is as it was, so a run can be stopped at any time; a survivor is
tried again when a test has changed.

    QOS_MUTATE_SECONDS=n  ends the run after n seconds of processor time; the next goes on from there
    QOS_MUTATE_SHORT=n    ends the tests of one mutant after n seconds; the next run without it takes up what lived

Lists (tests/mutate/*.list) name mutants by text, not by line, so that they outlive edits elsewhere:
    htb.h htb_take                 the header and the function; `#2` behind it: the second such place in it
    - old text of the line(s)
    + new text
    caught by: unit/htb_reserve    or `equivalent: reason`, `performance: reason`
"""
import collections
import functools
import hashlib
import json
import os
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
OUT = "build/mutate"
KINDS = ["unit", "property", "paper", "fuzz", "interleave", "adversary"]
CONFIGS = ["", "-DQOS_ATOMIC_HOOK", "-DQOS_NO_INT128"]
GONE_MAX = 1  # entries of a replayed list that may lose their text to edits of the header
JUDGED = "tests/mutate/judged.list"
LONG_S = 6  # of processor time; a test above this is tried last
SHORT_S = float(os.environ.get("QOS_MUTATE_SHORT", "0"))  # not 0: the tests of one mutant end after this time
QUICK_S = 0.5  # a test below this is tried before a mutant's object code is compared
BUDGET_S = float(os.environ.get("QOS_MUTATE_SECONDS", "inf"))  # of processor time for one run
HEADERS = sorted(f[:-2] for f in os.listdir(".") if f.endswith(".h"))

# ---- the text of a header ------------------------------------------------------------------------------------------

TOKEN = re.compile(r"""
    (?P<skip>\s+|/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
  | (?P<name>[A-Za-z_]\w*)
  | (?P<number>0[xX][0-9a-fA-F]+[uUlL]*|\d+[uUlL]*)
  | (?P<op><<=|>>=|\+\+|--|->|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|[-+*/%&|^!~<>=?:;,.(){}\[\]])
  | (?P<other>.)
""", re.S | re.X)


def blank_preprocessor(text):
    """Preprocessor lines, continued ones too, as spaces: nothing in them is changed."""
    lines, continued = [], False
    for line in text.split("\n"):
        directive = continued or line.lstrip().startswith("#")
        continued = directive and line.endswith("\\")
        lines.append(" " * len(line) if directive else line)
    return "\n".join(lines)


@functools.lru_cache(maxsize=8)
def functions(header):
    """(name, begin, end) of each function body: from a `{` to a `}` in the first column."""
    text, found = blank_preprocessor(header), []
    for m in re.finditer(r"(?m)^\{$", text):
        end = text.find("\n}\n", m.start())
        head = text[:m.start()].rstrip()
        start = max(head.rfind("\n\n"), head.rfind("\n}\n"), head.rfind("*/"), head.rfind("\n#"), head.rfind(";\n"))
        names = re.findall(r"(?<!\w)([a-z]\w*)\s*\(", head[start + 1:])
        names = [n for n in names if not n.startswith("__")]
        if names and end > 0 and not re.search(r"(?m)^\s*(struct|enum|union)\s+\w+$", head[start + 1:]):
            found.append((names[0], m.start() + 1, end))
    return found


SWAPS = {
    "<": ["<=", ">", ">="], "<=": ["<", ">", ">="], ">": [">=", "<", "<="], ">=": [">", "<", "<="],
    "==": ["!="], "!=": ["=="], "&&": ["||"], "||": ["&&"], "+": ["-"], "-": ["+"], "*": ["+"], "/": ["*"],
    "%": ["/"], "&": ["|"], "|": ["&"], "^": ["|"], "<<": [">>"], ">>": ["<<"], "+=": ["-=", "="],
    "-=": ["+=", "="], "*=": ["/="], "|=": ["&=", "="], "&=": ["|=", "="], "^=": ["|="], "<<=": [">>="],
    ">>=": ["<<="], "++": ["--"], "--": ["++"],
}
WORDS = {
    "true": ["false"], "false": ["true"], "break": ["continue"], "continue": ["break"], "NULL": [],
    "qos_min": ["qos_max"], "qos_max": ["qos_min"], "qos_sat_add": ["qos_sat_sub"], "qos_sat_sub": ["qos_sat_add"],
    "qos_mul_div_floor": ["qos_mul_div_ceil"], "qos_mul_div_ceil": ["qos_mul_div_floor"],
    "qos_atomic_load_acquire": ["qos_atomic_load_relaxed"], "qos_atomic_store_release": ["qos_atomic_store_relaxed"],
    "__ATOMIC_ACQUIRE": ["__ATOMIC_RELAXED"], "__ATOMIC_RELEASE": ["__ATOMIC_RELAXED"],
}
COMMUTATIVE = {"qos_mul_wide", "qos_add_wide", "qos_sat_add", "qos_sat_mul", "qos_wrap_add", "qos_wrap_mul", "qos_min",
               "qos_max", "qos_checked_add", "qos_checked_mul", "qos_mul_div_floor", "qos_mul_div_ceil",
               "__builtin_add_overflow", "__builtin_mul_overflow"}
TYPES = {"uint8_t", "uint16_t", "uint32_t", "uint64_t", "int64_t", "int32_t", "size_t", "int", "unsigned", "bool",
         "char", "const", "struct", "enum", "static", "void", "union", "inline", "return", "sizeof"}


class Mutator:
    def __init__(self, text):
        self.text = text
        plain = blank_preprocessor(text)
        self.sites = []  # (function, begin, end, [replacement...])
        for name, begin, end in functions(text):
            self.tokens = [(m.lastgroup, m.group(), m.start(), m.end())
                           for m in TOKEN.finditer(plain, begin, end) if m.lastgroup != "skip"]
            self.name = name
            self.body()

    def site(self, begin, end, options):
        if options:
            self.sites.append((self.name, begin, end, options))

    def close(self, i):
        """The index of the bracket that closes the one at i."""
        pairs, depth = {"(": ")", "[": "]", "{": "}"}, 0
        a, b = self.tokens[i][1], pairs[self.tokens[i][1]]
        for k in range(i, len(self.tokens)):
            depth += (self.tokens[k][1] == a) - (self.tokens[k][1] == b)
            if depth == 0:
                return k
        return None

    def span(self, i, k):
        return self.text[self.tokens[i][2]:self.tokens[k][3]]

    def arguments(self, i, k):
        """The pieces between the commas of a bracket that opens at i and closes at k, as (first, last) tokens."""
        parts, first, depth = [], i + 1, 0
        for n in range(i + 1, k + 1):
            t = self.tokens[n][1]
            if (t == "," and depth == 0) or n == k:
                if first <= n - 1:
                    parts.append((first, n - 1))
                first = n + 1
            depth += (t in "([{") - (t in ")]}")
        return parts

    def body(self):
        toks = self.tokens
        asserted = set()
        for i, (kind, t, _, _) in enumerate(toks):  # assertions are compiled away
            if t in ("QOS_ASSERT", "QOS_STATIC_ASSERT") and toks[i + 1][1] == "(":
                asserted.update(range(i, (self.close(i + 1) or i) + 2))
        start = True  # of a statement
        for i, (kind, t, begin, end) in enumerate(toks):
            if i in asserted:
                continue
            before = toks[i - 1] if i else ("op", "{", 0, 0)
            after = toks[i + 1] if i + 1 < len(toks) else ("op", "}", 0, 0)
            if kind == "op" and t in SWAPS:
                unary = before[0] == "op" and before[1] not in (")", "]") or before[1] in TYPES
                if t in ("*", "&", "-", "+") and (unary or before[1] == ")" and after[0] == "name" and t in "*&"):
                    pass  # a pointer, an address, a sign
                else:
                    self.site(begin, end, SWAPS[t])
            elif kind == "op" and t == "!" and after[1] != "=":
                self.site(begin, end, [""])
            elif kind == "op" and t == "?":
                self.ternary(i)
            elif kind == "number":
                suffix = t.lstrip("0123456789abcdefABCDEFxX")
                value = int(t[:len(t) - len(suffix)] or "0", 0)
                options = [str(value + 1) + suffix]
                if value:
                    options.append(str(value - 1) + suffix)
                if value > 1:
                    options.append("0" + suffix)
                if i % 32 == 0 or not (before[1] == after[1] == ","):  # only a few entries of a table
                    self.site(begin, end, options)
            elif kind == "name" and t in WORDS:
                self.site(begin, end, WORDS[t])
            elif kind == "name" and t.isupper() and t[:2] != "__" and t not in ("NULL", "UINT64_C", "INT64_C", "UINT32_C") and \
                    after[1] != "(" and before[1] not in ("case", "goto"):
                if not re.match(r"^QOS_(E[A-Z]+|OK)$|.*_(LIKELY|UNLIKELY)$", t):
                    self.site(begin, end, [f"({t} + 1)", f"({t} - 1)"])
            elif t in ("if", "while") and after[1] == "(":
                k = self.close(i + 1)
                cond = self.span(i + 2, k - 1)
                options = [f"!({cond})", "0"] if t == "while" else [f"!({cond})", "0", "1"]
                self.site(toks[i + 2][2], toks[k - 1][3], options)
            elif kind == "name" and t == "return" and after[1] not in (";", "{"):
                k = i
                while toks[k][1] != ";":
                    k = self.close(k) + 1 if toks[k][1] in ("(", "[", "{") else k + 1
                text = self.span(i + 1, k - 1)
                if text not in ("0", "NULL", "false", "true"):
                    options = ["QOS_OK"] if text.startswith("QOS_E") else ["0"]
                    self.site(toks[i + 1][2], toks[k - 1][3], options)
            if kind == "name" and after[1] == "(" and t not in TYPES and t not in ("if", "while", "for", "switch"):
                k = self.close(i + 1)
                parts = self.arguments(i + 1, k) if k else []
                if t in COMMUTATIVE:
                    parts = parts[1:]
                for (a, b), (c, d) in zip(parts, parts[1:]):
                    one, two = self.span(a, b), self.span(c, d)
                    if one != two:
                        middle = self.text[toks[b][3]:toks[c][2]]
                        self.site(toks[a][2], toks[d][3], [two + middle + one])
            if start and (kind == "name" or t in ("*", "++", "--", "(")) and \
                    t not in TYPES and t not in ("if", "for", "while", "do", "switch", "case", "default", "else", "goto",
                                                 "return", "break", "continue", "typedef", "__extension__"):
                k, plain = i, not (after[0] == "name" or t.endswith("_t") or after[1] == ":")
                while plain and k < len(toks) and toks[k][1] != ";":
                    k = self.close(k) + 1 if toks[k][1] in ("(", "[", "{") else k + 1
                if plain and k < len(toks):
                    self.site(begin, toks[k][3], ["(void)0;"])
            start = t in (";", "{", "}", "else") or t == ")" and self.ends_condition(i) or t == ":" and self.ends_case(i)

    def ends_condition(self, i):
        depth = 0
        for k in range(i, -1, -1):
            depth += (self.tokens[k][1] == ")") - (self.tokens[k][1] == "(")
            if depth == 0:
                return k > 0 and self.tokens[k - 1][1] in ("if", "while", "for", "switch")
        return False

    def ends_case(self, i):
        for k in range(i - 1, max(i - 6, -1), -1):
            if self.tokens[k][1] in ("case", "default"):
                return True
            if self.tokens[k][1] in (";", "{", "}", "?"):
                return False
        return False

    def ternary(self, i):
        """c ? a : b becomes c ? b : a, where a and b end in the same statement."""
        toks, depth, colon = self.tokens, 0, None
        for k in range(i + 1, len(toks)):
            t = toks[k][1]
            if t in ("(", "[", "{"):
                depth += 1
            elif t in (")", "]", "}"):
                depth -= 1
            elif t == "?":
                depth += 1000
            elif t == ":" and depth >= 1000:
                depth -= 1000
            elif t == ":" and depth == 0 and colon is None:
                colon = k
            if depth < 0 or depth == 0 and t in (";", ",") or depth == 0 and t == "?" and k > i:
                if colon and colon > i + 1 and k > colon + 1:
                    a, b = self.span(i + 1, colon - 1), self.span(colon + 1, k - 1)
                    self.site(toks[i + 1][2], toks[k - 1][3], [b + " : " + a])
                return


def mutants(text, seed):
    """All of them, in an order that hangs on the seed alone. A site gives one mutant before any gives two."""
    rng = random.Random(f"qoskit {seed}")
    sites = Mutator(text).sites
    rounds = []
    for place in sites:
        options = list(place[3])
        rng.shuffle(options)
        for n, option in enumerate(options):
            rounds.append((n, rng.random(), place[:3] + (option,)))
    rounds.sort(key=lambda r: r[:2])
    seen = set()
    for _, _, (name, begin, end, new) in rounds:
        if (begin, end, new) not in seen:
            seen.add((begin, end, new))
            yield describe(text, name, begin, end, new)


def describe(text, name, begin, end, new):
    """The mutant as whole lines: function, which of equal places, old and new text."""
    first = text.rfind("\n", 0, begin) + 1
    last = text.find("\n", end)
    old_lines, new_lines = text[first:last], text[first:begin] + new + text[end:last]
    body = body_of(text, name, first)
    nth = text[body[0]:first + 1].count(old_lines) if old_lines in text[body[0]:first + 1] else 0
    places = [m.start() for m in re.finditer(re.escape(old_lines), text[body[0]:body[1]])]
    nth = places.index(first - body[0]) + 1 if first - body[0] in places else 1
    return {"function": name, "nth": nth if len(places) > 1 else 1, "old": old_lines, "new": new_lines, "at": first}


def body_of(text, name, at=None):
    for n, begin, end in functions(text):
        if n == name and (at is None or begin <= at <= end):
            return begin, end
    return None


def strip(lines):
    return "\n".join(line.strip() for line in lines.split("\n"))


def apply_by_text(text, mutant):
    """The header with the mutant, found by function and text; None if its text is gone or not alone."""
    pattern = r"\s*?\n\s*".join(re.escape(line.strip()) for line in mutant["old"].split("\n"))
    for name, begin, end in functions(text):
        if name != mutant["function"]:
            continue
        places = [m for m in re.finditer(r"(?m)^[ \t]*(" + pattern + r")[ \t]*$", text[begin:end + 1])]
        if len(places) >= mutant["nth"]:
            m = places[mutant["nth"] - 1]
            return text[:begin + m.start(1)] + mutant["new"].strip() + text[begin + m.end(1):]
    return None


# ---- building and running ------------------------------------------------------------------------------------------


def says(source, what):
    for line in open(source).read().split("\n")[:8]:
        m = re.match(r"^// " + what + r": *(.*)", line)
        if m:
            return shlex.split(m.group(1))
    return []


def tests_of(header):
    found = []
    for kind in KINDS:
        for f in sorted(os.listdir(f"tests/{kind}")) if os.path.isdir(f"tests/{kind}") else []:
            stem, ext = os.path.splitext(f)
            about = stem == header or stem.startswith(header + "_") or header == "qos" and kind == "interleave"  # atomics
            if ext in (".c", ".cc") and about:
                variants = says(f"tests/{kind}/{f}", "variants")
                if not variants or "native" in variants:
                    found.append(f"tests/{kind}/{f}")
    return found


def name_of(source):
    return os.path.splitext(source[len("tests/"):])[0]


def has_own_bodies(source):
    """As in tests/lib.sh: compiled whole, not linked with the headers' bodies."""
    head = "\n".join(open(source).read().split("\n")[:8])
    return "/interleave/" in source or source.endswith(".cc") or \
        re.search(r"(?m)^// flags:.* -D|^// flags: -D|^#define (QOS|HTB|TAGS|PSHIFT|TOKENPOOL|TWOCHOICE)_", head)


def bodies_of(source):
    """The headers whose bodies a test is linked with."""
    included = re.findall(r'(?m)^#include "(\w+)\.h"', open(source).read())
    return ["qos"] + [h for h in HEADERS if h != "qos" and (h in included or os.path.basename(source).split("_")[0].split(".")[0] == h)]


SANITIZED = ["clang", "-std=gnu11", "-O1", "-fsanitize=address,undefined,integer", "-fno-sanitize-recover=all",
             "-DQOS_ASSERT(x)=((x)?(void)0:__builtin_trap())"]


GCC = ["gcc", "-std=gnu11", "-O1"]


def command(source, program, headers, level):
    if level == "san":
        extra = ["tests/fuzz/driver.c", f'-DFUZZ_NAME="{os.path.basename(name_of(source))}"'] \
            if "/fuzz/" in source else []
        return SANITIZED + ["-w", f"-I{headers}", "-I.", "-Itests"] + says(source, "flags") + \
            ["-o", program, source] + extra + says(source, "links")
    cc = ["g++", "-std=c++17"] if source.endswith(".cc") else ["gcc", "-std=gnu11"]
    extra = ["tests/fuzz/driver.c", f'-DFUZZ_NAME="{os.path.basename(name_of(source))}"'] if "/fuzz/" in source else []
    return cc + [level, "-w", f"-I{headers}", "-I.", "-Itests"] + says(source, "flags") + \
        ["-o", program, source] + extra + says(source, "links")


def child(cpu_s, sanitized):
    def limits():
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 2))
        if not sanitized:  # sanitizers reserve terabytes of addresses
            resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 20, 64 << 20))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return limits


def run(argv, cpu_s, log=None, scale=None):
    """Status and processor time. Processor time, as the machine may be busy; the wall limit is far above it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    env = dict(os.environ, QOS_TEST_FAILURES="1", LC_ALL="C")
    if scale:
        env["QOS_TEST_SCALE"] = str(scale)
    with open(log or os.devnull, "w") as sink:
        p = subprocess.Popen(argv, stdout=sink, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env,
                             preexec_fn=child(cpu_s, scale), start_new_session=True)
        try:
            status = p.wait(timeout=cpu_s * 8 + 20)
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            status = p.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return status, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def used_s():
    """Processor time of all commands so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def digest(*files):
    h = hashlib.sha256()
    for f in files:
        with open(f, "rb") as handle:
            h.update(handle.read())
    return h.hexdigest()[:16]


class Bench:
    """A copy of the headers in which one is changed, and the tests that judge it."""

    def __init__(self, header, work):
        self.header, self.work = header, work
        self.text = open(f"{header}.h").read()
        sources = tests_of(header)
        parts = [f"tests/{d}/{f}" for d in ["."] + KINDS if os.path.isdir(f"tests/{d}") for f in os.listdir(f"tests/{d}")
                 if f.endswith(".h") or f == "driver.c"]
        self.key = digest(*sorted(f"{h}.h" for h in HEADERS), "tests/mutate/mutate.py", *sources, *sorted(parts))
        if not os.path.exists(f"{work}/{self.key}"):  # its objects are of other sources
            shutil.rmtree(work, ignore_errors=True)
            os.makedirs(work)
            open(f"{work}/{self.key}", "w").close()
        for f in os.listdir("."):
            if f.endswith(".h"):
                self.put(f, open(f).read())

    def put(self, name, text):
        with open(f"{self.work}/{name}", "w") as f:
            f.write(text)

    def kept(self, name, make):
        """What make() gives, from a file if it was asked before."""
        path = f"{self.work}/{name}.json"
        if not os.path.exists(path):
            value = make()
            with open(path + ".new", "w") as f:
                json.dump(value, f)
            os.rename(path + ".new", path)
        with open(path) as f:
            return json.load(f)

    def bodies(self, header, out, compiler, config=""):
        """The object of a header's bodies: functions of qos.h are inline in the others'. False: does not compile."""
        self.put(f"{out}.c", ("" if header == "qos" else '#include "qos.h"\n#undef QOS_API\n') +
                 f'#define QOS_API\n#include "{header}.h"\n')
        argv = compiler + ["-Werror=int-conversion", "-Werror=incompatible-pointer-types", f"-I{self.work}", "-c", "-o", f"{self.work}/{out}.o", f"{self.work}/{out}.c"]
        return run(argv + ([config] if config else []), 120, f"{self.work}/build.log")[0] == 0

    def object(self, config):
        """A hash of the header's object code in one configuration; None: it does not compile."""
        out = "plain" if not config else "other"
        if not self.bodies(self.header, out, GCC, config):
            return None
        with open(f"{self.work}/{out}.o", "rb") as f:
            return hashlib.sha256(f.read()).hexdigest()

    def unchanged(self):
        self.put(f"{self.header}.h", self.text)
        return [self.object(c) for c in CONFIGS]

    def differs(self, text):
        """"plain" or "other": the configuration whose object code differs; "": none does; None: it does not compile."""
        objects = self.kept("objects", self.unchanged)
        self.put(f"{self.header}.h", text)
        for config, before in zip(CONFIGS, objects):
            after = self.object(config)
            if after is None:
                return None
            if after != before:
                return "other" if config else "plain"
        return ""

    def program(self, source, compiler, plain):
        """Builds a test with the header as it is now. plain: the object of that header's bodies."""
        program, log = f"{self.work}/test", f"{self.work}/build.log"
        sanitized = compiler[0] == "clang"
        if has_own_bodies(source):
            return run(command(source, program, self.work, "san" if sanitized else "-O0"), 300, log)[0] == 0
        tag = "san." if sanitized else ""
        objects = [f"{self.work}/{tag}{name_of(source).replace('/', '.')}.o"]
        if not os.path.exists(objects[0]):
            argv = compiler + ["-w", "-I.", "-Itests", "-DQOS_DECLARE_ONLY"] + says(source, "flags")
            if "/fuzz/" in source:
                argv.append(f'-DFUZZ_NAME="{os.path.basename(name_of(source))}"')
                if run(argv + ["-c", "-o", objects[0] + ".driver", "tests/fuzz/driver.c"], 300, log)[0] != 0:
                    return False
            if run(argv + ["-c", "-o", objects[0] + ".new", source], 300, log)[0] != 0:
                return False
            os.rename(objects[0] + ".new", objects[0])
        if "/fuzz/" in source:
            objects.append(objects[0] + ".driver")
        for header in bodies_of(source):
            out = plain if header == self.header else tag + header
            if header != self.header and not os.path.exists(f"{self.work}/{out}.o") and \
                    not self.bodies(header, out, compiler):
                return False
            objects.append(f"{self.work}/{out}.o")
        link = [compiler[0]] + [f for f in compiler if f.startswith("-fsanitize=")]
        link += ["--coverage"] if plain == "covered" else []
        return run(link + says(source, "flags") + ["-o", program] + objects + says(source, "links"), 300, log)[0] == 0

    def lines_run(self, source):
        """Status and time of a test with the header unchanged, and the header's lines that it runs (and has at all)."""
        for f in os.listdir(self.work):
            if f.endswith((".gcda", ".gcno")) and not f.startswith("covered."):
                os.remove(f"{self.work}/{f}")
        program, log = f"{self.work}/test", f"{self.work}/build.log"
        before = used_s()
        if has_own_bodies(source):
            argv = command(source, program, self.work, "-O0")
            good = run(argv[:1] + ["--coverage"] + argv[1:], 300, log)[0] == 0
        else:
            good = self.program(source, GCC, "covered")
        build_s = used_s() - before
        for f in os.listdir(self.work):
            if f.endswith(".gcda"):
                os.remove(f"{self.work}/{f}")
        status, run_s = run([program], LONG_S, f"{self.work}/run.log") if good else (1, 0)
        data = [f for f in os.listdir(self.work) if f.endswith(".gcda")]
        hit, known = set(), set()
        out = subprocess.run(["gcov", "--json-format", "--stdout"] + data, cwd=self.work, capture_output=True, check=False)
        for report in out.stdout.decode().split("\n"):
            for f in json.loads(report)["files"] if report.strip() else []:
                if os.path.basename(f["file"]) == f"{self.header}.h":
                    known.update(line["line_number"] for line in f["lines"])
                    hit.update(line["line_number"] for line in f["lines"] if line["count"])
        return status, build_s, run_s, hit, known

    def measure(self):
        """Each test unchanged: what it costs and reaches. What fails or skips here judges nothing. Long ones, of which
        the counts are not waited for, reach everything."""
        tests, unfit, lines = [], [], set()
        self.put(f"{self.header}.h", self.text)
        self.bodies(self.header, "covered", GCC + ["--coverage"])
        for source in tests_of(self.header):
            if not has_own_bodies(source):
                self.program(source, GCC, "covered")  # its object
            status, build_s, run_s, hit, known = self.lines_run(source)
            lines |= known
            long = status in (-signal.SIGXCPU, -signal.SIGKILL)
            if long or status == 0:
                # A child that is killed leaves no counts.
                reach = None if long or "fork(" in open(source).read() else sorted(hit)
                tests.append({"source": source, "build_s": build_s, "run_s": run_s, "long": long, "lines": reach})
            else:
                unfit.append(source)
        return {"tests": tests, "unfit": unfit, "lines": sorted(lines)}

    def baseline(self):
        self.base = self.kept("baseline", self.measure)
        self.known = set(self.base["lines"])
        self.reach = {t["source"]: None if t["lines"] is None else set(t["lines"]) for t in self.base["tests"]}
        return self.base

    def reaching(self, mutant):
        """The tests that run the mutant's function (lines alone would not do: at -O1 some lose their counts)."""
        begin, end = body_of(self.text, mutant["function"], mutant["at"])
        span = self.known & set(range(self.text.count("\n", 0, begin), self.text.count("\n", 0, end) + 2))
        return [t for t in self.base["tests"]
                if not span or self.reach[t["source"]] is None or span & self.reach[t["source"]]]

    def killed(self, t, limit_s):
        status, _ = run([f"{self.work}/test"], limit_s, f"{self.work}/run.log")
        if status in (0, 77):
            return None
        return name_of(t["source"]), "hangs" if status in (-signal.SIGXCPU, -signal.SIGKILL) else f"status {status}"

    def judge(self, text, tests):
        """("caught", (test, how)), ("survived", None), ("same", None) or ("invalid", None). The quick tests come first,
        with bodies at -O0, as most mutants fall there; only what is left is compiled at -O1 and compared."""
        self.put(f"{self.header}.h", text)
        if not self.bodies(self.header, "quick", ["gcc", "-std=gnu11", "-O0"]):
            return "invalid", None
        quick = [t for t in tests if t["run_s"] < QUICK_S and not has_own_bodies(t["source"])]
        rest = [t for t in tests if t not in quick and not t["long"]]
        begun = used_s()
        for t in quick:
            if SHORT_S and used_s() - begun > SHORT_S:
                return "pending", None
            if not self.program(t["source"], GCC, "quick"):
                return "caught", (name_of(t["source"]), "does not compile")
            how = self.killed(t, int(t["run_s"] * 6) + 2)
            if how:
                return "caught", how
        differs = self.differs(text)
        if not differs:
            return "invalid" if differs is None else "same", None
        how = self.killed_by(text, rest, differs, begun + SHORT_S if SHORT_S else None)
        if how:
            return "caught", how
        if SHORT_S:
            return "pending", None
        return self.judge_long(text, tests, differs)

    def killed_by(self, text, tests, differs, end_s=None):
        self.put(f"{self.header}.h", text)
        for t in tests:
            if end_s and used_s() + t["build_s"] + t["run_s"] > end_s:
                continue
            if differs != "plain" and not has_own_bodies(t["source"]):
                continue
            if not self.program(t["source"], GCC, "plain"):
                return name_of(t["source"]), "does not compile"
            how = self.killed(t, int(t["run_s"] * 6) + 2)
            if how:
                return how
        return None

    def judge_long(self, text, tests, differs):
        """What no short test has caught: the sanitizers, then the long tests."""
        sane = [t for t in tests if t["source"] in self.kept("sane", self.sane)]
        long_s = self.kept("long", self.long)
        self.put(f"{self.header}.h", text)
        if sane:
            self.bodies(self.header, "san.plain", SANITIZED)
        for t in sane:
            self.program(t["source"], SANITIZED, "san.plain")
            status, _ = run([f"{self.work}/test"], 60, f"{self.work}/run.log", 8)
            if status not in (0, 77):
                return "caught", ("san/" + name_of(t["source"]), f"status {status}")
        long = [dict(t, run_s=long_s[t["source"]]) for t in tests if t["long"] and t["source"] in long_s]
        if long:
            self.differs(text)
        how = self.killed_by(text, long, differs)
        return ("caught", how) if how else ("survived", None)

    def long(self):
        """The long tests that pass unchanged: processor time of each."""
        self.put(f"{self.header}.h", self.text)
        self.object("")
        good = {}
        for t in self.base["tests"]:
            if t["long"] and self.program(t["source"], GCC, "plain"):
                status, run_s = run([f"{self.work}/test"], 900, f"{self.work}/run.log")
                if status == 0:
                    good[t["source"]] = run_s
        return good

    def sane(self):
        """The C tests of unit/, property/ and fuzz/ that pass unchanged, in time, under the sanitizers."""
        self.put(f"{self.header}.h", self.text)
        self.bodies(self.header, "san.plain", SANITIZED)
        program, good = f"{self.work}/test", []
        for t in self.base["tests"]:
            if t["source"].split("/")[1] in ("unit", "property", "fuzz") and t["source"].endswith(".c") and not t["long"]:
                if self.program(t["source"], SANITIZED, "san.plain") and run([program], 20, f"{self.work}/run.log", 8)[0] == 0:
                    good.append(t["source"])
        return good


# ---- lists ---------------------------------------------------------------------------------------------------------


def read_list(path):
    entries, entry = [], None
    for number, line in enumerate(open(path).read().split("\n") if os.path.exists(path) else [], 1):
        if line.startswith("#") or not line.strip():
            continue
        m = re.match(r"^(\w+)\.h (\w+)(?: #(\d+))?$", line)
        if m:
            entry = {"header": m.group(1), "function": m.group(2), "nth": int(m.group(3) or 1), "old": [], "new": [],
                     "verdict": "", "reason": "", "line": number}
            entries.append(entry)
        elif entry and line[0] in "-+" and line[1:2] in (" ", ""):
            entry["old" if line[0] == "-" else "new"].append(line[2:])
        elif entry and re.match(r"^(caught by|equivalent|performance): ", line):
            entry["verdict"], entry["reason"] = line.split(": ", 1)
        elif entry and line.startswith("  "):
            entry["reason"] += " " + line.strip()
        else:
            sys.exit(f"{path}:{number}: not a line of a list: {line}")
    for e in entries:
        e["old"], e["new"] = "\n".join(e["old"]), "\n".join(e["new"])
        if not e["old"] or not e["verdict"]:
            sys.exit(f"{path}:{e['line']}: no old text or no verdict")
    return entries


def write_entry(header, m, verdict):
    nth = f" #{m['nth']}" if m["nth"] > 1 else ""
    lines = [f"{header}.h {m['function']}{nth}"]
    lines += ["- " + line for line in strip(m["old"]).split("\n")]
    lines += ["+ " + line for line in strip(m["new"]).split("\n")]
    return "\n".join(lines + [verdict]) + "\n"


def key_of(m):
    return f"{m['function']}#{m['nth']}|{strip(m['old'])}|{strip(m['new'])}"


# ---- commands ------------------------------------------------------------------------------------------------------


def run_command(header, want, seed):
    bench = Bench(header, f"{OUT}/{header}.work")
    base = bench.baseline()
    for source in base["unfit"]:
        print(f"judges nothing, as it does not pass unchanged: {source}")
    if not base["tests"]:
        sys.exit(f"no test of {header}.h passes")
    print(f"{header}.h: {len(base['tests'])} tests, {sum(t['build_s'] + t['run_s'] for t in base['tests']):.0f} s "
          f"of processor time for all", flush=True)
    judged = {key_of(e): e for e in read_list(JUDGED) if e["header"] == header}
    state = f"{OUT}/{header}.{seed}.jsonl"
    head, done = {"header": digest(f"{header}.h"), "tests": bench.key}, {}
    if os.path.exists(state):
        lines = [json.loads(line) for line in open(state)]
        if lines and lines[0]["header"] == head["header"]:
            for r in lines[1:]:
                if r["result"] not in ("survived", "pending") or lines[0]["tests"] == head["tests"]:
                    done[r["key"]] = r
    with open(state, "w") as f:
        for r in [head] + list(done.values()):
            f.write(json.dumps(r) + "\n")
    counts, survivors, dropped, begun, tried = collections.Counter(), [], 0, used_s(), 0
    kills = collections.Counter()  # by test, and by function and test
    for r in done.values():
        if r["result"] == "caught":
            kills.update([r["by"][0], (r["mutant"]["function"], r["by"][0])])
    for m in mutants(bench.text, seed):
        if sum(counts.values()) >= want:
            break
        key = key_of(m)
        r = done.get(key)
        if r is None or r["result"] == "pending" and not SHORT_S and key not in judged:
            text = apply_by_text(bench.text, m)
            if text is None:
                continue
            if used_s() - begun > BUDGET_S:
                print(f"stopped after {BUDGET_S:.0f} s of processor time (QOS_MUTATE_SECONDS); run it again to go on")
                break

            def order(t):
                name = name_of(t["source"])
                return (t["build_s"] + t["run_s"]) / (1 + kills[name] + 10 * kills[m["function"], name])

            result, caught = bench.judge(text, sorted(bench.reaching(m), key=order))
            if caught:
                kills.update([caught[0], (m["function"], caught[0])])
            tried += 1
            r = {"key": key, "result": result, "by": caught, "mutant": m}
            with open(state, "a") as f:
                f.write(json.dumps(r) + "\n")
        if r["result"] in ("same", "invalid"):
            dropped += 1
            continue
        verdict = r["result"]
        if verdict in ("survived", "pending"):
            verdict = judged[key]["verdict"] if key in judged else "survived"
        counts[verdict] += 1
        if verdict == "survived":
            survivors.append(m)
            print(f"{r['result']}: {m['function']}\n{write_entry(header, m, '')}", flush=True)
        done_now = sum(counts.values())
        if done_now % 25 == 0 and tried:
            print(f"  {done_now} of {want}: {counts['caught']} caught, {len(survivors)} survived, "
                  f"{(used_s() - begun) / tried:.1f} s of processor time each", flush=True)
    total = sum(counts.values())
    real = total - counts["equivalent"]
    print(f"{header}.h, seed {seed}: {total} mutants ({dropped} more dropped), {counts['caught']} caught, "
          f"{counts['equivalent']} equivalent, {counts['performance']} performance only, {len(survivors)} unjudged; "
          f"{100 * counts['caught'] / max(real, 1):.1f} % of {real} caught")
    with open(f"{OUT}/{header}.survivors", "w") as f:
        f.write("\n".join(write_entry(header, m, "survived: ") for m in survivors))
    return 0 if counts["caught"] >= 0.95 * real else 1


def pick_command(header, seed):
    """Caught mutants of the last run, each of another function and as many tests as can be."""
    rows = [json.loads(line) for line in open(f"{OUT}/{header}.{seed}.jsonl")][1:]
    rows = [r for r in rows if r["result"] == "caught" and r["by"][1].startswith("status")
            and len(strip(r["mutant"]["old"])) < 110]
    rng, chosen = random.Random(header), []
    rng.shuffle(rows)
    for strict in (True, False):
        for r in rows:
            if len(chosen) < 5 and r not in chosen and \
                    r["mutant"]["function"] not in [c["mutant"]["function"] for c in chosen] and \
                    not (strict and r["by"][0] in [c["by"][0] for c in chosen]):
                chosen.append(r)
    for r in chosen:
        print(write_entry(header, r["mutant"], f"caught by: {r['by'][0]}"))


def replay_command(path, only):
    failed = count = gone = 0
    benches = {}
    for e in read_list(path):
        if only and e["header"] != only or e["verdict"] != "caught by":
            continue
        count += 1
        what = f"{e['header']}.h {e['function']}: {strip(e['new'])[:90]!r}"
        text = apply_by_text(open(f"{e['header']}.h").read(), e)
        source = next((s for s in (f"tests/{e['reason']}.c", f"tests/{e['reason']}.cc") if os.path.exists(s)), None)
        if text is None or source is None:
            print(f"GONE      {what}: {'no such test: ' + e['reason'] if text else 'the old text is not there any more'}"
                  f" ({path}:{e['line']}: choose another, see `mutate.py pick`)")
            gone += 1
            continue
        work = f"{OUT}/replay.{os.getpid()}"
        bench = benches.setdefault(e["header"], None)
        if bench is None:
            os.makedirs(work, exist_ok=True)
            for f in os.listdir("."):
                if f.endswith(".h"):
                    with open(f"{work}/{f}", "w") as out:
                        out.write(open(f).read())
        with open(f"{work}/{e['header']}.h", "w") as f:
            f.write(text)
        program = f"{work}/test"
        status, _ = run(command(source, program, work, "-O0"), 300, f"{work}/build.log")
        how = "does not compile"
        if status == 0:
            status, _ = run([program], 120, f"{work}/run.log")
            how = f"status {status}"
        else:
            status = 0
        with open(f"{work}/{e['header']}.h", "w") as f:
            f.write(open(f"{e['header']}.h").read())
        good = status not in (0, 77)
        failed += not good
        print(f"{'caught  ' if good else 'SURVIVED'}  {what} by {e['reason']}: {how}", flush=True)
    print(f"{count} mutants, {count - failed - gone} caught again")
    return 1 if failed or gone > GONE_MAX or not count else 0


def main():
    a = sys.argv[1:]
    os.makedirs(OUT, exist_ok=True)
    if len(a) >= 2 and a[0] == "run":
        return run_command(a[1], int(a[2]) if len(a) > 2 else 100, a[3] if len(a) > 3 else "1")
    if len(a) >= 2 and a[0] == "list":
        text = open(f"{a[1]}.h").read()
        for n, m in enumerate(mutants(text, a[3] if len(a) > 3 else "1")):
            if n >= int(a[2] if len(a) > 2 else 100):
                break
            print(write_entry(a[1], m, "#" if apply_by_text(text, m) else "# CANNOT BE APPLIED"))
        return 0
    if len(a) >= 2 and a[0] == "pick":
        return pick_command(a[1], a[2] if len(a) > 2 else "1")
    if len(a) >= 2 and a[0] == "replay":
        return replay_command(a[1], a[2] if len(a) > 2 else None)
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main())

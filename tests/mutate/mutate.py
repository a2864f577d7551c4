#!/usr/bin/env python3
"""Changes a header at random and shows that its tests find the change.

usage: tests/mutate/mutate.py run HEADER [N] [SEED]   N random mutants of HEADER.h (default 100, seed 1)
       tests/mutate/mutate.py settings HEADER         each qos_default(setting, default) in turn becomes the default:
                                                      some test must notice that the setting has no effect
       tests/mutate/mutate.py list HEADER [N] [SEED]  only prints them
       tests/mutate/mutate.py pick HEADER [SEED]      5 caught mutants, spread over the header, as a list to replay
       tests/mutate/mutate.py replay FILE [HEADER]    mutants of a list: each must still be caught by the test it names
       tests/mutate/mutate.py texts FILE [HEADER]     only that each can still be made
       tests/mutate/mutate.py work HEADER             counts the work of the mutants judged `performance`
       tests/mutate/mutate.py world HEADER [N] [SEED] N random mutants (default 40) against the header's world alone: 5 s
                                                      of fresh seeds each; prints those that live

A mutant is one small change of one function body: an operator, a constant, a condition, a statement, two arguments
swapped, a memory order. One that does not compile, or whose object code is the header's own (at -O1; plain, with the
atomics' hook, and without __int128), is dropped and not counted. Each of the others is run against the header's native
tests that run a line of it, until one fails: exit status, signal, or far more processor time than without the change.

To save time, a test is compiled and linked once; a mutant is a shared object of the header's bodies that the test loads
(a test that has the bodies in it is compiled whole). Which lines a test runs is measured once for each text of test and
headers. Tests that kill often, those that killed in the same function first, and quick ones come first. There are two
rounds: first the quick tests with bodies at -O0, then all others at 1/20 of their length; after both rounds of all N
mutants, the survivors go through the tests under clang's sanitizers and those of full length.

Same header, N and seed: same mutants. A mutant's place in the order depends on its own text only, so a change elsewhere in
the header does not move it. Verdicts are kept in build/mutate/HEADER.SEED.jsonl: a run can be stopped at any time and
continues there. N can grow. A survivor is tried only with tests that it has not met. After a change of the header, a caught
mutant is tried first with the test that caught it.

    QOS_MUTATE_SECONDS=n  ends the run after n seconds; the next run continues there (0: only prints known verdicts)
    QOS_MUTATE_ROUND=1    leaves out the second round
    QOS_MUTATE_CHAPTERS="agent controller"  only functions of these chapters of the header

Lists (tests/mutate/*.list) name mutants by text, not by line, so that they outlive edits elsewhere:
    htb.h htb_take                 the header and the function; `#2` after it: the second such place in the function
    - old text of the line(s)
    + new text
    caught by: unit/htb_reserve    or `equivalent: reason`, `performance: reason`

The work of a mutant that is slow but right is a count, not a time: how often the branches of the header's bodies are taken
(clang's counters, at -O1) and its prefetches run, in the test named, at 1/20 of its length. `work` writes it after the
reason: `[unit/htb_queues: 1200 -> 1300]`, without the change and with it.
"""
import collections
import fcntl
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
import time

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
OUT = "build/mutate"
KINDS = ["unit", "property", "paper", "fuzz", "interleave", "adversary"]
CONFIGS = ["", "-DQOS_ATOMIC_HOOK", "-DQOS_NO_INT128"]
GONE_MAX = 1  # entries of a replayed list whose text may be gone after edits of the header
JUDGED = "tests/mutate/judged.list"
QUICK_S = 0.5  # of processor time: a test below this is tried before a mutant's object code is compared
LATER_S = 1  # a test above this waits for the second round
LONG_S = 150  # a test above this is not used
SCALE = 20  # the first round runs 1/SCALE of each random test
END = time.monotonic() + float(os.environ.get("QOS_MUTATE_SECONDS", "inf"))
ROUNDS = int(os.environ.get("QOS_MUTATE_ROUND", "2"))
CHAPTERS = os.environ.get("QOS_MUTATE_CHAPTERS", "").split()
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
        self.settings = []  # the same, for settings that lose their effect
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
        for i, (kind, t, _, _) in enumerate(toks):  # assertions are compiled out
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
                if t == "qos_default" and len(parts) == 2:
                    self.settings.append((self.name, begin, toks[k][3], [f"((uint64_t)({self.span(*parts[1])}))"]))
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
    """All mutants, in an order that depends on the seed and on each one's own text. Each site gives one before any gives
    two. Seed "settings": those of settings."""
    found = {}
    mutator = Mutator(text)
    for name, begin, end, options in mutator.settings if seed == "settings" else mutator.sites + mutator.settings:
        site = []
        if CHAPTERS and (re.findall(r"==== chapter: ([\w ]+\w)", text[:begin]) or [""])[-1] not in CHAPTERS:
            continue
        for new in options:
            m = describe(text, name, begin, end, new)
            if m is None:
                continue  # behind a comment that ends in the line
            site.append((hashlib.sha256(f"{seed} {key_of(m)}".encode()).hexdigest(), m))
        for n, (rank, m) in enumerate(sorted(site, key=lambda r: r[0])):
            key = key_of(m)
            if key not in found or found[key][0] > n:
                found[key] = (n, rank, m)
    return [m for _, _, m in sorted(found.values(), key=lambda r: r[:2])]


def describe(text, name, begin, end, new):
    """The mutant as whole lines: function, which of equal places, old and new text."""
    first = text.rfind("\n", 0, begin) + 1
    last = text.find("\n", end)
    old_lines, new_lines = text[first:last], text[first:begin] + new + text[end:last]
    starts = [m.start() for m in places(text, name, old_lines)]
    if first not in starts:
        return None
    return {"function": name, "nth": starts.index(first) + 1, "old": old_lines, "new": new_lines, "at": first}


def body_of(text, name, at=None):
    for n, begin, end in functions(text):
        if n == name and (at is None or begin <= at <= end):
            return begin, end
    return None


COMMENT = re.compile(r"[ \t]*/\*((?!\*/).)*\*/[ \t]*$")


def strip(lines):
    """Lines without their indentation and without comments at their ends."""
    return "\n".join(COMMENT.sub("", line.strip()) for line in lines.split("\n"))


@functools.lru_cache(maxsize=4096)
def places(text, function, old):
    """The places of lines in the bodies of a function, whatever their indentation and the comments at their ends."""
    end_of_line = r"[ \t]*(?:/\*(?:(?!\*/)[^\n])*\*/)?[ \t]*$"
    pattern = re.compile(r"(?m)^[ \t]*(" + (end_of_line + r"\n\s*").join(re.escape(line) for line in strip(old).split("\n")) +
                         r")" + end_of_line)
    return [m for name, begin, end in functions(text) if name == function for m in pattern.finditer(text, begin, end)]


def apply_by_text(text, mutant):
    """The header with the mutant, found by function and text; None if its text is gone."""
    found = places(text, mutant["function"], mutant["old"])
    if len(found) < mutant["nth"]:
        return None
    m = found[mutant["nth"] - 1]
    return text[:m.start(1)] + strip(mutant["new"]) + text[m.end(1):]


# ---- building and running ------------------------------------------------------------------------------------------


def says(source, what):
    for line in open(source).read().split("\n")[:8]:
        m = re.match(r"^// " + what + r": *(.*)", line)
        if m:
            return shlex.split(m.group(1))
    return []


def tests_of(header):
    found = []
    for kind in KINDS + ["world"]:
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


GCC = ["gcc", "-std=gnu11", "-O1"]
CLANG = ["clang", "-std=gnu11", "-O0"]
COVERED = ["clang", "-std=gnu11", "-O1", "-fprofile-instr-generate", "-fcoverage-mapping"]
COUNTED = COVERED + ["-D__builtin_prefetch(...)=((void)((__VA_ARGS__) ? 0 : 0))"]  # a branch, so that it counts
SANITIZED = ["clang", "-std=gnu11", "-O1", "-fsanitize=address,undefined,integer", "-fno-sanitize-recover=all",
             "-DQOS_ASSERT(x)=((x)?(void)0:__builtin_trap())"]


def parts(source):
    """What a test of a world is linked with."""
    return [f"examples/world/{f}" for f in sorted(os.listdir("examples/world")) if f.endswith(".c")] + ["-lm"] if "/world/" in source else []


def driver(source):
    return ["tests/fuzz/driver.c", f'-DFUZZ_NAME="{os.path.basename(name_of(source))}"'] if "/fuzz/" in source else []


def whole(compiler, source, program, headers):
    """The command that compiles a test with the bodies in it."""
    standard = "-std=c++17" if source.endswith(".cc") else "-std=gnu11"
    return compiler + [standard, "-O0", "-w", f"-I{headers}", "-I.", "-Itests"] + says(source, "flags") + \
        ["-o", program, source] + driver(source) + parts(source) + says(source, "links")


def child(cpu_s, sanitized):
    def limits():
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 2))
        if not sanitized:  # sanitizers reserve terabytes of addresses
            resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 20, 64 << 20))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return limits


def run(argv, cpu_s, log=None, scale=1, libraries="", sanitized=False, profile="/dev/null"):
    """Status and processor time. Processor time, as the machine may be busy; the wall limit is far above it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    env = dict(os.environ, QOS_TEST_FAILURES="1", LC_ALL="C", QOS_TEST_SCALE=str(scale), LD_LIBRARY_PATH=libraries,
               LLVM_PROFILE_FILE=profile)
    with open(log or os.devnull, "w") as sink:
        p = subprocess.Popen(argv, stdout=sink, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env,
                             preexec_fn=child(cpu_s, sanitized), start_new_session=True)
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


def read(path):
    with open(path, "rb") as f:
        return f.read()


def digest(*parts):
    h = hashlib.sha256()
    for part in parts:
        h.update(part if isinstance(part, bytes) else str(part).encode())
        h.update(b"\0")
    return h.hexdigest()[:16]


def files_of(source):
    """A test and all that it includes, the headers among it; a fuzz target's driver and corpus."""
    found, todo = set(), [source] + driver(source)[:1]
    while todo:
        path = todo.pop()
        if path not in found:
            found.add(path)
            for name in re.findall(r'(?m)^#include "([^"]+)"', read(path).decode()):
                todo += [p for p in (f"{os.path.dirname(path)}/{name}", f"tests/{name}", name) if os.path.exists(p)][:1]
    corpus = f"tests/fuzz/corpus/{os.path.basename(name_of(source))}"
    if "/fuzz/" in source and os.path.isdir(corpus):
        found.update(f"{corpus}/{f}" for f in os.listdir(corpus))
    return sorted(found | {f"{h}.h" for h in bodies_of(source)})


class Test:
    """One way to run a source: at which scale, and with or without the sanitizers."""

    def __init__(self, source, scale, sanitized):
        self.source, self.scale, self.sanitized, self.own = source, scale, sanitized, bool(has_own_bodies(source))
        self.text = digest(*[part for f in files_of(source) for part in (f, read(f))])
        self.key = digest(self.text, scale, sanitized)
        self.name = ("san/" if sanitized else "") + name_of(source)
        self.scaled = any(re.search("check_scaled|check_state.scale", read(f).decode(errors="replace"))
                          for f in files_of(source) if f != "tests/check.h" and f.endswith((".c", ".cc", ".h")))


class Bench:
    """A copy of the headers, one of them changed, and the tests that judge it."""

    def __init__(self, header):
        self.header, self.work = header, f"{OUT}/{header}.work"
        self.text = read(f"{header}.h").decode()
        self.digest = digest(self.text, read("qos.h"))
        every = digest(*[read(f"{h}.h") for h in HEADERS])
        os.makedirs(f"{OUT}/measured", exist_ok=True)
        self.lock = open(f"{self.work}.lock", "w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"another run changes {header}.h already")
        if not os.path.exists(f"{self.work}/{every}"):  # its objects belong to other headers
            shutil.rmtree(self.work, ignore_errors=True)
            os.makedirs(f"{self.work}/as_is")
            open(f"{self.work}/{every}", "w").close()
        for h in HEADERS:
            shutil.copy(f"{h}.h", f"{self.work}/{h}.h")
            shutil.copy(f"{h}.h", f"{self.work}/as_is/{h}.h")
        self.built = set()  # libraries and objects of the header as it is in `work`
        sources = tests_of(header)
        fit = self.fit([Test(s, SCALE, False) for s in sources])
        self.short = [t for t in fit if t.run_s <= LATER_S]
        self.slow = [t for t in fit if t.run_s > LATER_S]
        self.later = None

    def put(self, text):
        with open(f"{self.work}/{self.header}.h", "w") as f:
            f.write(text)
        self.built.clear()

    def kept(self, path, make):
        """The result of make(), from a file if it was computed before."""
        if not os.path.exists(path):
            value = make()
            with open(path + ".new", "w") as f:
                json.dump(value, f)
            os.rename(path + ".new", path)
        with open(path) as f:
            return json.load(f)

    def bodies(self, header, out, argv, headers):
        """Compiles a header's bodies: functions of qos.h are inline in the others'. False: they do not compile."""
        with open(f"{self.work}/bodies.c", "w") as f:
            f.write(("" if header == "qos" else '#include "qos.h"\n#undef QOS_API\n') +
                    f'#define QOS_API\n#include "{header}.h"\n')
        return run(argv + ["-Werror=int-conversion", "-Werror=incompatible-pointer-types", f"-I{headers}", "-o", out,
                           f"{self.work}/bodies.c"], 120, f"{self.work}/build.log")[0] == 0

    def shared(self, header, out, compiler, headers):
        """A directory with the header's bodies as a shared object."""
        os.makedirs(f"{self.work}/{out}", exist_ok=True)
        return self.bodies(header, f"{self.work}/{out}/libqoskit_{header}.so",
                           compiler + ["-fPIC", "-shared", "-Wl,-Bsymbolic"], headers)

    def changed(self, out, compiler):
        """The library of the header as it is in `work`, made once for each change."""
        if out not in self.built and not self.shared(self.header, out, compiler, self.work):
            return False
        self.built.add(out)
        return True

    def object(self, config):
        """A hash of the header's object code in one configuration; None: it does not compile."""
        out = f"{self.work}/object.o"
        if not self.bodies(self.header, out, GCC + ["-c"] + ([config] if config else []), self.work):
            return None
        return digest(read(out))

    def unchanged(self):
        self.put(self.text)
        return [self.object(c) for c in CONFIGS]

    def differs(self, text):
        """"plain" or "other": the configuration whose object code differs; "": none does; None: it does not compile."""
        objects = self.kept(f"{self.work}/objects.json", self.unchanged)
        self.put(text)
        for config, before in zip(CONFIGS, objects):
            after = self.object(config)
            if after is None:
                return None
            if after != before:
                return "other" if config else "plain"
        return ""

    def program(self, t):
        """A test linked with the headers' bodies as they are; which ones it loads is said when it runs."""
        tag = "san" if t.sanitized else "run"
        compiler = SANITIZED if t.sanitized else GCC
        path = f"{self.work}/{t.text}.{tag}"
        if os.path.exists(path):
            return path
        place = f"{self.work}/{tag}.as_is"
        for h in bodies_of(t.source):
            if not os.path.exists(f"{place}/libqoskit_{h}.so") and \
                    not self.shared(h, f"{tag}.as_is", compiler, f"{self.work}/as_is"):
                return None
        argv = compiler + ["-w", "-DQOS_DECLARE_ONLY", f"-I{self.work}/as_is", "-I.", "-Itests"] + says(t.source, "flags") + \
            ["-o", path + ".new", t.source] + driver(t.source) + [f"-L{place}"] + \
            [f"-lqoskit_{h}" for h in bodies_of(t.source)] + parts(t.source) + says(t.source, "links")
        if run(argv, 300, f"{self.work}/build.log")[0] != 0:
            return None
        os.rename(path + ".new", path)
        return path

    def measure(self, t):
        """A test unchanged: whether it passes, what it takes, which of the header's lines it runs (and has at all)."""
        self.put(self.text)
        profile, program, build_s = f"{self.work}/profile", f"{self.work}/test", 0.0
        if t.own:
            begun = used_s()
            compiler = ["clang++" if t.source.endswith(".cc") else "clang"] + \
                (SANITIZED[3:] if t.sanitized else ["-fprofile-instr-generate", "-fcoverage-mapping"])
            if run(whole(compiler, t.source, program, self.work), 300, f"{self.work}/build.log")[0] != 0:
                return {"fit": False}
            build_s, measured, libraries = used_s() - begun, program, ""
        else:
            program = self.program(t)
            if not program or not (t.sanitized or self.changed("cover", COVERED)):
                return {"fit": False}
            measured = f"{self.work}/cover/libqoskit_{self.header}.so"
            libraries = f"{self.work}/san.as_is" if t.sanitized else f"{self.work}/cover:{self.work}/run.as_is"
        if os.path.exists(profile):
            os.remove(profile)
        status, run_s = run([program], LONG_S, f"{self.work}/run.log", t.scale, libraries, t.sanitized, profile)
        result = {"fit": status == 0, "build_s": build_s, "run_s": run_s, "hit": None, "known": []}
        # A killed child leaves no counts.
        if status == 0 and not t.sanitized and os.path.exists(profile) and "fork(" not in read(t.source).decode():
            subprocess.run(["llvm-profdata", "merge", "-o", profile + ".data", profile], capture_output=True, check=True)
            lines = subprocess.run(["llvm-cov", "export", "-format=lcov", measured, "-instr-profile", profile + ".data",
                                    f"{self.work}/{self.header}.h"], capture_output=True, check=True).stdout.decode()
            counts = [tuple(map(int, line[3:].split(","))) for line in lines.split("\n") if line.startswith("DA:")]
            result["known"] = sorted({n for n, _ in counts})
            result["hit"] = sorted({n for n, count in counts if count})
        return result

    def fit(self, tests):
        """Those of the tests that pass unchanged, each with what was measured."""
        good = []
        for t in tests:
            r = self.kept(f"{OUT}/measured/{self.header}.{t.key}.json", functools.partial(self.measure, t))
            if r["fit"]:
                t.build_s, t.run_s = r["build_s"], r["run_s"]
                t.hit, t.known = None if r["hit"] is None else set(r["hit"]), set(r["known"])
                good.append(t)
            else:
                print(f"judges nothing, as it does not pass unchanged: {t.name} at scale 1/{t.scale}", flush=True)
        return good

    def long(self):
        """The tests of the second round: under the sanitizers, then those of full length."""
        if self.later is None:
            sane = [t.source for t in self.short
                    if t.source.split("/")[1] in ("unit", "property", "fuzz") and t.source.endswith(".c")]
            self.later = self.fit([Test(s, SCALE, True) for s in sane])
            lines = {t.source: t for t in self.short}
            for t in self.later:
                t.hit, t.known = lines[t.source].hit, lines[t.source].known
            self.later += self.fit([Test(t.source, 1, False) for t in self.short + self.slow if t.scaled])
            self.later += [t for t in self.slow if not t.scaled]
        return self.later

    def reaching(self, mutant, tests):
        """The tests that run a line of the mutant; of its function, if no count says which of its lines run."""
        first = self.text.count("\n", 0, mutant["at"]) + 1
        begin, end = body_of(self.text, mutant["function"], mutant["at"])
        body = range(self.text.count("\n", 0, begin), self.text.count("\n", 0, end) + 2)
        found = []
        for t in tests:
            span = t.known & set(range(first, first + mutant["old"].count("\n") + 1)) or t.known & set(body)
            if t.hit is None or not span or span & t.hit:
                found.append(t)
        return found

    def killed(self, t):
        """How the header as it is in `work` fails a test; None: it does not."""
        limit_s = int(t.run_s * 6) + (8 if t.sanitized else 1)
        if t.own:
            program, libraries = f"{self.work}/test", ""
            compiler = ["clang"] + SANITIZED[3:] if t.sanitized else ["g++" if t.source.endswith(".cc") else "gcc"]
            if run(whole(compiler, t.source, program, self.work), 300, f"{self.work}/build.log")[0] != 0:
                return "does not compile"
        else:
            program = self.program(t)
            out, compiler = ("san", SANITIZED) if t.sanitized else ("O0", CLANG) if t.run_s < QUICK_S else ("O1", GCC)
            if not self.changed(out, compiler):
                return "does not compile"
            libraries = f"{self.work}/{out}:{self.work}/{'san' if t.sanitized else 'run'}.as_is"
        status, _ = run([program], limit_s, f"{self.work}/run.log", t.scale, libraries, t.sanitized)
        if status in (0, 77):
            return None
        return "hangs" if status in (-signal.SIGXCPU, -signal.SIGKILL) else f"status {status}"

    def judge(self, r, round_of, kills):
        """Continues a mutant's record: `result` becomes caught, same, invalid, or stays open; `met` are the keys of the
        tests that it has survived, `rounds` its finished rounds. False: the time is over."""
        m = r["mutant"]
        text = apply_by_text(self.text, m)
        self.put(text)

        def order(t):
            return t.name != r["hint"], (t.build_s + t.run_s + 0.02) / (1 + kills[t.name] + 10 * kills[m["function"], t.name])

        def meet(tests):
            for t in sorted(self.reaching(m, tests), key=order):
                if time.monotonic() > END:
                    return False
                if t.key in r["met"] or r["differs"] == "other" and not t.own:
                    continue
                how = self.killed(t)
                if how:
                    kills.update([t.name, (m["function"], t.name)])
                    r.update(result="caught", by=[t.name, how])
                    return True
                r["met"].append(t.key)
            return True

        if r["differs"] is None:
            if not self.changed("O0", CLANG):
                r["result"] = "invalid"
                return True
            if not meet([t for t in self.short if not t.own and t.run_s < QUICK_S]):
                return False
            if r["result"] == "caught":
                return True
            r["differs"] = self.differs(text)
            if not r["differs"]:
                r["result"] = "invalid" if r["differs"] is None else "same"
                return True
        if not meet(self.short):
            return False
        if r["result"] == "open" and round_of == 2 and not meet(self.long()):
            return False
        if r["result"] == "open":
            r["rounds"] = round_of
        return True


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
            entry["last"] = number
        elif entry and line.startswith("  "):
            entry["reason"] += " " + line.strip()
            entry["last"] = number
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
    bench = Bench(header)
    if not bench.short:
        sys.exit(f"no test of {header}.h passes")
    print(f"{header}.h: {len(bench.short)} tests, {sum(t.build_s + t.run_s for t in bench.short):.0f} s of processor time "
          f"for all in the first round", flush=True)
    judged = {key_of(e): e for e in read_list(JUDGED) if e["header"] == header}
    state = f"{OUT}/{header}.{seed}.jsonl"
    known, kills, counts, dropped, tried, begun = {}, collections.Counter(), collections.Counter(), 0, 0, used_s()
    for line in open(state) if os.path.exists(state) else []:
        r = json.loads(line)
        known[r["key"]] = r
    for r in known.values():
        if r["result"] == "caught":
            kills.update([r["by"][0], (r["mutant"]["function"], r["by"][0])])
    every, chosen, over = mutants(bench.text, seed), [], False

    def record(m):
        r = known.get(key_of(m))
        if r is None or r["header"] != bench.digest:
            hint = r["by"][0] if r and r["by"] else None
            r = {"key": key_of(m), "header": bench.digest, "result": "open", "by": None, "hint": hint, "differs": None,
                 "met": [], "rounds": 0}
        r["mutant"] = m
        return r

    def unmet(r, round_of):
        """Whether a mutant that lives has tests before it: it is new, or a test is."""
        if r["result"] != "open" or round_of == 2 and r["key"] in judged:
            return False
        tests = bench.reaching(r["mutant"], bench.short + (bench.long() if round_of == 2 else []))
        return r["rounds"] < round_of or any(t.key not in r["met"] for t in tests)

    def take(r, round_of):
        nonlocal tried, over
        if not over and unmet(r, round_of):
            over = time.monotonic() > END or not bench.judge(r, round_of, kills)
            if r["result"] != "open" or r["met"]:
                tried += 1
                known[r["key"]] = r
                with open(state, "a") as f:
                    f.write(json.dumps(r) + "\n")

    for m in every:
        r = record(m)
        if len(chosen) >= want or over and key_of(m) not in known:
            break
        take(r, 1)
        if r["result"] in ("same", "invalid"):
            dropped += 1
        elif r["result"] == "caught" or r["rounds"] >= 1:
            chosen.append(r)
            if len(chosen) % 25 == 0 and tried:
                print(f"  {len(chosen)} of {want}: {sum(r['result'] == 'caught' for r in chosen)} caught, "
                      f"{(used_s() - begun) / tried:.1f} s of processor time each", flush=True)
    for r in chosen if ROUNDS > 1 and not over else []:
        take(r, 2)
    if over:
        print("the time is over (QOS_MUTATE_SECONDS); run it again to continue")
    with open(state + ".new", "w") as f:  # without results that newer ones replace
        f.writelines(json.dumps(r) + "\n" for r in known.values())
    os.rename(state + ".new", state)
    survivors = []
    for r in chosen:
        verdict = r["result"] if r["result"] != "open" else judged[r["key"]]["verdict"] if r["key"] in judged else "open"
        counts[verdict] += 1
        if verdict == "open":
            survivors.append(write_entry(header, r["mutant"], "lives" if r["rounds"] == 2 else "lives after the first round"))
    with open(f"{OUT}/{header}.survivors", "w") as f:
        f.write("\n".join(survivors))
    print("\n".join(survivors))
    total = len(chosen)
    real = total - counts["equivalent"]
    print(f"{header}.h, seed {seed}: {total} mutants ({dropped} more dropped), {counts['caught']} caught, "
          f"{counts['equivalent']} equivalent, {counts['performance']} performance only, {len(survivors)} unjudged; "
          f"{100 * counts['caught'] / max(real, 1):.1f} % of {real} caught")
    if seed == "settings":
        return 0 if not survivors and not over else 1
    return 0 if total >= want and counts["caught"] >= 0.95 * real else 1


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


def replay_command(path, only, run_them=True):
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
        if not run_them:
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
        status, _ = run(whole(["g++"] if source.endswith(".cc") else ["gcc"], source, program, work), 300, f"{work}/build.log")
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
    print(f"{count} mutants, {count - failed - gone} {'caught again' if run_them else 'can still be made'}")
    return 1 if failed or gone > GONE_MAX or not count else 0


def work_of(bench, t):
    """How often the branches of the header as it is in `work` are taken in a test; None: the test does not pass."""
    profile = f"{bench.work}/profile"
    if os.path.exists(profile):
        os.remove(profile)
    if not bench.changed("count", COUNTED) or run([bench.program(t)], LONG_S, f"{bench.work}/run.log", t.scale,
                                                  f"{bench.work}/count:{bench.work}/run.as_is", False, profile)[0] != 0:
        return None
    subprocess.run(["llvm-profdata", "merge", "-o", profile + ".data", profile], capture_output=True, check=True)
    shown = subprocess.run(["llvm-profdata", "show", "--counts", "--all-functions", profile + ".data"],
                           capture_output=True, check=True).stdout.decode()
    counts = re.findall(r"Block counts: \[([\d, ]*)\]|Function count: (\d+)", shown)
    return sum(int(n) for blocks, calls in counts for n in (blocks.split(", ") if blocks else [calls or 0]))


def note_work(entry, count):
    """Writes a count behind the reason of an entry of the list, which may have changed meanwhile."""
    lines = open(JUDGED).read().split("\n")
    for e in read_list(JUDGED):
        if e["header"] == entry["header"] and key_of(e) == key_of(entry):
            lines[e["last"] - 1] = re.sub(r" \[[^]]*: \d+ -> \d+\]$", "", lines[e["last"] - 1]) + count
    with open(JUDGED, "w") as f:
        f.write("\n".join(lines))


def work_command(header):
    bench, usual, missing = Bench(header), {}, 0
    for e in sorted(read_list(JUDGED), key=lambda e: -e["line"]):
        if e["header"] != header:
            continue
        found = places(bench.text, e["function"], e["old"])
        if len(found) < e["nth"]:
            print(f"GONE      {JUDGED}:{e['line']}: {e['function']}: the old text is not there any more")
            missing += 1
            continue
        if e["verdict"] != "performance":
            continue
        best, change, at = None, 1, {**e, "at": found[e["nth"] - 1].start()}
        text = apply_by_text(bench.text, e)
        tests = [t for t in bench.reaching(at, bench.short) if not t.own and t.hit is not None and t.run_s < QUICK_S and
                 "pthread" not in read(t.source).decode()]  # two runs of threads differ
        tests.sort(key=lambda t: t.run_s)
        for t in [t for t in tests if t.key not in usual]:
            bench.put(bench.text)
            usual[t.key] = work_of(bench, t)
        bench.put(text)
        for t in tests:
            if change > 1.01:  # enough to see it
                break
            n = work_of(bench, t)
            if n and usual[t.key] and max(n / usual[t.key], usual[t.key] / n) > change:
                best, change = f" [{t.name}: {usual[t.key]} -> {n}]", max(n / usual[t.key], usual[t.key] / n)
        if best:
            note_work(e, best)
        missing += not best
        print(f"{'counted ' if best else 'NO COUNT'}  {e['function']}: {strip(e['new'])[:70]!r}{best or ''}", flush=True)
    return 1 if missing else 0


def world_command(header, want, seed):
    """Plain seeds of the world alone, whose bodies have assertions; a mutant of equal object code is not counted."""
    work = f"{OUT}/{header}.world"
    flags = ["-O2", "-ffp-contract=off", "-I.", "-Itests"] + says(f"tests/world/{header}.c", "flags")
    checked = GCC + flags + ["-O1", "-w", "-Werror=int-conversion", "-Werror=incompatible-pointer-types",
                             "-DQOS_ASSERT(x)=((x)?(void)0:__builtin_trap())", "-c"]
    text, judged = open(f"{header}.h").read(), {key_of(e): e for e in read_list(JUDGED) if e["header"] == header}
    os.makedirs(work, exist_ok=True)
    parts = [f"examples/world/{f}" for f in os.listdir("examples/world") if f.endswith(".c")]
    for source in [f"tests/world/{header}.c"] + parts:
        if run(GCC + flags + ["-w", "-DQOS_DECLARE_ONLY", "-c", "-o", f"{work}/{os.path.basename(source)}.o", source],
               300, f"{work}/log")[0] != 0:
            sys.exit(open(f"{work}/log").read())
    objects = [f"{work}/{os.path.basename(source)}.o" for source in [f"tests/world/{header}.c"] + parts]

    def bodies(h, changed, out):
        with open(f"{work}/{h}.h", "w") as f:
            f.write(changed)
        with open(f"{work}/bodies.c", "w") as f:
            f.write(("" if h == "qos" else '#include "qos.h"\n#undef QOS_API\n') + f'#define QOS_API\n#include "{h}.h"\n')
        return run(checked[:1] + [f"-I{work}"] + checked[1:] + ["-o", out, f"{work}/bodies.c"], 120)[0] == 0 and read(out)

    if header != "qos":
        bodies("qos", open("qos.h").read(), f"{work}/qos.o")
        objects.append(f"{work}/qos.o")
    plain, counts = bodies(header, text, f"{work}/bodies.o"), collections.Counter()

    def broken():
        if run(["gcc", "-o", f"{work}/world"] + objects + [f"{work}/bodies.o", "-lm"], 60, f"{work}/log")[0] != 0:
            sys.exit(open(f"{work}/log").read())
        return run([f"{work}/world", "--for", "5", "--no-shrink", "--first"], 12, f"{work}/log")[0] != 0

    if broken():
        sys.exit(f"{header}.h breaks its world without a change: {work}/log")
    for m in mutants(text, seed):
        if sum(counts[v] for v in ("found", "equivalent", "performance", "lives")) >= want:
            break
        code, how = bodies(header, apply_by_text(text, m), f"{work}/bodies.o"), "dropped"
        if code and code != plain:
            how = "found" if broken() else judged[key_of(m)]["verdict"] if key_of(m) in judged else "lives"
        counts[how] += 1
        if how == "lives":
            print(write_entry(header, m, "lives"), flush=True)
    print(f"{header}.h, seed {seed}: {dict(counts)}")
    return 0


def main():
    a = sys.argv[1:]
    os.makedirs(OUT, exist_ok=True)
    if len(a) >= 2 and a[0] == "run":
        return run_command(a[1], int(a[2]) if len(a) > 2 else 100, a[3] if len(a) > 3 else "1")
    if len(a) == 2 and a[0] == "settings":
        return run_command(a[1], sys.maxsize, "settings")
    if len(a) >= 2 and a[0] == "list":
        text = open(f"{a[1]}.h").read()
        for m in mutants(text, a[3] if len(a) > 3 else "1")[:int(a[2]) if len(a) > 2 else 100]:
            print(write_entry(a[1], m, "#" if apply_by_text(text, m) else "# CANNOT BE APPLIED"))
        return 0
    if len(a) >= 2 and a[0] == "pick":
        return pick_command(a[1], a[2] if len(a) > 2 else "1")
    if len(a) >= 2 and a[0] == "replay":
        return replay_command(a[1], a[2] if len(a) > 2 else None)
    if len(a) >= 2 and a[0] == "texts":
        return replay_command(a[1], a[2] if len(a) > 2 else None, False)
    if len(a) >= 2 and a[0] == "work":
        return work_command(a[1])
    if len(a) >= 2 and a[0] == "world":
        return world_command(a[1], int(a[2]) if len(a) > 2 else 40, a[3] if len(a) > 3 else "1")
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main())

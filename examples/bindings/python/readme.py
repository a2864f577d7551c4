#!/usr/bin/env python3
"""The program of qoskit's README in Python: two tenants want all they can get from a disk that does 40 MB/s."""
from _qoskit import ffi, lib

NAMES = ["", "gold, 15 reserved", "free, at most 10"]
SIZE = 16384

# Memory for the tree, aligned to 64 bytes. Keep `memory` and `tree` as long as you use them.
memory = ffi.new("unsigned char[]", SIZE + 63)
aligned = memory + -int(ffi.cast("uintptr_t", memory)) % 64
config = ffi.new("struct htb_config *")  # zero means the default in every field
gold, free_user = ffi.new("struct htb_class *"), ffi.new("struct htb_class *")
tree = ffi.new("struct htb *")
sent, now_ns = [0, 0, 0], 0

config.rate_per_s[0] = 40000000  # the disk sustains 40 MB/s; a token is a byte
gold.rate_per_s[0] = 15000000
free_user.limit_per_s[0] = 10000000
assert lib.htb_init(tree, aligned, SIZE, config) == lib.QOS_OK
assert lib.htb_reserve(tree, now_ns, 1, gold, ffi.NULL) == lib.QOS_OK
assert lib.htb_reserve(tree, now_ns, 2, free_user, ffi.NULL) == lib.QOS_OK
while now_ns < lib.QOS_NS_PER_S:  # one second in which both want all they can get, in requests of 64 KiB
    next_ns = lib.QOS_NEVER
    for tenant in (2, 1):
        while lib.htb_take(tree, now_ns, tenant, 65536) == lib.QOS_OK:
            sent[tenant] += 65536  # send the request
        next_ns = min(next_ns, lib.htb_next_ns(tree, now_ns, tenant, 65536))
    now_ns = next_ns  # a server would sleep until then
for tenant in (1, 2):
    print(f"{NAMES[tenant]:<18} {sent[tenant] / 1e6:5.1f} MB/s")

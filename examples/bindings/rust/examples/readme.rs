//! The program of qoskit's README in Rust: two tenants want all they can get from a disk that does 40 MB/s.
use qoskit::*;

/// Memory for the tree, aligned as it asks.
#[repr(align(64))]
struct Memory([u8; 16384]);

fn main() {
    let names = ["", "gold, 15 reserved", "free, at most 10"];
    let mut memory = Box::new(Memory([0; 16384]));
    let mut config = htb_config::default(); // zero means the default in every field
    let (mut gold, mut free_user) = (htb_class::default(), htb_class::default());
    let mut bytes = [0u64; 3];
    let mut now_ns = 0;

    config.rate_per_s[0] = 40_000_000; // the disk sustains 40 MB/s; a token is a byte
    gold.rate_per_s[0] = 15_000_000;
    free_user.limit_per_s[0] = 10_000_000;
    // SAFETY: the tree and its memory stay where they are, and this thread alone calls.
    unsafe {
        let mut tree: Box<htb> = Box::new(std::mem::zeroed());
        let tree: *mut htb = &mut *tree;
        assert_eq!(htb_init(tree, memory.0.as_mut_ptr().cast(), memory.0.len(), &config), QOS_OK);
        assert_eq!(htb_reserve(tree, now_ns, 1, &gold, std::ptr::null_mut()), QOS_OK);
        assert_eq!(htb_reserve(tree, now_ns, 2, &free_user, std::ptr::null_mut()), QOS_OK);
        while now_ns < QOS_NS_PER_S {
            // one second in which both want all they can get, in requests of 64 KiB
            let mut next_ns = QOS_NEVER;
            for id in [2u32, 1] {
                while htb_take(tree, now_ns, id, 65536) == QOS_OK {
                    bytes[id as usize] += 65536; // send the request
                }
                next_ns = next_ns.min(htb_next_ns(tree, now_ns, id, 65536));
            }
            now_ns = next_ns; // a server would sleep until then
        }
    }
    for id in 1..3 {
        println!("{:<18} {:5.1} MB/s", names[id], bytes[id] as f64 / 1e6);
    }
}

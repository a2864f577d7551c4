//! Raw bindings of qoskit: the names, types and rules of the C headers, which are the manual.
//!
//! An object must not move while its memory points into it, and one thread at a time may call it: keep it in a `Box`
//! behind your own lock, or in the thread that owns the device.
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, dead_code, clippy::all)]
include!(concat!(env!("OUT_DIR"), "/bindings.rs"));

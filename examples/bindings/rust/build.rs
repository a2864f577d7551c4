//! Runs bindgen on qoskit/bindings.h and links the library; pkg-config says where both are.
use std::{env, path::PathBuf, process::Command};

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn main() {
    let to = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("bindings.rs");
    let include = run("pkg-config", &["--variable=includedir", "qoskit"]);
    let include = include.trim();
    let header = format!("{include}/qoskit/bindings.h");
    let files = format!("{include}/qoskit/.*");
    let here = format!("-I{include}/qoskit");
    // Only what is qoskit's; private types have their sizes, but no fields.
    let mut arguments = vec![header.as_str(), "-o", to.to_str().expect("a path of text"), "--allowlist-file", &files];
    arguments.extend(["--opaque-type", ".*_priv_.*", "--default-enum-style", "consts", "--no-prepend-enum-name"]);
    arguments.push("--with-derive-default");
    // bindgen takes a pointer to a private type for a plain value, and pointers have a default from Rust 1.88 on only.
    arguments.extend(["--no-default", "pshift_scheduler|twochoice_maintainer"]);
    if run("bindgen", &["--help"]).contains(" --size_t-is-usize") {
        arguments.push("--size_t-is-usize"); // newer ones need not be told
    }
    arguments.extend(["--", "-std=c11", "-Wno-everything", &here]);
    run("bindgen", &arguments);
    println!("cargo:rerun-if-changed={header}");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    println!("cargo:rustc-link-search=native={}", run("pkg-config", &["--variable=libdir", "libqoskit"]).trim());
    println!("cargo:rustc-link-lib=static=qoskit");
}

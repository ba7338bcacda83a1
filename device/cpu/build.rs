//! Says where this crate's headers are; the root crate's build script hands it on to those of programs.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::metadata=include={}", concat!(env!("CARGO_MANIFEST_DIR"), "/include"));
}

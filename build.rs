//! Nothing but a folder: cargo gives a crate with a build script one of its own (`OUT_DIR`), in which the
//! macro `rushmem_embed::runtime!` leaves what it embeds.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
}

//! Makes headers and library from the table, and lays them out as a prefix, `target/<profile>/nvshmem`.

use std::fs;
use std::path::Path;

#[path = "../common/client.rs"]
mod client;
#[path = "src/header.rs"]
#[allow(unreachable_pub)]
mod header;
#[path = "src/source.rs"]
#[allow(unreachable_pub, dead_code)]
mod source;
#[path = "src/table.rs"]
#[allow(unreachable_pub, dead_code)]
mod table;

use client::{files, symlink, write, Client};

/// The library's name inside, as programs of NVSHMEM 3 ask for it.
const SONAME: &str = "libnvshmem_host.so.3";

fn main() {
    let client = Client::new("nvshmem", &["include"]);
    let prefix = &client.prefix;
    println!("cargo:rustc-env=PREFIX_OF_NVSHMEM={}", prefix.display());
    let table = table::Table::read(table::TEXT);
    let include = prefix.join("include");
    copy_all(&client.here.join("include"), &include);
    write(&include.join("rushmem_nvshmem/host.h"), &header::host(&table));
    write(&include.join("rushmem_nvshmem/device.h"), &header::device(&table));
    write(&prefix.join("tests/sets.h"), &table.lists());
    write(&prefix.join("calls/names.h"), &source::calls(&table));
    write(&prefix.join("bitcode/functions.h"), &header::bitcode(&table));
    let device = client.here.join("../../device/include");
    let options = ["-DRUSHMEM_NVSHMEM_LIBRARY".into(), format!("-I{}", device.display())];
    client.library(SONAME, &source::symbols(&table), &options);
    symlink(SONAME, &prefix.join("lib/libnvshmem_host.so"));
}

fn copy_all(from: &Path, to: &Path) {
    for path in files(from) {
        let beside = to.join(path.file_name().expect("a file has a name"));
        if path.is_dir() {
            copy_all(&path, &beside);
        } else {
            write(&beside, &fs::read_to_string(&path).expect("a header is text"));
        }
    }
}

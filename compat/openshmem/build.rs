//! Makes header and library from the table, and lays them out as a prefix, `target/<profile>/openshmem`.

use std::process::Command;
use std::{env, fs};

#[path = "../common/client.rs"]
mod client;
#[path = "src/header.rs"]
#[allow(unreachable_pub)]
mod header;
#[path = "src/source.rs"]
#[allow(unreachable_pub)]
mod source;
#[path = "src/table.rs"]
#[allow(unreachable_pub)]
mod table;

use client::{replace, run, write, Client};

fn main() {
    let client = Client::new("openshmem", &["mpi", "bin"]);
    let prefix = &client.prefix;
    println!("cargo:rustc-env=SHMEM_BUILD_PREFIX={}", prefix.display());
    let table = table::Table::read(table::TEXT);
    let include = prefix.join("include");
    write(&include.join("shmem.h"), &header::shmem_h(&table, include_str!("c/shmem.h.in")));
    write(&include.join("pshmem.h"), &header::pshmem_h(&table));
    // The specification wants it, extensions or none.
    write(&include.join("shmemx.h"), include_str!("c/shmemx.h"));
    // Deprecated, and wanted by programs of fifteen years.
    for name in ["shmem.h", "shmemx.h"] {
        write(&include.join("mpp").join(name), &format!("#include <{name}>\n"));
    }
    client.library("libshmem.so", &source::symbols(&table), &[]);
    // For programs that are on MPI, too: oshcc links with it, and what is in it is taken by those alone.
    let (object, archive) = (client.out("both.o"), client.out("libshmem_mpi.a"));
    let mut cc = Client::compiler();
    cc.args(["-std=gnu11", "-O2", "-fPIC", "-Wall", "-Wextra", "-c"]).arg(client.here.join("mpi/both.c"));
    run(cc.arg("-o").arg(&object));
    let _ = fs::remove_file(&archive);
    let archiver = env::var_os("AR").unwrap_or_else(|| "ar".into());
    run(Command::new(archiver).arg("rcs").arg(&archive).arg(&object));
    replace(&archive, &prefix.join("lib/libshmem_mpi.a"));
    for tool in ["oshcc", "oshc++", "oshrun", "shmemrun"] {
        replace(&client.here.join("bin").join(tool), &prefix.join("bin").join(tool));
    }
}

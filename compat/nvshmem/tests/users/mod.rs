//! The names of NVSHMEM's that public programs use (users.csv, which scripts/nvshmem-users writes) are here,
//! on the side where a program uses them.

use std::collections::BTreeSet;
use std::path::Path;

use rushmem_nvshmem::table::{Caller, Table, TEXT};
use rushmem_nvshmem::PREFIX;

/// Names that begin so, of which some are not here, and why.
const NOT_HERE: [(&str, &str); 2] = [
    (
        "nvshmemi_",
        "inside of NVSHMEM: queues of network cards, which DeepEP and Triton-distributed write to themselves",
    ),
    ("NVSHMEMI_", "their constants, and how NVSHMEM's own functions are declared"),
];

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The words of all headers.
fn words(dir: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).expect("a folder of headers") {
        let path = entry.expect("a folder of headers").path();
        if path.is_dir() {
            words(&path, found);
        } else {
            let text = std::fs::read_to_string(&path).expect("a header is text");
            found.extend(text.split(|c| !is_of_name(c)).map(String::from));
        }
    }
}

#[test]
fn what_public_programs_use_is_here() {
    let table = Table::read(TEXT).all();
    let of = |host: bool| {
        let side = table.iter().filter(move |f| (f.caller == Caller::Host) == host);
        side.map(|f| f.name.as_str()).collect::<BTreeSet<&str>>()
    };
    let (host, kernels) = (of(true), of(false));
    let mut headers = BTreeSet::new();
    words(&Path::new(PREFIX).join("include"), &mut headers);
    // Types, constants and what each program has a part of are in headers alone.
    let is_other = |name: &str| !host.contains(name) && !kernels.contains(name) && headers.contains(name);
    let text = include_str!("../../users.csv");
    let rows = text.lines().filter(|line| !line.starts_with('#')).skip(1);
    let (mut missing, mut excused, mut functions) = (Vec::new(), BTreeSet::new(), 0);
    for row in rows {
        let cells: Vec<&str> = row.split(',').collect();
        let [name, by_host, by_kernels, by_either, _setting] = cells[..] else { panic!("{row}") };
        let is_there = is_other(name)
            || (by_host.is_empty() || host.contains(name))
                && (by_kernels.is_empty() || kernels.contains(name))
                && (by_either.is_empty() || host.contains(name) || kernels.contains(name));
        let why = NOT_HERE.iter().find(|(begin, _)| name.starts_with(begin));
        functions += usize::from(host.contains(name) || kernels.contains(name));
        match why {
            _ if is_there => {}
            Some((begin, _)) => drop(excused.insert(*begin)),
            None => missing.push(row),
        }
    }
    assert!(missing.is_empty(), "programs use what is not here:\n{}", missing.join("\n"));
    assert_eq!(excused.len(), NOT_HERE.len(), "all of them are here but {excused:?}");
    assert!(functions > 250, "{functions} functions");
}

//! Header and library hold exactly what the specification lists: `specification.txt`, which was written from
//! the document's own tables and not from the table that header and library are made of.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use rushmem_openshmem::PREFIX;

/// `shmem_{a,b}_x` is two words.
fn expand(word: &str, sets: &BTreeMap<String, String>) -> Vec<String> {
    let Some(open) = word.find('{') else { return vec![word.into()] };
    let close = open + word[open..].find('}').expect("a brace closes");
    let mut words = Vec::new();
    let mut alternatives: Vec<String> = word[open + 1..close].split(',').map(String::from).collect();
    while let Some(set) = alternatives.iter().position(|name| sets.contains_key(name)) {
        let members = sets[&alternatives[set]].split(',').map(String::from);
        alternatives.splice(set..=set, members.collect::<Vec<_>>());
    }
    for alternative in alternatives {
        words.extend(expand(&format!("{}{alternative}{}", &word[..open], &word[close + 1..]), sets));
    }
    words
}

fn specification() -> BTreeSet<String> {
    let mut sets = BTreeMap::new();
    let mut names = BTreeSet::new();
    for line in include_str!("specification.txt").lines().filter(|line| !line.starts_with('#')) {
        if let Some((name, members)) = line.split_once(" = ") {
            sets.insert(name.to_string(), members.to_string());
            continue;
        }
        for name in line.split_whitespace().flat_map(|word| expand(word, &sets)) {
            assert!(names.insert(name.clone()), "{name} stands twice in specification.txt");
        }
    }
    names
}

fn same(what: &str, have: &BTreeSet<String>, wanted: &BTreeSet<String>) {
    let missing: Vec<_> = wanted.difference(have).collect();
    let more: Vec<_> = have.difference(wanted).collect();
    assert!(missing.is_empty() && more.is_empty(), "{what} lacks {missing:?} and has besides {more:?}");
}

/// The functions that a header declares.
fn declared(header: &str) -> BTreeSet<String> {
    let text =
        std::fs::read_to_string(Path::new(PREFIX).join("include").join(header)).expect("the header is built");
    let prototypes = text.lines().filter(|line| line.ends_with(");") && !line.starts_with([' ', '#', '}']));
    let name = |line: &str| {
        let before = &line[..line.find('(')?];
        Some(before[before.rfind([' ', '*'])? + 1..].to_string())
    };
    prototypes.filter(|line| !line.starts_with("typedef")).filter_map(name).collect()
}

#[test]
fn the_list_is_the_documents() {
    assert_eq!(specification().len(), 1794);
}

#[test]
fn headers_declare_the_specification() {
    let wanted = specification();
    same("shmem.h", &declared("shmem.h"), &wanted);
    same("pshmem.h", &declared("pshmem.h"), &wanted.iter().map(|name| format!("p{name}")).collect());
}

#[test]
fn the_library_exports_the_specification() {
    let out = match Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(format!("{PREFIX}/lib/libshmem.so"))
        .output()
    {
        Ok(out) => out,
        Err(e) => return eprintln!("SKIP the_library_exports_the_specification: nm: {e}"),
    };
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let of_kind = |kind: &str| -> BTreeSet<String> {
        let fields = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        fields.filter(|f| f.len() == 3 && f[1] == kind).map(|f| f[2].to_string()).collect()
    };
    let wanted = specification();
    same("libshmem.so, weakly,", &of_kind("W"), &wanted);
    same("libshmem.so, strongly,", &of_kind("T"), &wanted.iter().map(|name| format!("p{name}")).collect());
    assert_eq!(text.lines().count(), 2 * wanted.len(), "it exports nothing else");
}

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

/// The constants of chapter 6 and the handles of chapter 7.
const CONSTANTS: &str = "
    SHMEM_THREAD_{SINGLE,FUNNELED,SERIALIZED,MULTIPLE}
    SHMEM_TEAM_{NUM_CONTEXTS,INVALID,WORLD,SHARED} SHMEM_CTX_{INVALID,DEFAULT,SERIALIZED,PRIVATE,NOSTORE}
    SHMEM_CTX_SESSION_{TOTAL_OPS,BATCH} SHMEM_SIGNAL_{SET,ADD} SHMEM_MALLOC_{ATOMICS,SIGNAL}_REMOTE
    {,_}SHMEM_SYNC_VALUE SHMEM_SYNC_SIZE {,_}SHMEM_{BCAST,REDUCE,BARRIER,COLLECT}_SYNC_SIZE
    SHMEM_{ALLTOALL,ALLTOALLS}_SYNC_SIZE {,_}SHMEM_REDUCE_MIN_WRKDATA_SIZE
    {,_}SHMEM_{MAJOR,MINOR}_VERSION {,_}SHMEM_MAX_NAME_LEN {,_}SHMEM_VENDOR_STRING
    {,_}SHMEM_CMP_{EQ,NE,LT,LE,GT,GE}";

/// The C11 synopses of chapter 9.
const TYPE_GENERIC: &str = "
    shmem_{put,get}{,_nbi} shmem_{p,g,iput,iget,ibput,ibget} shmem_put_signal{,_nbi} shmem_signal_{add,set}
    shmem_atomic_{fetch,swap,compare_swap,fetch_inc,fetch_add,fetch_and,fetch_or,fetch_xor}{,_nbi}
    shmem_atomic_{set,inc,add,and,or,xor}
    shmem_{alltoall,alltoalls,broadcast,collect,fcollect,sync} shmem_{and,or,xor,max,min,sum,prod}_reduce
    shmem_sum_{inscan,exscan} shmem_{wait_until,test}{,_all,_any,_some,_all_vector,_any_vector,_some_vector}
    shmem_{fetch,set,swap,cswap,finc,inc,fadd,add}";

/// Chapter 5: a header has the document's names alone, and others with a prefix of the implementation's.
#[test]
fn the_header_has_no_other_names() {
    let words = |text: &str| text.split_whitespace().flat_map(|w| expand(w, &BTreeMap::new())).collect();
    let (constants, generic): (BTreeSet<String>, BTreeSet<String>) = (words(CONSTANTS), words(TYPE_GENERIC));
    let text = std::fs::read_to_string(Path::new(PREFIX).join("include/shmem.h")).expect("it is built");
    let (mut have_constants, mut have_generic) = (BTreeSet::new(), BTreeSet::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("#define ") {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            let name = rest[..end].to_string();
            if name.starts_with("RUSHMEM_SHMEM_") || name == "SHMEM_H" {
                continue;
            }
            let kind = if name.starts_with("shmem_") { &mut have_generic } else { &mut have_constants };
            kind.insert(name);
        } else if let Some(name) =
            line.strip_prefix("typedef ").and_then(|t| t.split([' ', '*', ';']).rfind(|w| !w.is_empty()))
        {
            let own = name.starts_with("rushmem_shmem_") || name == "{";
            assert!(own || ["shmem_team_t", "shmem_ctx_t"].contains(&name), "{line}");
        } else if let Some(name) = line.strip_prefix("} ") {
            assert!(["shmem_team_config_t;", "shmem_ctx_session_config_t;"].contains(&name), "{line}");
        }
    }
    same("shmem.h", &have_constants, &constants);
    same("shmem.h, for C11,", &have_generic, &generic);
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

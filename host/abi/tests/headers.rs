//! The C headers say in C what this crate says in Rust: every number and every struct that host and kernels
//! share is compared, so that each stands once in Rust and cannot drift in C.

use std::collections::BTreeMap;
use std::fs;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;

use rushmem_abi::collective::{CollectiveKind, COLLECTIVES};
use rushmem_abi::device::*;
use rushmem_abi::reduction::Operator;
use rushmem_abi::table::{CType, ElementKind, Families, C_TYPES};

/// The device headers that repeat numbers; rushmem.h is generated (`host/runtime/tests/header.rs`).
const HEADERS: [&str; 5] = ["abi.h", "abi_ring.h", "abi_mailbox.h", "abi_queue.h", "abi_trace.h"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn without_comments(c: &str) -> String {
    let mut out = String::new();
    let mut rest = c;
    while let Some((code, comment)) = rest.split_once("/*") {
        out += code;
        rest = comment.split_once("*/").expect("a comment ends").1;
    }
    out + rest
}

/// `-4`, `(-4)`, `3u`, `256`.
fn number(text: &str) -> Option<i64> {
    let text = text.trim().trim_start_matches('(').trim_end_matches(')').trim_end_matches('u');
    text.parse().ok()
}

/// `RUSHMEM_*` with their values, from `#define`s and `enum`s of a header. A macro that is no number (a
/// guard) is passed over; an enumerator without a number is a mistake.
fn numbers_of_header(text: &str) -> Vec<(String, i64)> {
    let text = without_comments(text);
    let mut found = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["#define", name, value] = words[..] {
            found.extend(number(value).map(|value| (name.to_owned(), value)));
        }
    }
    for body in text.split("enum ").skip(1) {
        let body = body.trim_start();
        let body = body.strip_prefix('{').and_then(|body| body.split_once('}')).expect("enum { ... }").0;
        for one in body.split(',').map(str::trim).filter(|one| !one.is_empty()) {
            let (name, value) = one.split_once('=').unwrap_or_else(|| panic!("{one} has no number"));
            let value = number(value).unwrap_or_else(|| panic!("{one}: no number"));
            found.push((name.trim().to_owned(), value));
        }
    }
    found
}

/// The same of this crate's sources.
fn numbers_of_rust(dir: &str) -> BTreeMap<String, i64> {
    let mut found = BTreeMap::new();
    for file in fs::read_dir(root().join(dir)).unwrap() {
        for line in fs::read_to_string(file.unwrap().path()).unwrap().lines() {
            let Some((name, rest)) = line.strip_prefix("pub const ").and_then(|rest| rest.split_once(": "))
            else {
                continue;
            };
            let value = rest.split_once(" = ").and_then(|(_, value)| number(value.trim_end_matches(';')));
            if let Some(value) = value {
                assert!(found.insert(name.to_owned(), value).is_none(), "{name} stands twice in {dir}");
            }
        }
    }
    found
}

#[test]
fn numbers_are_those_of_the_headers() {
    let (c, device) = (numbers_of_rust("host/abi/src/c"), numbers_of_rust("host/abi/src/device"));
    assert!(c.len() > 50 && device.len() > 25, "{} and {} numbers were found", c.len(), device.len());
    assert!(device.keys().all(|name| !c.contains_key(name)), "a number stands twice");
    let mut missing = device.clone();
    for header in HEADERS {
        let numbers = numbers_of_header(&read(&format!("device/include/rushmem/{header}")));
        assert!(!numbers.is_empty(), "nothing was found in {header}");
        for (name, value) in numbers {
            missing.remove(&name);
            let ours = device.get(&name).or(c.get(&name));
            assert_eq!(ours, Some(&value), "{name}: {value} in {header}, and that here");
        }
    }
    assert!(missing.is_empty(), "in no header: {missing:?}");
}

/// Families that kernels use are there whole, and each number of them once.
#[test]
fn families_of_numbers_are_whole() {
    let text = HEADERS.map(|header| read(&format!("device/include/rushmem/{header}"))).concat();
    let theirs = numbers_of_header(&text);
    for family in ["RUSHMEM_ATOMIC_", "RUSHMEM_CMP_", "RUSHMEM_SIGNAL_"] {
        for name in numbers_of_rust("host/abi/src/c").keys().filter(|name| name.starts_with(family)) {
            let times = theirs.iter().filter(|(theirs, _)| theirs == name).count();
            assert_eq!(times, 1, "{name} stands {times} times in the device's headers");
        }
    }
}

/// Kernels name an operator by a type, `struct sum`, which has its number; `and`, `or` and `xor` are words of
/// C++, so theirs end in `_`.
#[test]
fn operators_are_those_of_kernels() {
    let header = read("device/include/rushmem/impl/coll/operators.h");
    let row = |text: &str| {
        let (name, rest) = text.split_once(" {")?;
        let code = rest.trim_start().strip_prefix("static constexpr uint32_t code = ")?;
        Some((name.trim_end_matches('_').to_owned(), code.split_once(';')?.0.parse::<i32>().ok()?))
    };
    let theirs: Vec<_> = header.split("struct ").skip(1).filter_map(row).collect();
    let ours: Vec<_> = Operator::ALL.iter().map(|op| (op.name().to_owned(), op.code())).collect();
    assert_eq!(theirs, ours);
}

#[test]
fn what_is_compared_is_found() {
    let text = "#ifndef A_H\n#define A_H\n#define A 3u /* three */\n#define B (-4)\n#define X(a) a\n\
                enum { C = 0, D =\n 12,\n}; /* enum { E = 5 } */\n";
    let found = numbers_of_header(text);
    let found: Vec<(&str, i64)> = found.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    assert_eq!(found, [("A", 3), ("B", -4), ("C", 0), ("D", 12)]);
}

/// A C program that prints numbers of the headers, and what they are here.
#[derive(Default)]
struct Layout {
    program: String,
    expected: String,
}

impl Layout {
    fn is(&mut self, expression: &str, value: usize) {
        self.program += &format!("TELL({expression})\n");
        self.expected += &format!("{expression} {value}\n");
    }

    fn check(self) {
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let name = format!("layout-{}", std::process::id());
        let (source, binary) = (dir.join(format!("{name}.c")), dir.join(&name));
        let include = |header| format!("#include \"rushmem/{header}\"\n");
        let program = format!(
            "#include <stdio.h>\n#include <stddef.h>\n{}\
             #define TELL(what) printf(#what \" %lld\\n\", (long long)(what));\n\
             int main(void) {{\n{}return 0; }}\n",
            HEADERS.map(include).concat(),
            self.program
        );
        fs::write(&source, program).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-Wall", "-Werror", "-I"]).arg(root().join("device/include"));
        let built = cc.arg("-o").args([&binary, &source]).output().expect("the tests need a C compiler");
        let said = built.status.success().then(|| Command::new(&binary).output().unwrap());
        let _ = (fs::remove_file(&source), fs::remove_file(&binary));
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        assert_eq!(String::from_utf8_lossy(&said.unwrap().stdout), self.expected);
    }
}

fn bytes_of_field<Whole, Field>(_: fn(&Whole) -> &Field) -> usize {
    size_of::<Field>()
}

/// A structure's size, and the places and sizes of all of its fields: `fields!(layout, "c_name", RustType:
/// one two three)`.
macro_rules! fields {
    ($layout:ident, $c:literal, $rust:ident: $($field:ident)*) => {
        // All fields, or this does not compile.
        let _ = |whole: &$rust| { let $rust { $($field: _),* } = whole; };
        $layout.is(concat!("sizeof(", $c, ")"), size_of::<$rust>());
        $(
            $layout.is(concat!("offsetof(", $c, ", ", stringify!($field), ")"), offset_of!($rust, $field));
            let bytes = bytes_of_field(|whole: &$rust| &whole.$field);
            $layout.is(concat!("sizeof(((", $c, " *)0)->", stringify!($field), ")"), bytes);
        )*
    };
}

#[test]
fn layouts_are_those_of_the_headers() {
    let mut layout = Layout::default();
    fields!(layout, "rushmem_stall_record", StallRecord: state cmp from_pe width address expected seen
        waited_ns block thread reserved);
    fields!(layout, "rushmem_sync_line", SyncLine: epoch said pad);
    fields!(layout, "rushmem_device_state", RawState: version bytes my_pe n_pes near_first near_count heap_base
        stride broken sync_lines sync_epoch stall_ns wait_limit_ns stalls failure trap_delay_ns ring mailbox
        near_apart step_first step_count step_inverse step_shift near_table world teams queues);
    fields!(layout, "rushmem_team", RawTeam: my_pe n_pes start stride table slots slot_bytes slot_sets packets id
        all_near heap_base first_bytes next_packets wide right pair_bytes packed_rows);
    fields!(layout, "rushmem_team_slots", TeamSlots: ended pad_ended busy alone grid current arrived pad);
    fields!(layout, "rushmem_descriptor", Descriptor: op sub width flags pe dst src bytes sig value reply
        element ticket);
    fields!(layout, "rushmem_reply", RawReply: value state reserved);
    fields!(layout, "rushmem_ring_line", RingLine: value pad);
    fields!(layout, "rushmem_ring", RawRing: slots replies consumed busy mask reply_mask reserved tail
        consumed_seen reply_tail fenced quieted);
    fields!(layout, "rushmem_mailbox_request", MailboxRequest: address value compare what);
    fields!(layout, "rushmem_mailbox_queue", MailboxQueue: done pad requests results);
    fields!(layout, "struct rushmem_mailbox", RawMailbox: bell turn queue pad);
    fields!(layout, "rushmem_queue_segment", QueueSegment: offset bytes rkeys lkey reserved);
    fields!(layout, "rushmem_queue", RawQueue: slots record bell completion stamps mask number reserved tail
        last_read last_atomic pad_tail rung ringing pad_rung completed probed settled fences pad_completed);
    fields!(layout, "rushmem_queues", RawQueues: queues segments n_segments sinks sink_busy sink_address sink_lkey
        reserved_key card_words contexts context_step reserved sink_tail pad_sink fences atomics atomics_over pad_fences);
    fields!(layout, "rushmem_trace_ring", TraceRing: records claimed blocks module);
    layout.check();
}

/// The rows `X(name, type)` of `#define macro(X) ...`, as the words between the parentheses.
fn rows_of(header: &str, name: &str) -> Vec<Vec<String>> {
    let from = header.split_once(&format!("#define {name}(X)")).expect("the list is there").1;
    let lines = from.lines().scan(true, |more, line| {
        let here = *more;
        *more = line.trim_end().ends_with('\\');
        here.then(|| line.trim_end().trim_end_matches('\\'))
    });
    let text: String = lines.collect();
    let row = |row: &str| row.split(',').map(|word| word.trim().to_owned()).collect();
    text.split("X(").skip(1).map(|rest| row(rest.trim().trim_end_matches(')'))).collect()
}

#[test]
fn typed_functions_are_for_the_types_of_the_table() {
    let header = read("host/runtime/include/rushmem_typed.h");
    let rows = |keep: fn(&CType) -> bool, element: fn(&CType) -> Vec<String>| -> Vec<Vec<String>> {
        let row = |t: &CType| [vec![t.name.to_owned(), t.c.to_owned()], element(t)].concat();
        C_TYPES.iter().filter(|t| keep(t)).map(row).collect()
    };
    let element = |t: &CType| {
        let fixed = ["int32", "uint32", "int64", "uint64", "float", "double"].contains(&t.name);
        vec![match (fixed, t.kind) {
            (true, _) => format!("RUSHMEM_{}", t.name.to_uppercase()),
            (false, ElementKind::Unsigned) => format!("RUSHMEM_UNSIGNED_TYPE({}", t.c),
            (false, _) => format!("RUSHMEM_SIGNED_TYPE({}", t.c),
        }]
    };
    assert_eq!(rows_of(&header, "RUSHMEM_RMA_TYPES"), rows(|_| true, |_| vec![]));
    assert_eq!(
        rows_of(&header, "RUSHMEM_SMALL_INTEGER_TYPES"),
        rows(|t| t.families == Families::Rma && t.kind != ElementKind::Float, |_| vec![])
    );
    assert_eq!(rows_of(&header, "RUSHMEM_INTEGER_TYPES"), rows(|t| t.families == Families::Integer, element));
    assert_eq!(rows_of(&header, "RUSHMEM_FLOAT_TYPES"), rows(|t| t.families == Families::Extended, element));
}

/// Kernels have each collective where the table says, with those parameters.
#[test]
fn collectives_of_kernels_are_those_of_the_table() {
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").replace("( ", "(");
    for row in COLLECTIVES {
        let header = plain(&without_comments(&read(&format!("device/include/rushmem/{}", row.header))));
        let parameters = match plain(row.device).as_str() {
            "" => String::new(),
            more => format!(", {more}"),
        };
        let function = format!("RUSHMEM_DEVICE void {}(const team &t{parameters}", row.name);
        assert!(header.contains(&function), "{} has no `{function}`", row.header);
    }
}

/// The typed C functions are of the table's collectives, each by its host form.
#[test]
fn typed_collectives_are_those_of_the_table() {
    let header = read("host/runtime/include/rushmem_typed.h");
    for row in COLLECTIVES {
        let found = match row.kind {
            CollectiveKind::Order => continue,
            // Of a single element type: lists in bytes have no typed form.
            _ if row.name == "alltoallv" => continue,
            CollectiveKind::Reducing => {
                header.contains(&format!("RUSHMEM_TYPED_REDUCTION(NAME, T, WHAT, OP, {})", row.name))
            }
            _ => header.contains(&format!("rushmem_##NAME##_{}(rushmem_team_t *team", row.name)),
        };
        assert!(found, "{} has no typed functions", row.name);
    }
}

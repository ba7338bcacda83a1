//! What an address is: null, a full stack, symmetric memory, another mapping, or nothing.

use std::ops::Range;

use super::{Facts, KNOWLEDGE};
use crate::os_thread::OsThread;
use crate::signals;

/// An address below this is null plus something.
const NULL: usize = 64 << 10;

/// A line of /proc/self/maps.
struct Mapping<'a> {
    range: Range<usize>,
    rights: &'a str,
    name: &'a str,
}

/// What is to be said of the address, a line each.
pub(super) fn lines(facts: &Facts, context: &libc::ucontext_t, os_thread: Option<&OsThread>) -> Vec<String> {
    let mut lines = Vec::new();
    if !matches!(facts.signal, libc::SIGSEGV | libc::SIGBUS) {
        return lines;
    }
    if facts.code == 128 {
        // The processor does not say which. A register that has no address is the pointer, or its base.
        let odd = signals::registers(context).into_iter().filter(|(_, bits)| !is_canonical(*bits));
        lines.extend(odd.map(|(name, bits)| {
            format!("register {name} has {bits:#x}, which is no address: is it a pointer that was never set?")
        }));
        return lines;
    }
    let address = facts.address;
    if address < NULL {
        let rest = if address == 0 { String::new() } else { format!(" plus {address} bytes") };
        lines.push(format!("that is a null pointer{rest}"));
        return lines;
    }
    if let Some((launch, _)) = os_thread.and_then(OsThread::launch) {
        if os_thread.is_some_and(|os_thread| os_thread.stacks().overrun(address, facts.top)) {
            let kib = launch.limits.stack >> 10;
            lines.push(format!(
                "the stack of the CUDA thread is full: it has {kib} KiB; RUSHMEM_CPU_STACK={}K gives it more, or the \
                 recursion does not end",
                2 * kib
            ));
            return lines;
        }
    }
    let memory = KNOWLEDGE.get().and_then(|knowledge| (knowledge.memory)(address));
    let is_memory = KNOWLEDGE.get().is_some_and(|knowledge| (knowledge.covers)(address));
    if !is_memory {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        lines.extend(mapping(&maps, address));
    }
    lines.extend(memory);
    if facts.signal == libc::SIGBUS {
        lines.push("SIGBUS: the machine, or the job's share of it, has no memory left for it; or its file is shorter".into());
    }
    lines
}

/// Whether x86-64 with 48 or 57 bits, or aarch64, could have it as an address.
fn is_canonical(bits: u64) -> bool {
    let top = (bits as i64) >> 56;
    top == 0 || top == -1
}

/// What is there by the list of this process's mappings.
fn mapping(maps: &str, address: usize) -> Option<String> {
    let all = maps.lines().filter_map(Mapping::parse);
    let mut below: Option<Mapping<'_>> = None;
    for mapping in all {
        if mapping.range.contains(&address) {
            return Some(format!(
                "it is in {}, which may {}",
                mapping.title(),
                match mapping.rights.as_bytes() {
                    [b'-', b'-', b'-', ..] => "not be touched: a guard, or reserved addresses",
                    [b'r', b'-', ..] => "only be read",
                    _ => "be read and written: by now, at least",
                }
            ));
        }
        if mapping.range.end <= address {
            below = Some(mapping);
        }
    }
    let near = below.filter(|below| address - below.range.end < 1 << 30);
    Some(near.map_or_else(
        || "nothing is mapped there".to_owned(),
        |below| {
            format!(
                "nothing is mapped there; {} ends {} bytes before",
                below.title(),
                address - below.range.end
            )
        },
    ))
}

impl<'a> Mapping<'a> {
    fn parse(line: &'a str) -> Option<Mapping<'a>> {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).ok();
        let rights = words.next()?;
        let name = line.splitn(6, ' ').nth(5).map(str::trim).unwrap_or_default();
        Some(Mapping { range: address(start)?..address(end)?, rights, name })
    }

    fn title(&self) -> String {
        match self.name {
            "" => "memory without a name".into(),
            "[heap]" => "malloc's heap".into(),
            "[stack]" => "the main thread's stack".into(),
            name => name.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
1000-2000 r--p 00000000 08:01 42                         /usr/lib/x y.so
2000-3000 ---p 00000000 00:00 0 
8000-9000 rw-p 00000000 00:00 0                          [heap]
";

    #[test]
    fn an_address_is_found_among_the_mappings() {
        let at = |address| mapping(MAPS, address).expect("always something");
        assert_eq!(at(0x1fff), "it is in /usr/lib/x y.so, which may only be read");
        assert!(at(0x2000).contains("memory without a name, which may not be touched"));
        assert_eq!(at(0x9010), "nothing is mapped there; malloc's heap ends 16 bytes before");
        assert_eq!(at(0x9000 + (2 << 30)), "nothing is mapped there");
        assert_eq!(at(0x10), "nothing is mapped there");
    }

    #[test]
    fn what_no_process_can_have_is_known() {
        for (bits, canonical) in [
            (0, true),
            (0x7fff_ffff_f000, true),
            (u64::MAX, true),
            (0xdead_beef_dead_beef, false),
            (1 << 60, false),
        ] {
            assert_eq!(is_canonical(bits), canonical, "{bits:#x}");
        }
    }
}

//! Where a process listens, as the system lists it. For tests, those of other crates among them.

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;

/// Ports at which a process listens, by TCP over IPv4.
pub(crate) fn listening(pid: u32) -> BTreeSet<(Ipv4Addr, u16)> {
    let fds = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let sockets: BTreeSet<String> = fds
        .filter_map(|fd| fs::read_link(fd.path()).ok()?.to_str().map(str::to_owned))
        .filter_map(|to| Some(to.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let table = fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
    let listener = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (address, port) = words.get(1)?.split_once(':')?;
        let is_his = *words.get(3)? == "0A" && sockets.contains(*words.get(9)?);
        let address = u32::from_str_radix(address, 16).ok()?;
        let at = (Ipv4Addr::from(address.swap_bytes()), u16::from_str_radix(port, 16).ok()?);
        is_his.then_some(at)
    };
    table.lines().filter_map(listener).collect()
}

//! Which host gets which PEs: `--hosts a:4,b:4` or a file of such, and the numbering of PEs over them.

use std::collections::HashMap;

use nix::unistd::gethostname;

use crate::args::{Args, MapBy};
use crate::Failure;

/// A host, and how many PEs it takes; `None` where nothing is said.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Host {
    name: String,
    slots: Option<u32>,
}

/// A host's PEs, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) host: String,
    pub(crate) pes: Vec<u32>,
}

impl Share {
    /// Whether it is a name that every host has for itself.
    pub(crate) fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host == "::1" || self.host.starts_with("127.")
    }

    /// Whether it is this host's own name.
    pub(crate) fn is_own(&self) -> bool {
        gethostname().is_ok_and(|own| own.to_str() == Some(&self.host))
    }
}

/// The hosts of the job and their PEs; `None`: it is this host's alone.
pub(crate) fn shares(args: &Args) -> Result<Option<Vec<Share>>, Failure> {
    let wrong = |text: String| Failure { code: 2, text };
    let hosts = match (&args.hosts, &args.hostfile) {
        (Some(list), _) => list.split(',').map(|word| host(word.trim())).collect::<Result<_, _>>(),
        (None, Some(path)) => match std::fs::read_to_string(path) {
            Ok(text) => file(&text).map_err(|why| format!("{}: {why}", path.display())),
            Err(e) => Err(format!("cannot read the file of hosts {}: {e}", path.display())),
        },
        (None, None) => return Ok(None),
    };
    spread(merge(hosts.map_err(wrong)?), args.n, args.map_by).map(Some).map_err(wrong)
}

/// `name`, `name:slots`, `[IPv6]:slots`.
fn host(word: &str) -> Result<Host, String> {
    let bare = word.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (name, slots) = match bare {
        Some((name, "")) => (name, None),
        Some((name, rest)) => (name, Some(rest.strip_prefix(':').unwrap_or("?"))),
        None => word.split_once(':').map_or((word, None), |(name, slots)| (name, Some(slots))),
    };
    let slots = match slots {
        None => None,
        Some(text) => Some(number(text).ok_or_else(|| {
            format!(
                "{word:?}: expected HOST:SLOTS with a number of PEs from 1 to 16384 (IPv6 goes in brackets)"
            )
        })?),
    };
    // What ssh would take for an option, and what a shell would not take for a word.
    let odd = |c: char| c.is_whitespace() || c.is_control() || "'\"\\$`;&|<>(){}*?".contains(c);
    if name.is_empty() || name.starts_with('-') || name.contains(odd) {
        return Err(format!("{word:?} names no host"));
    }
    Ok(Host { name: name.to_owned(), slots })
}

fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|n| (1..=16384).contains(n))
}

/// A host a line: `a:4`, `a slots=4`, `a 4`.
fn file(text: &str) -> Result<Vec<Host>, String> {
    let mut hosts = Vec::new();
    for (line, text) in text.lines().enumerate() {
        let text = text.split('#').next().unwrap_or("").trim();
        let mut words = text.split_whitespace();
        let Some(first) = words.next() else { continue };
        let at = |why: String| format!("line {}: {why}", line + 1);
        let mut entry = host(first).map_err(at)?;
        for word in words {
            let slots = word.strip_prefix("slots=").unwrap_or(word);
            let slots = number(slots).filter(|_| entry.slots.is_none());
            let expected =
                || at(format!("{text:?}: expected a host, and its slots once, as in `a:4` or `a slots=4`"));
            entry.slots = Some(slots.ok_or_else(expected)?);
        }
        hosts.push(entry);
    }
    if hosts.is_empty() {
        return Err("it names no host".into());
    }
    Ok(hosts)
}

/// A host that is named several times has the slots of all.
fn merge(hosts: Vec<Host>) -> Vec<Host> {
    let mut places = HashMap::new();
    let mut merged: Vec<Host> = Vec::new();
    for host in hosts {
        match places.get(&host.name) {
            None => {
                places.insert(host.name.clone(), merged.len());
                merged.push(host);
            }
            Some(&at) => {
                let slots = &mut merged[at].slots;
                *slots = Some(slots.unwrap_or(1) + host.slots.unwrap_or(1));
            }
        }
    }
    merged
}

fn spread(hosts: Vec<Host>, n: Option<u32>, map_by: MapBy) -> Result<Vec<Share>, String> {
    // Without a number anywhere, `-n` PEs are shared out evenly; else a host without one takes one.
    let even = match n {
        Some(n) if hosts.iter().all(|host| host.slots.is_none()) => n.div_ceil(hosts.len() as u32),
        _ => 1,
    };
    let slots: Vec<u32> = hosts.iter().map(|host| host.slots.unwrap_or(even)).collect();
    let all: u32 = slots.iter().sum();
    let n = n.unwrap_or(all);
    if n > all {
        return Err(format!(
            "-n {n}: the hosts have {all} slots ({}); give them more, as in --hosts {}:{}",
            hosts
                .iter()
                .zip(&slots)
                .map(|(host, slots)| format!("{}:{slots}", host.name))
                .collect::<Vec<_>>()
                .join(","),
            hosts[0].name,
            slots[0] + n - all,
        ));
    }
    let mut shares: Vec<Share> =
        hosts.into_iter().map(|host| Share { host: host.name, pes: Vec::new() }).collect();
    let mut at = 0;
    for pe in 0..n {
        while shares[at].pes.len() as u32 == slots[at] {
            at = (at + 1) % shares.len();
        }
        shares[at].pes.push(pe);
        if map_by == MapBy::Node {
            at = (at + 1) % shares.len();
        }
    }
    shares.retain(|share| !share.pes.is_empty());
    Ok(shares)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread_of(list: &str, n: Option<u32>, map_by: MapBy) -> Result<String, String> {
        let hosts = list.split(',').map(host).collect::<Result<_, _>>()?;
        let shares = spread(merge(hosts), n, map_by)?;
        let text = |share: &Share| {
            let pes: Vec<String> = share.pes.iter().map(u32::to_string).collect();
            format!("{}={}", share.host, pes.join("."))
        };
        Ok(shares.iter().map(text).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn pes_are_numbered_in_a_row_or_in_turn() {
        use MapBy::{Node, Slot};
        for (list, n, map_by, want) in [
            ("a:4,b:4", None, Slot, "a=0.1.2.3 b=4.5.6.7"),
            ("a:4,b:4", None, Node, "a=0.2.4.6 b=1.3.5.7"),
            ("a:1,b:3,c:2", None, Node, "a=0 b=1.3.5 c=2.4"),
            ("a:4,b:4", Some(5), Slot, "a=0.1.2.3 b=4"),
            ("a:4,b:4", Some(3), Slot, "a=0.1.2"),
            ("a,b", None, Slot, "a=0 b=1"),
            ("a,b", Some(5), Slot, "a=0.1.2 b=3.4"),
            ("a,b:2,a", None, Slot, "a=0.1 b=2.3"),
            ("[fe80::1]:2,user@b:1", None, Slot, "fe80::1=0.1 user@b=2"),
        ] {
            assert_eq!(spread_of(list, n, map_by).as_deref(), Ok(want), "{list} {n:?}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        for (list, n, word) in [
            ("a:2,b:2", Some(5), "4 slots (a:2,b:2)"),
            ("a:0", None, "a:0"),
            ("a:x", None, "a:x"),
            ("a:-1", None, "a:-1"),
            ("a,,b", None, "names no host"),
            ("-oProxyCommand=x:1", None, "names no host"),
            ("a;rm:1", None, "names no host"),
            ("$(x)", None, "names no host"),
            ("fe80::1", None, "IPv6"),
        ] {
            let e = spread_of(list, n, MapBy::Slot).expect_err(list);
            assert!(e.contains(word), "{list}: {e}");
        }
    }

    #[test]
    fn files_of_hosts() {
        let hosts = file("# a cluster\na:2\n\n b slots=3 # the fast one\nc 4\nd\n").expect("valid");
        let seen: Vec<_> = hosts.iter().map(|host| (host.name.as_str(), host.slots)).collect();
        assert_eq!(seen, [("a", Some(2)), ("b", Some(3)), ("c", Some(4)), ("d", None)]);
        for (text, word) in
            [("", "no host"), ("a\nb slots=x\n", "line 2"), ("a:2 3", "line 1"), ("a 2 3", "line 1")]
        {
            let e = file(text).expect_err(text);
            assert!(e.contains(word), "{text:?}: {e}");
        }
    }
}

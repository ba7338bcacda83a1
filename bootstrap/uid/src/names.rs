//! Host names become addresses on a thread of their own, because the system's resolver has no time limit.
//!
//! Loopback's names need no resolver (RFC 6761, 6.3), so that a root without `/etc/hosts` will do; nor does
//! this host's own name, which stands for loopback where the resolver does not know it. A name that never
//! resolves is an error soon, and says where the name is from: a mistyped one must not look like a rank that
//! is late.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::{Duration, Instant};

use rushmem_bootstrap_abi::{BootError, BootErrorKind, Result};

use crate::net;

/// How long an answer is used before the name is asked for again: the host may come up elsewhere.
const FRESH: Duration = Duration::from_secs(3);
/// After a failure.
const AGAIN: Duration = Duration::from_millis(500);
/// How long a name may be unknown, from the first time it was asked for.
const UNKNOWN: Duration = Duration::from_secs(5);
/// How long there may be no answer at all: a resolver tries its second server after 5 s.
const SILENT: Duration = Duration::from_secs(12);
/// How long this host's own name is worth waiting for.
const OWN: Duration = Duration::from_secs(1);

pub(crate) type Answer = std::io::Result<Vec<IpAddr>>;

/// Asks the system. Another in tests.
type Ask = fn(&str) -> Answer;

fn system(host: &str) -> Answer {
    let all: Vec<SocketAddr> = (host, 0).to_socket_addrs()?.collect();
    Ok(all.iter().map(SocketAddr::ip).collect())
}

/// Whether a name means loopback whatever a resolver says.
pub(crate) fn is_loopback(host: &str) -> bool {
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    match name.parse::<IpAddr>() {
        Ok(ip) => ip.is_loopback(),
        Err(_) => name == "localhost" || name.ends_with(".localhost"),
    }
}

/// Whether a name is this host's, with its domain or without.
fn is_own(host: &str) -> bool {
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let (own, asked) = (net::host_name(), host.trim_end_matches('.'));
    own.eq_ignore_ascii_case(asked)
        || (own.contains('.') != asked.contains('.') && short(&own) == short(asked))
}

fn loopback() -> Vec<IpAddr> {
    vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
}

/// A name and what is known of it.
pub(crate) struct Names {
    host: String,
    /// Where the name is from: a variable, or the caller.
    from: String,
    ask: Ask,
    own: bool,
    began: Instant,
    pending: Option<Receiver<Answer>>,
    /// When to ask again.
    next: Instant,
    known: Vec<IpAddr>,
    last: Option<String>,
}

impl Names {
    pub(crate) fn new(host: &str, from: &str) -> Names {
        Names::asking(host, from, system, is_own(host))
    }

    fn asking(host: &str, from: &str, ask: Ask, own: bool) -> Names {
        let (began, known) = (Instant::now(), fixed(host));
        Names {
            host: host.into(),
            from: from.into(),
            ask,
            own,
            began,
            pending: None,
            next: began,
            known,
            last: None,
        }
    }

    /// The addresses as far as they are known now; never waits.
    ///
    /// # Errors
    /// `Environment` for a name that does not resolve.
    pub(crate) fn addresses(&mut self) -> Result<&[IpAddr]> {
        if !fixed(&self.host).is_empty() {
            return Ok(&self.known);
        }
        let now = Instant::now();
        if self.pending.is_none() && now >= self.next {
            self.pending = Some(self.begin());
        }
        let answer = self.pending.as_ref().map(Receiver::try_recv);
        match answer {
            None | Some(Err(TryRecvError::Empty)) => {}
            Some(Ok(Ok(mut ips))) if !ips.is_empty() => {
                ips.dedup();
                (self.known, self.pending, self.next) = (ips, None, now + FRESH);
            }
            Some(answer) => {
                let why = match answer {
                    Ok(Err(e)) => e.to_string(),
                    _ => "no address".into(),
                };
                (self.last, self.pending, self.next) = (Some(why), None, now + AGAIN);
            }
        }
        let waited = now.duration_since(self.began);
        if self.known.is_empty() && self.own && (self.last.is_some() || waited >= OWN) {
            log::debug!(
                "rushmem uid: this host's own name, {}, does not resolve: loopback is meant",
                self.host
            );
            self.known = loopback();
        }
        let limit = if self.last.is_some() { UNKNOWN } else { SILENT };
        if self.known.is_empty() && waited >= limit {
            return Err(self.unknown(waited));
        }
        Ok(&self.known)
    }

    /// Whether an answer is being waited for.
    pub(crate) fn is_waiting(&self) -> bool {
        self.known.is_empty()
    }

    fn begin(&self) -> Receiver<Answer> {
        let (tx, rx) = mpsc::channel();
        let (name, ask) = (self.host.clone(), self.ask);
        // The thread ends by itself if nobody waits for it any more.
        let asked = std::thread::Builder::new().name("rushmem-resolve".into()).spawn({
            let tx = tx.clone();
            move || {
                crate::threads::block_signals();
                let _ = tx.send(ask(&name));
            }
        });
        if let Err(e) = asked {
            let _ = tx.send(Err(e));
        }
        rx
    }

    fn unknown(&self, waited: Duration) -> BootError {
        let why = self.last.as_deref().unwrap_or("the resolver does not answer");
        let text = format!(
            "the host name \"{}\", from {}, does not resolve on host {} ({why}; tried for {:.0} s): correct it, \
             give an address instead, or add it to /etc/hosts",
            self.host,
            self.from,
            net::host_name(),
            waited.as_secs_f64()
        );
        BootError::new(BootErrorKind::Environment, text)
    }

    /// The addresses once they are known or `limit` has passed.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<&[IpAddr]> {
        let until = Instant::now() + limit;
        while self.addresses()?.is_empty() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(&self.known)
    }
}

/// What needs no resolver.
fn fixed(host: &str) -> Vec<IpAddr> {
    match host.parse::<IpAddr>() {
        Ok(ip) => vec![ip],
        Err(_) if is_loopback(host) => loopback(),
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knows_nothing(_: &str) -> Answer {
        Err(std::io::Error::other("nobody knows"))
    }

    fn says_nothing(_: &str) -> Answer {
        std::thread::sleep(Duration::from_secs(40));
        knows_nothing("")
    }

    fn never(host: &str) -> Answer {
        panic!("the resolver was asked for {host}")
    }

    #[test]
    fn loopback_and_addresses_need_no_resolver() {
        for (host, loopback) in [
            ("localhost", true),
            ("LocalHost.", true),
            ("a.localhost", true),
            ("127.0.0.9", true),
            ("::1", true),
            ("10.0.0.1", false),
            ("fe80::1", false),
        ] {
            assert_eq!(is_loopback(host), loopback, "{host}");
            let mut names = Names::asking(host, "a test", never, false);
            let all = names.addresses().expect("no name to resolve").to_vec();
            assert!(!all.is_empty() && all.iter().all(|ip| ip.is_loopback() == loopback), "{host}: {all:?}");
        }
        assert!(!is_loopback("localhost.example.org") && !is_loopback("notlocalhost"));
    }

    #[test]
    fn this_host_s_own_name_is_loopback_where_nothing_knows_it() {
        for ask in [knows_nothing as Ask, says_nothing] {
            let mut names = Names::asking("this-very-host", "a test", ask, true);
            let start = Instant::now();
            let all = names.wait(Duration::from_secs(30)).expect("loopback").to_vec();
            assert_eq!(all, loopback());
            assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        }
        let own = net::host_name();
        assert!(is_own(&own) && is_own(&format!("{}.", own.to_uppercase())) && !is_own(&format!("x{own}")));
    }

    #[test]
    fn a_name_that_does_not_resolve_is_an_error_that_says_where_it_is_from() {
        let start = Instant::now();
        let mut names = Names::asking("node-sven", "MASTER_ADDR", knows_nothing, false);
        let e = names.wait(Duration::from_secs(60)).expect_err("nobody knows it");
        assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
        assert_eq!(e.kind, BootErrorKind::Environment);
        for part in ["\"node-sven\"", "MASTER_ADDR", "nobody knows", "does not resolve"] {
            assert!(e.message.contains(part), "{e}");
        }
    }
}

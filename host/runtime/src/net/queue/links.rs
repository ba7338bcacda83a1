//! Which PEs a queue leads to. A queue needs a card at both ends; where `RUSHMEM_TRANSPORT` allows it,
//! kernels reach the others by the proxy.

use super::Queues;
use crate::error::{err, Error, Result};
use rushmem_abi::device::RawQueue;

impl Queues {
    /// Connects all queues to the cards of their PEs, where these have sent an address. By PE: why that
    /// failed.
    pub(in crate::net) fn connect(&mut self, addresses: &[Option<Vec<u8>>]) -> Result<Vec<Option<Error>>> {
        self.card.connect(addresses)
    }

    /// Lets kernels reach the PEs by the proxy for which `why` has a reason; no kernel runs yet.
    pub(in crate::net) fn leave_out(&mut self, why: &[Option<String>]) -> Result<()> {
        for (pe, why) in why.iter().enumerate() {
            let Some(why) = why.as_ref().filter(|_| self.has[pe]) else { continue };
            // Kernels do not read the queues' headers yet.
            for queue in (pe..self.layout.of_kernels()).step_by(self.layout.n) {
                self.device.write(&[(self.places().queue(queue), &RawQueue::NONE.words())])?;
            }
            self.has[pe] = false;
            self.left_out[pe] = Some(why.clone());
        }
        Ok(())
    }

    /// Whether a queue leads to `pe`.
    pub(in crate::net) fn leads_to(&self, pe: usize) -> bool {
        self.has[pe]
    }

    /// Whether any leads to another PE.
    pub(in crate::net) fn lead_anywhere(&self) -> bool {
        self.has.iter().enumerate().any(|(pe, has)| *has && pe != self.me)
    }

    /// Why none leads to `pe`.
    pub(in crate::net) fn why_left_out(&self, pe: usize) -> Option<&str> {
        self.left_out[pe].as_deref()
    }

    /// One line for the log: the card, how many of the others it reaches, and why not the rest, where `who`
    /// names them.
    pub(in crate::net) fn summary(&self, who: impl Fn(usize) -> String) -> String {
        let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
        for (pe, why) in self.left_out.iter().enumerate() {
            let Some(why) = why.as_ref().filter(|_| pe != self.me) else { continue };
            match reasons.iter_mut().find(|(known, _)| known == why) {
                Some((_, pes)) => pes.push(format!("PE {pe}")),
                None => reasons.push((why, vec![who(pe)])),
            }
        }
        if reasons.is_empty() {
            return self.about();
        }
        let rest: Vec<String> =
            reasons.iter().map(|(why, pes)| format!("{}: {why}", pes.join(", "))).collect();
        let reached = self.has.iter().enumerate().filter(|(pe, has)| **has && *pe != self.me).count();
        let others = self.has.len() - 1;
        format!(
            "{}, of {reached} of {others} other PEs; kernels reach the rest by the proxy: {}",
            self.about(),
            rest.join("; ")
        )
    }
}

/// Where one failure is one too many: the first, with its PE.
pub(in crate::net) fn all_connected(failures: Vec<Option<Error>>) -> Result<()> {
    let first = failures.into_iter().enumerate().find_map(|(pe, failure)| Some((pe, failure?)));
    first.map_or(Ok(()), |(pe, e)| Err(e.context(format_args!("PE {pe}"))))
}

/// What a PE says of itself when cards are connected where there are some: its card's address, or why it has
/// none. With an empty address, that its card has what the others are to have, too.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::net) enum CardOffer {
    Card(Vec<u8>),
    None(String),
}

impl CardOffer {
    /// A reason is cut after so many bytes.
    const LONGEST: usize = 1000;

    pub(in crate::net) fn encode(&self) -> Vec<u8> {
        match self {
            CardOffer::Card(address) => [&[1], &address[..]].concat(),
            CardOffer::None(why) => {
                let mut end = why.len().min(Self::LONGEST);
                while !why.is_char_boundary(end) {
                    end -= 1;
                }
                [&[0], &why.as_bytes()[..end]].concat()
            }
        }
    }

    pub(in crate::net) fn decode(bytes: &[u8], pe: usize) -> Result<CardOffer> {
        match bytes {
            [1, address @ ..] => Ok(CardOffer::Card(address.to_vec())),
            [0, why @ ..] => Ok(CardOffer::None(String::from_utf8_lossy(why).into_owned())),
            _ => Err(err!(MISMATCH, "what PE {pe} says of its card is of another version of rushmem")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::emulated::SoftwareCard;
    use super::*;

    #[test]
    fn offers_survive_the_wire() {
        let long = "é".repeat(700);
        for offer in
            [CardOffer::Card(vec![]), CardOffer::Card(vec![0, 1, 2]), CardOffer::None("no card".into())]
        {
            assert_eq!(CardOffer::decode(&offer.encode(), 3).unwrap(), offer);
        }
        let CardOffer::None(cut) = CardOffer::decode(&CardOffer::None(long.clone()).encode(), 3).unwrap()
        else {
            panic!()
        };
        assert!(long.starts_with(&cut) && cut.len() == 1000);
        for bytes in [&[][..], &[2, 1]] {
            assert!(CardOffer::decode(bytes, 3).unwrap_err().message.contains("PE 3"));
        }
    }

    #[test]
    fn pes_that_are_left_out_have_no_queue() {
        let card = SoftwareCard::new(1, None, None, 0, None).unwrap();
        let mut queues = Queues::new(1, 4, (3, 64), None, Box::new(card), Default::default()).unwrap();
        let header = |queues: &Queues, queue: usize| {
            let at = queues.places().queue(queue);
            // SAFETY: the queue's header, which nobody writes now.
            unsafe { queues.device.host().unwrap().add(at).cast::<RawQueue>().read().slots }
        };
        assert_eq!(queues.summary(|pe| format!("PE {pe}")), queues.about());
        let why = |text: &str| Some(text.to_owned());
        queues.leave_out(&[why("no card"), why("it is itself"), None, why("no card")]).unwrap();
        let has: Vec<bool> = (0..4).map(|pe| queues.leads_to(pe)).collect();
        // The queue to itself is not spoken of.
        assert_eq!(has, [false, false, true, false]);
        for context in 0..3 {
            let has = [0, 1, 2, 3].map(|pe| header(&queues, 4 * context + pe) != 0);
            assert_eq!(has, [false, false, true, false]);
        }
        assert!(queues.lead_anywhere() && queues.why_left_out(1) == Some("it is itself"));
        let line = queues.summary(|pe| format!("PE {pe} (host a)"));
        assert!(
            line.ends_with(
                "of 1 of 3 other PEs; kernels reach the rest by the proxy: PE 0 (host a), PE 3: no card"
            ),
            "{line}"
        );
        queues.leave_out(&[None, None, why("memory"), why("other")]).unwrap();
        assert!(!queues.lead_anywhere() && queues.why_left_out(3) == Some("no card"));
        assert!(queues.idle() && queues.failure().is_none() && queues.reclaim());
    }
}
